"""A GPU that changes hands under a program: what is refused, what it is judged on, what the report shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.remote_move_documents import DONE, MOVE, SIZE, move_document, move_result
from tests.support.site import FACTS, LAB, REAL_FACTS, criterion, hardware, healthy, plan_of, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting.move import MoveFacts
from validation.model import Judgement, Topology

HARDWARE = hardware(("head", "client1", "gpu1", "gpu2"))
Changed = Callable[[str, dict[str, Any]], object]


def of(name: str, /, **changes: Any) -> Changed:
    """Changes one program's report."""
    return lambda *who: who[1].update(changes) if who[0] == name else None


def untold(name: str, made: dict[str, Any]) -> None:
    """The program ended without keeping its work; the checkpoint is an older one."""
    if name == "gave":
        made.clear()
        made.update(failed="lease 4 has ended: the administrator ended it", status=143)


def judged(topology: Topology = HARDWARE, **how: Any) -> Judgement:
    """Of a run of suite remoting in which it went so."""
    plan = plan_of(topology, ("preflight", "remoting"), "tcp10")
    facts = {**FACTS, **(REAL_FACTS if topology is HARDWARE else {})}
    found = [healthy(m, facts=facts) for m in plan.measurements if m.kind == "facts"]
    (m,) = (m for m in plan.measurements if m.kind == "remoting-move")
    found.append(move_result(m, **how))
    (judgement,) = criterion(verdict_of(topology, plan, found, fabric="tcp10"), "rm.move").judgements
    return judgement


def test_times_follow_from_the_programs_and_the_probe() -> None:
    samples, facts = parse("remoting-move", move_document(), MOVE)
    assert isinstance(facts, MoveFacts)
    it = facts.moved
    assert it is not None
    assert (it.told_s, it.saved_s, it.gone_s) == (20.0, pytest.approx(20.1), 22.0)
    assert (it.first_step_s, it.resumed_s) == (pytest.approx(30, abs=0.1), pytest.approx(40, abs=0.1))
    assert (it.steps, it.steps_kept, it.steps_lost, it.checkpoint_bytes) == (DONE + 40, DONE, 0, SIZE)
    assert (it.elsewhere, it.held_twice_s, it.overlap_s, facts.wrong()) == (True, 0.0, 0.0, [])
    found = {s.metric: (s.value, s.unit) for s in samples}
    assert found["wrong"] == (0, "count")
    assert found["told_s"] == (20.0, "s")
    _, facts = parse("remoting-move", move_document({**MOVE, "elsewhere": ""}), {**MOVE, "elsewhere": ""})
    assert isinstance(facts, MoveFacts)
    assert facts.moved is not None
    assert not facts.moved.elsewhere


