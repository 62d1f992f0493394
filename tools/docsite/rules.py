"""Reference pages of what a run is judged by: criteria, fabrics, acceptance profiles, claims of the documents."""

from __future__ import annotations

from collections.abc import Sequence

from tools.docsite.markdown import code, escaped, page, table
from tools.docsite.measured import figure
from validation.kinds import title
from validation.plan.suites import SUITES
from validation.rules.bounds import bounds_of
from validation.rules.criterion import Criterion
from validation.rules.fabric import FIGURES, Fabric, fabric_names, load_fabric
from validation.rules.profile import Profile, load_profile, profile_names
from validation.rules.reference import Claim, packaged
from validation.run.catalogue import load_criteria

REHEARSAL = {
    "same": "judged as on hardware",
    "lab-link": "judged by the declared rate of the lab's link",
    "not-judged": "reported, not judged",
}
MEASURED = "measured.md"


def pages() -> dict[str, str]:
    """Path -> text."""
    criteria = load_criteria()
    return {
        "reference/criteria.md": criteria_page(criteria),
        "reference/fabrics.md": fabrics_page([load_fabric(name) for name in fabric_names()]),
        "reference/profiles.md": profiles_page(criteria),
        "reference/claims.md": claims_page(),
    }


def in_rehearsal(criterion: Criterion) -> str:
    """What becomes of a criterion on virtual nodes."""
    rule = criterion.rehearsal
    words = f"judged by {rule.value:g} instead" if rule.value is not None else REHEARSAL[rule.judge]
    return f"{words}: {rule.why}" if rule.why else words


def criteria_page(criteria: Sequence[Criterion]) -> str:
    """Every criterion, by suite."""
    parts = [
        f"A criterion is a statement that must hold. This release has {len(criteria)}. `toolkit criteria` prints the "
        "same. What to do when one fails: [troubleshooting](../how-to/troubleshooting.md)."
    ]
    for suite in dict.fromkeys(c.suite for c in criteria):
        parts.append(f"## Suite {suite}")
        for c in (each for each in criteria if each.suite == suite):
            by = f"[{title(c.kind)}]({MEASURED}#{c.kind})" if c.kind else f"not measured by this release: {c.no_probe}"
            rows = [
                (
                    "Bound",
                    escaped(c.bound.words) + (" (our judgement, to be calibrated)" if c.bound.provisional else ""),
                ),
                ("Measured by", by),
                ("Figure, unit", figure(c)),
                ("Looked at for each", c.scope),
                ("Required", "yes" if c.required else "no"),
                ("In a rehearsal", escaped(in_rehearsal(c))),
                ("Applies", escaped(c.applies.why) if c.applies else ""),
                ("Source", escaped(c.source)),
                ("What to do", escaped(c.remedy)),
            ]
            parts.append(f"### {c.id} {{ #{c.id} }}")
            parts.append(escaped(c.statement) + ".")
            parts.append("\n".join(f"- *{name}*: {value}" for name, value in rows if value))
    return page("Criteria", *parts)


