"""The addresses of the dashboards' panels: who may see which. Prometheus is asked once for all within some seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from toolkit.page import courses
from toolkit.page.boards import CHOSEN, Board, read_boards
from toolkit.page.http import BASE, page
from toolkit.page.prometheus import Silent
from toolkit.page.sessions import Session
from toolkit.page.settings import Settings

KEPT_S, KEPT, LOOKS, READ_S = 30.0, 16, 2, 30.0
"""How long panels that were drawn are shown again; how many of them; how many are
drawn at the same time; how often the dashboards are read."""


class Panels:
    """Panels of this head, to those who logged in: they have more of the site than the pool's own page."""

    def __init__(
        self, settings: Settings, session: Callable[[Request], Session | None], render: Callable[..., str]
    ) -> None:
        """session: whose a request is. render: a template with values."""
        self._settings, self._session, self._render = settings, session, render
        self._looks = asyncio.Semaphore(LOOKS)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # a user has one look at a time
        self._kept: dict[tuple[str, str, str], tuple[float, str]] = {}
        self.boards: Mapping[str, Board] = {}

    async def keep(self) -> None:
        """Read the dashboards, again and again, until it is cancelled: monitoring may come later than the page."""
        while True:
            if self._settings.prometheus:
                self.boards = await asyncio.to_thread(read_boards, Path(self._settings.boards))
            await asyncio.sleep(READ_S)

    async def answer(self, request: Request) -> Response:
        """The panels of a board."""
        session = self._session(request)
        if session is None:
            return RedirectResponse(f"{BASE}/login", 303)
        board = self.boards.get(request.path_params["board"])
        span, node = request.query_params.get("span", "6h"), request.query_params.get("node", "")
        if board is None or span not in courses.SPANS or (node and not CHOSEN.fullmatch(node)):
            return PlainTextResponse("no such panels", 404)
        value = session.user if board.chosen == "user" else node if board.chosen == "node" else ""
        if board.chosen == "user" and not CHOSEN.fullmatch(value):
            return PlainTextResponse("no panels for a name like yours", 404)
        key = (board.name, value, span)
        words = self._fresh(key)  # first: who reads what is there waits for no look of others
        if words is None:
            async with self._turns.setdefault(session.user, asyncio.Lock()), self._looks:
                words = self._fresh(key)
                if words is None:
                    words = await asyncio.to_thread(self._drawn, board, value, span)
                    self._kept[key] = (time.monotonic() + KEPT_S, words)
                    while len(self._kept) > KEPT:
                        del self._kept[next(iter(self._kept))]
        return page(words)

    def _fresh(self, key: tuple[str, str, str]) -> str | None:
        due, words = self._kept.get(key, (0.0, ""))
        return words if due >= time.monotonic() else None

    def _drawn(self, board: Board, value: str, span: str) -> str:
        base, fault = self._settings.prometheus, ""
        choices: tuple[str, ...] = ()
        panels: tuple[courses.Shown, ...] = ()
        try:
            if board.chosen == "node":
                choices = courses.nodes_of(base)
                value = value or (choices[0] if choices else "")
                if value not in choices:
                    raise Silent(f"Prometheus reads no node {value}" if value else "Prometheus reads no node")
            panels = courses.drawn_board(base, board, value, span, time.time())
        except Silent as silent:
            fault = f"Not known: {silent}"
        return self._render(
            "panels.html",
            board=board, boards=list(self.boards.values()), choices=choices, value=value, span=span,
            spans=list(courses.SPANS), panels=panels, fault=fault, width=courses.WIDTH, height=courses.HEIGHT,
            left=courses.LEFT,
        )  # fmt: skip
