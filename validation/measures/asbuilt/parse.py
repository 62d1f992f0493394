"""As built: the JUnit file of a node's checks, and what site.yml in check mode said of the site."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, fromstring
from xml.etree.ElementTree import ParseError as XmlError

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, json_object, short
from validation.measures.asbuilt.facts import AsBuiltFacts, CheckOutcome, ConvergedFacts
from validation.model import Sample
from validation.model.built import Deployment
from validation.probes import ProbeDoc

NOT_APPLICABLE = "not applicable: "
"""How a check says, by pytest's skip, that the site's inventory leaves its node out of it."""
COULD_NOT_RUN = "could_not_run"
"""Property of a JUnit case whose check ended by another exception than a failed assertion: nothing was found out."""
_NAME = re.compile(r"(?P<check>test_[a-z0-9_]+)\[ansible://(?P<node>[^\[\]]+)\]")
_COUNTS = {"tests": None, "failures": "failure", "errors": "error", "skipped": "skipped"}


def checks(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """Samples `checks_passed` and `checks_not_passed`, and each check with its outcome.

    A check that was planned (`checks` of `params`) and is not in the file was not run.
    """
    node, suite = str(doc["facts"]["node"]), _suite(doc["stdout"])
    found: dict[str, CheckOutcome] = {}
    for case in suite.iter("testcase"):
        outcome = _outcome(case, node)
        if outcome.name in found:
            raise ParseError(f"JUnit file: {outcome.name} stands there twice")
        found[outcome.name] = outcome
    bad = any(len(case.findall("failure")) + len(case.findall("error")) for case in suite.iter("testcase"))
    if doc["facts"]["exit"] != int(bad):
        raise ParseError(f"pytest ended with {doc['facts']['exit']}, which its JUnit file contradicts")
    planned = tuple(params.get("checks", ()))
    gone = "is planned, and was not run: its file or name is gone, or it was deselected"
    for name in planned:
        found.setdefault(name, CheckOutcome(name=name, outcome="not-run", words=gone))
    order = {name: at for at, name in enumerate(planned)}
    listed = sorted(found.values(), key=lambda one: (order.get(one.name, len(order)), one.name))
    raw = {"type": "as-built", "node": node, "checks": [one.model_dump() for one in listed]}
    facts = as_facts(AsBuiltFacts, {**raw, "checks_sha256": doc["facts"]["checks_sha256"]}, "as-built")
    passed = len(facts.of("passed"))
    left = len(facts.checks) - passed - len(facts.of("not-applicable"))
    return [
        Sample(metric="checks_passed", value=passed, unit="count"),
        Sample(metric="checks_not_passed", value=left, unit="count"),
    ], facts


def _suite(text: str) -> Element:
    """The one suite of a JUnit file, whose own counts agree with its cases."""
    if "<!" in text.split("<testsuite", 1)[0]:
        raise ParseError("JUnit file: has a document type, which pytest writes none of")
    try:
        root = fromstring(text)  # noqa: S314 - no document type, so no entities
    except (XmlError, ValueError) as fault:
        raise ParseError(f"JUnit file: is not whole: {short(str(fault))}") from None
    suites = [root] if root.tag == "testsuite" else root.findall("testsuite")
    if len(suites) != 1:
        raise ParseError(f"JUnit file: {number_of(len(suites), 'suite')}, exactly one is expected")
    cases = suites[0].findall("testcase")
    for key, tag in _COUNTS.items():
        there = len(cases) if tag is None else sum(len(case.findall(tag)) for case in cases)
        if suites[0].get(key) != str(there):
            raise ParseError(f"JUnit file: {key} is {short(str(suites[0].get(key)))}, but {there} are there")
    return suites[0]


def _outcome(case: Element, node: str) -> CheckOutcome:
    named = _NAME.fullmatch(case.get("name") or "")
    if named is None or named["node"] != node:
        raise ParseError(f"JUnit file: {short(str(case.get('name')))} is no check of {node}")
    name = f"{(case.get('classname') or '').rpartition('.')[2]}.py::{named['check']}"
    results = [child for child in case if child.tag in ("failure", "error", "skipped")]
    said = _words(results[0]) if results else ""
    stopped = {one.get("name"): one.get("value") for one in case.iter("property")}.get(COULD_NOT_RUN)
    if not results and not stopped:
        return CheckOutcome(name=name, outcome="passed")
    if stopped or len(results) != 1 or results[0].tag == "error":
        return CheckOutcome(name=name, outcome="not-run", words=short(stopped or said))
    if results[0].tag == "failure":
        return CheckOutcome(name=name, outcome="failed", words=said)
    if said.startswith(NOT_APPLICABLE):
        return CheckOutcome(name=name, outcome="not-applicable", words=said.removeprefix(NOT_APPLICABLE))
    return CheckOutcome(name=name, outcome="not-run", words=f"skipped: {said}")


def _words(result: Element) -> str:
    """The words of a failed check: of the assertion its message, without the comparison that pytest appends."""
    said = " ".join((result.get("message") or result.text or "").split())
    return short(re.sub(r"^AssertionError: ", "", said).partition(" assert ")[0] or said)


def converged(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """Sample `changed_tasks`, over the planned nodes (`nodes` of `params`), and what was said of each."""
    said = json_object(doc["stdout"], "toolkit deploy --json")
    said.pop("schema", None)  # the answer's; that of the document is `format`
    found = as_facts(Deployment, said, "toolkit deploy --json")
    if not found.check:
        raise ParseError("toolkit deploy --json: it was no run in check mode")
    if found.limit is not None or found.options or found.other_options:
        raise ParseError("toolkit deploy --json: it did not look at the whole site")
    if found.interrupted:
        raise ParseError("toolkit deploy --json: it was interrupted")
    if found.error:
        raise ParseError(f"toolkit deploy --check: {short(found.error)}")
    if not found.finished:
        raise ParseError("toolkit deploy --check: Ansible did not come to its end")
    for node in found.nodes:
        if bool(node.changed) != bool(node.tasks) or sum(node.roles.values()) != node.changed:
            raise ParseError(f"toolkit deploy --json: {node.node}: {node.changed} changes, but named are others")
        if node.outcome == "ok" and not node.ok:
            raise ParseError(f"toolkit deploy --json: {node.node}: no task of it was run")
    bad = any(node.outcome != "ok" for node in found.nodes)
    if doc["facts"]["exit"] != int(bad):
        raise ParseError(f"toolkit deploy --check ended with {doc['facts']['exit']}, which its document contradicts")
    planned = tuple(params.get("nodes", ()))
    missing = [name for name in planned if name not in {node.node for node in found.nodes}]
    if missing:
        raise ParseError(f"toolkit deploy --check: nothing is said of {', '.join(missing)}")
    nodes = tuple(node for node in found.nodes if not planned or node.node in planned)
    facts = ConvergedFacts(nodes=nodes, version=found.version_words)
    changed = sum(node.changed for node in nodes)
    return [Sample(metric="changed_tasks", value=changed, unit="count")], facts
