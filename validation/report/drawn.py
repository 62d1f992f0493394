"""Figures of the report that measurements bring: found beside them in files `NAME_figures.py`, and listed nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from validation.base import discovery
from validation.model import VerdictDoc
from validation.report.documents import RunDocuments
from validation.report.svg.drawing import Figure


class Drawn(NamedTuple):
    """Figures of a section: `FIGURES` of a module has a tuple of these.

    `section`: switch, storage, gpu, training, remoting, operation or pool, whose template shows them. `place`: in the
    order of these. `draw`: what makes them; one that has nothing to show says why.
    """

    section: str
    place: int
    draw: Callable[[RunDocuments, VerdictDoc], Iterable[Figure]]


def figures_of(section: str, documents: RunDocuments, verdict: VerdictDoc) -> tuple[Figure, ...]:
    """All figures of a section, in their order."""
    every = (one for module in discovery.figures() for one in getattr(module, "FIGURES", ()) if isinstance(one, Drawn))
    mine = sorted((one for one in every if one.section == section), key=lambda one: one.place)
    return tuple(figure for one in mine for figure in one.draw(documents, verdict))
