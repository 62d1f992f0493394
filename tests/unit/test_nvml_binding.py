"""NVIDIA's binding of NVML: how it comes to whoever asks, and what it would do wrong by itself at an older driver."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import ROOT
from tests.support.nvml_driver import Driver, drive
from validation import nvml
from validation.nvml import FUNCTION_NOT_FOUND, Nvml, NvmlError, Unaskable, binding

ASKING = (*ROOT.glob("validation/**/*.py"), *ROOT.glob("toolkit/**/*.py"), *ROOT.glob("roles/*/files/*.py"))
WORDS = {"said": "nvmlDeviceGet", "asked": "nvmlDeviceGet", "called": ""}


def names() -> set[str]:
    """Every function of NVML that this project asks for by its name."""
    found: set[str] = set()
    for path in ASKING:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "validation.nvml" in text or path.parent.name == "nvml" else ():
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            way = getattr(node.args[0], "attr", "") if called == "map" else called
            given = node.args[1] if called == "map" and len(node.args) > 1 else node.args[0]
            for one in given.elts if isinstance(given, ast.Tuple) else [given]:
                if way in WORDS and isinstance(one, ast.Constant) and isinstance(one.value, str):
                    found.add(WORDS[way] + one.value)
    return found


def test_every_function_that_is_asked_for_is_one_of_the_binding() -> None:
    """One that is misspelt would be one that no driver has: its figure would be unsaid for ever."""
    asked = names()
    assert {"nvmlDeviceGetUUID", "nvmlDeviceGetEccMode", "nvmlDeviceGetAttributes_v2", "nvmlDeviceGetCount"} < asked
    assert len(asked) > 35
    module = binding.load(Driver())
    assert sorted(name for name in asked if not callable(getattr(module, name, None))) == []
    for name in ("nvmlMemory_v2", "c_nvmlProcessInfo_v2_t", "c_nvmlGpuFabricInfo_t", "c_nvmlGpuFabricInfo_v2_t"):
        assert hasattr(module, name)


def test_a_function_that_the_driver_lacks_costs_one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The binding raises there, and of some functions an error that is none of NVML's."""
    drive(monkeypatch, Driver())
    with Nvml() as opened:
        [gpu] = opened.gpus()
        assert (gpu.uuid, gpu.said("EccMode"), gpu.memory, gpu.processes(), gpu.reasons()) == ("GPU-0", *[None] * 4)
        assert gpu.asked("ComputeRunningProcesses") == (FUNCTION_NOT_FOUND, None)
        with pytest.raises(opened.binding.NVMLLibraryMismatchError):
            opened.binding.nvmlDeviceGetComputeRunningProcesses(gpu.handle)
        assert set(gpu.state().document().values()) == {None}
        assert (opened.driver(), gpu.instances(), gpu.address) == ("", None, "")


def test_a_function_that_the_binding_lacks_costs_one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    drive(monkeypatch, Driver())
    with Nvml() as opened:
        assert opened.gpu(0).said("FigureOfALaterDriver") is None


@pytest.mark.parametrize("flag", [0, 1])
@pytest.mark.parametrize("place", ["version", "unrepairableMemory"])
def test_memory_that_cannot_be_repaired_is_read_where_the_driver_writes_it(
    monkeypatch: pytest.MonkeyPatch, place: str, flag: int
) -> None:
    """Of nvml.h the structure is the one number; the binding has a version before it, and would say 0 for ever."""

    class Hopper(Driver):
        def nvmlDeviceGetUnrepairableMemoryFlag_v1(self, handle: Any, status: Any) -> int:
            setattr(status._obj, place, flag)
            return 0

    drive(monkeypatch, Hopper())
    with Nvml() as opened:
        [gpu] = opened.gpus()
        assert gpu.unrepairable() is bool(flag)
        assert opened.binding.nvmlDeviceGetUnrepairableMemoryFlag_v1(gpu.handle) == flag * (place != "version")
    drive(monkeypatch, Driver())
    with Nvml() as opened:
        assert opened.gpu(0).unrepairable() is None


def test_a_name_that_is_no_text_is_read_as_far_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(Driver):
        def nvmlDeviceGetName(self, handle: Any, buffer: Any, length: Any) -> int:
            buffer.value = b"Tesla \xff"
            return 0

    drive(monkeypatch, Odd())
    with Nvml() as opened:
        [gpu] = opened.gpus()
        assert gpu.name == "Tesla \ufffd"
        with pytest.raises(UnicodeDecodeError):
            opened.binding.nvmlDeviceGetName(gpu.handle)


