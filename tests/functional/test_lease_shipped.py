"""What roles remoting_client and remoting_server put on nodes imports nothing beside it that a node does not have."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "client": (
        "toolkit.pool_cli",
        "toolkit.lease.client.manage",
        "toolkit.lease.kept.supervisor",
        "toolkit.lease.programs.copybench",
        "toolkit.lease.programs.train",
    ),
    "server": (
        *(f"toolkit.lease.server.{name}" for name in ("agent", "hooks", "instance", "static", "sweep")),
        *(f"toolkit.lease.machine.{name}" for name in ("firewall", "unit")),
        "toolkit.lease.programs.train",
    ),
}


@pytest.mark.parametrize("role", PROGRAMS)
def test_the_shipped_modules_are_enough(tmp_path: Path, role: str) -> None:
    variables = yaml.safe_load((ROOT / f"roles/remoting_{role}/vars/main.yml").read_text(encoding="utf-8"))
    names = variables[f"__remoting_{role}_modules"]
    globs = [*ROOT.glob("toolkit/lease/**/*.py")]
    for name in [*names, *(path.relative_to(ROOT).as_posix() for path in globs)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    if role == "client":
        shutil.copytree(Path(click.__file__).parent, tmp_path / "click")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {', '.join(PROGRAMS[role])}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
