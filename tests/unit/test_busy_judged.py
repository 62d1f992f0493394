"""A busy machine: what it explains is not measured and names no suspect, what it does not explain fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from tests.support.site import (
    LAB,
    PLAN,
    REAL_FACTS,
    busy,
    criterion,
    hardware,
    judged,
    lab,
    plan_of,
    result,
    results_of,
    spoil,
    verdict_of,
    with_value,
)
from validation.analysis.denial import loss_of
from validation.model import Denied, Measurement, Result, VerdictDoc

PAIR = "tcp-bandwidth.gpu1-fab0.gpu2-fab0"


def disturbed(results: Iterable[Result], denied: tuple[Denied, ...], kinds: Sequence[str] = ()) -> list[Result]:
    chosen = kinds or ("tcp-bandwidth", "tcp-latency", "training-short")
    return [r.model_copy(update={"denied": denied}) if r.measurement.startswith(tuple(chosen)) else r for r in results]


def everywhere(kind: str, value: float) -> Callable[[Measurement], Result | None]:
    return spoil(kind, lambda a, b: True, value)


def lines(*attempts: tuple[float, tuple[Denied, ...]], id_: str = PAIR) -> VerdictDoc:
    """A good run, but for one measurement, whose attempts have these values and denials."""
    measurement = PLAN.measurement(id_)
    mine = [
        with_value(measurement, value).model_copy(update={"attempt": number, "denied": denied})
        for number, (value, denied) in enumerate(attempts, start=1)
    ]
    return verdict_of(LAB, PLAN, [r for r in results_of(PLAN) if r.measurement != id_] + mine)


def said(verdict: VerdictDoc, id_: str = "tr.tcpbw", subject: str = "gpu1/fab0>gpu2/fab0") -> tuple[str, str, str]:
    judgement = next(j for j in criterion(verdict, id_).judgements if j.subject == subject)
    return judgement.verdict, judgement.reason_code, judgement.reason


def test_a_busy_host_fails_nobody_and_says_how_busy_it_was() -> None:
    """Every pair is a tenth below its floor while the host lost 23 % of its time."""
    slow = results_of(PLAN, everywhere("tcp-bandwidth", 0.85))
    assert verdict_of(LAB, PLAN, slow).findings[0].kind == "cluster"  # where nothing explains it
    verdict = verdict_of(LAB, PLAN, disturbed(slow, busy()))
    assert (verdict.exit_code, verdict.findings) == (3, ())
    assert "at fault" not in verdict.headline
    found = criterion(verdict, "tr.tcpbw")
    assert (found.verdict, found.reason_code) == ("not-measured", "too-noisy")
    assert "this machine lost 23 % of its time to other guests; run again when it is quieter" in found.reason


def test_a_slow_link_beside_23_percent_steal_is_still_found_and_nobody_else() -> None:
    sick = results_of(PLAN, spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.1))
    noisy = [
        with_value(PLAN.measurement(r.measurement), 0.8) if r.measurement == "tcp-bandwidth.head-fab0.gpu1-fab0" else r
        for r in sick
    ]
    verdict = verdict_of(LAB, PLAN, disturbed(noisy, busy()))
    assert verdict.exit_code == 1
    (finding,) = verdict.findings
    assert (finding.kind, finding.subject) == ("port", "gpu2/fab0")


def test_nothing_excuses_a_link_that_carries_a_tenth() -> None:
    sick = results_of(PLAN, spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.1))
    verdict = verdict_of(LAB, PLAN, disturbed(sick, busy("gpu2", pressure=1.0)))
    assert [f.subject for f in verdict.findings] == ["gpu2/fab0"]


def test_where_all_that_was_decided_is_bad_its_one_port_is_named_and_not_the_cluster() -> None:
    def change(m: Measurement) -> Result | None:
        if m.kind != "tcp-bandwidth":
            return None
        return with_value(m, 0.1 if "gpu2" in m.nodes else 0.8)

    verdict = verdict_of(LAB, PLAN, disturbed(results_of(PLAN, change), busy()))
    assert [(f.kind, f.subject) for f in verdict.findings] == [("port", "gpu2/fab0")]


@pytest.mark.parametrize(("kind", "id_"), [("tcp-latency", "tr.netlat"), ("training-short", "tn.short")])
def test_latencies_and_spreads_of_a_busy_machine_are_too_noisy(kind: str, id_: str) -> None:
    def change(m: Measurement) -> Result | None:
        if m.kind != kind:
            return None
        if kind == "tcp-latency":
            return with_value(m, 9000)
        values = [100 if n % 2 else 900 for n in range(101)]
        return result(m, [s.model_copy(update={"value": float(v)}) for s, v in zip(_steps(m), values, strict=False)])

    bad = results_of(PLAN, change)
    assert criterion(verdict_of(LAB, PLAN, bad), id_).verdict == "fail"
    verdict = verdict_of(LAB, PLAN, disturbed(bad, busy("gpu1", pressure=0.4)))
    found = criterion(verdict, id_)
    assert (found.verdict, found.reason_code) == ("not-measured", "too-noisy")
    assert "gpu1 waited for a processor for 40 % of the time" in found.reason
    assert verdict.findings == ()


def _steps(m: Measurement) -> Sequence[object]:
    return next(r for r in results_of(PLAN) if r.measurement == m.id).samples


def test_what_is_not_known_explains_nothing() -> None:
    slow = results_of(PLAN, everywhere("tcp-bandwidth", 0.85))
    unknown = (Denied(where="gpu1", seconds=4), Denied(where="host", seconds=4))
    assert verdict_of(LAB, PLAN, disturbed(slow, unknown)).exit_code == 1
    assert loss_of([]).share == loss_of(disturbed(slow, unknown)).share == 0


def test_a_little_denial_explains_a_little() -> None:
    assert said(lines((0.85, busy(steal=0.04))))[0] == "fail"
    assert said(lines((0.85, busy(steal=0.06))))[:2] == ("not-measured", "too-noisy")
    assert said(lines((0.80, busy(steal=0.06))))[0] == "fail"


def test_a_pass_stands_however_busy_the_machine_was() -> None:
    assert said(lines((0.985, busy(steal=0.9))))[0] == "pass"


def test_the_hosts_own_pressure_is_not_the_measurements() -> None:
    """On a busy host somebody always waits; whether the measurement did, its nodes say."""
    host = busy("host", pressure=1.0, steal=0.0)
    assert said(lines((0.85, host)))[0] == "fail"
    assert said(lines((0.85, (*host, Denied(where="gpu1", seconds=4, pressure=0.3)))))[0] == "not-measured"


# --- attempts -----------------------------------------------------------------------------------------------------


def test_a_disturbed_attempt_is_set_aside_and_the_others_count() -> None:
    verdict, _, reason = said(lines((0.7, busy()), (0.985, busy(steal=0.0))))
    assert verdict == "pass"
    assert "attempt 2, without 1 of 2 meanwhile disturbed: this machine lost 23 %" in reason


def test_an_attempt_that_failed_without_an_explanation_is_never_set_aside() -> None:
    """Not by a later one that passes, however often: that would be choosing."""
    quiet = busy(steal=0.0)
    for attempts in ([0.1, 0.985], [0.985, 0.1], [0.1, 0.985, 0.985, 0.985]):
        verdict, code, reason = said(lines(*((value, quiet) for value in attempts)))
        assert (verdict, code) == ("not-measured", "too-noisy")
        assert "intermittent" in reason
    assert said(lines((0.1, busy()), (0.985, quiet)))[0] == "not-measured"


def test_a_suspect_that_was_measured_again_is_named_with_that() -> None:
    sick = results_of(PLAN, spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.1))
    more = [
        r.model_copy(update={"attempt": 2}) for r in sick if "gpu2" in r.measurement and "bandwidth" in r.measurement
    ]
    (finding,) = verdict_of(LAB, PLAN, [*sick, *more]).findings
    assert finding.subject == "gpu2/fab0"
    assert "6 of 6 measured again, and no better" in finding.text


def test_attempts_that_count_are_pooled() -> None:
    verdict = lines((0.985, ()), (0.985, ()))
    judgement = next(j for j in criterion(verdict, "tr.tcpbw").judgements if j.subject == "gpu1/fab0>gpu2/fab0")
    one = next(j for j in criterion(verdict, "tr.tcpbw").judgements if j.subject == "gpu2/fab0>gpu1/fab0")
    assert judgement.samples == 2 * one.samples
    assert "2 attempts" in judgement.reason


def test_a_sample_that_cannot_be_spoils_all_attempts() -> None:
    assert said(lines((50.0, busy()), (0.985, ())))[:2] == ("not-measured", "above-ceiling")


def test_a_repeat_that_came_to_no_end_on_a_busy_machine_takes_nothing_away() -> None:
    good = results_of(PLAN)
    late = result(PLAN.measurement(PAIR), status="timeout", error="did not end", attempt=2)
    assert verdict_of(LAB, PLAN, [*good, late]).exit_code == 3
    assert verdict_of(LAB, PLAN, [*good, late.model_copy(update={"denied": busy()})]).exit_code == 0


def test_timeouts_on_a_busy_machine_name_no_node() -> None:
    def late(m: Measurement) -> Result | None:
        if m.kind != "tcp-bandwidth" or "gpu2" not in m.nodes:
            return None
        return result(m, status="timeout", error="did not end within 47 s on gpu2")

    assert [f.subject for f in judged(late).findings] == ["gpu2"]
    verdict = verdict_of(LAB, PLAN, disturbed(results_of(PLAN, late), busy()))
    assert (verdict.exit_code, verdict.findings) == (3, ())


# --- hardware -----------------------------------------------------------------------------------------------------


def test_a_node_with_something_else_running_on_it_is_told_on_hardware() -> None:
    """There the programs of others count, too: they are not the other end of the measurement."""
    site = hardware()
    plan = plan_of(site, ("preflight", "transport"))

    def change(m: Measurement) -> Result | None:
        return with_value(m, 7.5) if m.kind == "tcp-bandwidth" and "gpu2" in m.nodes else None

    results = results_of(plan, change, link_gbps=9.9, facts=REAL_FACTS)
    alone = verdict_of(site, plan, results)
    assert [f.subject for f in alone.findings] == ["gpu2/fab0"]
    loaded = (Denied(where="gpu2", seconds=4, cpus=64, steal=0.0, pressure=0.01, others=0.5),)
    mine = [
        r.model_copy(update={"denied": loaded}) if "gpu2" in r.measurement and "bandwidth" in r.measurement else r
        for r in results
    ]
    verdict = verdict_of(site, plan, mine)
    assert (verdict.exit_code, verdict.sign_off, verdict.findings) == (3, "INCOMPLETE", ())
    found = criterion(verdict, "tr.tcpbw")
    assert "other programs on gpu2 used 50 % of its processors; run again when it is quieter" in found.reason


def test_on_the_nodes_of_one_host_others_are_the_other_end() -> None:
    denied = (Denied(where="gpu1", seconds=4, pressure=0.0, others=0.6), Denied(where="host", seconds=4, steal=0.0))
    assert said(lines((0.85, denied)))[0] == "fail"


def test_a_single_rank_that_was_held_back_makes_no_scaling() -> None:
    """Efficiency is the many over the single one: here denial would turn a failure into a pass."""
    site = lab(("gpu1", "gpu2")).model_copy(update={"lab_link": None})
    nodes = tuple(n.model_copy(update={"virtual": None}) for n in site.nodes)
    site = site.model_copy(update={"nodes": nodes})
    plan = plan_of(site, ("preflight", "training"))
    results = results_of(plan, facts=REAL_FACTS)
    rates = {"1": 500.0, "intra": 970.0, "inter": 1900.0}
    full = [_at(plan.measurement(r.measurement), r, rates) for r in results]
    assert criterion(verdict_of(site, plan, full), "tn.inter").verdict == "pass"
    held = disturbed(full, busy("gpu1", throttled=0.3), ("training-short.1",))
    assert criterion(verdict_of(site, plan, held), "tn.inter").reason_code == "too-noisy"


def _at(m: Measurement, old: Result, rates: dict[str, float]) -> Result:
    if m.kind != "training-short":
        return old
    factor = rates[str(m.params["label"])] / old.samples[0].value
    return old.model_copy(
        update={"samples": tuple(s.model_copy(update={"value": s.value * factor}) for s in old.samples)}
    )
