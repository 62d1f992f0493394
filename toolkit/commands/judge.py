"""`toolkit judge`: a finished run judged by other rules, beside its own verdict."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from toolkit import answers, rundir
from toolkit.command_class import command
from toolkit.commands.options import details, details_option, json_option, kept_runs_option
from toolkit.exits import Exit, epilogue
from toolkit.working import working
from validation.signing import is_signed


@command(epilog=epilogue("judge"))
@click.argument("name", metavar="[RUN]", required=False)
@click.option(
    "--criteria",
    metavar="FILE",
    help="Take criteria of this file in place of those of the same id; of a folder, or packaged (this "
    "release's), in place of all.  [default: the run's own]",
)
@click.option("--profile", metavar="NAME|FILE", help="Judge by what this profile owes.  [default: the run's own]")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write into this folder.  [default: RUN-judged beside the run, with a number where there is one]",
)
@details_option
@json_option
@kept_runs_option
def judge(
    name: str | None, criteria: str | None, profile: str | None, out: Path | None, as_json: bool, runs_dir: Path
) -> None:
    """Judge a finished run by other rules.

    Without RUN it is the newest. No node is touched, and nothing is written into the run: its verdict, and what
    somebody signed, stay as they are. The new verdict.json goes into a folder beside it, with the rules that were given
    and judged.json, which says what is different, criterion by criterion and subject by subject. Nobody signs such a
    verdict: to judge a run again permanently, by this release: toolkit validate --rejudge.

    \b
    toolkit judge RUN --profile network                  would this delivery have passed?
    toolkit judge RUN --criteria stricter.yml            one bound raised: who falls below it?
    toolkit judge RUN --criteria packaged                what does this release say of an old run?
    toolkit judge RUN --json | jq -r '.changes[] | [.id, .old, .new] | @tsv'

    A file of criteria looks like those in RUN/criteria: copy an entry, change its bound.
    """
    from toolkit import other_rules  # only here: what judges is slow to load
    from toolkit.ending import print_judged
    from validation.run.read import read

    run_dir = rundir.find(runs_dir, name)
    with working("judging"):
        made = other_rules.make(run_dir, criteria, profile, out)
    if as_json:
        answers.say("judged", made.document())
    else:
        print_judged(read(run_dir), made, _for_good(run_dir, criteria, profile), details())
    raise SystemExit(Exit(made.verdict.exit_code))


def _for_good(run_dir: Path, criteria: str | None, profile: str | None) -> tuple[str, ...]:
    """The command that has the run judged by these rules for good; none where a run cannot take them over."""
    from validation.run.other_rules import PACKAGED

    given = criteria is not None or profile is not None
    if not given or criteria not in (None, PACKAGED) or is_signed(run_dir):
        return ()
    words = ["toolkit", "validate", "--rejudge", str(run_dir), *(["--profile", profile] if profile else [])]
    return (shlex.join(words),)
