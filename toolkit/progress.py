"""Live progress of a run: what runs where, how much is done, how long is left.

A terminal gets a live block under the lines that are finished; anything else gets the lines alone, which stay the
same from release to release.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from statistics import median
from typing import IO, TYPE_CHECKING, Any

import click

from toolkit.streams import console
from validation.counting import number_of
from validation.kinds import FIRST, KINDS
from validation.model import Measurement, Plan, Result

if TYPE_CHECKING:  # rich is imported where it draws: a fifth of what starting a command takes, and most draw nothing
    from rich.console import Console, Group

_STYLES = {"ok": "green", "failed": "red", "timeout": "red", "unparseable": "red", "unreachable": "red"}


def duration(seconds: float) -> str:
    """`8s`, `1m10s`, `2h05m`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


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


class Clock:
    """Time that is left: the plan's estimates, corrected by how long things really took."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` in seconds."""
        self._now = now
        self._rounds: list[dict[str, float]] = []
        self._estimate: list[float] = []
        self._estimated = 0.0
        self._began = now()
        self._round_began = self._began
        self._real = 0.0

    def plan(self, plan: Plan, done: Collection[str]) -> None:
        """Rounds that are still to be run, each with its measurements' estimates in seconds."""
        rounds = [[id_ for id_ in ids if id_ not in done] for ids in plan.rounds]
        self._rounds = [{id_: plan.measurement(id_).estimated_s for id_ in ids} for ids in rounds if ids]
        self._began = self._round_began = self._now()
        self._estimate = [max(ids.values()) for ids in self._rounds]

    def again(self, rounds: Sequence[Sequence[Measurement]]) -> None:
        """Further rounds, before those that are left."""
        self._rounds[:0] = [{m.id: m.estimated_s for m in some} for some in rounds]
        self._estimate[:0] = [max(m.estimated_s for m in some) for some in rounds]

    def finished(self, id_: str) -> None:
        """A measurement is over; a round that is over corrects the estimates."""
        if not self._rounds:
            return
        self._rounds[0].pop(id_, None)
        if not self._rounds[0]:
            self._rounds.pop(0)
            self._estimated += self._estimate.pop(0)
            self._real += self._now() - self._round_began
            self._round_began = self._now()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first measurement."""
        return self._now() - self._began

    @property
    def left_s(self) -> float:
        """Seconds that are left, as far as one can tell."""
        factor = self._real / self._estimated if self._estimated else 1.0
        ahead = sum(self._estimate) * factor if self._rounds else 0.0
        return max(0.0, ahead - (self._now() - self._round_began if self._rounds else 0.0))


class ProgressLines:
    """One line per finished measurement."""

    def __init__(self, out: IO[Any]) -> None:
        """`out` is where the lines go."""
        self._out = out
        self.clock = Clock()
        self.total = 0
        self.done = 0
        self._repeats = 0

    def planned(self, plan: Plan, done: Collection[str]) -> None:
        """Say what is ahead."""
        self.clock.plan(plan, done)
        self.total = len(plan.measurements)
        self.done = len([m for m in plan.measurements if m.id in done])
        kept = f", {self.done} of them finished earlier" if self.done else ""
        self.said(
            f"{number_of(self.total, 'measurement')} in {number_of(len(plan.rounds), 'round')}{kept}, about "
            f"{duration(self.clock.left_s)}"
        )

    def started(self, m: Measurement) -> None:
        """Nothing: a line is printed when there is something to say."""

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
        """Print the result's line."""
        self._count()
        self.clock.finished(m.id)
        self.said(self.line(m, result))

    def _count(self) -> None:
        if self._repeats:
            self._repeats -= 1
        else:
            self.done += 1

    def said(self, text: str) -> None:
        """Print a line as it is."""
        click.echo(text, file=self._out)

    def close(self) -> None:
        """Nothing is held open."""


class Screen(ProgressLines):
    """Finished lines scroll by; below them is what runs now, a bar and the time left."""

    def __init__(self, console: Console) -> None:
        """`console` is a terminal."""
        from rich.live import Live

        super().__init__(console.file)
        self._console = console
        self._running: dict[str, tuple[Measurement, float]] = {}
        self._live = Live(console=console, get_renderable=self.draw, refresh_per_second=4, transient=True)

    def planned(self, plan: Plan, done: Collection[str]) -> None:
        """Begin to draw."""
        super().planned(plan, done)
        self._live.start()

    def started(self, m: Measurement) -> None:
        """Show it as running."""
        self._running[m.id] = (m, time.monotonic())

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
            age = f"{time.monotonic() - began:.0f} s of about {m.estimated_s:.0f}"
            running.add_row(Text("  " + what(m), style="cyan"), where(m), Text(age, style="dim"))
        bar = Table.grid(padding=(0, 2))
        left = f"{duration(self.clock.elapsed_s)} elapsed, about {duration(self.clock.left_s)} left"
        bar.add_row(
            ProgressBar(total=max(1, self.total), completed=self.done, width=40), f"{self.done}/{self.total}", left
        )
        return Group(running, bar)

    def close(self) -> None:
        """Take the live block away; safe to call twice."""
        self._live.stop()


def make_progress(out: IO[Any]) -> ProgressLines:
    """A live display when `out` is a terminal, else plain lines."""
    drawn = console(out)
    return Screen(drawn) if drawn.is_terminal else ProgressLines(out)


def make_console() -> Console:
    """For tables and verdicts on stdout: as wide as `streams.columns` says."""
    return console()
