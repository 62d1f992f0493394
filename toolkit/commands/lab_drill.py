"""`toolkit lab drill`: faults planted, several at once, and what a validation said of each."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import json_option
from toolkit.errors import LabError, UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.lab.faults import FAULTS
from toolkit.lab.host import become_root
from toolkit.lab.lab import load
from toolkit.lab.spec import DEFAULT_NAME, LabSpec, inventory_dir
from toolkit.loudness import progress
from validation.base.project import python_words

if TYPE_CHECKING:
    from toolkit.lab.drill import Drilled
    from toolkit.lab.drillplan import Turn
    from validation.model import VerdictDoc

CLEAN = ("preflight", "as-built", "transport")
"""Suites of a clean run: those in which faults are found."""
LIMIT_S = 3600
"""A validation that takes longer than this is ended, and its faults count as not found."""
END_S = 60
"""What an interrupted validation may take to take its servers off the nodes."""
LOOK_S = 0.5


def say(text: str) -> None:
    """On stderr, where progress goes."""
    progress(text)


@command(epilog=epilogue("lab drill"), front=("--fault", "--all", "--except", "--clean", "--out", "--json"))
@click.option(
    "--name", default=DEFAULT_NAME, show_default=True, help="Use the lab of this name, which is provisioned already."
)
@click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path, exists=True),
    help="Use another inventory of that lab.  [default: the lab's own]",
)
@click.option(
    "--fault",
    "kinds",
    multiple=True,
    metavar="KIND",
    type=click.Choice(list(FAULTS)),
    help="Plant only this fault; repeatable.",
)
@click.option("--all", "every", is_flag=True, help="Plant every fault that a node of this lab can have.")
@click.option(
    "--except",
    "without",
    multiple=True,
    metavar="KIND",
    type=click.Choice(list(FAULTS)),
    help="Leave out this fault; repeatable.",
)
@click.option(
    "--clean",
    type=click.IntRange(0),
    help="Validate so often without a fault first; without --fault and --all do only that.  [default: 1]",
)
@click.option("--alone", is_flag=True, help="Plant one fault at a time; else several on different nodes.")
@click.option(
    "--narrow", is_flag=True, help="Measure only what finds the faults of each run (clean runs: any fault); quicker."
)
@click.option(
    "--fabric", default="tcp10", show_default=True, help="Validate over this network, as toolkit validate does."
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="NAME",
    help="Measure this suite, as toolkit validate does.  [default: what each fault needs]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("drill"),
    show_default=True,
    help="Keep the runs, drill.json and drill.md in this folder; what is in drill.json is not planted again.",
)
@click.option("--anew", is_flag=True, help="Forget what is in drill.json.")
@json_option
def drill(
    name: str,
    inventory: Path | None,
    kinds: tuple[str, ...],
    every: bool,
    without: tuple[str, ...],
    clean: int | None,
    alone: bool,
    narrow: bool,
    fabric: str,
    suites: tuple[str, ...],
    out: Path,
    anew: bool,
    as_json: bool,
) -> None:
    """Plant faults, validate, clear them; count what was found, localised, named, and blamed falsely.

    Ten faults by default, several at once on different nodes that cannot hide each other. A line for each as it is
    done, the counts at the end, a table in drill.md. Ctrl-C clears what is planted; the same command goes on.

    \b
    toolkit lab up; toolkit deploy; toolkit lab drill
    toolkit lab drill --fault slow-link --fault ecc --clean 0
    toolkit lab drill --all --except noisy-neighbour
    toolkit lab drill --clean 20
    """
    from toolkit.lab import drill as drills  # here, for `toolkit lab ssh` need not wait for the judge
    from toolkit.lab import drillplan

    if every and kinds:
        raise UsageFault("--all is every fault; omit --fault")
    become_root()
    spec = load(name)
    only_clean = clean is not None and clean > 0 and not kinds and not every
    asked = kinds or (tuple(FAULTS) if every else () if only_clean else drillplan.SHORT)
    wanted = [kind for kind in asked if kind not in without]
    left_out = {kind: why_not(spec, kind) for kind in wanted if not drillplan.candidates(spec, kind)}
    left_out |= {kind: "left out by --except" for kind in asked if kind in without}
    for kind, why in sorted(left_out.items()):
        say(f"{kind:32} left out: {why}")
    before = [] if anew else kept(out, name)
    known = {one.kind or one.turn for one in before}
    if known:
        say(f"{out / 'drill.json'} has {len(known)} of them; --anew plants them again")
    done = list(before)
    # Names of later turns go on where those of an earlier command ended, so that no run takes another's folder.
    first = len([p for p in out.glob("turn-*") if p.is_dir()]) if out.is_dir() else 0
    turns = [drillplan.clean(n + 1, suites or CLEAN) for n in range(1 if clean is None else clean)]
    turns = [turn for turn in turns if turn.name not in known]
    for number, turn in enumerate(drillplan.turns(spec, [k for k in wanted if k not in known], alone), first + 1):
        turns.append(drillplan.Turn(f"turn-{number}", turn.planted, suites or turn.suites))

    def validate(turn: Turn, begun: Callable[[], None] | None) -> VerdictDoc:
        folder = out / turn.name
        words = [word for suite in turn.suites for word in ("--suite", suite)]
        words += [word for id_ in drillplan.without(turn, narrow) for word in ("--without", id_)]
        where = str(inventory or inventory_dir(name))
        command = [*python_words("toolkit"), "validate", "-i", where, "--fabric", fabric]
        return run([*command, *words, "--runs-dir", str(folder), "--format", "none"], folder, begun)

    def keep(mine: list[Drilled]) -> None:
        done.extend(mine)
        write(out, name, done, left_out)

    with ended_by_term():
        try:
            drills.drill(spec, turns, validate, say, keep)
        except KeyboardInterrupt:
            click.echo("interrupted; what was planted is cleared. The same command goes on with the rest", err=True)
            sys.exit(Exit.INTERRUPTED)
    write(out, name, done, left_out)
    if as_json:
        answers.say("lab-drill", {"lab": name, "drilled": [asdict(d) for d in done], "summary": drills.summary(done)})
    else:
        click.echo(drills.summary(done))
    if not drills.passed(done):
        sys.exit(Exit.FAILED)


def why_not(spec: LabSpec, kind: str) -> str:
    """Why no node of a lab can have a fault, in words."""
    if FAULTS[kind].vm_only and not spec.vms:
        return "needs a virtual machine"
    return "no node of this lab can have it"


def kept(out: Path, lab: str) -> list[Drilled]:
    """What an earlier command of the same lab came to, without what had no verdict; LabError for another lab's."""
    from toolkit.lab.drill import Drilled

    path = out / "drill.json"
    if not path.is_file():
        return []
    try:
        raw = json.loads(path.read_text())
        found = [Drilled(**{**one, "blamed": tuple(one["blamed"])}) for one in raw["drilled"]]
        other = raw["lab"] if raw["lab"] != lab else ""
    except (ValueError, TypeError, KeyError) as error:
        raise LabError(f"{path}: not written by a drill: {error}; --anew, or choose another --out") from None
    if other:
        raise LabError(f"{path} is of lab '{other}'; --anew, or choose another --out")
    return [one for one in found if not one.trouble]


