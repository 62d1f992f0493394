"""PyTorch in a lab: what the nodes see of a Python's packages, and what the inventory is told of the engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.engine import torch_build
from toolkit.engine.torch_build import Made, Torch, TorchInfo
from toolkit.errors import LabError
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
    assert [words.split()[0] for words in said] == ["copying", "building"], "once"
    assert made.artefact.read_text() == "archive"
    place = torch_nodes.torch_root() / torch_nodes.CURRENT
    assert sorted(path.name for path in place.glob("lib/*/site-packages/*")) == ["torch", "torch-2.13.0.dist-info"]
    assert not list(place.rglob("x.h")), "headers are for the build alone"
    assert (place / "bin/python").readlink() == Path(f"/usr/bin/python{MINOR}")
    if Path(f"/usr/bin/python{MINOR}").exists():
        code = "import sys, torch; print(sys.prefix, torch.X)"
        out = subprocess.check_output([place / "bin/python", "-I", "-c", code], text=True)
        assert Path(out.split()[0]).resolve() == place.resolve()


def test_another_release_has_an_environment_and_an_archive_of_its_own(torch: Torch, image: Path) -> None:
    first = torch_nodes.provide(sys.executable, image, lambda _: None)
    before = (torch_nodes.torch_root() / torch_nodes.CURRENT).resolve()
    (torch.folder.parent / "numpy-2.0.dist-info").mkdir()
    second = torch_nodes.provide(sys.executable, image, lambda _: None)
    assert first.artefact != second.artefact
    assert (torch_nodes.torch_root() / torch_nodes.CURRENT).resolve() != before
    assert before.is_dir(), "what a lab runs with stays"


def test_packages_of_another_python_are_refused(torch: Torch, image: Path) -> None:
    (image / f"usr/bin/python{MINOR}").rename(image / "usr/bin/python3.99")
    with pytest.raises(LabError, match=rf"packages are for Python {MINOR}, and nodes of this lab have python3.99"):
        torch_nodes.provide(sys.executable, image, lambda _: None)
    assert not (torch_nodes.torch_root() / torch_nodes.CURRENT).exists()


def test_the_inventory_keeps_what_it_names_as_long_as_it_is_there(torch: Torch, image: Path, tmp_path: Path) -> None:
    made = torch_nodes.provide(sys.executable, image, lambda _: None)
    private = tmp_path / "private"
    private.mkdir()
    told = torch_nodes.placed(made, private)
    assert told["remoting_engine_torch_sha256"] == "a" * 64
    assert told["remoting_server_torch_python"] == "/opt/elastic-ai-lab/torch/current/bin/python"
    assert torch_nodes.standing({"other": 1, **told}) == told
    assert torch_nodes.standing({"other": 1}) == {}
    Path(str(told["remoting_engine_torch_artifact"])).unlink()
    assert torch_nodes.standing(told) == {}


def test_the_command_keeps_the_environment(tmp_path: Path) -> None:
    torch_nodes.give_command(tmp_path)
    script = tmp_path / "usr/local/bin/python"
    assert script.stat().st_mode & 0o777 == 0o755
    assert torch_nodes.PYTHON in script.read_text(), "by its own path: a link would be taken for the system's Python"
