"""Judging DCGM's diagnostic: a failed test fails; anything else that is no clean pass is a remark. Pure.

That all passed is no acceptance by itself: DCGM 4.6.0 has no bound for the PCIe bandwidth of H100 to GB300, and accepts
an H200 of 2.3 GB/s memory bandwidth (nvvs/diag-skus.yaml.in). What it measures is judged here by criteria of their own,
so that a node without DCGM, and a test that DCGM leaves out, withhold nothing either.
"""

from __future__ import annotations

from collections.abc import Iterable

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.gpu.dcgm_facts import DcgmFacts
from validation.model import Bound, Judgement, ReasonCode, VerdictName
from validation.rules.criterion import Criterion

PASSED = "DCGM's own tests of level {level} passed ({names})"
ALONE = ", which is no acceptance by itself"


@method("dcgm", "what DCGM's diagnostic says of each of its tests")
def judge_dcgm(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node on which it was to run."""
    bound = Bound(
        metric="dcgm", unit="", equal=criterion.bound.words, derivation=(criterion.statement,), source=criterion.source
    )
    judged = []
    for measurement in case.serving(criterion):
        node = case.topology.node(measurement.nodes[0])
        facts = facts_for(case, criterion, node.name, measurement.id, DcgmFacts, bound)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        here = case.topology.here.gpus if case.topology.here is not None else 0
        verdict, code, why = _judge(facts, node.bom.gpu_count or here)
        text = f"DCGM {facts.version}, level {facts.level}: " + ", ".join(_counts(facts)) if facts.form else None
        judged.append(judgement(criterion, node.name, verdict, code, why, [measurement.id], text=text, bound=bound))
    return judged


def _counts(facts: DcgmFacts) -> Iterable[str]:
    found = [result.status for test in facts.tests for result in test.results]
    return (f"{found.count(status)} {status}" for status in dict.fromkeys(found))


def _named(facts: DcgmFacts, *statuses: str, errors: bool = False) -> list[str]:
    """Results with such a status in words: `memory, GPU 3: ...`."""
    said = []
    for test in facts.tests:
        for result in test.results:
            if result.status in statuses and (result.errors or not errors):
                why = "; ".join(result.errors or result.info)
                said.append(f"{test.name}{f', {result.of}' if result.of else ''}" + (f": {why}" if why else ""))
    return said


def _judge(facts: DcgmFacts, gpus: int) -> tuple[VerdictName, ReasonCode, str]:
    failed = _named(facts, "fail")
    if failed:
        return "fail", "not-working", "; ".join(failed)
    if not facts.form:
        return "not-applicable", "not-applicable", f"DCGM said nothing of this node: {facts.trouble}"
    reasons = [
        ([facts.trouble] if facts.trouble else [], "it came to no end"),
        (_named(facts, "warn"), "warned"),
        (_named(facts, "pass", errors=True), "passed, and reports an error all the same"),
        (_named(facts, "skip", "not run"), "not run"),
    ]
    doubts = [f"{words}: {'; '.join(found)}" for found, words in reasons if found]
    if gpus and len(facts.gpus) != gpus:
        doubts.append(f"it names {len(facts.gpus)} of {number_of(gpus, 'GPU')}")
    if not doubts and facts.returncode:
        doubts.append(f"dcgmi ended with exit status {facts.returncode}, which no test explains")
    clean = [test.name for test in facts.tests if any(r.status == "pass" and not r.errors for r in test.results)]
    if not clean:
        return "not-applicable", "reported", f"no test of DCGM passed or failed; {'; '.join(doubts)}"
    said = PASSED.format(level=facts.level, names=", ".join(clean)) + ALONE
    if doubts:
        return "pass", "remarked", f"a remark: {'; '.join(doubts)}. {said}"
    return "pass", "within-bounds", said