def write(out: Path, lab: str, done: Sequence[Drilled], left_out: dict[str, str]) -> None:
    """drill.json and drill.md, whole."""
    from toolkit.lab.drill import table
    from toolkit.rundir import write_text

    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "drill.json", json.dumps({"lab": lab, "drilled": [asdict(d) for d in done]}, indent=2) + "\n")
    write_text(out / "drill.md", table(done, left_out))


@contextlib.contextmanager
def ended_by_term() -> Iterator[None]:
    """TERM ends the drill as Ctrl-C does, so that nothing stays planted."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(command: list[str], folder: Path, begun: Callable[[], None] | None = None) -> VerdictDoc:
    """The verdict of a validation by that command; LabError where it came to none. `begun` is called when the first
    results are there.
    """
    from toolkit.lab.drill import Refused, newest

    folder.mkdir(parents=True, exist_ok=True)
    log, until = folder / "validate.log", time.monotonic() + LIMIT_S
    with log.open("wb") as told:
        # of a session of its own: Ctrl-C reaches it by us alone, once
        child = subprocess.Popen(command, stdout=told, stderr=told, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            while child.poll() is None:
                if begun is not None and any(path.stat().st_size for path in folder.glob("*/results.jsonl")):
                    begun()
                    begun = None
                if time.monotonic() > until:
                    raise LabError(f"no end after {LIMIT_S} s")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(LOOK_S)
        finally:
            _end(child)
    if child.returncode not in (Exit.OK, Exit.FAILED, Exit.INCOMPLETE):
        words = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        said = f"toolkit validate ended with {child.returncode}: {words[-1] if words else 'nothing said'}"
        raise Refused(said, words) if child.returncode == Exit.USAGE else LabError(said)
    return newest(folder)


def _end(child: subprocess.Popen[bytes]) -> None:
    """A validation that still runs is interrupted, as by Ctrl-C, and killed where it does not end."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
