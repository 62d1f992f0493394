"""The folder that goes to a server by itself, the words that a user types, and what a survey finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from toolkit.lease import LeaseError
from toolkit.lease.before import folder as folders
from toolkit.lease.before import survey
from toolkit.lease.before.folder import measure, size_words
from toolkit.lease.before.words import program_words
from toolkit.lease.client.folder_copies import Copy


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "project"
    for name in (".git/objects", "venv2/bin", "data/__pycache__", ".config"):
        (here / name).mkdir(parents=True)
    for name in ("train.py", "data/x.csv", ".git/HEAD", "venv2/pyvenv.cfg", "data/__pycache__/a.pyc", ".config/a"):
        (here / name).write_text("four")
    monkeypatch.chdir(here)
    return here


def test_what_a_program_does_not_read_stays_here(project: Path, tmp_path: Path) -> None:
    found = measure(project, tmp_path)
    assert (found.files, found.size_bytes) == (3, 12)
    assert found.left_out == (".git", "venv2", "data/__pycache__")
    assert found.words() == "this folder (3 files, 12 bytes, without .git, venv2, __pycache__) is copied"
    at_home = measure(project, project)
    assert ".config" in at_home.left_out, "no key of a home goes by itself"
    assert at_home.files == 2


def test_what_stays_here_is_not_sent_and_comes_to_no_harm(project: Path, tmp_path: Path) -> None:
    left = measure(project, tmp_path).left_out
    copy = Copy(project, "gpu1", lambda words: list(words), dict(os.environ), str(tmp_path / "there"), left)
    copy.send()
    sent = sorted(str(one.relative_to(tmp_path / "there")) for one in (tmp_path / "there").rglob("*") if one.is_file())
    assert sent == [".config/a", "data/x.csv", "train.py"]
    (tmp_path / "there/out").write_text("made")
    copy.fetch()
    assert (project / "out").read_text() == "made"
    assert (project / ".git/HEAD").read_text() == "four"


def _files(folder: Path) -> dict[str, str]:
    return {str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*") if one.is_file()}


def test_what_a_program_makes_there_does_not_replace_what_stays_here(project: Path, tmp_path: Path) -> None:
    for name in (".venv", "[x]"):
        (project / name).mkdir()
        (project / name / "pyvenv.cfg").write_text("here")
    before = _files(project)
    copy = Copy(project, "gpu1", lambda words: list(words), dict(os.environ), str(tmp_path / "there"),
                measure(project, tmp_path).left_out)  # fmt: skip
    copy.send()
    there = tmp_path / "there"
    for name in (".venv", ".git", "[x]", "x"):
        (there / name).mkdir()
        (there / name / "pyvenv.cfg").write_text("there")
    os.link(there / ".venv/pyvenv.cfg", there / "linked")  # tar packs the second of them as a link to the first
    (there / "train.py").write_text("changed")
    copy.fetch()
    assert _files(project) == {**before, "x/pyvenv.cfg": "there", "linked": "there", "train.py": "changed"}


@pytest.mark.parametrize("at", ["home", "home/[of] many"])
def test_no_hidden_file_comes_into_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Here a home that has none yet, and a folder above one."""
    home, folder, there = tmp_path / at, tmp_path / "home", tmp_path / "there"
    home.mkdir(parents=True)
    (home / "project").mkdir()
    (home / "project/train.py").write_text("given")
    monkeypatch.setenv("HOME", str(home))
    copy = Copy(folder, "gpu1", lambda words: list(words), dict(os.environ), str(there), measure(folder).left_out)
    copy.send()
    inside = there / home.relative_to(folder)
    (inside / ".ssh").mkdir()
    for name in (".bashrc", ".ssh/authorized_keys", "project/.out", "out"):
        (inside / name).write_text("there")
    copy.fetch()
    assert _files(home) == {"project/train.py": "given", "project/.out": "there", "out": "there"}


def test_a_server_that_spells_a_name_otherwise_writes_nothing_that_stays_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with tarfile.open(tmp_path / "made.tar", "w") as made:
        for name in (".bashrc", "././.bashrc", ".//.bashrc", "/.bashrc", "//.bashrc", "other", "./out"):
            entry = tarfile.TarInfo(name)
            made.addfile(entry)
    copy = Copy(home, "gpu1", lambda words: ["cat", str(tmp_path / "made.tar")] if words[0] == "tar" else ["true"],
                dict(os.environ), left_out=())  # fmt: skip
    copy.fetch()
    assert sorted(one.name for one in home.iterdir()) == ["out"]


