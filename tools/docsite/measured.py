"""docs/reference/measured.md: a section for each kind of measurement, made from the kinds and the criteria."""

from __future__ import annotations

from collections.abc import Sequence

from tools.docsite.markdown import code, escaped, table
from validation.kinds import KINDS, Kind
from validation.rules.criterion import Criterion
from validation.run.catalogue import load_criteria

SUITES = (
    "preflight", "as-built", "transport", "compute", "burn-in", "training", "remoting", "operations", "storage",
    "recovery", "witness",
)  # fmt: skip


def figure(criterion: Criterion) -> str:
    """Name and unit of what a criterion judges; several figures of one unit have no name here, facts none at all."""
    words = (code(criterion.metric) if criterion.metric else "", criterion.unit or "")
    return ", ".join(word for word in words if word) or "facts"


def _row(criterion: Criterion) -> tuple[str, ...]:
    return code(criterion.id), escaped(criterion.statement), figure(criterion)


def section(kind: Kind, criteria: Sequence[Criterion]) -> str:
    """A kind: what it measures, with what, and the criteria that judge it."""
    needs = (
        f" Runs only after [{KINDS[kind.needs].title}](#{kind.needs}) passed between the same ports."
        if kind.needs
        else ""
    )
    on_each = kind.on_each
    where = f" Takes about {on_each.estimated_s:g} s on each node." if on_each is not None else ""
    return "\n\n".join(
        part.strip("\n")
        for part in (
            f'### {kind.title}\n\n<a id="{kind.name}"></a>',
            f"{kind.measures}{where}{needs}",
            f"*Kind*: {code(kind.name)}. *Tool*: {kind.tool}. [More](../{kind.more})",
            table(("Criterion", "What must hold", "Figure, unit"), map(_row, criteria)),
        )
        if part
    )


def sections() -> str:
    """All kinds, by the suite of their first criterion; those that no criterion judges at the end."""
    criteria = load_criteria()
    judged = {name: [c for c in criteria if c.kind == name] for name in KINDS}
    parts = []
    for suite in SUITES:
        mine = [kind for kind in KINDS.values() if judged[kind.name] and judged[kind.name][0].suite == suite]
        parts += [f"## Suite {suite}", *(section(kind, judged[kind.name]) for kind in mine)]
    parts += ["## Measured, judged by no criterion", *(section(k, ()) for k in KINDS.values() if not judged[k.name])]
    return "\n\n".join(parts) + "\n"
