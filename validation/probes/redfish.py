"""Redfish of a server's controller (BMC): one session over verified TLS, a deadline. What measures only uses `get`.

`send` is for `plugins/plugin_utils/bmc.py`, which sets BIOS attributes.

http.client rather than a library: the certificate's fingerprint is compared before anything is sent, an answer without
an end is cut, and a slow one ends with the deadline. The password is in no error, no document and no log.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

ROOT = "/redfish/v1"
MOST_BYTES = 8 << 20
"""Of one answer. A BMC with all its sensors in one answer stays under 1 MiB."""
ANSWER_S = 20.0
"""How long a BMC may be silent within one answer. iDRAC 9 takes up to 10 s for its first inventory."""
BUSY = (429, 503)
BUSY_WAIT_S = 1.0
OPERATION, OPERATION_S = b"RAC0679", 60.0
"""What an iDRAC answers while another of its operations runs (a job, an export), and how long its end is waited for: it
may be that of hours. Project default."""
AT_ONCE = 4
"""Requests to one BMC at the same time: iDRAC answers more one after another. Project default."""
BMCS_AT_ONCE = 64
"""BMCs that are read at the same time: their threads only wait. Project default."""
LOGOUT_S = 2.0
"""For the end of a session, where its time was over before. Project default."""
MOST_DIGITS = 20
"""Of a whole number: no counter or size has more (2^64)."""
PASSWORD = "ELASTIC_AI_BMC_PASSWORD"  # noqa: S105 - the name of a variable
"""Variable of the environment with the password, where the inventory has none."""
_PATH = re.compile(r"/redfish/v1(?:/[\x21-\x7e]*)?")


class Refused(Exception):
    """The BMC cannot be read at all. `str(e)` is one sentence."""


class Denied(Refused):
    """The BMC refuses the login: whoever tries again and again may lock the account."""


class Unread(Exception):
    """Something of a BMC cannot be read. `str(e)` says what is wrong, without the place. `absent`: it has no such
    resource."""

    def __init__(self, words: str, absent: bool = False) -> None:
        """What is wrong, in words."""
        super().__init__(words)
        self.absent = absent


class Target(NamedTuple):
    """A BMC. `ca`: file of an authority, `fingerprint`: SHA-256 of the certificate in hexadecimal; "" for neither."""

    address: str
    port: int
    user: str
    password: str
    ca: str
    fingerprint: str

    def __repr__(self) -> str:
        """Without the password."""
        return f"Target({self.address}:{self.port}, {self.user})"


class Sent(NamedTuple):
    """What a BMC answers to a request that changes something. `location`: path of what was made, "" for none."""

    status: int
    location: str
    document: dict[str, Any]

    @property
    def right(self) -> bool:
        """Whether it accepted the request."""
        return 200 <= self.status < 300

    def words(self) -> str:
        """The status, and what the BMC says: `status 400, RAC0679: ...`."""
        fault = self.document.get("error", self.document)
        told = fault.get("@Message.ExtendedInfo") if isinstance(fault, dict) else None
        said = [
            f"{str(one.get('MessageId', '')).rpartition('.')[2]}: {one.get('Message', '')}"[:300]
            for one in (told if isinstance(told, list) else [])
            if isinstance(one, dict)
        ]
        return ", ".join([f"status {self.status}", *said[:3]])


def _port(given: object) -> int:
    """A port as the inventory has it, 443 where it has none; Refused."""
    port = 443 if given is None else int(given) if isinstance(given, str) and given.strip().isdecimal() else given
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= 65535:
        raise Refused(f"bmc.port of the inventory is {given!r}; a port is a number from 1 to 65535")
    return port


def target(given: object) -> Target:
    """A BMC as the inventory declares it; Refused where it is not, or there is no password."""
    declared = given if isinstance(given, dict) else {}
    password = declared.get("password") or os.environ.get(PASSWORD, "")
    if not declared.get("address") or not declared.get("user"):
        raise Refused("the inventory declares no bmc.address or bmc.user")
    if not password:
        raise Refused(f"there is no password: neither bmc.password (of a vault) nor the variable {PASSWORD}")
    marks = str(declared.get("fingerprint") or "").replace(":", "").lower()
    port = _port(declared.get("port"))
    ca = os.path.expanduser(str(declared.get("ca") or ""))  # noqa: PTH111
    return Target(str(declared["address"]), port, str(declared["user"]), str(password), ca, marks)


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _whole(text: str) -> int | None:
    return int(text) if len(text.lstrip("-")) <= MOST_DIGITS else None


def _clean(value: Any) -> Any:
    """The same without lone surrogates, which no document can hold: each is replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_clean(one) for one in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(one) for key, one in value.items()}
    return value


