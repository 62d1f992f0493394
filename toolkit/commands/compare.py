"""`toolkit compare`: two runs of a site against each other, e.g. before and after an upgrade."""

from __future__ import annotations

from pathlib import Path

import click

from toolkit import answers, rundir
from toolkit.command_class import command
from toolkit.commands.options import json_option, kept_runs_option
from toolkit.exits import Exit, epilogue
from toolkit.working import working


@command(epilog=epilogue("compare"))
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "html", "json")),
    default="text",
    show_default=True,
    help="Print the comparison as text, or write it as html or json.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write into this file.  [default: stdout]",
)
@json_option
@kept_runs_option
def compare(before: str, after: str, form: str, out: Path | None, as_json: bool, runs_dir: Path) -> None:
    """Compare two runs of a site.

    Prints what changed from run A to run B: stack, parts by serial number, verdicts, figures.

    A figure counts as changed where it changed by 3 % or more, and by more than its samples, and what runs of its
    equals differ by, explain. That is corrected for the number of figures (Holm): of two runs of an unchanged site one
    comparison in a hundred raises a false alarm, however many figures it has. docs/how-to/compare.md.

    A and B are runs or packed bundles. Runs of different fabrics, or a rehearsal and a run on hardware, are refused.
    Nothing is written into the runs.

    \b
    toolkit compare runs/2026-11-21T10-15-00Z-roce40 runs/2026-12-01T09-00-00Z-roce40
    toolkit compare 2026-11-21T10-15-00Z-roce40 2026-12-01T09-00-00Z-roce40 --format html --out upgrade.html
    toolkit compare A B --json | jq '.criteria[] | select(.verdict == "worse") | .id'
    """
    from toolkit.packed_runs import opened
    from validation.compare import as_html, as_text
    from validation.compare import compare as compared  # only here: statistics and templates are slow to load

    with opened(runs_dir, before) as a, opened(runs_dir, after) as b, working("comparing"):
        found = compared(a, b)
    if form == "json":
        text = found.model_dump_json(indent=2, by_alias=True) + "\n"
    else:
        text = as_html(found) if form == "html" else as_text(found)
    if out is not None:
        rundir.write_text(out, text)
        click.echo(found.headline, err=True)
    if as_json:
        answers.say("comparison", {**found.model_dump(mode="json", by_alias=True), "file": out})
    else:
        click.echo(text if out is None else f"{out}\n", nl=False)
    raise SystemExit(Exit(found.exit_code))
