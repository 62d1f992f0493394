"""Programs that go on alone: who ends them, when, and what is noted of it."""

# ruff: noqa: F811 - fixtures have their names
from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.kept_place import Place, kept_by, made, place, shown, start  # noqa: F401 - two are fixtures
from tests.support.lease_lab import until
from toolkit.lease import LeaseError
from toolkit.lease.kept import folder, reading, record, starting, unit
from toolkit.lease.kept.record import Kept


def test_who_kills_what_kept_it_is_in_the_end_and_so_is_another_start_of_the_machine(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_lease_words", lambda *_: "")
    kept = kept_by("47", "sleep", "60")
    [unit_] = place.supervisors
    os.killpg(unit_.pid, signal.SIGKILL)
    unit_.wait()
    here = kept.order.host
    assert shown(kept) == (b"", 75, f"lease 47: what kept it on {here} was killed; its exit code is not known")
    boot = place.tmp / "boot"
    boot.write_text("another\n")
    monkeypatch.setattr(record, "BOOT", boot)
    assert shown(kept)[2] == f"lease 47: {here} was started again while it ran; its exit code is not known"


def test_a_request_to_end_reaches_the_program(place: Place) -> None:
    kept = kept_by("47", "sh", "-c", "echo begun; exec sleep 60")
    until(lambda: shown(kept, follow=False)[0], b"begun\n")
    # as `systemctl stop` of the unit and `lease release`: the command passes it on, here it is its whole session
    os.killpg(place.supervisors[0].pid, signal.SIGTERM)
    assert shown(kept)[1] in (143, 241)


@pytest.mark.parametrize(("state", "words"), [("stopping", ": {} was shut down or started again"), ("running", "")])
def test_a_shutdown_of_the_machine_is_in_the_end(state: str, words: str, place: Place) -> None:
    """As systemd does it: it asks what keeps the program to end, and reports that it stops."""
    program = place.tmp / "bin" / "systemctl"
    program.write_text(f"#!/bin/sh\necho {state}\n[ {state} = running ]\n")
    program.chmod(0o755)
    place.more = (
        "from toolkit.lease.kept import unit; run = unit._run\n"
        f"unit._run = lambda words: run(['{place.tmp}/bin/' + words[0], *words[1:]])"
    )
    kept = kept_by("47", "sleep", "60")
    os.killpg(place.supervisors[0].pid, signal.SIGTERM)
    assert shown(kept)[2] == f"lease 47: ended with exit code 143{words.format(kept.order.host)}"
    assert place.supervisors[0].wait(30) == 0


def test_ctrl_c_before_there_is_a_lease_ends_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    program = place.tmp / "bin" / "toolkit"
    program.write_text("#!/bin/sh\necho looks; exec sleep 60\n")

    def interrupted(_data: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        starting.keep(starting.Wish(("x",)), ("47",), interrupted)
    assert place.supervisors[0].wait(30) == 0
    [path] = folder.folders()
    assert record.read(path).status.code == 143


def test_ctrl_c_before_its_supervisor_is_there_leaves_nothing_that_gets_gpus(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    names: list[str] = []
    monkeypatch.setattr(unit, "start", names.append)
    monkeypatch.setattr(starting, "_until_leased", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start("47", "true")
    monkeypatch.setattr(unit, "start", lambda name: interrupted(names.append(name)))
    with pytest.raises(KeyboardInterrupt):
        start("48", "true")
    assert folder.folders() == []
    for name in names:
        place.start(name)
        assert place.supervisors[-1].wait(30) == 2
    assert folder.folders() == []


def test_one_whose_user_left_before_it_began_does_not_begin(made: Path) -> None:
    assert record.withdraw(made)
    with pytest.raises(LeaseError, match="its program has ended already"):
        record.Notes(made)
    assert record.read(made).status.code == 130
    assert not record.withdraw(made), "its end is noted already"


def test_a_supervisor_that_takes_over_at_this_moment_is_waited_for_and_ended(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *words: ended.append(words))
    notes: list[record.Notes] = []
    with (made / record.STATUS).open("rb+") as taken:  # the lock comes first, then its number
        fcntl.flock(taken, fcntl.LOCK_EX)
        monkeypatch.setattr(time, "sleep", lambda _s: (taken.close(), notes.append(record.Notes(made))))
        starting._end(made)
    assert ended == [(os.getpid(), signal.SIGTERM)]
    assert len(notes) == 1


def test_a_request_to_end_before_there_is_a_command_is_not_lost(place: Place) -> None:
    place.more = (
        "import os; take = supervisor.take_environment\n"
        "supervisor.take_environment = lambda path: os.kill(os.getpid(), 15) or take(path)"
    )
    assert start("47", "sleep", "60") == 143
    assert place.supervisors[0].wait(30) == 0


def test_a_lease_has_one_detached_program_which_is_ended_alone(place: Place) -> None:
    kept = kept_by("held47", "sleep", "60")
    wish = starting.Wish(("x",), lease=47)
    with pytest.raises(LeaseError, match="lease 47 already has a detached program: toolkit logs -f 47"):
        starting.keep(wish, ("47", "true"), lambda _: None)
    assert [path.name for path in folder.folders()] == [kept.name]
    words = starting.next_commands(kept).splitlines()[-1].split()
    until(lambda: subprocess.run(["pgrep", "-P", words[1]], check=False).returncode, 0)
    # the command passes it on to its program; this one ends by it, and leaves its program to the unit
    subprocess.run(words[:2], check=True)
    assert shown(kept)[1] == 143
    os.killpg(place.supervisors[0].pid, signal.SIGKILL)
    again = starting.keep(wish, ("held47", "true"), lambda _: None)
    assert isinstance(again, Kept)
    assert shown(again)[1] == 0


def test_a_program_that_prints_in_place_of_one_that_has_ended_keeps_no_unit(place: Place) -> None:
    place.more = (  # a disk that is slower than it
        "import time; write = output.Log.write\n"
        "output.Log.write = lambda log, data: time.sleep(0.05) or write(log, data)"
    )
    kept = kept_by("47", "sh", "-c", "yes & exit 4")
    [unit_] = place.supervisors
    try:
        assert unit_.wait(20) == 0
    finally:
        os.killpg(unit_.pid, signal.SIGKILL)  # as systemd does with what is left in the unit
    assert record.read(kept.path).status.code == 4