def test_a_folder_that_is_too_large_is_refused_with_what_to_do(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 2)
    with pytest.raises(LeaseError, match=r"more than 2 files or 1.07 GB.*--sync \. copies all"):
        measure(project, tmp_path)
    monkeypatch.setattr(folders, "MOST_FILES", 20)
    monkeypatch.setattr(folders, "MOST_BYTES", 11)
    with pytest.raises(LeaseError, match="more than 20 files or 11 bytes"):
        measure(project, tmp_path)


def test_a_folder_that_cannot_go_is_refused(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "x.csv" and real(path, mode))
    with pytest.raises(LeaseError, match=r"you may not read .*/x.csv; change to the program's own folder"):
        measure(project, tmp_path)


def test_sizes_are_in_powers_of_ten() -> None:
    assert [size_words(n) for n in (0, 999, 3_400, 9_100_000_000)] == ["0 bytes", "999 bytes", "3.4 kB", "9.1 GB"]


def test_a_file_of_python_is_run_by_python(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/python3" if name == "python3" else None)
    assert program_words(["python", "train.py"]) == ("python3", "train.py"), "this machine has no other"
    monkeypatch.undo()
    monkeypatch.chdir(project)
    assert program_words(["train.py", "-x"]) == ("python3", "train.py", "-x")
    (project / "own.py").write_text("#!/usr/bin/python3\n")
    (project / "own.py").chmod(0o755)
    assert program_words(["own.py"]) == ("./own.py",)
    (project / "train.py").chmod(0o755)
    assert program_words(["train.py"]) == ("python3", "train.py"), "it names no interpreter"
    assert program_words(["there.py"], elsewhere=True) == ("python3", "there.py")
    with pytest.raises(LeaseError, match=r"gone.py: no such file in .*/project; change to its folder"):
        program_words(["gone.py"])


def test_the_other_python_of_the_path_runs_what_python3_cannot(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine whose `python` is a site's environment, and whose python3 is the system's."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "of_the_site.py").touch()
    for name, more in (("system/python3", ""), ("site/python", f"PYTHONPATH={modules} ")):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(f'#!/bin/sh\n{more}exec {sys.executable} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/system:{tmp_path}/site")
    monkeypatch.chdir(project)
    for text, wanted in (
        ("import of_the_site\n", "python"),
        ("import of_the_site, of_nobody\n", "python3"),
        ("import json\n", "python3"),
    ):
        (project / "train.py").write_text(text)
        assert program_words(["train.py"]) == (wanted, "train.py"), text


def test_a_python_says_what_it_can_import(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for path, text in (
        ("torch/version.py", "__version__ = '2.14.1+cu130'\ncuda: Optional[str] = '13.0'\n"),
        ("torch/__init__.py", "raise SystemExit('imported')\n"),
        ("plain.py", ""), ("fast.cpython-311-x86_64-linux-gnu.so", ""), ("space/inner/x.py", ""),
        ("torch-2.14.1.dist-info/METADATA", ""), ("edit.pth", ""),
    ):  # fmt: skip
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", survey.ASK], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    found = survey.parse_python(json.loads(done.stdout))
    assert found is not None
    assert {"torch", "plain", "fast", "space"} <= set(found.modules)
    assert not {"edit", "json", "os"} & set(found.modules)
    assert (found.torch, found.torch_cuda, found.tensorflow) == ("2.14.1+cu130", "13.0", "")
    (site / "torch/version.py").write_text("__version__ = '2.14.1+cpu'\ncuda: Optional[str] = None\n")
    done = subprocess.run([sys.executable, "-c", survey.ASK], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(site)})  # fmt: skip
    assert json.loads(done.stdout)["torch_cuda"] == ""


DOCKER = """#!{python}
import json, os, subprocess, sys
words = sys.argv[1:]
open({log!r}, "a").write(" ".join(words[:2]) + "\\n")
if words[:2] == ["image", "ls"]:
    print("sha256:a")
elif words[:2] == ["image", "inspect"]:
    env = ["CUDA_VERSION=13.0.1"]
    print(json.dumps([dict(Id="sha256:a", RepoTags=["b:latest", "registry:5000/b:1"], Size=5, Config=dict(Env=env))]))
elif words[0] == "run":
    at = words.index("--entrypoint=sh")
    assert {{"--network=none", "--cap-drop=ALL", "--read-only", "--user=65534:65534"}} <= set(words[:at])
    sys.exit(subprocess.run(["sh", *words[at + 2:]], cwd="/").returncode)
"""


def test_an_image_is_looked_into_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    (tmp_path / "docker").write_text(DOCKER.format(python=sys.executable, log=str(log)))
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for _ in range(2):
        (image,) = survey.images_of(tmp_path / "kept/images.json")
        assert (image.names, image.cuda, image.size_bytes) == (("b:latest", "registry:5000/b:1"), "13.0.1", 5)
        assert "docker" in image.commands
        assert image.python is not None
    assert log.read_text().count("run --rm") == 1
