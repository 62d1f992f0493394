"""uvicorn with limits: how many connections, how long one can be silent, how long it can leave its answer unread."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolkit.page.settings import Settings

MOST, MOST_EACH = 2000, 700
"""Connections, of all and of one address (behind which a whole site can be)."""
SILENT_S, UNREAD_S, FAREWELL_S = 10.0, 20.0, 1.0
HANDSHAKE_S = 5.0
"""Of TLS: before it a connection is counted by nobody."""

_by_address: Counter[str] = Counter()


class BoundedProtocol(H11Protocol):
    """A connection that is ended when it asks nothing for SILENT_S, or reads nothing for UNREAD_S."""

    _address = ""
    _answered: Any = None
    _silent: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Counted by address; one too many is ended at once."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        _by_address[self._address] += 1
        if _by_address[self._address] > MOST_EACH:
            transport.abort()
            return
        self._silent = self.loop.call_later(SILENT_S, self._end_silent)

    def _end_silent(self) -> None:
        """Every SILENT_S: a connection that asked for nothing since the last time, be it that it sends a little of a
        question again and again, is ended."""
        if self.cycle is self._answered and (self.cycle is None or self.cycle.response_complete):
            self.transport.abort()
            return
        self._answered = self.cycle
        self._silent = self.loop.call_later(SILENT_S, self._end_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Counted no more."""
        _by_address[self._address] -= 1
        if _by_address[self._address] <= 0:
            del _by_address[self._address]
        for timer in (self._silent, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends: whoever does not answer TLS's farewell is not waited for."""
        super().shutdown()
        self.loop.call_later(FAREWELL_S, self.transport.abort)

    def pause_writing(self) -> None:
        """The other side does not read what it was sent."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()


class PageServer(uvicorn.Server):
    """Calls `closing` when it is to end, so that open streams do."""

    def __init__(self, config: uvicorn.Config, closing: Callable[[], None]) -> None:
        """closing: in the loop or in a signal's handler."""
        super().__init__(config)
        self._closing = closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn has no setting for how long a handshake of TLS can take, which is a minute."""
        loop = asyncio.get_running_loop()
        create = loop.create_server
        loop.create_server = partial(create, ssl_handshake_timeout=HANDSHAKE_S)  # type: ignore[method-assign]
        try:
            await super().startup(sockets)
        finally:
            loop.create_server = create  # type: ignore[method-assign]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM, SIGINT."""
        self._closing()
        super().handle_exit(sig, frame)


def configured(app: Any, settings: Settings) -> uvicorn.Config:
    """uvicorn with TLS of at least 1.2."""
    config = uvicorn.Config(
        app,
        host=settings.address,
        port=settings.port,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        http=BoundedProtocol,
        ws="none",
        loop="asyncio",
        limit_concurrency=MOST,
        timeout_keep_alive=15,
        server_header=False,
        proxy_headers=False,
        access_log=False,
        log_level="warning",
        backlog=512,
    )
    config.load()
    context = config.ssl
    if isinstance(context, ssl.SSLContext):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return config


class Certificate:
    """The certificate's file: read again once it is another, so that a renewed one counts without a restart."""

    def __init__(self, settings: Settings, context: Any) -> None:
        """context: that of the server."""
        self._settings, self._context = settings, context
        self._seen = self._stamp()

    def _stamp(self) -> tuple[float, float]:
        try:
            return Path(self._settings.certificate).stat().st_mtime, Path(self._settings.key).stat().st_mtime
        except OSError:
            return self._seen if hasattr(self, "_seen") else (0.0, 0.0)

    def renew(self) -> bool:
        """Whether another one was taken. One that cannot be used is passed over, and the one before goes on."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._settings.certificate, self._settings.key)
            self._context.load_cert_chain(self._settings.certificate, self._settings.key)
        except (OSError, ssl.SSLError):
            return False
        self._seen = stamp
        return True

    def trouble(self, days: int = 21) -> str:
        """What is wrong with it in words, "" where it lasts for `days` more."""
        looks: tuple[tuple[list[str], str], ...] = (
            ([], "cannot be read"),
            (["-checkend", "0"], "has expired"),
            (["-checkend", str(days * 86400)], f"expires within {days} days"),
        )
        for more, words in looks:
            command = ["openssl", "x509", "-noout", *more, "-in", self._settings.certificate]
            try:
                done = subprocess.run(command, capture_output=True, check=False, timeout=10)
            except (OSError, subprocess.TimeoutExpired):
                return ""
            if done.returncode != 0:
                what = "look at" if not more else "renew"
                return (
                    f"The certificate of this page {words}: {what} {self._settings.certificate}, or run toolkit deploy"
                )
        return ""
