"""`dcgmi diag -j` of DCGM 3 and 4. Their reports differ in key, in how a GPU is named, and in what a warning is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from validation.kinds.parsing import Parsed, ParseError, expect, json_report
from validation.measures.gpu.dcgm_facts import DcgmFacts, DcgmResult, DcgmStatus, DcgmTest
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc

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
