"""PyTorch and TensorFlow in a lab: what the nodes see of a Python's packages, and what the inventory is told of the
engine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.engine import tensorflow_build, torch_build
from toolkit.engine.torch_build import Made, Torch, TorchInfo
from toolkit.errors import BuildError, LabError
from toolkit.lab import frameworks
from toolkit.lab.frameworks import FRAMEWORKS, TENSORFLOW, TORCH, EngineForNodes, Framework

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


class Site:
    """A framework in a Python's packages, its build without a compiler, and a base image."""

    def __init__(self, framework: Framework, packages: Path, image: Path) -> None:
        self.framework, self.packages, self.image = framework, packages, image
        self.said: list[str] = []

    def provide(self) -> EngineForNodes:
        return frameworks.provide(self.framework, sys.executable, self.image, self.said.append)

    def other_packages(self, name: str) -> None:
        (self.packages / f"{name}.dist-info").mkdir()

    def copies(self) -> list[str]:
        return [path.name for path in self.framework.root.iterdir() if path.is_dir()]


@pytest.fixture(params=FRAMEWORKS, ids=lambda one: one.engine)
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    framework: Framework = request.param
    name, packages = framework.engine, tmp_path / "venv/site-packages"
    for file in (f"{name}/__init__.py", f"{name}/include/x.h", f"{name}/__pycache__/x.pyc", "pip/__init__.py",
                 f"{name}/test/__init__.py", f"{name}-2.13.0.dist-info/METADATA"):  # fmt: skip
        (packages / file).parent.mkdir(parents=True, exist_ok=True)
        (packages / file).write_text("X = 1\n")
    monkeypatch.setenv("ELASTIC_AI_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path / "state"))

    def build(output: Path, *words: object) -> Made:
        output.write_text(output.read_text() + "again" if output.exists() else "archive")
        info = TorchInfo(name, str(words[-1]), "1", "2.34", "x86_64", ("tcp",), ("2.13",))
        return Made(output, "a" * 64, info)

    monkeypatch.setattr(torch_build, "ask", lambda _python: Torch("2.13.0+cpu", "abc", packages / "torch", 1))
    monkeypatch.setattr(tensorflow_build, "ask", lambda _python: ("2.13.0", packages))
    for builder in (torch_build, tensorflow_build):
        monkeypatch.setattr(builder, "build_archive", build)
    (tmp_path / "image/usr/bin").mkdir(parents=True)
    (tmp_path / f"image/usr/bin/python{MINOR}").touch()
    return Site(framework, packages, tmp_path / "image")


def test_nodes_have_the_packages_as_an_environment_of_their_own_python(site: Site) -> None:
    made, name = site.provide(), site.framework.engine
    assert made == site.provide()
    assert [words.split()[0] for words in site.said] == ["building", "copying"], "once"
    assert made.artefact.read_text() == "archive"
    place = site.framework.root / made.copy
    there = sorted(path.name for path in place.glob("lib/*/site-packages/*"))
    assert there == [name, f"{name}-2.13.0.dist-info"]
    assert not list(place.rglob("x.h")), "headers are for the build alone"
    assert bool(list(place.rglob("test"))) == (site.framework is TENSORFLOW), "tf.test is a part of it"
    assert (place / "bin/python").readlink() == Path(f"/usr/bin/python{MINOR}")
    if Path(f"/usr/bin/python{MINOR}").exists():
        code = f"import sys, {name}; print(sys.prefix, {name}.X)"
        out = subprocess.check_output([place / "bin/python", "-I", "-c", code], text=True)
        assert Path(out.split()[0]).resolve() == place.resolve()


def test_another_release_has_an_environment_and_an_archive_of_its_own(site: Site) -> None:
    first = site.provide()
    site.other_packages("numpy-2.0")
    second = site.provide()
    assert first.artefact != second.artefact
    assert first.variables(first.artefact) != second.variables(second.artefact)
    assert first.copy in site.copies(), "what a lab runs with stays"


def test_a_lab_does_not_change_what_a_lab_beside_it_has(site: Site, tmp_path: Path) -> None:
    labs = [tmp_path / "state/labs" / name for name in ("a", "b")]
    made = []
    for number, lab in enumerate(labs):
        (lab / "root").mkdir(parents=True)
        made.append(site.provide())
        frameworks.give(lab, [lab / "root"], {site.framework.engine: made[-1].copy})
        site.other_packages(f"numpy-2.{number}")
    for number in range(frameworks.KEPT + 1):
        site.other_packages(f"rich-{number}")
        site.provide()
    for lab, mine in zip(labs, made, strict=True):
        script = (lab / "root" / "usr/local/bin/python").read_text()
        assert site.framework.python_of(mine.copy) in script
        assert mine.copy in site.copies(), "a lab has it"
    assert len(site.copies()) == len(made) + frameworks.KEPT, "what no lab has goes"


def test_a_lab_that_changed_its_copy_keeps_both(tmp_path: Path) -> None:
    assert frameworks.newest(tmp_path) == {}
    for copy in ("one", "two", "two", "one"):
        frameworks.give(tmp_path, [], {"torch": copy})
    assert TORCH.given(tmp_path) == ["two", "one"], "nodes run with the older one until they are deployed"
    assert frameworks.newest(tmp_path) == {"torch": "one"}


def test_a_machine_without_a_compiler_is_told_before_anything_is_copied(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: object) -> Made:
        raise BuildError("missing packages: g++")

    for builder in (torch_build, tensorflow_build):
        monkeypatch.setattr(builder, "build_archive", lacking)
    with pytest.raises(BuildError, match="missing packages"):
        site.provide()
    assert site.copies() == []


def test_a_copy_that_the_disk_does_not_hold_is_one_sentence_and_the_next_begins_anew(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_source: object, target: Path, **_: object) -> None:
        target.mkdir(parents=True)
        raise shutil.Error([("a", "b", "[Errno 28] No space left on device")])

    with monkeypatch.context() as patch:
        patch.setattr(frameworks.shutil, "copytree", full)
        with pytest.raises(LabError, match=rf"{site.framework.title} cannot be copied to .*No space left on device"):
            site.provide()
    assert site.provide().copy in site.copies()
    assert len(site.copies()) == 1


def test_packages_of_another_python_are_refused(site: Site) -> None:
    (site.image / f"usr/bin/python{MINOR}").rename(site.image / "usr/bin/python3.99")
    with pytest.raises(LabError, match=rf"packages are for Python {MINOR}, and nodes of this lab have python3.99"):
        site.provide()
    assert not site.framework.root.exists()


def test_the_inventory_keeps_what_it_names_as_long_as_it_is_there(site: Site, tmp_path: Path) -> None:
    made, name = site.provide(), site.framework.engine
    private = tmp_path / "private"
    private.mkdir()
    told = made.placed(private)
    assert told[f"remoting_engine_{name}_sha256"] == "a" * 64
    assert told[f"remoting_server_{name}_python"] == f"/opt/elastic-ai-lab/{name}/{made.copy}/bin/python"
    assert site.framework.standing({"other": 1, **told}) == told
    assert site.framework.standing({"other": 1}) == {}
    Path(str(told[f"remoting_engine_{name}_artifact"])).unlink()
    assert site.framework.standing(told) == {}


def test_programs_do_not_compile_what_they_import_because_nodes_cannot_keep_it(site: Site) -> None:
    (site.packages / site.framework.engine / "newer.py").write_text("def f[T](a: T): pass\nnot python at all\n")
    place = site.framework.root / site.provide().copy
    package = next(place.glob(f"lib/*/site-packages/{site.framework.engine}"))
    (compiled,) = package.glob("__pycache__/__init__.*.pyc")
    assert f"{site.framework.place}/{place.name}/lib".encode() in compiled.read_bytes(), "as nodes see it"


def test_a_machine_writes_the_commands_by_its_own_shell(tmp_path: Path) -> None:
    scripts = frameworks.give(tmp_path, [], {"torch": "abc"})
    (tmp_path / "root").mkdir()
    words = frameworks.as_shell({f"{tmp_path}/root/{name}".lstrip("/"): text for name, text in scripts.items()})
    subprocess.run(["sh"], input=words, text=True, check=True)
    made = tmp_path / "root" / frameworks.PYTHON
    assert made.read_text() == scripts[frameworks.PYTHON]
    assert made.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("order", [("torch", "tensorflow"), ("tensorflow", "torch")])
def test_python_is_the_framework_s_and_with_both_pytorch_s(tmp_path: Path, order: tuple[str, str]) -> None:
    python = tmp_path / "usr/local/bin/python"
    frameworks.give(tmp_path, [tmp_path], {order[0]: "abc"})
    by_engine = {one.engine: one for one in FRAMEWORKS}
    assert by_engine[order[0]].python_of("abc") in python.read_text(), "by its path: a link would be the system's"
    assert python.stat().st_mode & 0o777 == 0o755
    frameworks.give(tmp_path, [tmp_path], {order[1]: "def"})
    assert TORCH.python_of(frameworks.newest(tmp_path)["torch"]) in python.read_text()
    tensorflow = (tmp_path / "opt/tensorflow/bin/python").read_text()
    assert TENSORFLOW.python_of(frameworks.newest(tmp_path)["tensorflow"]) in tensorflow
    assert "-m torch.distributed.run" in (tmp_path / "usr/local/bin/torchrun").read_text()


def _python(folder: Path, version: str | None) -> str:
    """A Python with this TensorFlow's name and version alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    if version is not None:
        (packages / "tensorflow").mkdir()
        (packages / "tensorflow/__init__.py").write_text("raise SystemExit('it is not imported')\n")
        about = packages / f"tensorflow_cpu-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: {version}\n")
        (about / "top_level.txt").write_text("tensorflow\n")
    return str(folder / "bin/python")


def test_a_python_is_asked_for_its_tensorflow(tmp_path: Path) -> None:
    known = f"{tensorflow_build.RELEASES[-1]}.7"
    version, folder = tensorflow_build.ask(_python(tmp_path / "a", known))
    assert (version, folder) == (known, next((tmp_path / "a").glob("lib/python3*/site-packages")))
    for name, has, words in (("b", "1.15.0", r"TensorFlow 1\.15\.0; the engine knows 2\."),
                             ("c", None, "it has no TensorFlow; install it there")):  # fmt: skip
        with pytest.raises(BuildError, match=words):
            tensorflow_build.ask(_python(tmp_path / name, has))
    with pytest.raises(BuildError, match="not a Python that runs here"):
        tensorflow_build.ask("/bin/true")
    with pytest.raises(BuildError, match="not a Python that runs here"):
        tensorflow_build.ask(str(tmp_path / "none"))
