"""`toolkit claims`: the claims of the reference architecture, and what confirms each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import group
from toolkit.commands.options import json_option
from toolkit.errors import UsageFault, or_nearest
from validation.base.counting import number_of

if TYPE_CHECKING:  # loaded when claims are read, not for --help
    from validation.rules.criterion import Criterion
    from validation.rules.fabric import Fabric
    from validation.rules.reference import Claim, Reference, WhyKind

WHY: dict[WhyKind, str] = {
    "data-sheet": "a figure of a data sheet, of which a criterion asks a share",
    "others": "what others reached, and nothing that a site has to reach",
    "past": "what was not possible at the time",
    "several-sites": "compares machines of which a run has one kind",
    "not-offered": "not offered; docs/explanation/scope.md says why",
    "own-command": "another command proves it",
}
"""Why no criterion confirms a claim, in words of each kind."""

document_option = click.option(
    "--document", metavar="KEY", help="List only the claims of this document, as whitepaper."
)


@group(invoke_without_command=True)
@document_option
@json_option
@click.pass_context
def claims(context: click.Context, document: str | None, as_json: bool) -> None:
    """List the claims of the reference architecture.

    These are what the founding documents say. Each is listed once, with document, section, published figure, what of it
    is inferred, and the criterion that confirms it, or why none can. Bounds and reports point to these claims. Which of
    them a run confirms is in its report, annex Conformance.

    \b
    toolkit claims                             all of them
    toolkit claims list --document vmware      of one document
    toolkit claims show whitepaper.inter-k     one claim, with all that is known of it
    """
    if context.invoked_subcommand is None:
        _list(document, as_json)


@claims.command("list")
@document_option
@json_option
def list_claims(document: str | None, as_json: bool) -> None:
    """List all claims: what is published, and the criterion that confirms it.

    Where no criterion confirms a claim, `toolkit claims show ID` says why.

    \b
    toolkit claims list --document vmware
    """
    _list(document, as_json)


def _read() -> tuple[Reference, tuple[Criterion, ...], tuple[Fabric, ...]]:
    from validation.rules.fabric import fabric_names, load_fabric
    from validation.rules.reference import packaged
    from validation.run.catalogue import load_criteria

    criteria = load_criteria()
    fabrics = tuple(load_fabric(name) for name in fabric_names())
    packaged().check([c.id for c in criteria], [f.name for f in fabrics])
    return packaged(), criteria, fabrics


def _list(key: str | None, as_json: bool) -> None:
    from rich.text import Text

    from toolkit import tables
    from toolkit.progress import make_console

    known, criteria, fabrics = _read()
    if key is not None and key not in known.documents:
        raise UsageFault(f"there is no document {key!r}; {or_nearest(key, known.documents)}")
    claims = [c for c in known.claims.values() if key is None or c.id.startswith(f"{key}.")]
    if as_json:
        answers.say("claims", {"claims": [_document(c, known, criteria, fabrics) for c in claims]})
        return
    console = make_console()
    for document in known.documents.values():
        mine = [c for c in claims if known.document(c) is document]
        if not mine:
            continue
        console.print(Text(f"{document.key}: {document.title}", style="bold"), soft_wrap=True)
        rows = []
        for claim in mine:
            by = claim.confirmed_by
            figure = claim.published.printed if claim.published else "no figure"
            rows.append((claim.id, figure, by.criterion if by else "none", claim.statement))
        tables.show(("claim", "published", "criterion", "statement"), rows)
        console.print()
    founding = [c for c in claims if known.document(c).founding]
    confirmed = sum(c.confirmed_by is not None for c in founding)
    words = f"{number_of(len(founding), 'claim')} of founding documents; a criterion confirms {confirmed} of them"
    console.print(Text(words), soft_wrap=True)
    kinds = Counter(c.why_kind for c in founding if c.why_kind is not None)
    for kind, many in kinds.most_common():
        console.print(Text(f"{many:>3}  none: {WHY[kind]}"), soft_wrap=True)


@claims.command()
@click.argument("claim_id", metavar="ID")
@json_option
def show(claim_id: str, as_json: bool) -> None:
    """Show one claim: source, statement, what confirms it, and what points to it.

    \b
    toolkit claims show whitepaper.inter-k
    """
    from rich.text import Text

    from toolkit.progress import make_console

    known, criteria, fabrics = _read()
    claim = known.claim(claim_id)
    if as_json:
        answers.say("claim", {"claim": _document(claim, known, criteria, fabrics)})
        return
    console = make_console()
    console.print(Text(claim.id, style="bold"))
    console.print(Text(claim.statement), soft_wrap=True)
    for name, words in _lines(claim, known, criteria, fabrics):
        console.print(Text(f"{name + ':':<15}{words}"), soft_wrap=True)


def _users(claim: Claim, criteria: Sequence[Criterion], fabrics: Sequence[Fabric]) -> list[str]:
    """Criteria whose bound, and profiles of which a figure, is the claim's."""
    bounds = [f"bound of {c.id}" for c in criteria if claim.id in (c.bound.claim, *c.bound.of_machines)]
    return bounds + [f"{key} of {f.name}" for f in fabrics for key, id_ in f.claims.items() if id_ == claim.id]


