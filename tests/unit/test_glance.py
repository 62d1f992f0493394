"""A verdict at a glance: words of every outcome, times without pauses, why something was not measured."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.site import CRITERIA, LAB, PLAN, provenance, result, results_of, run_info, verdict_of, with_value
from toolkit.next_steps import next_commands
from toolkit.verdict_lines import Line, figures, state
from validation.kinds import KINDS
from validation.model import Measurement, Result, VerdictDoc
from validation.verdict.glance import glance, took_s
from validation.verdict.unmeasured import Why, title, unmeasured


def slow(m: Measurement) -> Result | None:
    if m.kind == "tcp-bandwidth" and any(end.node == "gpu2" for end in m.endpoints):
        return with_value(m, 0.099)
    return None


@pytest.fixture(scope="module")
def failed() -> VerdictDoc:
    return verdict_of(LAB, PLAN, results_of(PLAN, slow))


@pytest.mark.parametrize(
    ("sign_off", "outcome", "words"),
    [
        ("ACCEPTED", "passed", "ACCEPTED"),
        ("REJECTED", "failed", "REJECTED"),
        ("INCOMPLETE", "incomplete", "INCOMPLETE"),
        ("REHEARSAL", "passed", "PASSED (rehearsal)"),
        ("REHEARSAL", "incomplete", "INCOMPLETE (rehearsal)"),
        ("INSPECTION", "passed", "PASSED (inspection)"),
        ("INSPECTION", "failed", "FAILED (inspection)"),
    ],
)
def test_a_verdict_is_a_word_and_only_an_acceptance_is_green(
    failed: VerdictDoc, sign_off: str, outcome: str, words: str
) -> None:
    said, style = state(failed.model_copy(update={"sign_off": sign_off, "outcome": outcome}))
    assert said == words
    assert ("green" in style) == (sign_off == "ACCEPTED")


def test_the_suspect_has_its_pairs_and_the_repeats_of_its_failures(failed: VerdictDoc) -> None:
    once = results_of(PLAN, slow)
    twice = [one.model_copy(update={"attempt": 2}) for one in once if one.measurement.startswith("tcp-bandwidth")]
    for results, repeated in ((once, 0), ([*once, *twice], 6)):
        (group,) = glance(failed, CRITERIA, PLAN, LAB, results).groups
        (failure,), (suspect,) = group.failures, group.suspects
        assert (failure.id, failure.title, failure.failed, failure.of, failure.things) == (
            "tr.tcpbw", "TCP bandwidth", 6, 12, "pairs",
        )  # fmt: skip
        assert failure.value == pytest.approx(0.099, rel=0.02)
        assert (failure.relation, failure.limit) == ("needs", pytest.approx(0.9405, abs=1e-4))
        assert (str(suspect.finding.about), suspect.pairs, suspect.of) == ("gpu2/fab0", 6, 6)
        assert suspect.repeated == repeated


def test_a_port_that_fails_when_receiving_is_held_against_its_pairs_of_that_direction() -> None:
    def receiving(m: Measurement) -> Result | None:
        return with_value(m, 0.099) if m.kind == "tcp-bandwidth" and m.endpoints[1].node == "gpu2" else None

    results = results_of(PLAN, receiving)
    (group,) = glance(verdict_of(LAB, PLAN, results), CRITERIA, PLAN, LAB, results).groups
    assert [(one.failed, one.of) for one in group.failures] == [(3, 12)]
    assert [(one.pairs, one.of) for one in group.suspects] == [(3, 3)]


def test_every_criterion_that_was_not_measured_has_one_reason(failed: VerdictDoc) -> None:
    found = unmeasured(failed, CRITERIA, PLAN, LAB)
    told = [id_ for one in found for id_ in one.criteria]
    assert sorted(told) == sorted(c.id for c in failed.criteria if c.verdict == "not-measured")
    assert [len(one.criteria) for one in found] == sorted((len(one.criteria) for one in found), reverse=True)
    why = {id_: one.why for one in found for id_ in one.criteria}
    assert (why["pf.asbuilt"], why["tr.incast"], why["pf.pcie"]) == (Why.SUITE, Why.LINKS, Why.CONTAINER)
    gpus = LAB.model_copy(update={"nodes": tuple(node.model_copy(update={"emulated_gpus": 4}) for node in LAB.nodes)})
    assert {id_: one.why for one in unmeasured(failed, CRITERIA, PLAN, gpus) for id_ in one.criteria}[
        "tr.nccl"
    ] is Why.EMULATED_GPUS
    assert why["tr.nccl"] is Why.PROCESSORS
    machines = LAB.model_copy(update={"nodes": tuple(n.model_copy(update={"virtual": "qemu"}) for n in LAB.nodes)})
    assert {i: o.why for o in unmeasured(failed, CRITERIA, PLAN, machines) for i in o.criteria}[
        "pf.pcie"
    ] is Why.MACHINE


def test_time_is_that_of_the_measurements_and_no_pause_is_in_it() -> None:
    def taken(began: str, ended: str) -> Result:
        day = "2026-11-21T10:"
        return result("facts.gpu1", provenance=provenance(started=f"{day}{began}+00:00", ended=f"{day}{ended}+00:00"))

    assert took_s([]) is None
    assert (
        took_s(
            [
                taken("10:00", "10:10").model_copy(
                    update={
                        "provenance": taken("10:00", "10:10").provenance.model_copy(
                            update={"started": "2026-11-21T10:15:00"}
                        )
                    }
                )
            ]
        )
        is None
    )  # of no zone
    together = [taken("00:00", "00:10"), taken("00:05", "00:20"), taken("00:25", "00:30")]
    assert took_s(together) == pytest.approx(30)
    assert took_s([*together, taken("50:00", "50:07")]) == pytest.approx(37), "continued after twenty minutes"


@pytest.mark.parametrize(
    ("value", "limit", "words"),
    [
        (0.0989, 0.9405, ("0.099", "0.941")),
        (0.94051, 0.94059, ("0.9405", "0.9406")),
        (12.0, 10.0, ("12.0", "10.0")),
        (96.4, 12000.0, ("96", "12000")),
        (3.0, 0.0, ("3.000", "0.000")),
        (0.0001, 0.9, ("0.0001", "0.9000")),
    ],
)
def test_figure_and_bound_have_as_many_decimals_as_tell_them_apart(
    value: float, limit: float, words: tuple[str, str]
) -> None:
    assert figures(value, limit) == words


def test_a_title_is_short(failed: VerdictDoc) -> None:
    assert all(len(title(criterion)) <= 68 for criterion in CRITERIA)
    assert {title(c) for c in CRITERIA if c.metric and c.metric == KINDS[c.kind or ""].headline} >= {"TCP bandwidth"}


def test_what_follows_is_a_command_and_a_folded_one_still_is() -> None:
    info = run_info(LAB, PLAN)
    passed = verdict_of(LAB, PLAN, results_of(PLAN))
    run = Path("runs/a b")
    sign, bundle = next_commands(run, info, LAB, passed, (), signed=False)
    assert shlex.split(sign) == [
        "toolkit", "sign", "runs/a b", "--key", "~/.ssh/id_ed25519", "--as", "NAME, COMPANY",
    ]  # fmt: skip
    assert shlex.split(bundle) == ["toolkit", "bundle", "runs/a b"]
    text = f"next    {sign}; {bundle}"
    folded = Line(text, 8, commands=True).folded(40)
    assert len(folded) > 2
    assert max(map(len, folded)) <= 40
    assert "\n".join(folded).replace("\\\n", " ").replace(";\n", "; ").split() == text.split()


def test_what_is_owed_of_suites_that_were_not_selected_is_measured_next() -> None:
    info = run_info(LAB, PLAN, command=("toolkit", "validate", "--fabric", "tcp10", "--suite", "preflight"))
    open_ = verdict_of(LAB, PLAN, results_of(PLAN)).model_copy(update={"outcome": "incomplete"})
    (command,) = next_commands(Path("runs/x"), info, LAB, open_, ("compute",), signed=False)
    suites = " ".join(f"--suite={suite}" for suite in (*info.suites, "compute"))
    assert command == f"toolkit validate --fabric tcp10 {suites}"
