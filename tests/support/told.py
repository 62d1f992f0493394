"""What each format and page of a report says of the same thing, held against each other."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from validation.report.documents import RunDocuments
from validation.report.formats import make
from validation.report.render import fill, view
from validation.signing.readme import readme_text

Told = tuple[str, str, str]
"""A fact, the place that tells it, and its value."""
_PHRASES = {
    r"(\d+) of (\d+) planned measurements(?! have no)": ("measured", "planned"),
    r"of (\d+) criteria in the catalogue": ("criteria",),
    r"(\d+) claims of the reference architecture concern this site: (\d+) confirmed": ("claims here", "confirmed"),
    r"[Tt]he toolkit tested (\d+) nodes?": ("nodes",),
}
_STATES = ("pass", "fail", "waived", "not-measured", "not-applicable")


def contradicted(documents: RunDocuments) -> list[str]:
    """Facts that two places of the report tell differently, in words; the report of a run that was judged."""
    found: dict[str, dict[str, list[str]]] = {}
    for fact, place, value in told(documents):
        found.setdefault(fact, {}).setdefault(value, []).append(place)
    return [f"{fact}: {values}" for fact, values in found.items() if len(values) > 1]


def told(documents: RunDocuments) -> Iterator[Told]:
    made, _ = make(documents, ("html", "json", "junit", "prom"))
    yield from _json(json.loads(made["json"]))
    yield from _junit(ElementTree.fromstring(made["junit"]))
    yield from _metrics(made["prom"].decode())
    for place, page in (("screen", made["html"].decode()), ("paper", fill(view(documents), printed=True))):
        yield from _page(place, page)
    assert documents.verdict is not None
    readme = readme_text(documents.info, documents.verdict, documents.rules)
    yield "headline", "README", readme.splitlines()[0]
    yield "rules", "README", re.findall(r"sha256 ([0-9a-f]{64})", readme)[0]


def _json(report: dict[str, Any]) -> Iterator[Told]:
    verdicts = Counter(one["verdict"] for one in report["criteria"])
    claims = report["conformance"]["counts"]
    said = {
        "measured": report["measured"], "planned": report["planned"], "sign-off": report["sign_off"],
        "criteria": len(report["criteria"]), "headline": report["headline"],
        "nodes": len(report["nodes"]), "outcome": report["outcome"],
        **{state: verdicts[state] for state in _STATES},
        "claims here": sum(claims.values()) - claims["elsewhere"], "confirmed": claims["confirmed"],
    }  # fmt: skip
    yield from ((fact, "json", str(value)) for fact, value in said.items())


def _junit(root: ElementTree.Element) -> Iterator[Told]:
    (suite, *others) = root.findall("testsuite")
    said = {p.attrib["name"]: p.attrib["value"] for p in suite.iter("property")}
    yield from ((fact, "junit", said[fact]) for fact in ("measured", "planned", "outcome"))
    yield "sign-off", "junit", said["sign_off"]
    cases = [
        case
        for one in others
        for case in one.iter("testcase")
        if re.fullmatch(r"[a-z]+\.[a-z0-9]+", case.attrib["name"])
    ]
    criteria = [case for case in cases if case.attrib["classname"] != "Reference architecture"]
    yield "criteria", "junit", str(len(criteria))
    yield "fail", "junit", str(sum(case.find("failure") is not None for case in criteria))
    good = [case for case in criteria if not list(case)]
    yield "pass", "junit", str(len(good))


def _metrics(text: str) -> Iterator[Told]:
    def values(name: str) -> list[tuple[dict[str, str], float]]:
        rows = re.findall(rf"^elastic_ai_{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
        return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in rows]

    for fact, name in (("planned", "measurements_planned"), ("measured", "measurements_usable")):
        yield fact, "metrics", f"{values(name)[0][1]:g}"
    states = Counter(labels["verdict"] for labels, value in values("criterion_verdict") if value == 1)
    yield from ((state, "metrics", str(states[state])) for state in _STATES)
    yield "sign-off", "metrics", next(labels["state"] for labels, value in values("sign_off") if value == 1)
    yield "outcome", "metrics", next(labels["state"] for labels, value in values("outcome") if value == 1)


def _page(place: str, page: str) -> Iterator[Told]:
    body = re.sub(r"(?s)<(style|script|head)\b.*?</\1>", " ", page)
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())
    for phrase, facts in _PHRASES.items():
        for found in re.finditer(phrase, text):
            yield from zip(facts, [place] * len(facts), found.groups(), strict=True)
    yield from (("rules", place, sha256) for sha256 in re.findall(r"rules: [^()]*\(sha256 ([0-9a-f]{64})\)", text))
