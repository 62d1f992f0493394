"""The driver's libraries as the probe finds and loads them: stand-ins, compiled here, in a folder of the loader's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from validation.model.driver import DriverLibraries
from validation.probes import gpulibs

COMPILER = shutil.which("cc")
pytestmark = [pytest.mark.skipif(COMPILER is None, reason="no C compiler here"), pytest.mark.engines]
VERSION = "580.126.20"


def install(folder: Path, name: str, number: str, version: str = VERSION, text: str = "int nothing;") -> Path:
    """A library with its two links, as packages install it."""
    real = folder / f"{name}.so.{version}"
    assert COMPILER is not None
    command = [COMPILER, "-shared", "-fPIC", "-xc", f"-Wl,-soname,{name}.so.{number}", "-o", str(real), "-"]
    subprocess.run(command, input=text, text=True, check=True)
    (folder / f"{name}.so.{number}").symlink_to(real.name)
    (folder / f"{name}.so").symlink_to(f"{name}.so.{number}")
    return real


def said(folder: Path) -> DriverLibraries:
    """What the program says of that folder."""
    command = [sys.executable, "-I", gpulibs.__file__, str(folder)]
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done: Any = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout)
    return DriverLibraries.model_validate(done)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"):
        install(tmp_path, name, "1")
    return tmp_path


def test_each_file_once_and_what_was_loaded_by_name(folder: Path) -> None:
    for other in ("libnvidia-container.so.1", "libnvidia-egl-gbm.so.1", "libcudart.so.12", "libcudnn.so.9"):
        (folder / other).write_text("not the driver's")
    found = said(folder)
    assert [Path(one.path).name for one in found.files] == [
        f"{name}.so.{VERSION}" for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
    ]
    assert {one.version for one in found.files} == {VERSION}
    assert [(one.name, one.fault, one.path, one.version, one.emulated) for one in found.loaded] == [
        (f"{name}.so.1", "", str(folder / f"{name}.so.{VERSION}"), VERSION, False)
        for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
    ]


def test_an_empty_library_a_link_to_nothing_and_one_that_is_missing(folder: Path) -> None:
    (folder / f"libcuda.so.{VERSION}").write_bytes(b"")
    (folder / "libnvidia-opencl.so.1").symlink_to("libnvidia-opencl.so.1.0.0")
    (folder / "libnvidia-ml.so.1").unlink()
    found = said(folder)
    size = {Path(one.path).name: one.bytes for one in found.files}
    assert (size[f"libcuda.so.{VERSION}"], size["libnvidia-opencl.so.1.0.0"]) == (0, None)
    faults = {one.name: one.fault for one in found.loaded}
    assert "file too short" in faults["libcuda.so.1"]
    assert "No such file" in faults["libnvidia-ml.so.1"]
    assert faults["libnvidia-ptxjitcompiler.so.1"] == ""


def test_emulated_libraries_are_labelled(folder: Path) -> None:
    for path in folder.glob("libcuda.so*"):
        path.unlink()
    install(folder, "libcuda", "1", text="int elasticAiEmulated;")
    assert [one.emulated for one in said(folder).loaded] == [True, False, False]


def test_the_loaders_folders_are_those_of_its_configuration_too(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/driver.conf").write_text(f"# comment\n{tmp_path}/lib\n{tmp_path}/none\n")
    found = gpulibs.folders(tmp_path / "conf")
    assert tmp_path / "lib" in found
    assert tmp_path / "none" not in found


def test_a_comment_in_another_encoding_costs_no_folder(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/site.conf").write_bytes(b"# Bibliotheken f\xfcr alle\n" + str(tmp_path).encode() + b"\n")
    assert tmp_path.resolve() in gpulibs.folders(tmp_path / "conf")
