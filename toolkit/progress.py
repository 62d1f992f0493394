"""Live progress of a run: what runs where, how much is done, how long is left.

A terminal gets a live block under the lines that are finished. Anything else gets a line every 15 seconds, of what was
finished last or of what still runs, and one at once for each measurement that went wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import median
from typing import IO, TYPE_CHECKING, Any

import click

from toolkit.estimates import Clock
from toolkit.streams import console
from toolkit.working import Pace, duration
from validation.base.counting import number_of
from validation.kinds import FIRST, KINDS
from validation.model import Measurement, Plan, Result

if TYPE_CHECKING:  # rich is imported where it draws: a fifth of what starting a command takes, and most draw nothing
    from rich.console import Console, Group

__all__ = ["Clock", "ProgressLines", "Screen", "duration", "make_console", "make_progress", "outcome", "what", "where"]
_STYLES = {"ok": "green", "failed": "red", "timeout": "red", "unparseable": "red", "unreachable": "red"}


def where(m: Measurement) -> str:
    """`gpu1/fab0>gpu2/fab0`, or the nodes."""
    if len(m.endpoints) > 2:
        first, count = m.endpoints[0], len(m.endpoints) - 1
        return f"{number_of(count, 'port')}>{first}" if m.kind == "incast" else f"{first} and {count} others"
    if m.endpoints:
        return ">".join(str(e) for e in m.endpoints)
    label = f"{m.params['label']} on " if "label" in m.params else ""
    hosts = m.params.get("hosts")
    return label + ",".join(hosts if isinstance(hosts, tuple) else m.nodes)


def what(m: Measurement) -> str:
    """`tcp-bandwidth`; of several runs of a kind between two ports also which one, `rdma-bandwidth.write-both`."""
    if len(m.endpoints) != 2:
        return m.kind
    a, b = m.endpoints
    return m.id.removesuffix(f".{a.node}-{a.port}.{b.node}-{b.port}")


def outcome(m: Measurement, result: Result) -> str:
    """The median of the result's headline, or what went wrong."""
    if result.status != "ok":
        return f"{result.status}: {result.error or 'no reason was given'}"
    metric = KINDS[m.kind].headline
    if metric == FIRST:
        metric = next((s.metric for s in result.samples), "")
    values = result.values(metric)
    if not values:
        return "ok"
    middle, unit = median(values), next(s.unit for s in result.samples if s.metric == metric)
    return f"{middle:.4g} {unit}" if middle < 1000 else f"{middle:.0f} {unit}"


