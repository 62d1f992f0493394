"""`dcgmi diag -j` of DCGM 3 and 4. Their reports differ in key, in how a GPU is named, and in what a warning is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from validation.facts import DcgmFacts, DcgmResult, DcgmTest
from validation.facts.dcgm import DcgmStatus
from validation.model import Sample, Scalar
from validation.parsers.common import Parsed, ParseError, expect, json_object
from validation.probes import ProbeDoc

ROOTS = {"DCGM GPU Diagnostic": 3, "DCGM Diagnostic": 4}
STATUSES: dict[str, DcgmStatus] = {
    **{name: name for name in get_args(DcgmStatus)},
    "skipped": "skip",
    "notrun": "not run",
}


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """How many results have each status, and the facts."""
    text, ended, level = doc["stdout"], doc["facts"]["returncode"], doc["facts"]["level"]
    expect(params, "level", level, "dcgmi diag: level")
    if not text:
        if not doc["facts"]["said"]:
            raise ParseError("dcgmi diag: no report, and no word why")
        none = DcgmFacts(form=0, level=level, returncode=ended, version="", driver="", trouble=doc["facts"]["said"],
                         gpus=(), tests=())  # fmt: skip
        return [], none
    # DCGM writes warnings of its own before the report
    report: Any = json_object(text[max(text.find("{"), 0) : text.rfind("}") + 1], "dcgmi diag: the report")
    root = next((key for key in ROOTS if key in report), None)
    if root is None:
        raise ParseError("dcgmi diag: neither a report of DCGM 3 nor one of DCGM 4")
    said, about = report[root], report.get("metadata") or {}
    tests = [
        _test(category["category"], test)
        for category in said.get("test_categories") or []
        for test in category.get("tests") or []
        if test is not None  # so does DCGM 3 print what it left out
    ]
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
    found = [result.status for test in tests for result in test.results]
    counted = [(status, found.count(status)) for status in ("pass", "fail", "warn", "skip", "not run")]
    return [Sample(metric=f"dcgm_{name.replace(' ', '_')}", value=n, unit="count") for name, n in counted], facts


def _test(category: str, test: Mapping[str, Any]) -> DcgmTest:
    results = [_result(one, one) for one in test.get("results") or []]
    summary = test.get("test_summary")
    if summary:  # of all: it may tell what no result does
        results.append(_result(summary, {}))
    if not results:
        raise ParseError(f"dcgmi diag: {test['name']}: no result")
    return DcgmTest(category=category, name=test["name"], results=tuple(results))


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
