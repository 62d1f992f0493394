"""The page's addresses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from toolkit.login import client
from toolkit.login.tries import CHECKS, Tries
from toolkit.page.collector import Collector, Source, hear, listen
from toolkit.page.http import BASE, REPORT_CSP, Headers, Once, cookie, form_of, page, token
from toolkit.page.live import Live
from toolkit.page.panels import Panels
from toolkit.page.sessions import COOKIE, FORM_COOKIE, Session, Sessions, same
from toolkit.page.settings import Settings
from toolkit.page.validations import report_of

STATIC = {"page.css": "text/css", "page.js": "text/javascript"}
MOST_WATCHERS = 600
"""Of all addresses. One address has no more than are still free, so that it cannot take all."""
BEAT_S = 15.0
MINUTES = (30, 60, 120, 240, 480)
ACTS = 4
"""Leases that are changed at the same time; of a user one."""
THREADS = CHECKS + ACTS + 8
"""So that neither is in the way of who asks Slurm."""


AGAIN_S = 5.0
"""After an error that nobody expected: the page goes on, and its journal has the error."""


async def lasting(work: Callable[[], Awaitable[None]]) -> None:
    """Work that ends when it is cancelled and never else: without it old numbers would be shown for ever."""
    while True:
        try:
            await work()
        except Exception:
            logging.getLogger("uvicorn.error").exception("the page goes on in %.0f s after this", AGAIN_S)
        await asyncio.sleep(AGAIN_S)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


class Page:
    """The application: its state, and a method for each address."""

    def __init__(self, settings: Settings, source: Source, certificate: Callable[[], str]) -> None:
        """source: Slurm. certificate: looks after it, and returns what is wrong with it."""
        self._settings = settings
        self.live = Live(settings, certificate)
        self.collector = Collector(source, self.live.heard)
        self._sessions, self._tries = Sessions(), Tries()
        self._notes: dict[str, str] = {}
        self._watchers: Counter[str] = Counter()
        self._checks, self._acts = asyncio.Semaphore(CHECKS), asyncio.Semaphore(ACTS)
        self._acting: set[str] = set()
        self._panels = Panels(settings, self._session, self.live.render)
        routes = [
            Route("/", self.front),
            Route("/events", self.events),
            Route("/mine", self.mine),
            Route("/pool.json", self.document),
            Route("/login", self.login, methods=["GET", "POST"]),
            Route("/logout", self.logout, methods=["POST"]),
            Route("/leases/{lease:int}/{what}", self.act, methods=["POST"]),
            Route("/reports/{run}", self.report),
            Route("/panels/{board}", self._panels.answer),
            Route("/static/{name}", self.static),
        ]
        below = [Route("/", self.home), Mount(BASE, routes=routes)]
        self.app = Headers(Once(Starlette(routes=below, lifespan=self._lifespan), (COOKIE, FORM_COOKIE)))

    @asynccontextmanager
    async def _lifespan(self, _app: Any) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        door = listen(self._settings.events)
        works = (self.collector.run, self.live.keep, self._panels.keep, partial(hear, door, self.collector.heard))
        tasks = [asyncio.create_task(lasting(work)) for work in works]
        yield
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        door.close()

    def _session(self, request: Request) -> Session | None:
        return self._sessions.find(request.cookies.get(COOKIE, ""), time.monotonic())

    def _closed(self, request: Request) -> bool:
        """Whether this reader must log in first."""
        return self._settings.reading == "login" and self._session(request) is None

    async def home(self, _request: Request) -> Response:
        """Where the page is."""
        return RedirectResponse(f"{BASE}/", 303)

    async def front(self, request: Request) -> Response:
        """The page."""
        if self._closed(request):
            return RedirectResponse(f"{BASE}/login", 303)
        session = self._session(request)
        note = self._notes.pop(request.cookies.get(COOKIE, ""), "")
        mine = self._mine(session) if session else ""
        return page(
            self.live.render(
                "page.html",
                parts=self.live.parts,
                session=session,
                mine=mine,
                note=note,
                boards=list(self._panels.boards.values()),
            )
        )

    def _mine(self, session: Session) -> str:
        leases = [one for one in self.live.picture.leases if one.jobs[0].user == session.user]
        places = {one.lease: one for one in self.live.picture.queue}
        values = {"leases": leases, "places": places, "session": session, "minutes": MINUTES}
        return self.live.render("mine.html", **values)

    async def mine(self, request: Request) -> Response:
        """The user's own leases."""
        session = self._session(request)
        return PlainTextResponse("log in", 403) if session is None else page(self._mine(session))

    async def document(self, request: Request) -> Response:
        """For programs: what `toolkit gpus --json` and `toolkit lease list --all --json` print, in one object."""
        if self._closed(request):
            return PlainTextResponse("log in", 403)
        return Response(self.live.document(), media_type="application/json")

    async def events(self, request: Request) -> Response:
        """The parts that change, as they change."""
        if self._closed(request):
            return PlainTextResponse("log in", 403)
        address = _address(request)
        if self._watchers[address] >= MOST_WATCHERS - sum(self._watchers.values()):
            return PlainTextResponse("too many watch; load the page again", 503, {"retry-after": "60"})
        return StreamingResponse(self._stream(request, address), media_type="text/event-stream")

    async def _stream(self, request: Request, address: str) -> AsyncIterator[bytes]:
        """Each watcher gets the newest parts and none in between, however slowly it reads."""
        self._watchers[address] += 1
        sent: dict[str, str] = {}
        try:
            yield b"retry: 2000\n\n"
            while not self.live.ends and not self._closed(request):
                parts = {name: words for name, words in self.live.parts.items() if sent.get(name) != words}
                if parts:
                    sent.update(parts)
                    yield self.live.event(tuple(parts))
                if not await self.live.changed(BEAT_S):
                    yield b"event: beat\ndata: {}\n\n"  # a script sees it, and so knows a connection that broke
        finally:
            self._watchers[address] -= 1
            self._watchers += Counter()  # takes out addresses that have none

    async def login(self, request: Request) -> Response:
        """The form, and what becomes of it."""
        if request.method != "POST":
            return self._form("", 200)
        form, address = await form_of(request), _address(request)
        if form is None or not same(form.get("form", ""), request.cookies.get(FORM_COOKIE, "")):
            return self._form("That form was too old. Try again.", 403)
        if not self._tries.let(address, time.monotonic()):
            return self._form("Too many logins. Wait a minute.", 429)
        user, password = form.get("user", "").strip(), form.get("password", "")
        if not user or not password:
            return self._form("Name and password, please.", 403)
        async with self._checks:
            try:
                checked = await asyncio.to_thread(client.check_password, user, password, Path(self._settings.login))
            except client.LoginError:
                return self._form("Passwords cannot be checked now. The head's administrator can see why.", 503)
        if checked.wait_s > 0:
            return self._form(f"Too many wrong passwords. Wait {checked.wait_s:.0f} s.", 429)
        if not checked.ticket:
            return self._form("Name or password is wrong.", 403)
        self._tries.right(address)
        name, _ = self._sessions.begin(user, checked.ticket, time.monotonic())
        answer = RedirectResponse(f"{BASE}/", 303)
        cookie(answer, COOKIE, name)
        cookie(answer, FORM_COOKIE, None)
        return answer

    def _form(self, fault: str, status: int) -> Response:
        secret = token()
        answer = page(self.live.render("login.html", form=secret, fault=fault), status)
        cookie(answer, FORM_COOKIE, secret)
        return answer

    async def _own_form(self, request: Request) -> tuple[Session, dict[str, str]] | None:
        """A form of the session's own; None for any other."""
        session, form = self._session(request), await form_of(request)
        if session is None or form is None or not same(form.get("form", ""), session.form):
            return None
        return session, dict(form)

    async def logout(self, request: Request) -> Response:
        """End the session."""
        if await self._own_form(request) is None:
            return PlainTextResponse("that form is not yours", 403)
        name = request.cookies.get(COOKIE, "")
        self._sessions.end(name)
        self._notes.pop(name, None)
        answer = RedirectResponse(f"{BASE}/", 303)
        cookie(answer, COOKIE, None)
        return answer

    async def act(self, request: Request) -> Response:
        """Release or extend a lease, as the user; the pool's own rules decide."""
        own = await self._own_form(request)
        if own is None:
            return PlainTextResponse("that form is not yours; log in and try again", 403)
        session, form = own
        what, lease = request.path_params["what"], request.path_params["lease"]
        minutes = form.get("minutes", "")
        door = Path(self._settings.login)
        if what == "release":
            work = partial(client.release, session.ticket, lease, door)
        elif what == "extend" and minutes in map(str, MINUTES):
            work = partial(client.extend, session.ticket, lease, int(minutes), door)
        else:
            return PlainTextResponse("no such thing can be done", 404)
        if session.user in self._acting:
            return PlainTextResponse("one lease at a time: go back, and try again when the other is done", 429)
        self._acting.add(session.user)
        try:
            async with self._acts:
                done = await asyncio.to_thread(work)
        except client.LoginError:
            done = client.Done(False, "the head does not answer; its administrator can see why")
        finally:
            self._acting.discard(session.user)
        self._notes[request.cookies.get(COOKIE, "")] = done.words or f"lease {lease}: done"
        self.collector.poke()
        return RedirectResponse(f"{BASE}/", 303)

    async def report(self, request: Request) -> Response:
        """The report of a validation run, to those who logged in: it has addresses of the site."""
        if self._session(request) is None:
            return RedirectResponse(f"{BASE}/login", 303)
        found = await asyncio.to_thread(report_of, Path(self._settings.runs), request.path_params["run"])
        if found is None:
            return PlainTextResponse("no such report", 404)
        return Response(found, media_type="text/html", headers={"content-security-policy": REPORT_CSP})

    async def static(self, request: Request) -> Response:
        """Style and script."""
        name = request.path_params["name"]
        if name not in STATIC:
            return PlainTextResponse("no such file", 404)
        words = (Path(__file__).parent / "static" / name).read_bytes()
        return Response(words, media_type=STATIC[name], headers={"cache-control": "no-cache"})
