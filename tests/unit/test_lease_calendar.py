"""The calendar of reservations: what Slurm says of them, and when they come again."""

import json
import os
import time
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.lease_host import FakeSlurm
from toolkit.commands import gpus as command
from toolkit.lease import LeaseError
from toolkit.lease.machine.host import Host
from toolkit.lease.queue.reservations import calendar, parse_reservations

LINE = (
    "ReservationName={name} StartTime={start} EndTime={end} Duration=04:00:00 Nodes={nodes} NodeCnt=1 CoreCnt=2 "
    "Features=(null) PartitionName=v100 Flags={flags} TRES=cpu=2 Users=(null) Groups=(null) Accounts={accounts} "
    "Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n"
)


@pytest.fixture(autouse=True)
def berlin(monkeypatch):
    """A place with summer time."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    os.environ.pop("TZ", None)
    time.tzset()


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def line(
    name="pool_practicals", start="2026-11-23T08:00", hours=4, nodes="gpu[1-2]", flags="DAILY", accounts="teaching"
):
    begins = at(start)
    return LINE.format(name=name, start=begins, end=begins + hours * 3600, nodes=nodes, flags=flags, accounts=accounts)


def starts(text: str, now: str, days: int) -> list[str]:
    found = calendar(parse_reservations(text), at(now), days)
    return [f"{datetime.fromtimestamp(start):%m-%d %H:%M}" for start, _, _ in found]


def test_a_reservation_is_read_with_whom_it_is_for():
    (one,) = parse_reservations(line())
    assert (one.title, one.nodes, one.whom, one.repeats) == ("practicals", ("gpu1", "gpu2"), "teaching", "DAILY")
    (one,) = parse_reservations(line(name="repair", flags="MAINT,IGNORE_JOBS", accounts="(null)"))
    assert (one.title, one.whom, one.repeats) == ("repair", "maintenance", "")


def test_none_is_none_and_what_has_no_times_is_refused():
    assert parse_reservations("No reservations in the system\n") == []
    with pytest.raises(LeaseError, match="reservation x what cannot be read"):
        parse_reservations("ReservationName=x StartTime=2026-11-23T08:00:00 EndTime=2026-11-23T12:00:00\n")


def test_daily_weekdays_weekends_and_weekly():
    monday = "2026-11-23T09:00"
    assert starts(line(), monday, 3) == ["11-23 08:00", "11-24 08:00", "11-25 08:00", "11-26 08:00"]
    assert starts(line(flags="WEEKDAY"), "2026-11-27T13:00", 4) == ["11-30 08:00", "12-01 08:00"]
    assert starts(line(start="2026-11-28T08:00", flags="WEEKEND"), monday, 14)[-1] == "12-06 08:00"
    assert starts(line(flags="WEEKLY"), monday, 15) == ["11-23 08:00", "11-30 08:00", "12-07 08:00"]
    assert starts(line(flags="MAGNETIC"), monday, 30) == ["11-23 08:00"]
    assert starts(line(flags="MAGNETIC"), "2026-11-23T12:00", 30) == []


def test_eight_stays_eight_when_the_clocks_change():
    assert starts(line(start="2026-10-24T08:00"), "2026-10-24T07:00", 2) == ["10-24 08:00", "10-25 08:00"]
    gap_s = at("2026-10-25T08:00") - at("2026-10-24T08:00")
    assert gap_s == 25 * 3600


def _run(monkeypatch, tmp_path: Path, text, *words):
    clock = type("Clock", (), {"time": staticmethod(lambda: float(at("2026-11-23T09:00")))})()
    slurm = FakeSlurm(answers={"scontrol -o show reservation": text})
    monkeypatch.setattr(command, "on_head", lambda inventory, given: False)
    monkeypatch.setattr(command, "this_host", lambda: Host(slurm=slurm, clock=clock, pool_conf=tmp_path / "pool.json"))
    return CliRunner().invoke(command.gpus, list(words))


def test_the_command_shows_what_runs_now_and_what_comes(monkeypatch, tmp_path):
    said = _run(monkeypatch, tmp_path, line(), "--calendar", "--days", "2").output.splitlines()
    assert said[0].split() == ["FROM", "UNTIL", "RESERVATION", "SERVERS", "FOR"]
    assert said[1].split() == ["now", "12:00", "practicals", "gpu1,", "gpu2", "teaching"]
    assert said[2].startswith("Tue 08:00  Tue 12:00")
    assert len(said) == 4
    data = json.loads(_run(monkeypatch, tmp_path, line(), "--calendar", "--json").output)
    assert data["days"] == 7
    assert data["reservations"][0] | {"start": 0, "end": 0} == {
        "start": 0, "end": 0, "now": True, "for": "teaching", "repeats": "daily", "name": "practicals",
        "servers": ["gpu1", "gpu2"],
    }  # fmt: skip
    assert "Nothing is kept" in _run(monkeypatch, tmp_path, "No reservations in the system\n", "--calendar").output


@pytest.mark.parametrize(
    ("words", "told"), [(["--days", "3"], "goes with"), (["--calendar", "--days", "0"], "1 to 366")]
)
def test_bad_input_is_refused(monkeypatch, tmp_path, words, told):
    done = _run(monkeypatch, tmp_path, "", *words)
    assert isinstance(done.exception, LeaseError)
    assert told in str(done.exception)


def test_a_controller_that_is_away_is_said(monkeypatch, tmp_path):
    done = _run(
        monkeypatch, tmp_path, (1, "slurm_load_reservations error: Unable to contact slurm controller"), "--calendar"
    )
    assert "Slurm does not answer" in str(done.exception)
