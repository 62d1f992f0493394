"""An emulated BMC: Redfish over TLS with logins, that answers from documents and behaves as badly as it is asked to.

Without `settings` and `power`: only GET, and opening and closing a session, what an acceptance reads. A write is then
refused (405). It is counted in any case, so that a test sees that there was none.
"""

from __future__ import annotations

import http.server
import json
import secrets
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from toolkit.lab.bmc.constructed import LOCKDOWN, MANAGER, RESET, RESETS, ROOT, SYSTEM
from toolkit.lab.bmc.settings import Settings, fault

SESSIONS = f"{ROOT}/SessionService/Sessions"


@dataclass
class Traps:
    """How it misbehaves. `delay_s`: before each answer. `rubbish`: paths (endings) whose answers are no JSON. `cut`:
    paths whose answers end early. `status`: path -> status instead of an answer. `busy`: how many requests are refused
    as too many at first. `dribble`: one byte of each answer a second. `drip`: paths whose answers have a header that
    comes byte by byte for 12 s.
    """

    delay_s: float = 0.0
    rubbish: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    status: Mapping[str, int] = field(default_factory=dict)
    busy: int = 0
    dribble: bool = False
    drip: tuple[str, ...] = ()


class Power(Protocol):
    """The power of the host, as far as this BMC switches it."""

    def state(self) -> str:
        """`On` or `Off`."""

    def reset(self, kind: str) -> None:
        """Switch it, later than this returns."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], handler: Any, context: ssl.SSLContext) -> None:
        self.context = context
        super().__init__(address, handler)

    def get_request(self) -> tuple[Any, Any]:
        plain, who = self.socket.accept()
        plain.settimeout(30.0)
        # the handshake is made by the thread of the connection, so that a slow one holds up nobody
        return self.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), who

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that went is no event."""


class EmulatedBmc:
    """One BMC that listens. `docs` may be changed while it runs; `requests` are `METHOD path`, without bodies."""

    def __init__(
        self, docs: dict[str, dict[str, Any]], user: str, password: str, certificate: Path, key: Path,
        traps: Traps | None = None, address: str = "127.0.0.1", port: int = 0, settings: Settings | None = None,
        power: Power | None = None,
    ) -> None:  # fmt: skip
        """Listen at `address` and `port` (0: a free one) with this certificate."""
        self.settings, self.power = settings, power
        self.docs, self.traps = docs, traps or Traps()
        self.requests: list[str] = []
        self.writes: list[str] = []
        self.sessions: set[str] = set()
        self._login = (user, password)
        self._closed = False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = _Server((address, port), self._handler(), context)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> EmulatedBmc:
        """It listens already."""
        return self

    def __exit__(self, *fault: object) -> None:
        """Stop it."""
        self.close()

    def close(self) -> None:
        """Stop it, once."""
        if not self._closed:
            self._closed = True
            self._server.shutdown()
            self._server.server_close()

    def answer(self, method: str, path: str, token: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        """Status, document and headers for a request."""
        self.requests.append(f"{method} {path}")
        plain, _, query = unquote(path).partition("?")
        plain = plain.rstrip("/") or "/"
        if method == "POST" and plain == SESSIONS:
            return self._session(body)
        if plain != ROOT and token not in self.sessions:
            return 401, {"error": {"message": "Unauthorized"}}, {}
        if method == "DELETE" and plain.startswith(SESSIONS):
            self.sessions.discard(plain.rpartition("/")[2])
            return 200, {}, {}
        if self.settings is not None:
            self.settings.advance(self.docs)
        if method != "GET":
            self.writes.append(f"{method} {path}")
            if self.power is not None and (method, plain) == ("POST", RESET["target"]):
                return self._reset(self.power, body)
            if self.settings is not None:
                return self.settings.write(self.docs, method, plain, body)
            return 405, {"error": {"message": "this emulation is read only"}}, {}
        if self.traps.busy > 0:
            self.traps.busy -= 1
            return 503, {"error": {"message": "busy"}}, {}
        for end, status in self.traps.status.items():
            if plain.endswith(end):
                return status, {"error": {"message": "as asked"}}, {}
        found = self.docs.get(plain)
        if found is not None and plain == SYSTEM and self.power is not None:
            found = {**found, "PowerState": self.power.state()}
        if found is None:
            return 404, {"error": {"message": "no such resource"}}, {}
        if query.startswith("$expand") and "Members" in found:
            members = [self.docs.get(one.get("@odata.id", ""), one) for one in found["Members"]]
            found = {**found, "Members": members}
        return 200, found, {}

    def _reset(self, power: Power, body: bytes) -> tuple[int, Any, dict[str, str]]:
        """Switch the host's power, as far as the BMC may."""
        own = self.docs.get(f"{MANAGER}/Oem/Dell/DellAttributes/iDRAC.Embedded.1", {}).get("Attributes", {})
        if own.get(LOCKDOWN, "Disabled") != "Disabled":
            return fault(403, "LOC001", "The operation is not possible because System Lockdown mode is on.")
        try:
            kind = json.loads(body)["ResetType"]
        except (ValueError, KeyError, TypeError):
            kind = None
        if kind not in RESETS:
            return fault(400, "SYS426", f"ResetType is one of {', '.join(RESETS)}.")
        state = power.state()
        if (kind == "On") == (state == "On"):
            return fault(409, "PSU501", f"The host is {state} already.")
        power.reset(kind)
        return 204, {}, {}

    def _session(self, body: bytes) -> tuple[int, Any, dict[str, str]]:
        try:
            given = json.loads(body)
            right = (given["UserName"], given["Password"]) == self._login
        except (ValueError, KeyError, TypeError):
            right = False
        if not right:
            return 401, {"error": {"message": "Unable to complete the operation: invalid credentials"}}, {}
        token = secrets.token_hex(16)
        self.sessions.add(token)
        return 201, {"Id": token}, {"X-Auth-Token": token, "Location": f"{SESSIONS}/{token}"}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        bmc = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing is logged: a request may hold a password."""

            def _go(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if bmc.traps.delay_s:
                    time.sleep(bmc.traps.delay_s)
                status, found, headers = bmc.answer(self.command, self.path, self.headers.get("X-Auth-Token", ""), body)
                data = json.dumps(found).encode()
                plain = self.path.partition("?")[0]
                if status == 200 and plain.endswith(bmc.traps.rubbish):
                    data = b"<html>not \xff\xfe Redfish</html>"
                if plain.endswith(bmc.traps.drip):
                    self._drip()
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                for name, value in headers.items():
                    self.send_header(name, value)
                if plain.endswith(bmc.traps.cut):
                    data, self.close_connection = data[: len(data) // 2], True
                self._write(data)

            def _drip(self) -> None:
                self.close_connection = True
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                for _ in range(60):
                    self.wfile.write(b"x")
                    time.sleep(0.2)

            def _write(self, data: bytes) -> None:
                if not bmc.traps.dribble:  # head and body in one packet: two would wait for each other
                    self._headers_buffer.extend([b"\r\n", data])  # type: ignore[attr-defined]
                    self.flush_headers()
                    return
                self.end_headers()
                for one in data:
                    self.wfile.write(bytes([one]))
                    time.sleep(1.0)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _go

        return Handler