def _lines(
    claim: Claim, known: Reference, criteria: Sequence[Criterion], fabrics: Sequence[Fabric]
) -> list[tuple[str, str]]:
    published, by = claim.published, claim.confirmed_by
    lines = [("document", known.document(claim).title), ("section", claim.section)]
    if not known.document(claim).founding:
        lines.append(("note", "of no founding document: no part of the reference architecture"))
    lines += [("machine", known.machines[key].title) for key in claim.machines]
    lines += [("fabrics", ", ".join(claim.fabrics))] if claim.fabrics else []
    lines += [("conditions", ", ".join(f"{k} {v}" for k, v in claim.conditions.items()))] if claim.conditions else []
    lines += [("inferred", f"{', '.join(claim.inferred)}: the document does not say it")] if claim.inferred else []
    if published is None:
        lines.append(("published", "no figure"))
    else:
        sense = {"at-least": "at least", "at-most": "at most", "reported": "no side to reach"}[published.sense]
        to = f" to {published.to:g}" if published.to is not None else ""
        within = f", printed within {published.rounding:g}" if published.rounding else ""
        lines.append(("published", published.printed))
        lines.append(("value", f"{claim.value:g}{to} {published.unit}, {sense}{within}"))
        ratio = published.ratio
        if ratio is not None:
            below = f"({ratio.times} x {ratio.over})" if ratio.times != 1 else ratio.over
            lines.append(("follows from", f"{ratio.of} / {below}"))
        lines += [("base", published.base)] if published.base else []
        lines += [("base there", published.printed_base)] if published.printed_base else []
    if by is not None:
        where = "".join(f", {key} {value}" for key, value in by.where.items())
        lines.append(("confirmed by", f"{by.criterion}: {by.statistic}{where}"))
        lines += [("divided by", by.over)] if by.over is not None else []
        against = ", ".join(f"{key} {value}" for key, value in by.against.items())
        lines += [("divided by", f"{by.criterion} of {against}")] if against else []
        lines += [("of at least", number_of(by.gpus, "GPU"))] if by.gpus is not None else []
        decides = {"verdict": "the criterion's verdict", "done": "that it was done, without a fault"}.get(by.by, "")
        lines += [("decided by", decides)] if decides else []
        bare = next((c.no_probe for c in criteria if c.id == by.criterion), None)
        lines += [("but", bare)] if bare else []
    else:
        lines.append(("not confirmed", claim.unconfirmed))
        lines += [("kind", WHY[claim.why_kind])] if claim.why_kind is not None else []
    users = _users(claim, criteria, fabrics)
    return lines + ([("used by", ", ".join(users))] if users else [])


def _document(
    claim: Claim, known: Reference, criteria: Sequence[Criterion], fabrics: Sequence[Fabric]
) -> dict[str, object]:
    return {
        **claim.model_dump(mode="json"),
        "document": known.document(claim).model_dump(mode="json"),
        "machines": [known.machines[key].model_dump(mode="json") for key in claim.machines],
        "limit": claim.limit if claim.published is not None else None,
        "used_by": _users(claim, criteria, fabrics),
    }
