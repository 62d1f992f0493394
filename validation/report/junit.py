"""The verdict as JUnit XML, for continuous integration: one suite per family, one case per criterion.

What failed is a failure. What was planned and has no usable result is an error. What was not measured, waived or does
not apply is skipped, with its reason: nothing is green that was not measured. So with the claims of the reference
architecture that are of this site: confirmed, a failure where missed, skipped else.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from validation.base.visible import visible_lines
from validation.model import CriterionVerdict, Judgement, VerdictDoc
from validation.report.claims import STATES, conformance_of
from validation.report.criteria import FAMILIES
from validation.report.documents import RunDocuments
from validation.report.summary import verdict_of
from validation.rules.criterion import family_of

# A planned measurement that did not deliver is a fault of the run, not a choice.
_ERRORS = ("missing-result", "tool-failed", "missing-metric", "above-ceiling", "too-noisy")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SIGN_OFF = "Sign-off"
CLAIMS = "Reference architecture"


def _clean(text: str) -> str:
    """`text` without the characters that XML cannot hold, each written out, as all that could not be seen."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", visible_lines(text))


def _case(suite: Element, classname: str, name: str) -> Element:
    return SubElement(suite, "testcase", {"classname": _clean(classname), "name": _clean(name), "time": "0"})


def _say(case: Element, verdict: str, code: str, reason: str, not_owed: str = "") -> None:
    if verdict == "pass":
        return
    lost = code in _ERRORS and verdict != "waived" and not not_owed
    tag = {"fail": "failure"}.get(verdict) or ("error" if lost else "skipped")
    if not_owed:
        reason = f"{reason} (not owed: {not_owed})"
    message = _clean(reason if verdict in ("fail", "not-measured") else f"{verdict}: {reason}")
    attributes = {"message": message} if tag == "skipped" else {"message": message, "type": code}
    SubElement(case, tag, attributes).text = message


def _judged(suite: Element, classname: str, criterion: CriterionVerdict, judgement: Judgement) -> None:
    case = _case(suite, classname, f"{criterion.id} {judgement.subject}")
    _say(case, judgement.verdict, judgement.reason_code, judgement.reason)


def _sign_off(root: Element, verdict: VerdictDoc, rehearsal: bool) -> None:
    suite = SubElement(root, "testsuite", {"name": SIGN_OFF})
    case = _case(suite, SIGN_OFF, "sign-off")
    words = _clean(verdict.line)
    if verdict.outcome == "failed":
        SubElement(case, "failure", {"message": words, "type": verdict.sign_off}).text = words
    elif verdict.outcome == "incomplete":
        SubElement(case, "error", {"message": words, "type": verdict.sign_off}).text = words
    elif rehearsal:
        SubElement(case, "skipped", {"message": f"a rehearsal accepts nothing: {words}"})
    elif verdict.sign_off == "INSPECTION":
        SubElement(case, "skipped", {"message": f"an inspection accepts nothing: {words}"})
    elif verdict.sign_off == "CONSTRUCTED EXAMPLE":
        SubElement(case, "skipped", {"message": f"a constructed example accepts nothing: {words}"})


def _claims(root: Element, documents: RunDocuments, verdict: VerdictDoc) -> None:
    suite = SubElement(root, "testsuite", {"name": CLAIMS})
    for claim in conformance_of(documents, verdict).claims:
        if claim.state == "elsewhere":
            continue
        case = _case(suite, CLAIMS, claim.id)
        words = _clean(f"{claim.statement} ({claim.document}, {claim.section}): {claim.reason}")
        if claim.state == "missed":
            SubElement(case, "failure", {"message": words, "type": "missed"}).text = words
        elif claim.state != "confirmed":
            SubElement(case, "skipped", {"message": f"{STATES[claim.state]}: {words}"}).text = words


def junit_xml(documents: RunDocuments) -> bytes:
    """JUnit XML of the run. Failed judgements of a criterion stand as cases of their own beside it."""
    verdict = verdict_of(documents)
    rehearsal = documents.virtual or verdict.sign_off == "REHEARSAL"
    root = Element("testsuites", {"name": _clean(f"{verdict.site} {verdict.run}")})
    _sign_off(root, verdict, rehearsal)
    groups: dict[str, list[CriterionVerdict]] = {}
    for criterion in verdict.criteria:
        groups.setdefault(family_of(criterion.id), []).append(criterion)
    for key in [*(k for k in FAMILIES if k in groups), *sorted(k for k in groups if k not in FAMILIES)]:
        title = FAMILIES.get(key, key)
        suite = SubElement(root, "testsuite", {"name": title})
        for criterion in groups[key]:
            case = _case(suite, title, criterion.id)
            _say(
                case,
                criterion.verdict,
                criterion.reason_code,
                f"{criterion.statement}: {criterion.reason}",
                criterion.not_owed,
            )
            if len(criterion.judgements) > 1:
                for judgement in criterion.judgements:
                    if judgement.verdict == "fail":
                        _judged(suite, title, criterion, judgement)
    _claims(root, documents, verdict)
    properties = {
        "run": verdict.run,
        "site": verdict.site,
        "fabric": verdict.fabric,
        "sign_off": verdict.sign_off,
        "outcome": verdict.outcome,
        "profile": verdict.profile.name if verdict.profile else "none: everything required is owed",
        "rehearsal": "true" if rehearsal else "false",
        "planned": str(verdict.planned),
        "measured": str(verdict.measured),
    }
    for suite in root:
        first = Element("properties")
        for name, value in properties.items():
            SubElement(first, "property", {"name": name, "value": _clean(value)})
        suite.insert(0, first)
        suite.set("timestamp", _clean(documents.info.created.removesuffix("Z")))
        _count(suite)
    _count(root)
    indent(root)
    return ('<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n").encode()


def _count(element: Element) -> None:
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(key, str(sum(case.find(tag) is not None for case in cases)))
    element.set("time", "0")
