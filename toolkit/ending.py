"""How a command that judged a run ends: the verdict in a few lines, with what is beside the run on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO

from toolkit.next_steps import next_commands, unselected
from toolkit.other_rules import Made
from toolkit.progress import make_console
from toolkit.verdict_lines import Line, print_lines, state, verdict_lines
from toolkit.verdict_text import UNDECLARED, print_verdict
from validation.model import VerdictDoc
from validation.run.read import Run
from validation.signing import is_signed
from validation.verdict.glance import Glance, glance


def print_ending(
    run: Run,
    verdict: VerdictDoc,
    report: Path | None,
    whole: bool,
    file: IO[str] | None = None,
) -> None:
    """Print a run's verdict but for its last line, the exit code, which comes when the command is through. `whole`:
    the table of all criteria above it; `file`: where to, None for stdout.
    """
    console = make_console(file)
    if whole:
        print_verdict(console, run.info, verdict, run.folder, report)
    console.print()
    print_lines(console, ending_lines(run, verdict, report))


def ending_lines(run: Run, verdict: VerdictDoc, report: Path | None) -> list[Line]:
    """The verdict of a run in about ten lines, without the exit code."""
    seen = at_a_glance(run, verdict)
    more = unselected(seen, run.criteria)
    steps = next_commands(run.folder, run.info, run.topology, verdict, more, is_signed(run.folder))
    from validation.report.documents import rules_of_run  # only here: templates and figures are slow to load

    rules = rules_of_run(run)
    notes = [f"rules: {rules.line()}"] if rules.other else []
    if not run.info.inventory:
        notes.append(UNDECLARED)
    lines = verdict_lines(seen, ("report", report) if report else ("run", run.folder), steps, notes)
    return lines[:-1]


def print_judged(run: Run, made: Made, steps: Sequence[str], whole: bool) -> None:
    """What other rules say of a run, below what is different, and where it was written; the last line is the code."""
    console = make_console()
    if whole:
        print_verdict(console, run.info, made.verdict, made.folder, None)
    print_lines(console, [Line(line, 2) for line in made.text(whole).splitlines()])
    seen = glance(made.verdict, made.rules.criteria, run.plan, run.topology, run.whole_results)
    console.print()
    aside = "by other rules" if made.other else ""
    print_lines(console, verdict_lines(seen, ("judged", made.folder), steps, aside=aside))


def at_a_glance(run: Run, verdict: VerdictDoc) -> Glance:
    """Its verdict as typed data."""
    return glance(verdict, run.criteria, run.plan, run.topology, run.whole_results)


def print_campaign(done: Sequence[tuple[Path, VerdictDoc]], pages: Sequence[Path], code: int) -> None:
    """Several fabrics, one line each, after the verdicts of them all."""
    console = make_console()
    console.print()
    lines = [Line(f"{verdict.fabric}: {verdict.line} ({run_dir})", 2, state(verdict)[1]) for run_dir, verdict in done]
    lines.append(Line(f"exit code {code}"))
    print_lines(console, [*lines, *(Line(f"campaign: {path}", 10) for path in pages)])