def test_the_library_that_was_opened_last_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(Driver):
        gpus = 2

    for driver in (Driver(), Two(), Driver()):
        drive(monkeypatch, driver)
        with Nvml() as opened:
            assert opened.count() == driver.gpus


def test_a_pynvml_of_the_program_that_is_measured_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = types.ModuleType("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", foreign)
    drive(monkeypatch, Driver())
    with Nvml() as opened:
        assert opened.count() == 1
        assert opened.binding is not foreign
    assert sys.modules["pynvml"] is foreign
    assert vars(foreign).keys() & {"nvmlLib", "nvmlInit"} == set()


def test_the_copy_beside_is_taken_first_then_the_one_that_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "nvml"
    room.mkdir()
    monkeypatch.setattr(binding, "__file__", str(room / "binding.py"))
    assert (binding.found(), binding.told()) == (binding.installed()[0], {binding.TOLD: str(binding.installed()[0])})
    monkeypatch.setenv(binding.TOLD, "/told/pynvml.py")
    assert (binding.found(), binding.told()) == (Path("/told/pynvml.py"), {binding.TOLD: "/told/pynvml.py"})
    (room / binding.FILE).touch()
    assert (binding.found(), binding.told()) == (room / binding.FILE, {})


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has asked no NVML yet."""
    monkeypatch.delitem(sys.modules, binding.NAME, raising=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "pynvml.py cannot be loaded: "), ("def (", "pynvml.py cannot be loaded: "), ("1 / 0", "division by zero")],
)
def test_a_copy_that_is_damaged_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unloaded: None, text: str | None, words: str
) -> None:
    path = tmp_path / "pynvml.py"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv(binding.TOLD, str(path))
    drive(monkeypatch, Driver())
    with pytest.raises(Unaskable, match=words) as caught:
        Nvml()
    assert str(caught.value).startswith(f"there is nothing to ask NVML by: {tmp_path}/pynvml.py cannot be loaded: ")
    assert binding.NAME not in sys.modules


def test_a_python_without_the_package_says_what_installs_it(monkeypatch: pytest.MonkeyPatch, unloaded: None) -> None:
    monkeypatch.setattr(binding, "PACKAGE", "nvidia-ml-py-of-nobody")
    drive(monkeypatch, Driver())
    with pytest.raises(NvmlError, match=r"-m pip install nvidia-ml-py-of-nobody$"):
        Nvml()


def test_where_there_is_no_driver_that_is_what_is_said_first(monkeypatch: pytest.MonkeyPatch, unloaded: None) -> None:
    monkeypatch.setattr(binding, "PACKAGE", "nvidia-ml-py-of-nobody")
    with pytest.raises(NvmlError, match=r"^no libnone\.so: the GPU driver is not installed$"):
        nvml.Nvml("libnone.so")


def test_what_goes_to_nodes_is_the_installed_file_with_version_and_licence() -> None:
    file, note = binding.carried(ROOT / "pyproject.toml")
    assert (file, file.name) == (binding.installed()[0], "pynvml.py")
    assert f"pynvml.py is the one of nvidia-ml-py {binding.installed()[1]}, unchanged." in note
    for words in ("NVIDIA Corporation", "Redistributions of source code must retain", "ARE DISCLAIMED. IN NO EVENT"):
        assert words in note
    assert "import" not in note


@pytest.mark.parametrize(
    ("version", "head", "words"),
    [
        ("13.590.43", None, "has nvidia-ml-py 13.590.43: "),
        ("9.1", None, "has nvidia-ml-py 9.1: "),
        ("14.0.0", None, "has nvidia-ml-py 14.0.0: "),
        ("13.590.44", "import sys\n", "has no licence at its head"),
        ("13.590.44", "# All rights reserved.\n", "has no licence at its head"),
        ("13.600.1", "absent", "cannot be read: "),
    ],
)
def test_a_package_that_will_not_do_is_not_carried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, head: str | None, words: str
) -> None:
    path = tmp_path / "pynvml.py"
    if head != "absent":
        path.write_text(head or binding.installed()[0].read_text())
    monkeypatch.setattr(binding, "installed", lambda: (path, version))
    with pytest.raises(binding.Unusable, match=words):
        binding.carried(ROOT / "pyproject.toml")


@pytest.mark.parametrize("version", ["13.590.44", "13.591", "13.615.71"])
def test_a_package_within_the_projects_bounds_is_carried(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    path = binding.installed()[0]
    monkeypatch.setattr(binding, "installed", lambda: (path, version))
    assert f"nvidia-ml-py {version}, unchanged" in binding.carried(ROOT / "pyproject.toml")[1]


def test_the_binding_is_in_no_commit() -> None:
    words = ["git", "-C", str(ROOT), "ls-files", "--", "*pynvml*"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == ""
