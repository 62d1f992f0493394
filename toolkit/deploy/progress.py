"""What the operator sees while a deployment runs: a live block on a terminal, else a line every 15 seconds.

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
from toolkit.progress import bar_width
from toolkit.streams import console
from toolkit.working import Pace, duration

LONG = {
    ("horovod", "Build the image's packages"): "building the training image: installing its packages",
    ("horovod", "Build the wheel in a container"): "building the training image: compiling Horovod",
    ("horovod", "Build the image"): "building the training image: putting it together",
    ("horovod", "Take the image from the registry"): "taking the training image from the registry",
    ("horovod", "Pull the image"): "pulling the training image",
    ("packages", "Install or remove packages"): "installing packages",
}
"""(role, task) -> what it does, of tasks that may take minutes. Of others the task's own name is shown."""


class StageLines:
    """One line every 15 seconds, of the role that begins or of the task that still runs, and one for each failure."""

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
        self._task = ""
        self._task_since = self._began
        self._pace = Pace(now)
        self._muted = False

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self._now() - self._began

    def clock(self) -> str:
        """`1m05s elapsed, about 2m10s left`; of a site's first run `1m05s elapsed`."""
        left_s = self._estimate.left_s(self.elapsed_s)
        left = "" if left_s is None else f", about {duration(left_s)} left"
        return f"{duration(self.elapsed_s)} elapsed{left}"

    def where(self) -> str:
        """`[6/11] training: horovod`."""
        watch = self._watch
        number = f"[{watch.stage + 1}/{len(watch.stages)}]"
        return f"{number} {watch.stage_name}" + (f": {watch.role}" if watch.role else "")

    def event(self) -> None:
        """Show what the last event changed."""
        watch = self._watch
        here = (watch.stage_name, watch.role)
        if watch.step != self._task:
            self._task, self._task_since = watch.step, self._now()
        if watch.running and here != self._shown:
            self._shown, self._since = here, self._now()
        elif len(watch.running) < len(watch.at_work):
            self.pulse(0)
        if watch.fresh_failure and not watch.nodes[watch.fresh_failure].unfit:  # those are in one table at the end
            failure = watch.nodes[watch.fresh_failure].failure
            assert failure is not None
            word = "unreachable" if failure.unreachable else "failed"
            self.said(
                f"{watch.fresh_failure} {word} at {failure.place}; the reason is at the end, and in the log", "red"
            )

    def pulse(self, wait_s: float = 1.0) -> None:
        """A role's line waits until all its nodes have begun, at most so long. A task's line comes when it takes long.

        `[6/11] training: horovod on gpu1, gpu2   1m05s elapsed, about 2m10s left`
        `[6/11] training: building the training image: compiling Horovod, 1m20s, on head   3m05s elapsed`
        """
        if not self._pace.due:
            return
        if self._since is not None and self._now() - self._since >= wait_s:
            self.said(f"{self.where()} on {', '.join(self._watch.at_work)}   {self.clock()}")
        elif self._since is None and self._watch.running:
            age = duration(self._now() - self._task_since)
            self.said(f"{self.doing()}, {age}, on {', '.join(self._watch.running)}   {self.clock()}")

    def doing(self) -> str:
        """Where, and which task: in words of its own where it may take minutes."""
        watch = self._watch
        words = LONG.get((watch.role, watch.task))
        if words is None:
            return f"{self.where()}: {watch.task}"
        return f"[{watch.stage + 1}/{len(watch.stages)}] {watch.stage_name}: {words}"

    def said(self, text: str, style: str = "") -> None:
        """Print a line."""
        self._since = None
        self._pace.said()
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
            ProgressBar(total=1.0, completed=share, width=bar_width(self._console)),
            f"stage {watch.stage + 1}/{stages}",
            self.clock(),
        )
        task = Text(f"  {self.doing()}" if watch.task else "  starting Ansible", style="cyan")
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
