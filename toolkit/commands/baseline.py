"""`toolkit baseline`: accepted runs of a site become the bounds of the next."""

from __future__ import annotations

from pathlib import Path

import click

from toolkit import answers, rundir
from toolkit.command_class import command
from toolkit.commands.options import json_option, kept_runs_option
from toolkit.exits import epilogue
from toolkit.working import working
from validation.base.counting import number_of


@command(epilog=epilogue("baseline"))
@click.argument("names", nargs=-1, required=True, metavar="RUN RUN...")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write into this file.  [default: stdout]",
)
@json_option
@kept_runs_option
def baseline(names: tuple[str, ...], out: Path | None, as_json: bool, runs_dir: Path) -> None:
    """Make accepted runs the bounds of later ones.

    The criteria say what is good enough; a baseline says what each pair, port, node and job of this site has shown that
    it can. Its criteria (bl.*) are added to the others and replace none: a link that carried 9.8 Gbit/s in five
    runs and carries 9.5 now still passes its criterion, and fails here. The margin is what the runs differ by: a
    further run of an unchanged site falls behind any of the bounds in one of a hundred cases.

    Only accepted runs become bounds; of a lab, rehearsals that passed, and the file states this. At least two,
    better five, of one site over one fabric. Nothing is written into the runs.

    \b
    toolkit baseline RUN1 RUN2 RUN3 --out inventories/site/baseline.yml    found there by toolkit validate
    toolkit validate --fabric roce40 -i inventories/site --baseline good.yml
    toolkit judge RUN --criteria good.yml                                  a run that was made before
    """
    from toolkit import baselines  # only here: reading runs is slow to load

    runs = [rundir.find(runs_dir, name) for name in names]
    with working("reading the runs"):
        made = baselines.make(runs)
    for id_, why in made.left_out.items():
        click.echo(f"{id_}: left out: {why}", err=True)
    kind = "rehearsals: no acceptance" if made.of.rehearsal else "accepted runs"
    click.echo(
        f"{number_of(made.figures, 'figure')} of {made.of.site}, {made.of.fabric}, by {len(names)} {kind}", err=True
    )
    if out is not None:
        rundir.write_text(out, made.text)
    if as_json:
        of = {"site": made.of.site, "fabric": made.of.fabric, "rehearsal": made.of.rehearsal, "runs": len(names)}
        text = made.text if out is None else None
        answers.say("baseline", {**of, "figures": made.figures, "left_out": made.left_out, "file": out, "text": text})
    else:
        click.echo(made.text if out is None else f"{out}\n", nl=False)