@pytest.mark.parametrize(
    ("change", "facts", "words"),
    [
        (of("gave", told_s=999.0), {}, "notified before anybody asked"),
        (of("gave", told_s=None), {}, "gave: told_s"),
        (of("gave", kept=None), {}, "gave: saved_s"),
        (of("gave", ended_s=1020.05), {}, "its times are not in their order"),
        (of("gave", kept={"steps": 99, "bytes": 1, "saved_s": 1020.1}), {}, "its checkpoint is not of all its steps"),
        (of("gave", ended_s=1023.0), {}, "ended after its command"),
        (of("took", devices=[{"name": "V100", "uuid": "GPU-7"}]), {}, "another GPU than that which was given"),
        (of("took", seed=2), {}, "took: seed is not that of the undisturbed"),
        (of("took", losses=[1.0] * 40), {}, "its loss never changes"),
        (of("took", began_s=900.0, opened_s=899.0), {}, "not in the order of what happened"),
        (of("resumed", resumed_from=0, step_s=[0.1] * 140), {}, "went on from step 0, 100 were done"),
        (of("resumed", step_s=[0.1] * 39), {}, "39 times and 140 losses of 140 steps after 100"),
        (of("whole", resumed_from=1, step_s=[0.1] * 139), {}, "not the same number of steps"),
        (of("whole", tool="other"), {}, "no training by elastic-ai-train"),
        (None, {"gone_s": 1100.0}, "not in the order of what happened"),
        (None, {"gone_s": "soon"}, "when the first had ended"),
        (
            None,
            {"leases": {"gave": {"start_s": 9, "end_s": 5}, "took": {"start_s": 9, "end_s": 10}}},
            "before it began",
        ),
        (None, {"elsewhere": "gpu3"}, "elsewhere"),
        (None, {"grace_s": -1.0}, "grace_s"),
    ],
)
def test_what_is_no_such_move_is_refused(change: Changed | None, facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse("remoting-move", move_document(change=change, **facts), MOVE)


def test_programs_that_are_not_all_there_are_refused() -> None:
    for old, new in (("== took\n", ""), ("== whole\n", "== took\n"), ("== gave\n", "lease 4\n== gave\n")):
        document = move_document()
        document["stdout"] = document["stdout"].replace(old, new)
        with pytest.raises(ParseError):
            parse("remoting-move", document, MOVE)


@pytest.mark.parametrize(("topology", "emulated"), [(HARDWARE, False), (LAB, True)])
def test_a_move_without_loss_passes_on_any_device_and_says_how_long_it_took(topology: Topology, emulated: bool) -> None:
    found = judged(topology, emulated=emulated)
    assert (found.verdict, found.value) == ("pass", 0)
    assert "urgent took a GPU from patient: notified after 20.0 s, its work kept after 20.1 s" in found.reason
    assert "went on elsewhere after 40.0 s, 0 of 100 steps lost" in found.reason
    assert ("emulated" in found.reason) is emulated


@pytest.mark.parametrize("topology", [HARDWARE, LAB])
@pytest.mark.parametrize(
    ("change", "facts", "words"),
    [
        (of("resumed", weights_sha256="f" * 64), {}, "the same losses and other weights"),
        (of("took", opened_s=1020.0), {}, "both programs used the GPU for 0.2 s"),
        (None, {"leases": {"gave": {"start_s": 500, "end_s": 558}, "took": {"start_s": 555, "end_s": 561}}},
         "by Slurm's record both leases had the GPU for 3 s"),
        (untold, {},
         r"patient was not notified, or could not keep its work: lease 4 has ended: .* \(exit status 143\)"),
    ],
)  # fmt: skip
def test_what_must_not_be_fails(topology: Topology, change: Changed | None, facts: dict[str, Any], words: str) -> None:
    import re

    found = judged(topology, emulated=topology is LAB, change=change, **facts)
    assert (found.verdict, found.value) == ("fail", 1)
    assert re.search(words, found.reason), found.reason


def test_other_losses_fail_with_their_step() -> None:
    def other(name: str, made: dict[str, Any]) -> None:
        if name == "resumed":
            made["losses"] = [*made["losses"][:110], *(loss * 1.001 for loss in made["losses"][110:])]

    found = judged(change=other)
    assert found.verdict == "fail"
    assert "its losses are others from step 111 on" in found.reason


def test_a_pool_without_such_classes_is_not_measured_and_fails_nobody() -> None:
    samples, _ = parse("remoting-move", move_document(unmade="no such classes"), MOVE)
    assert samples == []
    found = judged(unmade="no such classes")
    assert (found.verdict, found.reason) == ("not-applicable", "not measured: no such classes")


def test_a_count_that_nothing_bears_out_is_no_pass() -> None:
    plan = plan_of(LAB, ("preflight", "remoting"), "tcp10")
    (m,) = (m for m in plan.measurements if m.kind == "remoting-move")
    assert (m.params["server"], m.params["elsewhere"]) == ("gpu1", "gpu2")
    good = move_result(m, change=of("resumed", weights_sha256="f" * 64))
    forged = good.model_copy(update={"samples": tuple(
        s.model_copy(update={"value": 0.0}) if s.metric == "wrong" else s for s in good.samples
    )})  # fmt: skip
    found = [healthy(one, facts=FACTS) for one in plan.measurements if one.kind == "facts"]
    (judgement,) = criterion(verdict_of(LAB, plan, [*found, forged], fabric="tcp10"), "rm.move").judgements
    assert (judgement.verdict, judgement.reason_code) == ("not-measured", "missing-metric")
