"""`toolkit lab drill`: faults planted in turn, and what a validation said of each."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import json_option
from toolkit.errors import LabError, UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.lab.faults import FAULTS
from toolkit.lab.host import become_root
from toolkit.lab.lab import load
from toolkit.lab.spec import DEFAULT_NAME, inventory_dir

if TYPE_CHECKING:
    from validation.model import VerdictDoc

SUITES = ("preflight", "as-built", "transport")
LIMIT_S = 3600
"""A validation that takes longer than this is ended, and its fault counts as not found."""


def say(text: str) -> None:
    """On stderr, where progress goes."""
    click.echo(text, err=True)


@click.command(epilog=epilogue("lab drill"))
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which lab; it is provisioned already.")
@click.option("--fault", "kinds", multiple=True, type=click.Choice(list(FAULTS)), help="Only this one; repeatable.")
@click.option("--all", "every", is_flag=True, help="Every fault that a node of this lab can have; hours.")
@click.option("--clean", default=1, show_default=True, type=click.IntRange(0), help="Runs without a fault, first.")
@click.option("--fabric", default="tcp10", show_default=True, help="As of toolkit validate.")
@click.option(
    "--suite", "suites", multiple=True, metavar="NAME", help=f"As of toolkit validate.  [default: {', '.join(SUITES)}]"
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("drill"),
    show_default=True,
    help="Folder of the runs, one below it for each fault.",
)
@json_option
def drill(
    name: str,
    kinds: tuple[str, ...],
    every: bool,
    clean: int,
    fabric: str,
    suites: tuple[str, ...],
    out: Path,
    as_json: bool,
) -> None:
    """Plant each fault in turn, validate, clear it; count what was found, localised, named, and blamed falsely.

    Ten faults by default. One line for each as it is done, and the counts at the end.

    \b
    toolkit lab up; toolkit deploy; toolkit lab drill
    toolkit lab drill --fault slow-link --fault ecc --clean 0
    toolkit lab drill --all --clean 20
    """
    from toolkit.lab import drill as drills  # here, for `toolkit lab ssh` need not wait for the judge

    if every and kinds:
        raise UsageFault("--all is every fault; omit --fault")
    become_root()
    spec = load(name)
    wanted = kinds or (tuple(FAULTS) if every else drills.SHORT)
    chosen = drills.suitable(spec, wanted)
    for kind in sorted(set(wanted) - {kind for kind, _ in chosen}):
        say(f"{kind:32} left out: no node of lab '{name}' can have it")

    def validate(what: str) -> VerdictDoc:
        folder = out / what
        asked = [word for suite in suites or SUITES for word in ("--suite", suite)]
        command = [sys.executable, "-m", "toolkit", "validate", "-i", str(inventory_dir(name)), "--fabric", fabric]
        return run([*command, *asked, "--runs-dir", str(folder), "--format", "none"], folder)

    done = drills.drill(spec, chosen, clean, validate, say)
    if as_json:
        click.echo(json.dumps({"lab": name, "drilled": [asdict(d) for d in done], "summary": drills.summary(done)}))
    else:
        click.echo(drills.summary(done))
    if not drills.passed(done):
        sys.exit(Exit.FAILED)


def run(command: list[str], folder: Path) -> VerdictDoc:
    """The verdict of a validation by that command; LabError where it came to none."""
    from toolkit.lab.drill import newest

    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise LabError(f"no end after {LIMIT_S} s") from None
    if ended.returncode not in (Exit.OK, Exit.FAILED, Exit.INCOMPLETE):
        said = (ended.stderr.strip() or ended.stdout.strip() or "nothing").splitlines()[-1]
        raise LabError(f"toolkit validate ended with {ended.returncode}: {said}")
    return newest(folder)