def fabrics_page(fabrics: Sequence[Fabric]) -> str:
    """Every fabric profile, with its bounds and where each comes from."""
    rows = [
        (f"[{code(f.name)}](#{f.name})", f"{f.line_rate_gbps:g} Gbit/s", f.link_layer, f.transport, str(f.mtu), f.title)
        for f in fabrics
    ]
    parts = [
        "A fabric profile describes a network and what it must reach. `toolkit fabrics show NAME` prints the same, and "
        "with `-i INVENTORY` the bounds of a rehearsal on that lab.",
        table(("Fabric", "Line rate", "Link layer", "Transport", "MTU", "Title"), rows),
    ]
    for fabric in fabrics:
        parts += [f"## {fabric.name} {{ #{fabric.name} }}", escaped(fabric.title) + "."]
        parts.append(
            table(
                ("Property", "Value", "Source"),
                [
                    ("Line rate", f"{fabric.line_rate_gbps:g} Gbit/s per port", escaped(fabric.sources.line_rate_gbps)),
                    ("Transport", f"{fabric.transport} on {fabric.link_layer}", escaped(fabric.sources.transport)),
                    ("Lossless", "yes" if fabric.lossless else "no", escaped(fabric.sources.lossless)),
                ],
            )
        )
        bounds = bounds_of(fabric, None)
        for key, bound in bounds.items():
            sides = [("floor", bound.floor), ("at most", bound.maximum), ("ceiling", bound.ceiling)]
            limits = ", ".join(f"{side} {value:.4g} {bound.unit}" for side, value in sides if value is not None)
            parts.append(f"**{code(key)}**: {limits or f'{bound.equal} {bound.unit}'}")
            lines = [*bound.derivation, *([f"nominal: {bound.nominal}"] if bound.nominal else [])]
            parts.append("\n".join(f"- {escaped(line)}" for line in lines))
        without = [key for key in FIGURES if key not in bounds]
        if without:
            parts.append(f"Without a figure, so reported and not judged: {', '.join(map(code, without))}.")
        parts += [escaped(note) for note in fabric.notes]
    return page("Fabrics", *parts)


def profiles_page(criteria: Sequence[Criterion]) -> str:
    """Every acceptance profile: what is owed, what is left out and why."""
    found: list[Profile] = [load_profile(name, criteria, SUITES) for name in profile_names()]
    statements = {c.id: c.statement for c in criteria}
    bare = {c.id for c in criteria if c.no_probe is not None}
    rows = [(f"[{code(p.name)}](#{p.name})", p.delivery, p.test, str(len(p.owed)), escaped(p.title)) for p in found]
    parts = [
        "An acceptance profile lists the criteria that a delivery owes. Supplier and customer agree on one before the "
        "measurement ([acceptance](../how-to/acceptance.md)). `toolkit profiles show NAME` prints the same.",
        table(("Profile", "Delivery", "Test", "Owed", "Title"), rows),
    ]
    for p in found:
        parts += [f"## {p.name} {{ #{p.name} }}", f"{escaped(p.title)}. Suites: {', '.join(p.suites)}."]
        owed = [
            (f"[{code(id_)}](criteria.md#{id_})", escaped(statements[id_]), "no" if id_ in bare else "yes")
            for id_ in p.owed
        ]
        parts.append(table(("Owed", "What must hold", "Measured by this release"), owed))
        out = [
            (
                ", ".join(f"[{code(id_)}](criteria.md#{id_})" for id_ in entry.criteria),
                ("where the fabric has no bound: " if entry.when == "no-bound" else "") + escaped(entry.why),
            )
            for entry in p.left_out
        ]
        parts.append(table(("Left out", "Why"), out))
    return page("Acceptance profiles", *parts)


def _published(claim: Claim) -> str:
    return escaped(claim.published.printed) if claim.published else "no figure"


def claims_page() -> str:
    """Every claim of the documents, with the criterion that confirms it or why none does."""
    known = packaged()
    parts = [
        "The reference architecture is what a few published documents claim. Each claim stands here once, with the "
        "criterion that confirms it, or the reason why none does ([conformance](../explanation/conformance.md)). "
        "`toolkit claims show ID` prints one with all that is known of it."
    ]
    for document in known.documents.values():
        mine = [c for c in known.claims.values() if known.document(c) is document]
        rows = []
        for claim in mine:
            by = claim.confirmed_by
            how = f"[{code(by.criterion)}](criteria.md#{by.criterion})" if by else f"none: {escaped(claim.unconfirmed)}"
            rows.append((code(claim.id), escaped(claim.statement), _published(claim), how))
        parts.append(f"## {escaped(document.title)} {{ #{document.key} }}")
        if not document.founding:
            parts.append("Public figures of others: no part of the reference architecture.")
        parts.append(table(("Claim", "What it says", "Published", "Confirmed by"), rows))
    return page("Claims of the reference architecture", *parts)
