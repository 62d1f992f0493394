"""The wheel in an empty Python, from an empty folder: a lab, its deployment, a validation, and the way back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.installed import build_wheel
from toolkit.lab.spec import inventory_dir

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
NAME = "wheel-it"
TOO_NOISY = 3  # exit code of a validation that a busy machine leaves undecided


@dataclass(frozen=True)
class Desk:
    """An environment with the wheel and what it asks for, and the empty folder of whoever works there."""

    bin: Path
    folder: Path
    home: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, with nothing of this process's environment."""
        environment = {
            "PATH": f"{self.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            **{name: value for name, value in os.environ.items() if name.startswith("ELASTIC_AI_LAB_")},
        }
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=3600,
        )  # fmt: skip


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(folder)
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "-q", str(wheel)]
    subprocess.run(pip, check=True, timeout=1800, cwd=folder)
    made = Desk(folder / "venv/bin", folder / "desk", folder / "home")
    made.folder.mkdir()
    made.home.mkdir()
    try:
        yield made
    finally:
        made.run("toolkit", "lab", "down", "--name", NAME)


def test_the_three_commands_and_the_way_back(desk: Desk) -> None:
    """Of a stranger who has a wheel and a machine, and no checkout."""
    up = desk.run("toolkit", "lab", "up", "--name", NAME, "--nodes", "2")
    assert up.returncode == 0, up.stderr
    site = ("-i", str(inventory_dir(NAME)))
    for changes in (True, False):
        done = desk.run("toolkit", "deploy", *site, "--json")
        assert done.returncode == 0, done.stderr
        assert any(node["changed"] for node in json.loads(done.stdout)["nodes"]) is changes
    judged = desk.run("toolkit", "validate", *site, "--fabric", "tcp10")
    assert judged.returncode in (0, TOO_NOISY), judged.stdout + judged.stderr
    assert list(desk.folder.glob("runs/*/report.html"))
    gone = desk.run("toolkit", "teardown", *site)
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert not [path for path in desk.folder.iterdir() if path.name != "runs"]
    said = desk.run("toolkit", "--version").stdout
    assert f"installed: {desk.bin.parent}" in said
    assert sys.prefix not in said
