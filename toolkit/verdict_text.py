"""A verdict with all its criteria, and plans, as text for a terminal or a log."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from validation.base.counting import number_of
from validation.kinds import KINDS
from validation.model import Plan, RunInfo, VerdictDoc
from validation.plan.outline import Outline
from validation.verdict.next_attempts import MAX_ATTEMPTS, budget_s

LONGEST = 300  # characters of what is left out, in a plan of few lines: of a fleet it may name thousands of nodes
_STYLES = {"pass": "green", "fail": "bold red", "waived": "yellow", "not-measured": "yellow", "not-applicable": "dim"}
_OUTCOMES = {"passed": "bold green", "failed": "bold red", "incomplete": "bold yellow"}
# Not measured because it was not asked for, or because no release can yet: counted, not listed one by one.
_SUMMARISED = {
    "no-probe": "no measurement in this release",
    "not-selected": "suite not selected or left out of the plan",
}

UNDECLARED = "no inventory declares this machine: nothing is owed, and nothing is accepted"


def print_verdict(console: Console, info: RunInfo, verdict: VerdictDoc, run_dir: Path, report: Path | None) -> None:
    """A verdict with every criterion, finding, waiver and note (`--details`); in a few lines: verdict_lines.py."""
    console.print()
    console.print(Text(verdict.line, style=_OUTCOMES[verdict.outcome]))
    where = f"fabric {verdict.fabric}" if info.inventory else "this machine by itself"
    console.print(Text(f"{verdict.measured} of {number_of(verdict.planned, 'planned measurement')} taken, {where}"))
    console.print(Text(_owed(verdict)))
    for waiver in (w for w in verdict.waivers if w.covered):
        for_ = f" for {waiver.subject}" if waiver.subject else ""
        by = f"{waiver.who} on {waiver.when}, until {waiver.expires}: {waiver.why}"
        console.print(Text(f"waived: {waiver.criterion}{for_}, by {by}", style="yellow"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("criterion", "verdict", "coverage", "why"):
        table.add_column(title, no_wrap=title != "why" and console.width >= 80, overflow="fold")
    for c in verdict.criteria:
        word = "reported" if c.reason_code == "reported" else c.verdict
        noted = info.inventory and not c.owed and c.verdict not in ("pass", "not-applicable")
        why = c.reason + (" (not owed)" if noted else "")
        table.add_row(c.id, Text(word, style=_STYLES[c.verdict]), c.coverage, why)
    console.print()
    console.print(table)
    unmeasured = [c for c in verdict.criteria if c.reason_code in _SUMMARISED]
    for words, count in Counter(_SUMMARISED[c.reason_code] for c in unmeasured).items():
        owed = sum(c.owed for c in unmeasured if _SUMMARISED[c.reason_code] == words)
        of_them = f" ({owed} owed)" if info.inventory else ""
        console.print(
            Text(f"not measured: {number_of(count, 'criterion')}{of_them}, {words}; the report says why", style="dim")
        )
    for finding in verdict.findings:
        console.print()
        console.print(Text(f"{finding.kind} {finding.subject}: {finding.text}", style="bold red"))
        if finding.cause:
            console.print(Text(f"  cause: {finding.cause}"))
        if finding.confidence is not None:
            console.print(Text(f"  confidence: {finding.confidence:.0%} that it is this part", style="dim"))
        console.print(Text(f"  what to do: {finding.remedy}"))
    for note in (*(f"left out of the plan: {left.why}" for left in verdict.left_out), *verdict.notes):
        console.print(Text(f"note: {note}", style="dim"))
    console.print()
    console.print(Text(f"report: {report}" if report else f"run:    {run_dir}"))
    if verdict.missing:
        console.print(Text(f"finish: {info.resume(str(run_dir))}"))
    console.print(Text(f"again:  {shlex.join(info.command)}"))


def _owed(verdict: VerdictDoc) -> str:
    count = len(verdict.owed)
    if verdict.profile is None and not count:
        return UNDECLARED
    if verdict.profile is None:
        return f"no acceptance profile: everything required is owed, {number_of(count, 'criterion')}"
    return f"acceptance profile {verdict.profile.name} ({verdict.profile.title}): {number_of(count, 'criterion')} owed"


def print_plan(console: Console, plan: Plan, duration: str) -> None:
    """The plan, round by round; says that it is no verdict."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("round", "measurement", "criteria", "estimate"):
        table.add_column(title, no_wrap=title != "criteria", justify="right" if title == "round" else "left")
    for number, ids in enumerate(plan.rounds, start=1):
        for position, id_ in enumerate(ids):
            m = plan.measurement(id_)
            table.add_row(str(number) if position == 0 else "", id_, " ".join(m.criteria), f"{m.estimated_s:.0f} s")
    console.print(table)
    for one in plan.coverage:
        console.print(Text(f"covered: {one.text}"))
    for left in plan.left_out:
        console.print(Text(f"left out: {left.why}"))
    console.print()
    console.print(
        Text(
            f"{number_of(len(plan.measurements), 'measurement')} in {number_of(len(plan.rounds), 'round')}, "
            f"about {duration}"
        )
    )
    for suite in plan.suites:
        mine = [m for m in plan.measurements if m.suite == suite and m.kind in KINDS and not KINDS[m.kind].once]
        if mine:
            most = f"{budget_s(mine, plan.rounds):.0f} s"
            console.print(
                Text(f"{suite}: what cannot decide is measured again, {MAX_ATTEMPTS} attempts at most, {most} in all")
            )
    console.print(Text("This is a plan and NOT a verdict: no node was touched and nothing was measured.", style="bold"))


def print_outline(console: Console, outline: Outline, duration: Callable[[float], str]) -> None:
    """Rounds, measurements and time of each kind, coverage, what is left out; `duration`: seconds in words."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("suite", "kind", "rounds", "measurements", "minutes"):
        table.add_column(title, no_wrap=True, justify="left" if title in ("suite", "kind") else "right")
    for step in outline.steps:
        minutes = f"{step.predicted_s / 60:.1f}"
        table.add_row(step.suite, step.kind, str(step.rounds), str(step.measurements), minutes)
    console.print(table)
    for one in outline.coverage:
        console.print(Text(f"covered: {one.text}"))
    for left in outline.left_out:
        why = left.why if len(left.why) <= LONGEST else f"{left.why[:LONGEST]}... (--dry-run has all of it)"
        console.print(Text(f"left out: {why}"))
    console.print()
    beside = outline.predicted_s - outline.measuring_s
    console.print(
        Text(
            f"{number_of(outline.nodes, 'node')}, {number_of(outline.ports, 'fabric port')}: "
            f"{number_of(outline.measurements, 'measurement')} in "
            f"{number_of(outline.rounds, 'round')}, predicted {duration(outline.predicted_s)} without repeats; of it "
            f"{duration(beside)} are this machine's own work on {number_of(outline.cores, 'core')}"
        )
    )
    console.print(Text("This is a plan and NOT a verdict: no node was touched and nothing was measured.", style="bold"))
