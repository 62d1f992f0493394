"""A folder that somebody else filled: the toolkit started in it imports nothing from it, nor does what it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolkit.lab import host, network
from validation.base.project import CODE, python_words

pytestmark = pytest.mark.computes

EVIL = "open({!r}, 'w').close(); raise SystemExit(99)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module in it for everything that is imported early."""
    evil = EVIL.format(str(tmp_path / "RAN"))
    for name in ("yaml", "json", "runpy", "click", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(evil)
    for name in ("toolkit", "validation", "rich", "ansible_collections"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(evil)
    (tmp_path / "ansible.cfg").write_text("[defaults]\nfilter_plugins = here\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_what_the_toolkit_starts_of_itself_is_its_own(folder: Path) -> None:
    done = start([*python_words("toolkit"), "fabrics", "--json"], folder)
    assert done.returncode == 0, done.stderr
    assert '"schema": "elastic-ai/fabrics/1"' in done.stdout
    assert not (folder / "RAN").exists()
    assert start([sys.executable, "-m", "toolkit", "fabrics"], folder).returncode == 99, "the folder is a trap"


def test_a_lab_that_becomes_root_takes_nothing_of_the_folder_along(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(host.shutil, "which", lambda _: "/usr/bin/sudo")
    monkeypatch.setattr(os, "execvp", lambda _program, words: asked.append(words))
    monkeypatch.setattr(sys, "argv", ["toolkit", "lab", "status", "--help"])
    host.become_root()
    (words,) = asked
    done = start(words[words.index(sys.executable) :], folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: toolkit lab status")
    assert not (folder / "RAN").exists()


def test_the_labs_own_package_cache_is_still_found_and_ended() -> None:
    mark = f"{network.NETNS_PREFIX}nosuchlab"
    cache = subprocess.Popen([*python_words("toolkit.lab.aptcache")[:-1], "'toolkit.lab.aptcache'; input()", mark],
                             stdin=subprocess.PIPE)  # fmt: skip
    try:
        while mark.encode() not in Path(f"/proc/{cache.pid}/cmdline").read_bytes():  # empty until exec is through
            assert cache.poll() is None
            time.sleep(0.01)
        network.stop_services("nosuchlab")
        assert cache.wait(timeout=30) == -signal.SIGKILL
    finally:
        cache.kill()


def test_no_part_of_the_toolkit_starts_another_by_its_name_alone() -> None:
    """`python -m toolkit` looks into the current folder first."""
    found = [
        f"{path.relative_to(CODE)}:{number}"
        for package in ("toolkit", "validation")
        for path in sorted((CODE / package).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if '"-m", "toolkit' in line
    ]
    assert found == []
