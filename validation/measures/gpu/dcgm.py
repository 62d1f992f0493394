"""What NVIDIA DCGM's diagnostic said (kind dcgm-diag)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, expect, json_report
from validation.kinds.record import Kind, OnEach, on_node
from validation.model import (
    Bound,
    Job,
    Judgement,
    Measurement,
    Node,
    Param,
    ReasonCode,
    Sample,
    Scalar,
    Topology,
    VerdictName,
)
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion

DcgmStatus = Literal["pass", "fail", "warn", "skip", "not run"]


class DcgmResult(Model):
    """A test on a GPU, or on another thing (`CPU 0`), "" for all. errors: what DCGM reported beside the status, which
    may be a pass all the same."""

    of: str
    status: DcgmStatus
    errors: tuple[str, ...] = ()
    info: tuple[str, ...] = ()


class DcgmTest(Model):
    """A test with its results."""

    category: Name
    name: Name
    results: Annotated[tuple[DcgmResult, ...], Field(min_length=1)]


class DcgmFacts(Facts):
    """A whole run. form: version of the report, 3 or 4 as DCGM's, 0 without one, for which
    `trouble` has the reason. gpus: numbers that results name."""

    type: Literal["dcgm"] = "dcgm"
    form: Literal[0, 3, 4]
    level: Count
    returncode: int
    version: str
    driver: str
    trouble: str
    gpus: tuple[Count, ...]
    tests: tuple[DcgmTest, ...]


# ----------------------------------------------------------------------------------------------------------------------
# `dcgmi diag -j` of DCGM 3 and 4. Their reports differ in key, in how a GPU is named, and in what a warning is.


ROOTS = {"DCGM GPU Diagnostic": 3, "DCGM Diagnostic": 4}
STATUSES: dict[str, DcgmStatus] = {
    **{name: name for name in get_args(DcgmStatus)},
    "skipped": "skip",
    "notrun": "not run",
}


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """How many results passed, and the facts."""
    text, ended, level = doc["stdout"], doc["facts"]["returncode"], doc["facts"]["level"]
    expect(params, "level", level, "dcgmi diag: level")
    if not text:
        if not doc["facts"]["said"]:
            raise ParseError("dcgmi diag: no report, and no word why")
        none = DcgmFacts(form=0, level=level, returncode=ended, version="", driver="", trouble=doc["facts"]["said"],
                         gpus=(), tests=())  # fmt: skip
        return [], none
    # DCGM writes warnings of its own before the report
    report: Any = json_report(text, "dcgmi diag: the report")
    root = next((key for key in ROOTS if key in report), None)
    if root is None:
        raise ParseError("dcgmi diag: neither a report of DCGM 3 nor one of DCGM 4")
    said, about = report[root], report.get("metadata") or {}
    tests = [
        _test(str(category.get("category") or ""), test)
        for category in said.get("test_categories") or []
        for test in category.get("tests") or []
        if test is not None  # so does DCGM 3 print what it left out
    ]
    _once(((test.category, test.name) for test in tests), "test")
    if not tests and not _texts(said.get("runtime_error")):
        raise ParseError("dcgmi diag: a report without a test, and no word why")
    numbers = {int(part) for test in tests for result in test.results if result.of.startswith("GPU ")
               for part in result.of[4:].split(", ")}  # fmt: skip
    facts = DcgmFacts(
        form=ROOTS[root],  # type: ignore[arg-type]
        level=level,
        returncode=ended,
        version=str(about.get("version") or about.get("DCGM Version") or said.get("version") or ""),
        driver=str(about.get("Driver Version Detected") or said.get("Driver Version Detected") or ""),
        trouble="; ".join(_texts(said.get("runtime_error")) + _texts(said.get("warning"))),
        gpus=tuple(sorted(numbers)),
        tests=tuple(tests),
    )
    # what is less where something is missing is no sample: fewer failures would look better
    passed = sum(result.status == "pass" for test in tests for result in test.results)
    return [Sample(metric="dcgm_pass", value=passed, unit="count")], facts


def _test(category: str, test: Mapping[str, Any]) -> DcgmTest:
    results = [_result(one, one) for one in test.get("results") or []]
    _once((result.of for result in results), f"{test['name']}: result")
    summary = test.get("test_summary")
    if summary:  # of all: it may tell what no result does
        results.append(_result(summary, {}))
    if not results:
        raise ParseError(f"dcgmi diag: {test['name']}: no result")
    return DcgmTest(category=category, name=test["name"], results=tuple(results))


def _once(names: Iterable[object], what: str) -> None:
    """Refuse what stands there twice: counted twice, it would hide what is missing."""
    seen = list(names)
    if twice := {name for name in seen if seen.count(name) > 1}:
        raise ParseError(f"dcgmi diag: {what} twice: {sorted(map(str, twice))[0]}")


def _result(one: Mapping[str, Any], of: Mapping[str, Any]) -> DcgmResult:
    status = STATUSES.get(str(one["status"]).lower())
    if status is None:
        raise ParseError(f"dcgmi diag: {one['status']!r} is no status that this release knows")
    errors = (*_texts(one.get("warnings")), *_texts(one.get("errors")))
    return DcgmResult(of=_of(of), status=status, errors=errors, info=tuple(_texts(one.get("info"))))


def _of(one: Mapping[str, Any]) -> str:
    """`GPU 0, 1`, `CPU 0`, "" for all."""
    if "entity_group" in one:
        return f"{one['entity_group']} {int(one['entity_id'])}"
    numbers = str(one.get("gpu_ids", one.get("gpu_id", "")))
    return f"GPU {', '.join(str(int(part)) for part in numbers.split(','))}" if numbers else ""


def _texts(value: Any) -> list[str]:
    """Warnings are text, a list of it, or of objects that have it."""
    if value in (None, "", [], {}):
        return []
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, Mapping):
        return _texts(value.get("warning") or value.get("message") or str(dict(value)))
    return [" ".join(str(value).split())[:300]]


# --- NVIDIA DCGM's own diagnostic, where it is installed -------------------------------------------------------------


LEVEL, QUICK_LEVEL = 2, 1
MINUTES_S = 180.0  # of level 2: about two minutes (NVIDIA, dcgmi diag)


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


def _params(node: Node) -> dict[str, Param]:
    return {"level": LEVEL}


def _why_not(node: Node, topology: Topology) -> str:
    """DCGM asks NVML for more than emulated devices have."""
    there = node.bom.gpu_count or (topology.here.gpus if topology.here is not None else 0)
    return "" if there else "no GPU of hardware in these nodes"


KINDS = (
    Kind(
        name="dcgm-diag",
        title="NVIDIA DCGM's diagnostic",
        measures="Runs the vendor's own GPU diagnostic.",
        tool="dcgmi diag, level 2 (level 1 when quick)",
        more="explanation/measuring/gpu-compute.md",
        job=_job,
        parse=parse,
        repeat_by="tool",
        once=True,
        by_daemon=True,
        on_each=OnEach(_params, MINUTES_S, {"level": QUICK_LEVEL}, 20.0, _why_not),
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# Judging DCGM's diagnostic: a failed test fails; anything else that is no clean pass is a remark. Pure. That all
# passed is no acceptance by itself: DCGM 4.6.0 has no bound for the PCIe bandwidth of H100 to GB300, and accepts an
# H200 of 2.3 GB/s memory bandwidth (nvvs/diag-skus.yaml.in). What it measures is judged here by criteria of their
# own, so that a node without DCGM, and a test that DCGM leaves out, withhold nothing either.


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
