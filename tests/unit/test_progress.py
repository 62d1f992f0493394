"""What the operator sees while a run is going on."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.support.run_case import plan, topology
from tests.support.site import provenance
from tests.support.site import result as made
from toolkit import progress
from validation.model import Plan, Result, Sample


@pytest.fixture
def whole() -> Plan:
    return plan(topology(2), "transport")


def result(id_: str, status: str = "ok", *values: float) -> Result:
    samples = [Sample(metric="tcp_bandwidth_gbps", value=v, unit="Gbit/s") for v in values]
    error = None if status == "ok" else "it broke"
    return made(id_, samples, status=status, error=error, provenance=provenance(duration_s=4.1))


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0s"), (59, "59s"), (70, "1m10s"), (3599.6, "1h00m"), (7500, "2h05m"), (-3, "0s")]
)
def test_durations_are_short_and_plain(seconds: float, words: str) -> None:
    assert progress.duration(seconds) == words


def lines_of(out: io.StringIO, now: list[float]) -> progress.ProgressLines:
    return progress.ProgressLines(out, now=lambda: now[0])


def test_a_line_says_what_where_how_much_how_long_and_what_is_left(whole: Plan) -> None:
    out, now = io.StringIO(), [0.0]
    lines = lines_of(out, now)
    lines.planned(whole, frozenset())
    m = whole.measurement("tcp-bandwidth.gpu1-lo.gpu2-lo")
    lines.started(m)
    now[0] = 15.0
    lines.finished(m, result(m.id, "ok", 0.95, 0.94, 0.10))
    failed = whole.measurement("tcp-bandwidth.gpu2-lo.gpu1-lo")
    lines.finished(failed, result(failed.id, "timeout"))  # told at once
    _, first, second = out.getvalue().splitlines()
    planned = len(whole.measurements)
    assert first.startswith(f"[1/{planned}] tcp-bandwidth gpu1/lo>gpu2/lo 0.94 Gbit/s 4.1 s  left ")
    assert second.startswith(
        f"[2/{len(whole.measurements)}] tcp-bandwidth gpu2/lo>gpu1/lo timeout: it broke 4.1 s  left "
    )


def test_without_a_terminal_a_line_comes_every_15_seconds_and_the_last_one_always(whole: Plan) -> None:
    out, now = io.StringIO(), [0.0]
    lines = lines_of(out, now)
    lines.planned(whole, frozenset())
    said: list[float] = []
    for m in whole.measurements:
        lines.started(m)
        for _ in range(4):
            now[0] += 1
            before = out.tell()
            lines.tick()
            said += [now[0]] if out.tell() > before else []
        before = out.tell()
        lines.finished(m, result(m.id, "ok", 0.95))
        said += [now[0]] if out.tell() > before else []
    lines.close()
    lines.close()
    assert said
    assert all(15 <= later - earlier <= 19 for earlier, later in zip([0.0, *said], said, strict=False)), said
    total = len(whole.measurements)
    told = out.getvalue().splitlines()
    assert told[-1].startswith(f"[{total}/{total}] ")
    assert told[-1].endswith("  left 0s")
    assert len(told) == 1 + len(said) + 1


def test_one_long_measurement_is_said_to_run_every_15_seconds(whole: Plan) -> None:
    out, now = io.StringIO(), [0.0]
    lines = lines_of(out, now)
    lines.planned(whole, frozenset())
    m = whole.measurement("tcp-bandwidth.gpu1-lo.gpu2-lo")
    lines.started(m)
    for _ in range(95):
        now[0] += 1
        lines.tick()
    _, *told = out.getvalue().splitlines()
    heads = [line.partition("  left ")[0] for line in told]
    assert not any("left 0s" in line for line in told), "of what is late nobody knows what is left"
    ages = ("15s", "30s", "45s", "1m00s", "1m15s", "1m30s")
    assert heads == [f"[0/{len(whole.measurements)}] tcp-bandwidth gpu1/lo>gpu2/lo, {age}" for age in ages]


def test_further_attempts_are_told_and_do_not_count_towards_the_plan(whole: Plan) -> None:
    out = io.StringIO()
    now = [0.0]
    lines = lines_of(out, now)
    lines.planned(whole, frozenset())
    m = whole.measurement("tcp-bandwidth.gpu1-lo.gpu2-lo")
    lines.finished(m, result(m.id, "ok", 0.5))
    lines.again([[m]])
    now[0] = 20.0
    lines.finished(m, result(m.id, "ok", 0.95).model_copy(update={"attempt": 2}))
    _, told, again = out.getvalue().splitlines()
    assert told == "1 measurement does not decide yet, or must be confirmed: once more"
    assert again.startswith(
        f"[1/{len(whole.measurements)}] tcp-bandwidth gpu1/lo>gpu2/lo attempt 2 0.95 Gbit/s 4.1 s  left "
    )
    lines.finished(m, result(m.id, "ok", 0.95))
    assert lines.done == 2


def test_further_attempts_take_their_time_before_what_is_left(whole: Plan) -> None:
    clock = progress.Clock(lambda: 100.0)
    clock.plan(whole, frozenset())
    m = whole.measurement("tcp-bandwidth.gpu1-lo.gpu2-lo")
    clock.again([[m]])
    assert clock.left_s == pytest.approx(whole.estimated_s + m.estimated_s)


def test_what_is_left_follows_how_long_things_really_took(whole: Plan) -> None:
    now = [100.0]
    clock = progress.Clock(lambda: now[0])
    clock.plan(whole, frozenset())
    assert clock.left_s == pytest.approx(whole.estimated_s)
    now[0] += 1.0
    assert clock.left_s == pytest.approx(whole.estimated_s - 1)
    first = whole.rounds[0]
    now[0] += 2 * max(whole.measurement(i).estimated_s for i in first) - 1.0
    for id_ in first:
        clock.finished(id_)
    rest = sum(max(whole.measurement(i).estimated_s for i in ids) for ids in whole.rounds[1:])
    assert clock.left_s == pytest.approx(2 * rest), "twice as slow as estimated"
    for ids in whole.rounds[1:]:
        for id_ in ids:
            clock.finished(id_)
    assert clock.left_s == 0


def test_finished_measurements_do_not_count_as_left(whole: Plan) -> None:
    clock = progress.Clock(lambda: 0.0)
    clock.plan(whole, {m.id for m in whole.measurements})
    assert clock.left_s == 0


def test_a_terminal_shows_what_runs_now(whole: Plan) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    screen = progress.Screen(console)
    screen.planned(whole, frozenset())
    try:
        m = whole.measurement("tcp-bandwidth.gpu1-lo.gpu2-lo")
        screen.started(m)
        with console.capture() as shown:
            console.print(screen.draw())
        assert "tcp-bandwidth" in shown.get()
        assert "gpu1/lo>gpu2/lo" in shown.get()
        assert f"0/{len(whole.measurements)}" in shown.get()
        screen.finished(m, result(m.id, "ok", 0.94))
        with console.capture() as shown:
            console.print(screen.draw())
        assert "gpu1/lo>gpu2/lo" not in shown.get()
        assert f"1/{len(whole.measurements)}" in shown.get()
    finally:
        screen.close()
        screen.close()


def test_no_terminal_gets_plain_lines() -> None:
    assert type(progress.make_progress(io.StringIO())) is progress.ProgressLines
