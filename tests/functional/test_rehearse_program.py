"""bin/rehearse: what it asks the machine and the toolkit for, in which order; nothing is installed here."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.report_fixture import RUN, make_run
from tests.support.signing_case import NEEDS_SSH
from tests.support.warm import COMMAND_PATH
from toolkit.lab.host import VM_TOOLS
from validation.plan.suites import DEFAULT

ROOT = Path(__file__).parents[2]
TOOLKIT = Path(sys.executable).with_name("toolkit")
RELEASE = Path("/etc/os-release").read_text()
pytestmark = pytest.mark.skipif(
    "ID=debian" not in RELEASE.splitlines(), reason="this machine is no Debian, and bin/rehearse refuses it"
)
STUBS = {
    # the image of the lab's nodes is built by a Python without the environment
    "python3": f'case $1 in -m) echo "$*" >>"$LOG" ;; *) exec {sys.executable} "$@" ;; esac',
    "sudo": 'case $1 in -v) ;; *) exec "$@" ;; esac',
    "dpkg-query": 'for name; do :; done; echo "package $name" >>"$LOG"; echo "install ok installed"',
    "apt-get": "exit 1",
}
REAL = f'lab-needs | fabrics-show) exec {TOOLKIT} "$@" ;;'
COMMAND = f'echo "$*" >>"$LOG"; case $1-$2 in {REAL} validate-*) exit 2 ;; esac'


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def rehearse(
    folder: Path, *arguments: str, validate: str = "exit 2"
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """bin/rehearse in a checkout whose environment is there; what it called."""
    shutil.copytree(ROOT / "bin", folder / "bin")
    for name in ("requirements.lock", "pyproject.toml"):
        (folder / name).write_text(f"{name}\n")
    script(folder / ".venv/bin/toolkit", COMMAND.replace("exit 2", validate))
    stamp = hashlib.sha256(b"requirements.lock\npyproject.toml\n").hexdigest()
    (folder / ".venv/.stamp-requirements.lock").write_text(f"{stamp}\n")
    for name, text in STUBS.items():
        script(folder / "stubs" / name, text)
    log = folder / "log"
    env = {**os.environ, "PATH": f"{folder}/stubs:{os.environ['PATH']}", "LOG": str(log)}
    env |= {"ELASTIC_AI_LAB_DIR": str(folder / "state")}
    env.pop("PYTHON", None)
    words = [folder / "bin/rehearse", *arguments]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=120)
    return done, log.read_text().splitlines()


@pytest.mark.parametrize("fabric", ["roce40", "tcp10"])
def test_the_fabrics_lab_is_brought_up_and_validated_over_it(tmp_path: Path, fabric: str) -> None:
    done, called = rehearse(tmp_path, fabric)
    assert done.returncode == 2, done.stderr
    commands = [line for line in called if line.split()[0] in ("lab", "deploy", "validate")]
    suites = "".join(f" --suite {name}" for name in (*DEFAULT, "remoting")) if fabric == "roce40" else ""
    wanted = [f"lab needs --fabric {fabric}", f"lab up --fabric {fabric}", "deploy"]
    assert commands == [*wanted, f"validate --fabric {fabric}{suites}"]
    machines = {f"package {name}" for name in VM_TOOLS.values()}
    assert machines & set(called) == (machines if fabric == "roce40" else set())
    assert "virtual machines with Soft-RoCE" in done.stderr or fabric == "tcp10"


def test_a_fabric_that_no_lab_can_rehearse_ends_it_before_anything_is_made(tmp_path: Path) -> None:
    done, called = rehearse(tmp_path, "ib-edr")
    assert done.returncode == 2
    assert "error: no lab can rehearse fabric ib-edr: its ports are InfiniBand" in done.stderr
    assert "roce40" in done.stderr
    assert "lab up --fabric ib-edr" not in called
    assert "deploy" not in called


def test_without_a_name_it_rehearses_tcp10(tmp_path: Path) -> None:
    assert "lab up --fabric tcp10" in rehearse(tmp_path)[1]


def test_the_lab_is_given_the_pytorch_that_is_named(tmp_path: Path) -> None:
    assert "lab up --fabric roce40 --torch /opt/torch/bin/python" in rehearse(
        tmp_path, "roce40", "--torch", "/opt/torch/bin/python"
    )[1]  # fmt: skip


@NEEDS_SSH
def test_it_ends_with_the_verdict_and_where_to_look(tmp_path: Path) -> None:
    """The handover is real, of a run that was made beforehand."""
    run = tmp_path / "runs" / RUN
    make_run(run, slow="gpu2")
    real = f'exit 1 ;; sign-* | bundle-* | verify-* | report-*) PYTHONPATH={COMMAND_PATH} exec {TOOLKIT} "$@"'
    done, called = rehearse(tmp_path, "tcp10", validate=real)
    assert done.returncode == 1, done.stderr
    assert "report" in {line.split()[0] for line in called}
    report = f"runs/{RUN}/report.html"
    lines = done.stderr.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("FAILED (rehearsal)   1 failed, "))
    assert any(line.startswith("  FAIL tr.tcpbw  TCP bandwidth   0.0") for line in lines[first:])
    assert any(line.startswith("       at fault: port gpu2/fab0 (88 %), all 6 of its pairs") for line in lines[first:])
    assert f"report  {report}" in lines
    assert (tmp_path / report).is_file()
    told = done.stdout.splitlines()
    place = next(n for n, line in enumerate(told) if line.startswith("== rehearsal done in "))
    assert told[place + 1].startswith(f"look at {report}: ")
    assert told[place + 2].startswith("lab     is still up: ")
    assert told[place + 3 :] == ["exit code 1"]
    assert not re.search(r"\baccepted\b", done.stdout + done.stderr, re.IGNORECASE)


def test_what_installs_for_long_says_so_every_15_seconds(tmp_path: Path) -> None:
    script(tmp_path / "sleep", "exec /bin/sleep 0.02")  # half a second of the program
    line = ". bin/setup.sh && patiently 'installing packages' sh -c '/bin/sleep 2; exit 7'"
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert re.fullmatch(r"(installing packages, \ds\n)+", done.stderr)
    assert 1 <= len(done.stderr.splitlines()) <= 3, "one in 30 looks"
