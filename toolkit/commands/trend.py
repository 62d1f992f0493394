"""`toolkit trend`: many runs of a site, one after the other, and what drifted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.formats import format_option
from toolkit.commands.options import json_option, kept_runs_option
from toolkit.exits import Exit, epilogue
from toolkit.report_request import by_name


@command(epilog=epilogue("trend"))
@click.argument("names", nargs=-1, metavar="[RUN]...")
@format_option()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write into this folder.  [default: a folder beside the runs, named by the newest of them]",
)
@click.option(
    "--metrics",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write how the newest run ended and what drifted, for node-exporter's textfile collector (FILE.prom).",
)
@click.option(
    "--overdue-hours",
    type=click.IntRange(min=1),
    metavar="HOURS",
    help="Call the newest run overdue from this age on, with --metrics.  [default: 192, a week and a day]",
)
@json_option
@kept_runs_option
def trend(as_json: bool, **given: Any) -> None:
    """Show how the figures of a site change over time.

    Writes a page with charts of these runs, or of all runs of the newest run's site and fabric.

    Nothing is judged by a bound. Each figure is held against its own past: the newest run against those before it, and
    from eight runs on the slope over all of them, which finds what creeps too slowly for any single step. Corrected for
    the number of figures (Holm), so that an unchanged site raises an alarm in one of a hundred trends. A run that is
    damaged or was never judged is left out of a default trend, with a message; one that is named is refused.
    Validations by a timer, with alerts by Prometheus: monitoring_revalidate of role monitoring.

    \b
    toolkit trend                                   all runs of the newest one's site and fabric
    toolkit trend RUN1 RUN2 RUN3 --out /srv/www/site
    toolkit trend --format html --metrics /var/lib/prometheus/node-exporter/elastic_ai_site.prom
    toolkit trend --format html --json | jq '.drifts[] | select(.worse) | [.criterion, .subject, .change]'
    """
    from toolkit.trends import TrendRequest  # only here: templates are slow to load

    request = TrendRequest(**given)
    made = request.make()
    for why in made.left_out.values():
        click.echo(why, err=True)
    if as_json:
        answers.say("trend", made.document())
    else:
        click.echo(made.text, err=True)
        for path in made.paths.values():
            click.echo(str(path))
    if made.left_out and by_name(request.formats):
        raise SystemExit(Exit.USAGE)
    raise SystemExit(Exit(made.trend.exit_code))
