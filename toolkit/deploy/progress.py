"""What the operator sees while a deployment runs: a live block on a terminal, else a line for each role.

A terminal that is gone, or a reader that has ended, never stops a deployment: what cannot be shown stands in the log.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import IO, Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from toolkit.deploy.site_state import Estimate
from toolkit.deploy.watch import DeployWatch
from toolkit.progress import duration
from toolkit.streams import console


class StageLines:
    """One line for each role of each stage, and one for each failure."""

    def __init__(
        self, out: IO[Any], watch: DeployWatch, estimate: Estimate, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`now` in seconds."""
        self._out = out
        self._watch = watch
        self._estimate = estimate
        self._now = now
        self._began = now()
        self._shown = ("", "")
        self._since: float | None = None  # when a role began whose line is still to be printed
        self._muted = False

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self._now() - self._began

    def clock(self) -> str:
        """`1m05s elapsed, about 2m10s left`; on a site's first run nobody knows what is left."""
        left_s = self._estimate.left_s(self.elapsed_s)
        left = "time left unknown: first run of this site" if left_s is None else f"about {duration(left_s)} left"
        return f"{duration(self.elapsed_s)} elapsed, {left}"

    def where(self) -> str:
        """`[6/11] training: horovod`."""
        watch = self._watch
        number = f"[{watch.stage + 1}/{len(watch.stages)}]"
        return f"{number} {watch.stage_name}" + (f": {watch.role}" if watch.role else "")

    def event(self) -> None:
        """Show what the last event changed."""
        watch = self._watch
        here = (watch.stage_name, watch.role)
        if watch.running and here != self._shown:
            self._shown, self._since = here, self._now()
        elif len(watch.running) < len(watch.at_work):
            self.pulse(0)
        if watch.fresh_failure and not watch.nodes[watch.fresh_failure].unfit:  # those stand in one table at the end
            failure = watch.nodes[watch.fresh_failure].failure
            assert failure is not None
            word = "unreachable" if failure.unreachable else "failed"
            self.said(f"{watch.fresh_failure} {word}: {failure.place}: {failure.message}", "red")

    def pulse(self, wait_s: float = 1.0) -> None:
        """A role's line waits until all its nodes have begun, at most so long.

        `[6/11] training: horovod on gpu1, gpu2   1m05s elapsed, about 2m10s left`
        """
        if self._since is not None and self._now() - self._since >= wait_s:
            self._since = None
            self.said(f"{self.where()} on {', '.join(self._watch.at_work)}   {self.clock()}")

    def said(self, text: str, style: str = "") -> None:
        """Print a line."""
        if not self._muted:
            try:
                click.echo(text, file=self._out)
            except OSError:
                self.mute()

    def mute(self) -> None:
        """Nobody looks any more."""
        self._muted = True

    def close(self) -> None:
        """Nothing is held open."""


class Screen(StageLines):
    """Stage, role, task, the nodes that still work on it, and a bar."""

    def __init__(self, console: Console, watch: DeployWatch, estimate: Estimate) -> None:
        """`console` is a terminal."""
        super().__init__(console.file, watch, estimate)
        self._console = console
        self._live = Live(console=console, get_renderable=self.draw, refresh_per_second=4, transient=True)
        self._live.start()

    def said(self, text: str, style: str = "") -> None:
        """Print above the live block."""
        if not self._muted:
            try:
                self._console.print(Text(text, style=style))
            except OSError:
                self.mute()

    def draw(self) -> Group:
        """The live block."""
        watch = self._watch
        left_s = self._estimate.left_s(self.elapsed_s)
        done = self.elapsed_s / max(0.1, self.elapsed_s + left_s) if left_s is not None else None
        stages = max(1, len(watch.stages))
        share = done if done is not None else max(0, watch.stage) / stages
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=1.0, completed=share, width=40), f"stage {watch.stage + 1}/{stages}", self.clock()
        )
        task = Text(f"  {self.where()}: {watch.task}" if watch.task else "  starting Ansible", style="cyan")
        return Group(task, Text("  " + ", ".join(watch.running), style="dim"), bar)

    def mute(self) -> None:
        """The terminal is gone: drawing ends."""
        super().mute()
        with contextlib.suppress(OSError):
            self._live.stop()

    def close(self) -> None:
        """Take the live block away."""
        with contextlib.suppress(OSError):
            self._live.stop()


def make_progress(out: IO[Any], watch: DeployWatch, estimate: Estimate) -> StageLines:
    """A live display when `out` is a terminal, else plain lines."""
    drawn = console(out)
    return Screen(drawn, watch, estimate) if drawn.is_terminal else StageLines(out, watch, estimate)
