"""PyTorch in a lab: what the nodes see of a Python's packages, and what the inventory is told of the engine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.engine import torch_build
from toolkit.engine.torch_build import Made, Torch, TorchInfo
from toolkit.errors import BuildError, LabError
from toolkit.lab import torch_nodes

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Torch:
    """A PyTorch's packages, and a build that takes no compiler; how often it was built is in `built`."""
    packages = tmp_path / "venv/site-packages"
    names = ("torch/__init__.py", "torch/include/x.h", "torch/__pycache__/x.pyc", "pip/__init__.py")
    for name in (*names, "torch-2.13.0.dist-info/METADATA"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("X = 1\n")
    found = Torch("2.13.0+cpu", "abc", packages / "torch", 1)
    monkeypatch.setenv("ELASTIC_AI_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(torch_build, "ask", lambda _python: found)

    def build(output: Path, _torches: object, release: str) -> Made:
        output.write_text(output.read_text() + "again" if output.exists() else "archive")
        return Made(output, "a" * 64, TorchInfo("torch", release, "1", "2.34", "x86_64", ("tcp",), ("2.13",)))

    monkeypatch.setattr(torch_build, "build_archive", build)
    return found


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "image/usr/bin").mkdir(parents=True)
    (tmp_path / f"image/usr/bin/python{MINOR}").touch()
    return tmp_path / "image"


def test_nodes_have_the_packages_as_an_environment_of_their_own_python(torch: Torch, image: Path) -> None:
    said: list[str] = []
    made = torch_nodes.provide(sys.executable, image, said.append)
    again = torch_nodes.provide(sys.executable, image, said.append)
    assert made == again
    assert [words.split()[0] for words in said] == ["building", "copying"], "once"
    assert made.artefact.read_text() == "archive"
    place = torch_nodes.torch_root() / made.copy
    assert sorted(path.name for path in place.glob("lib/*/site-packages/*")) == ["torch", "torch-2.13.0.dist-info"]
    assert not list(place.rglob("x.h")), "headers are for the build alone"
    assert (place / "bin/python").readlink() == Path(f"/usr/bin/python{MINOR}")
    if Path(f"/usr/bin/python{MINOR}").exists():
        code = "import sys, torch; print(sys.prefix, torch.X)"
        out = subprocess.check_output([place / "bin/python", "-I", "-c", code], text=True)
        assert Path(out.split()[0]).resolve() == place.resolve()


def _other_packages(torch: Torch, name: str) -> None:
    (torch.folder.parent / f"{name}.dist-info").mkdir()


def test_another_release_has_an_environment_and_an_archive_of_its_own(torch: Torch, image: Path) -> None:
    first = torch_nodes.provide(sys.executable, image, lambda _: None)
    _other_packages(torch, "numpy-2.0")
    second = torch_nodes.provide(sys.executable, image, lambda _: None)
    assert first.artefact != second.artefact
    assert first.variables(first.artefact) != second.variables(second.artefact)
    assert (torch_nodes.torch_root() / first.copy).is_dir(), "what a lab runs with stays"


def test_a_lab_does_not_change_what_a_lab_beside_it_has(torch: Torch, image: Path, tmp_path: Path) -> None:
    labs = [tmp_path / "state/labs" / name for name in ("a", "b")]
    made = []
    for number, lab in enumerate(labs):
        (lab / "root").mkdir(parents=True)
        made.append(torch_nodes.provide(sys.executable, image, lambda _: None))
        torch_nodes.give(lab, [lab / "root"], made[-1].copy)
        _other_packages(torch, f"numpy-2.{number}")
    for number in range(torch_nodes.KEPT + 1):
        _other_packages(torch, f"rich-{number}")
        torch_nodes.provide(sys.executable, image, lambda _: None)
    for lab, mine in zip(labs, made, strict=True):
        script = (lab / "root" / "usr/local/bin/python").read_text()
        assert torch_nodes.python_of(mine.copy) in script
        assert (torch_nodes.torch_root() / mine.copy).is_dir(), "a lab has it"
    copies = [path for path in torch_nodes.torch_root().iterdir() if path.is_dir()]
    assert len(copies) == len(made) + torch_nodes.KEPT, "what no lab has goes"


def test_a_lab_that_changed_its_copy_keeps_both(tmp_path: Path) -> None:
    assert torch_nodes.given(tmp_path) == []
    for copy in ("one", "two", "two", "one"):
        torch_nodes.give(tmp_path, [], copy)
    assert torch_nodes.given(tmp_path) == ["two", "one"], "nodes run with the older one until they are deployed"


def test_a_machine_without_a_compiler_is_told_before_anything_is_copied(
    torch: Torch, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: object) -> Made:
        raise BuildError("missing packages: g++")

    monkeypatch.setattr(torch_build, "build_archive", lacking)
    with pytest.raises(BuildError, match="missing packages"):
        torch_nodes.provide(sys.executable, image, lambda _: None)
    assert [path for path in torch_nodes.torch_root().iterdir() if path.is_dir()] == []


def test_a_copy_that_the_disk_does_not_hold_is_one_sentence_and_the_next_begins_anew(
    torch: Torch, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_source: object, target: Path, **_: object) -> None:
        target.mkdir(parents=True)
        raise shutil.Error([("a", "b", "[Errno 28] No space left on device")])

    with monkeypatch.context() as patch:
        patch.setattr(torch_nodes.shutil, "copytree", full)
        with pytest.raises(LabError, match=r"PyTorch cannot be copied to .*No space left on device"):
            torch_nodes.provide(sys.executable, image, lambda _: None)
    made = torch_nodes.provide(sys.executable, image, lambda _: None)
    assert [path.name for path in torch_nodes.torch_root().iterdir() if path.is_dir()] == [made.copy]


def test_packages_of_another_python_are_refused(torch: Torch, image: Path) -> None:
    (image / f"usr/bin/python{MINOR}").rename(image / "usr/bin/python3.99")
    with pytest.raises(LabError, match=rf"packages are for Python {MINOR}, and nodes of this lab have python3.99"):
        torch_nodes.provide(sys.executable, image, lambda _: None)
    assert not torch_nodes.torch_root().exists()


def test_the_inventory_keeps_what_it_names_as_long_as_it_is_there(torch: Torch, image: Path, tmp_path: Path) -> None:
    made = torch_nodes.provide(sys.executable, image, lambda _: None)
    private = tmp_path / "private"
    private.mkdir()
    told = torch_nodes.placed(made, private)
    assert told["remoting_engine_torch_sha256"] == "a" * 64
    assert told["remoting_server_torch_python"] == f"/opt/elastic-ai-lab/torch/{made.copy}/bin/python"
    assert torch_nodes.standing({"other": 1, **told}) == told
    assert torch_nodes.standing({"other": 1}) == {}
    Path(str(told["remoting_engine_torch_artifact"])).unlink()
    assert torch_nodes.standing(told) == {}


def test_the_command_keeps_the_environment(tmp_path: Path) -> None:
    torch_nodes.give(tmp_path, [tmp_path], "abc")
    script = tmp_path / "usr/local/bin/python"
    assert script.stat().st_mode & 0o777 == 0o755
    assert torch_nodes.python_of("abc") in script.read_text(), "by its path: a link would be the system's Python"
    assert "-m torch.distributed.run" in (tmp_path / "usr/local/bin/torchrun").read_text()