class ProgressLines:
    """One line every 15 seconds, and one for each failure."""

    def __init__(self, out: IO[Any], clock: Clock | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """`out` is where the lines go; `now` in seconds."""
        self._out = out
        self._now = now
        self.clock = clock or Clock(now)
        self.total = 0
        self.done = 0
        self._repeats = 0
        self._pace = Pace(now)
        self._held = ""  # the line of what was finished last, not printed
        self._running: dict[str, tuple[Measurement, float]] = {}

    def planned(self, plan: Plan, done: Collection[str]) -> None:
        """Say what is ahead."""
        self.clock.plan(plan, done)
        self.total = len(plan.measurements)
        self.done = len([m for m in plan.measurements if m.id in done])
        kept = f", {self.done} of them finished earlier" if self.done else ""
        told = f"{number_of(self.total, 'measurement')} in {number_of(len(plan.rounds), 'round')}{kept}"
        self.said(f"{told}, about {duration(self.clock.left_s)}")

    def started(self, m: Measurement) -> None:
        """It runs; a line is printed when there is something to say."""
        self._running[m.id] = (m, self._now())

    def again(self, rounds: Sequence[Sequence[Measurement]]) -> None:
        """Say what is measured once more; it does not count towards the plan's total."""
        self.clock.again(rounds)
        self._repeats = sum(map(len, rounds))
        words = "measurement does" if self._repeats == 1 else "measurements do"
        self.said(f"{self._repeats} {words} not decide yet, or must be confirmed: once more")

    def line(self, m: Measurement, result: Result) -> str:
        """`[12/28] tcp-bandwidth gpu1/fab0>gpu2/fab0 0.94 Gbit/s 4.1 s  left 1m10s`; of a repeat its attempt."""
        took = f"{result.provenance.duration_s:.1f} s"
        attempt = f" attempt {result.attempt}" if result.attempt > 1 else ""
        head = f"[{self.done}/{self.total}] {what(m)} {where(m)}{attempt} {outcome(m, result)} {took}"
        return f"{head}  left {duration(self.clock.left_s)}"

    def finished(self, m: Measurement, result: Result) -> None:
        """Print the result's line where it is due, or tells of a failure."""
        self._running.pop(m.id, None)
        self._count()
        self.clock.finished(m.id)
        self._held = self.line(m, result)
        if result.status != "ok" or self._pace.due:
            self.said(self._held)

    def tick(self) -> None:
        """Say what runs, and since when, where nothing was said for long. Called about once a second."""
        if self._running and self._pace.due:
            m, began = max(self._running.values(), key=lambda running: running[1])
            more = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
            what_runs = f"{what(m)} {where(m)}{more}, {duration(self._now() - began)}"
            left = duration(self.clock.left_s)
            # of what takes longer than was expected nobody knows how much longer
            self.said(f"[{self.done}/{self.total}] {what_runs}" + (f"  left {left}" if left != "0s" else ""))

    def _count(self) -> None:
        if self._repeats:
            self._repeats -= 1
        else:
            self.done += 1

    def said(self, text: str) -> None:
        """Print a line as it is."""
        self._held = ""
        self._pace.said()
        click.echo(text, file=self._out)

    def close(self) -> None:
        """The last line, where it is still to be printed."""
        if self._held:
            self.said(self._held)


class Screen(ProgressLines):
    """Finished lines scroll by; below them is what runs now, a bar and the time left."""

    def __init__(self, console: Console, clock: Clock | None = None) -> None:
        """`console` is a terminal."""
        from rich.live import Live

        super().__init__(console.file, clock)
        self._console = console
        self._live = Live(console=console, get_renderable=self.draw, refresh_per_second=4, transient=True)

    def planned(self, plan: Plan, done: Collection[str]) -> None:
        """Begin to draw."""
        super().planned(plan, done)
        self._live.start()

    def tick(self) -> None:
        """Nothing: the live block draws itself."""

    def finished(self, m: Measurement, result: Result) -> None:
        """Move it from the running ones to the finished lines."""
        self._running.pop(m.id, None)
        from rich.text import Text

        self._count()
        self.clock.finished(m.id)
        self._console.print(Text(self.line(m, result), style=_STYLES[result.status] if result.status != "ok" else ""))

    def said(self, text: str) -> None:
        """Print above the live block."""
        from rich.text import Text

        self._console.print(Text(text))

    def draw(self) -> Group:
        """The live block."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        running = Table.grid(padding=(0, 2))
        for m, began in self._running.values():
            age = f"{self._now() - began:.0f} s of about {self.clock.takes_s(m):.0f}"
            running.add_row(Text("  " + what(m), style="cyan"), where(m), Text(age, style="dim"))
        bar = Table.grid(padding=(0, 2))
        left = f"{duration(self.clock.elapsed_s)} elapsed, about {duration(self.clock.left_s)} left"
        drawn = ProgressBar(total=max(1, self.total), completed=self.done, width=bar_width(self._console))
        bar.add_row(drawn, f"{self.done}/{self.total}", left)
        return Group(running, bar)

    def close(self) -> None:
        """Take the live block away; safe to call twice."""
        self._live.stop()


def bar_width(console: Console) -> int:
    """Columns of a bar, beside which there is room for words where the terminal has any."""
    return max(8, min(40, console.width - 45))


def make_progress(out: IO[Any], expected: Mapping[str, float] | None = None) -> ProgressLines:
    """A live display when `out` is a terminal, else plain lines. `expected`: as of `Clock`."""
    drawn, clock = console(out), Clock(expected=expected)
    return Screen(drawn, clock) if drawn.is_terminal else ProgressLines(out, clock)


def make_console(file: IO[Any] | None = None) -> Console:
    """For tables and verdicts, on stdout or `file`: as wide as `streams.columns` says."""
    return console(file)
