"""Programs of the system's own folders are found where a user's PATH leaves these out, as Debian's does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.engine_run import ROOT
from validation.probes.tool import SBIN, run_tool, search_sbin


def test_the_folders_come_last_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/opt/site/bin:/usr/sbin:/bin")
    search_sbin()
    search_sbin()
    assert os.environ["PATH"].split(":") == ["/opt/site/bin", "/usr/sbin", "/bin", "/usr/local/sbin", "/sbin"]
    monkeypatch.delenv("PATH")
    search_sbin()
    assert set(SBIN) <= set(os.environ["PATH"].split(":"))


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("runuser", path="/usr/sbin:/sbin") or Path("/usr/sbin").is_symlink(),
    reason="asks as root for a program that is in /usr/sbin alone",
)
def test_a_probe_finds_what_is_in_sbin_alone() -> None:
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "validation.probes", "facts", '{"interfaces": []}']
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert "is not installed on this node" not in json.dumps(json.loads(done.stdout)["facts"]["library_env"])
    assert run_tool(["runuser", "--version"]).returncode == 0
