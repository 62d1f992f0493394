"""The page's state, drawn once for all who watch."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jinja2

from toolkit import answers
from toolkit.lease import LeaseError
from toolkit.lease.display import clock
from toolkit.lease.pool_file import PoolDescription, read_pool
from toolkit.page.collector import Reading
from toolkit.page.figures import NONE, now_figures, week_figures
from toolkit.page.http import BASE
from toolkit.page.model import Picture, picture
from toolkit.page.settings import Settings
from toolkit.page.validations import Validated, last_validations
from validation.base.visible import visible

PARTS = ("status", "gpus", "queue", "leases", "use", "site", "alerts", "validations")
FIGURES_S, WEEK_S = 30.0, 600.0
LONGEST = 80
"""Characters of a name that are shown."""


def shown(words: object) -> str:
    """Words that somebody else chose: one line of what can be seen, cut where it is long."""
    text = str(words)
    return visible(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


def environment() -> jinja2.Environment:
    """Templates of this package; everything is escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"shown": shown, "clock": clock}
    return made


class Live:
    """The newest picture, its parts as HTML, and who waits for the next. All in one loop."""

    def __init__(self, settings: Settings, trouble: Callable[[], str]) -> None:
        """trouble: what is wrong with the certificate; blocks."""
        self._settings, self._certificate = settings, trouble
        self._templates = environment()
        self._reading, self._figures = Reading(), NONE
        self._validations: tuple[Validated, ...] = ()
        self._described = PoolDescription()
        self._next = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.warning = ""
        self.picture: Picture
        self._written: str | None = None
        self._events: dict[tuple[str, ...], bytes] = {}
        self.parts: dict[str, str] = {}
        self.ends = False
        self.draw()

    def render(self, template: str, **values: object) -> str:
        """A template with values."""
        return self._templates.get_template(template).render(site=self._settings.site, base=BASE, **values)

    def document(self) -> str:
        """The picture for programs, written once."""
        if self._written is None:
            self._written = answers.text("pool-page", self.picture.document)
        return self._written

    def event(self, names: tuple[str, ...]) -> bytes:
        """Parts as an event of the stream, written once for all who get the same."""
        if names not in self._events:
            parts = json.dumps({name: self.parts[name] for name in names})
            self._events[names] = f"event: pool\ndata: {parts}\n\n".encode()
        return self._events[names]

    def heard(self, reading: Reading) -> None:
        """A new reading of Slurm."""
        self._reading = reading
        self.draw()

    def draw(self) -> None:
        """Draw the parts, and wake who waits where one is another."""
        self._written = None
        self.picture = picture(self._reading, self._described, self._figures, self._validations)
        parts = {name: self.render(f"{name}.html", pool=self.picture, warning=self.warning) for name in PARTS}
        if parts != self.parts:
            self.parts, self._events = parts, {}
            self.wake()

    def wake(self) -> None:
        """Wake all who wait."""
        self._next.set()
        self._next = asyncio.Event()

    def close(self) -> None:
        """End all streams. Of a signal's handler, or of another thread."""
        self.ends = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.wake)

    async def changed(self, most_s: float) -> bool:
        """Wait for another part, so long; whether there is one."""
        try:
            await asyncio.wait_for(self._next.wait(), most_s)
        except (TimeoutError, asyncio.TimeoutError):
            return False
        return True

    async def keep(self) -> None:
        """Look at everything but Slurm, again and again, until it is cancelled."""
        week_due = 0.0
        self._loop = asyncio.get_running_loop()
        while True:
            if self._settings.prometheus:
                figures = await asyncio.to_thread(now_figures, self._settings.prometheus)
                week = (self._figures.classes, self._figures.users, self._figures.won)
                if time.monotonic() >= week_due:
                    week = await asyncio.to_thread(week_figures, self._settings.prometheus)
                    week_due = time.monotonic() + (WEEK_S if week[0] is not None else FIGURES_S)
                self._figures = replace(figures, classes=week[0], users=week[1], won=week[2])
            if self._settings.runs:
                self._validations = await asyncio.to_thread(last_validations, Path(self._settings.runs))
            self.warning = await asyncio.to_thread(self._certificate)
            try:
                self._described = await asyncio.to_thread(read_pool, Path(self._settings.pool_file))
            except LeaseError as fault:
                self.warning = str(fault)
            self.draw()
            await asyncio.sleep(FIGURES_S)
