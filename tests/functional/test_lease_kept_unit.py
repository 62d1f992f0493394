"""What root does so that a program goes on alone: one unit, as its caller, within the caller's limits."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from toolkit.lease import LeaseError
from toolkit.lease.kept import starting, unit


@pytest.mark.parametrize("words", [[], ["a", "b"], ["../../../etc"], ["0123456789ab\n"], ["0123456789AB"], ["-h"]])
def test_root_takes_a_name_and_nothing_else(words: list[str]) -> None:
    with pytest.raises(LeaseError, match="usage"):
        unit.keep_as_root(words)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What root runs; so many units as ELASTIC_AI_TEST_UNITS are there."""
    ran: list[list[str]] = []

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        ran.append(list(words))
        return subprocess.CompletedProcess(words, 0, "unit\n" * int(os.environ.get("ELASTIC_AI_TEST_UNITS", "0")), "")

    monkeypatch.setattr(unit, "_run", run)
    return ran


def test_root_starts_one_fixed_program_as_the_caller(asked: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("LD_PRELOAD", "/tmp/evil.so")
    unit.keep_as_root(["0123456789ab"])
    words = asked[-1]
    assert words[-3:] == ["--", "/usr/lib/elastic-ai/lease/bin/supervise", "0123456789ab"]
    assert "--property=User=65534" in words
    assert "--property=Slice=user-65534.slice" in words
    assert not [word for word in words if "evil" in word or "setenv" in word]
    assert not [word for word in words if "RuntimeDirectory" in word], "/run is root's, and nothing bounds a user there"


def test_limits_of_the_caller_hold_the_unit(asked: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    bounds = {resource.RLIMIT_NPROC: (10, 20), resource.RLIMIT_CPU: (30, resource.RLIM_INFINITY)}
    monkeypatch.setattr(resource, "getrlimit", lambda number: bounds.get(number, (5, 6)))
    unit.keep_as_root(["0123456789ab"])
    given = dict(word.removeprefix("--property=").split("=", 1) for word in asked[-1] if "--property=Limit" in word)
    assert (given["LimitNPROC"], given["LimitCPU"], given["LimitMEMLOCK"]) == ("10:20", "30:infinity", "6")
    assert {"LimitNOFILE", "LimitAS", "LimitFSIZE"} <= set(given)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_knows_every_setting_of_the_unit(tmp_path: Path) -> None:
    words = unit.command(pwd.getpwuid(os.getuid()), "0123456789ab")
    settings = [word.removeprefix("--property=") for word in words if word.startswith("--property=")]
    after = [one for one in settings if one.startswith("After=")]
    others = "\n".join(one for one in settings if one not in after)
    file = tmp_path / "x.service"
    file.write_text(f"[Unit]\nDescription=x\n{after[0]}\n[Service]\nExecStart=/bin/true\n{others}\n")
    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False)
    assert "x.service" not in done.stderr, done.stderr


JOBS = (
    "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0",
    "0::/system.slice/gpu1_slurmstepd.scope/job_42/step_batch",
    "4:memory:/slurm/uid_2001/job_42/step_0\n1:name=systemd:/user.slice",
)


@pytest.mark.parametrize("group", JOBS)
def test_nothing_is_started_from_a_job(
    group: str, asked: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "CGROUP", tmp_path / "cgroup")
    unit.CGROUP.write_text(f"{group}\n")
    monkeypatch.setenv("SUDO_UID", "65534")
    with pytest.raises(LeaseError, match="no program goes on alone from a job of Slurm's"):
        unit.keep_as_root(["0123456789ab"])
    with pytest.raises(LeaseError, match="from a job of Slurm's"):
        starting.check(starting.Wish(("x",)))
    assert asked == []
    unit.CGROUP.write_text("0::/user.slice/user-2001.slice/session-3.scope\n")
    unit.keep_as_root(["0123456789ab"])
    assert asked[-1][0] == "systemd-run"


def test_a_gpu_server_refuses_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit, "KEEP", tmp_path / "not-here")
    monkeypatch.setattr(unit, "SERVER_CONF", tmp_path / "server.json")
    with pytest.raises(LeaseError, match="the administrator runs"):
        starting.check(starting.Wish(("x",)))
    unit.SERVER_CONF.touch()
    with pytest.raises(LeaseError, match="programs of a GPU server run in jobs alone"):
        starting.check(starting.Wish(("x",)))


def test_a_user_keeps_so_many_and_no_more(asked: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("ELASTIC_AI_TEST_UNITS", str(unit.MOST_UNITS))
    with pytest.raises(LeaseError, match="64 of your programs"):
        unit.keep_as_root(["0123456789ab"])
    assert len(asked) == 1


def test_a_uid_that_nobody_has_starts_nothing(asked: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "3999999999")
    with pytest.raises(LeaseError, match="no user of this machine"):
        unit.keep_as_root(["0123456789ab"])
    assert asked == []