def decoded(body: bytes) -> Any:
    """JSON of a BMC. Numbers that are not finite or beyond any counter are null; ValueError, RecursionError."""
    return _clean(json.loads(body, parse_float=_finite, parse_int=_whole, parse_constant=lambda _: None))


def _place(headers: Any) -> str:
    """The path in an answer's header Location, "" where there is none."""
    place = re.sub(r"^https?://[^/]+", "", headers.get("Location", ""))
    return place if _PATH.fullmatch(place) else ""


def _context(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.ca or None)
    except (OSError, ssl.SSLError) as fault:
        raise Refused(f"the file of its authority cannot be used: {target.ca}: {fault}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if target.fingerprint:  # compared below, before anything is sent
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Session:
    """A login to one BMC. Use it with `with`: it logs out at the end. Threads may share it."""

    def __init__(self, target: Target, deadline_s: float) -> None:
        """Nothing is connected yet. All that is asked ends within `deadline_s` seconds."""
        self._target = target
        self._until = time.monotonic() + deadline_s
        self._context = _context(target)
        self._mine = threading.local()
        self._open: list[http.client.HTTPSConnection] = []
        self._token = ""
        self._session = ""
        self.tls = ""
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="redfish")
        self._timer = self._at_deadline()

    def _at_deadline(self) -> threading.Timer:
        """Ends the connections at the deadline: a header that comes byte by byte is looked at by nobody before."""
        timer = threading.Timer(max(0.0, self._until - time.monotonic()), self._cut)
        timer.daemon = True
        return timer

    def _cut(self) -> None:
        for connection in tuple(self._open):
            if (sock := connection.sock) is not None:
                with suppress(OSError):  # closed meanwhile; not SSLSocket's own, which changes it under its reader
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def __enter__(self) -> Session:
        """Log in; Refused."""
        self._timer.start()
        try:
            self._log_in()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *fault: object) -> None:
        """Log out, as far as the BMC still answers."""
        self._timer.cancel()
        own: http.client.HTTPSConnection | None = getattr(self._mine, "connection", None)
        if own is not None and time.monotonic() >= self._until:
            own.close()  # it was ended at the deadline: log out by another
        self._until = max(self._until, time.monotonic() + LOGOUT_S)
        self._timer = self._at_deadline()
        self._timer.start()
        if self._session:
            with suppress(Unread, Refused):
                self._ask("DELETE", self._session)
        self._close()

    def _close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._timer.cancel()
        for connection in self._open:
            connection.close()

    def _log_in(self) -> None:
        told = json.dumps({"UserName": self._target.user, "Password": self._target.password}).encode()
        try:
            status, headers, _ = self._ask("POST", f"{ROOT}/SessionService/Sessions", told)
        except Unread as fault:
            raise Refused(str(fault)) from None
        if status in (400, 401, 403):
            raise Denied(f"it refuses the login of user {self._target.user}: wrong user or password, or no right")
        token = headers.get("X-Auth-Token", "")
        if status not in (200, 201, 202) or not token:
            raise Refused(f"it gives no session: status {status}" + ("" if token else ", no X-Auth-Token"))
        self._token = token
        self._session = _place(headers)

    def left_s(self) -> float:
        """Seconds until the deadline; Unread where there are none."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise Unread("the time for this BMC was over")
        return left

    def _connected(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._mine, "connection", None)
        if connection is not None and connection.sock is not None:
            connection.sock.settimeout(min(ANSWER_S, self.left_s()))
            return connection
        target = self._target
        connection = http.client.HTTPSConnection(
            target.address, target.port, timeout=min(ANSWER_S, self.left_s()), context=self._context
        )
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as fault:
            raise Refused(self._untrusted(fault.verify_message)) from None
        except ssl.SSLError as fault:
            raise Refused(f"it speaks no TLS 1.2 or newer on port {target.port} ({fault.reason or fault})") from None
        except OSError as fault:
            raise Refused(f"it does not answer on port {target.port}: {fault.strerror or fault}") from None
        got = hashlib.sha256(connection.sock.getpeercert(binary_form=True) or b"").hexdigest()
        if target.fingerprint and got != target.fingerprint:
            connection.close()
            raise Refused(f"its certificate is another: SHA-256 {got}, {target.fingerprint} declared")
        self.tls = connection.sock.version() or ""
        self._mine.connection = connection
        self._open.append(connection)
        self.left_s()  # the deadline may have passed since, and with it the end of all connections
        return connection

    def _untrusted(self, why: str) -> str:
        anyone = ssl.create_default_context()
        anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
        try:
            plain = socket.create_connection((self._target.address, self._target.port), 5.0)
            with plain, anyone.wrap_socket(plain) as shown:
                print_ = hashlib.sha256(shown.getpeercert(binary_form=True) or b"").hexdigest()
        except OSError:
            print_ = ""
        cure = "declare bmc.ca (file of its authority) or bmc.fingerprint"
        return f"its certificate is not trusted ({why}); {cure}" + (f"; it shows {print_}" if print_ else "")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any, bytes]:
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["X-Auth-Token"] = self._token
        for again in (True, False):  # a BMC may close a kept connection between two requests
            connection = self._connected()
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                self.left_s()  # a header that was ended at the deadline reads as a whole one
                return answer.status, answer.headers, self._body(answer)
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLEOFError):
                connection.close()
                self.left_s()
                if not again or method != "GET":
                    raise Unread("it closed the connection") from None
            except Unread:
                connection.close()
                raise
            except TimeoutError:
                connection.close()
                self.left_s()
                raise Unread(f"no answer within {ANSWER_S:g} s") from None
            except (OSError, http.client.HTTPException) as fault:
                connection.close()
                self.left_s()
                raise Unread(f"its answer is no HTTP: {type(fault).__name__}") from None
        raise Unread("it closed the connection")

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        got = bytearray()
        while chunk := answer.read1(1 << 16):
            got += chunk
            self.left_s()
            if len(got) > MOST_BYTES:
                raise Unread(f"its answer is longer than {MOST_BYTES >> 20} MiB")
        self.left_s()
        if answer.length:
            raise Unread("its answer ends before its end")
        answer.read()  # nothing is left: the connection is free for the next request
        return bytes(got)

    def get(self, path: str) -> dict[str, Any]:
        """A resource; Unread where there is none, it comes too late or is no JSON object."""
        if not _PATH.fullmatch(path):
            raise Unread(f"{path.partition('?')[0][:60]!r} is no path of Redfish")
        began = time.monotonic()
        while True:
            status, _, body = self._ask("GET", path)
            if status not in BUSY:
                break
            if OPERATION in body and time.monotonic() - began > OPERATION_S:
                words = f"another operation of the BMC runs (status {status}, {OPERATION.decode()})"
                raise Unread(f"{words}; run this again later")
            if self.left_s() < 2 * BUSY_WAIT_S:
                raise Unread("it is busy (status 503) to the end of its time")
            time.sleep(BUSY_WAIT_S)
        if status in (404, 405, 501):
            raise Unread("it has no such resource", absent=True)
        if status == 401:
            raise Unread("the session was ended by the BMC (status 401)")
        if status != 200:
            raise Unread(f"status {status}")
        try:
            found = decoded(body)
        except (ValueError, RecursionError):
            raise Unread("its answer is no JSON") from None
        if not isinstance(found, dict):
            raise Unread("its answer is no JSON object")
        return found

    def send(self, method: str, path: str, document: dict[str, Any] | None = None) -> Sent:
        """Change something, once; Unread where nobody knows whether the BMC did it."""
        if not _PATH.fullmatch(path):
            raise Unread(f"{path[:60]!r} is no path of Redfish")
        kept: http.client.HTTPSConnection | None = getattr(self._mine, "connection", None)
        if kept is not None:
            kept.close()  # the BMC may have closed it, and this request is not sent twice
        body = None if document is None else json.dumps(document).encode()
        while True:
            status, headers, said = self._ask(method, path, body)
            if status not in BUSY or self.left_s() < 2 * BUSY_WAIT_S:
                break
            time.sleep(BUSY_WAIT_S)
        try:
            found = decoded(said)
        except (ValueError, RecursionError):
            found = {}
        return Sent(status, _place(headers), found if isinstance(found, dict) else {})

    def get_all(self, paths: Sequence[str]) -> list[dict[str, Any] | Unread]:
        """Several resources at the same time, each as it is or why it cannot be read; Refused as the first."""

        def one(path: str) -> dict[str, Any] | Unread:
            try:
                return self.get(path)
            except Unread as fault:
                return fault

        return list(self._pool.map(one, paths))
