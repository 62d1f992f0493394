"""From the documents of a run to one HTML file.

The templates hold all words and layout; what they are given is made by the pure functions of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment

from validation.base.files import replace
from validation.model.points import counted
from validation.report import criteria, evidence, numbers
from validation.report.deployments import built
from validation.report.documents import RunDocuments, read_run
from validation.report.figures import figures_context
from validation.report.pages import environment
from validation.report.paging import paged
from validation.report.summary import verdict_of
from validation.report.summary_page import front_context
from validation.report.svg.charts import tally
from validation.report.system import system

_TRANSPORTS = {"tcp": "TCP", "roce": "RoCE", "ib": "InfiniBand verbs", "pvrdma": "PVRDMA"}


def css_string(text: str) -> str:
    """`text` as the inside of a CSS string: everything but letters, digits, space and a few marks is escaped.

    HTML's escapes do not work inside <style>, so that a name from an inventory must not reach it unescaped.
    """
    return "".join(c if (c.isascii() and c.isalnum()) or c in " .:-_/,()" else f"\\{ord(c):06x}" for c in text)


@cache
def _environment() -> Environment:
    made = environment(
        "validation.report",
        css_string=css_string,
        number=numbers.number,
        code_words=criteria.code_words,
        percent=numbers.percent,
        duration=numbers.duration,
    )
    return made


def view(documents: RunDocuments) -> dict[str, Any]:
    """What the templates are given; reads no file and no clock, so that the same run gives the same report."""
    verdict = verdict_of(documents)
    families = criteria.families(verdict, documents.catalogue, documents.fabric)
    rows = [row for family in families for row in family.rows]
    rehearsal = documents.virtual or verdict.sign_off == "REHEARSAL"
    return dict(
        info=documents.info,
        topology=documents.topology,
        plan=documents.plan,
        fabric=documents.fabric,
        judged=documents.verdict is not None,
        verdict=verdict,
        headline=criteria.headline(verdict),
        notes=evidence.notes(documents, verdict),
        constructed=documents.constructed,
        rehearsal=rehearsal,
        families=families,
        rows=rows,
        counts=criteria.tally(verdict.criteria),
        tally=tally(criteria.tally(verdict.criteria), neutral=rehearsal or documents.constructed),
        tally_words=criteria.summary(verdict),
        derivations=criteria.derivations(verdict),
        transport_name=_TRANSPORTS.get(documents.fabric.transport, documents.fabric.transport),
        **figures_context(documents, verdict),
        **front_context(documents, verdict, rows),
        system=system(documents),
        server_parts=documents.parts,
        built=built(documents),
        kinds=evidence.kinds(documents),
        missing=evidence.missing(documents),
        points_counted=counted(verdict.points),
        annex=evidence.annex(documents),
    )


def fill(views: Mapping[str, Any], printed: bool = False) -> str:
    """The templates filled with `view`. `printed`: for paper, where long annexes are summed up and name the rest."""
    values = {**views, **paged(views, "paper" if printed else "screen")}
    return _environment().get_template("report.html").render(values)


def render(documents: RunDocuments) -> str:
    """The report of a run as HTML text."""
    return fill(view(documents))


def write_html(run_dir: Path, out: Path | None = None) -> Path:
    """Write the report of the run in `run_dir` and return where it is (default: `report.html` in the run directory).

    The file is complete in itself: no font, no picture from elsewhere. It is replaced in one step, so that no reader
    sees half of it. Raises ConfigError with one line for a damaged run directory or a place that cannot be written.
    """
    text = render(read_run(run_dir))
    return replace(out if out is not None else run_dir / "report.html", text.encode())
