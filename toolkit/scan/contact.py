"""First contact: host keys that a person confirms, then a login, and the reading probe through its channel.

Nothing is sent to a node whose host key is not known: no user name, no password.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import logging
import socket
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko

from toolkit.scan import shipped
from toolkit.scan.answer import Answer, parse
from toolkit.scan.known_key import Unknown, known_as, policy, wrong_key
from validation.base import bounded, noise

CONNECT_TIMEOUT_S = 10.0
BANNER_TIMEOUT_S = 30.0  # of a connection that stands: a busy node is slow to say what it is
LOGIN_TIMEOUT_S = 20.0
ANSWER_TIMEOUT_S = shipped.LIMIT_S + 10.0
BMC_TIMEOUT_S = 3.0
BMC_PORT = 443
_CHUNK_BYTES = 1 << 16
_PAUSE_S = 0.02

logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)  # what it would say, its exceptions say too


@dataclass(frozen=True)
class Login:
    """How to log in to a node. A password is never printed."""

    address: str
    port: int
    user: str
    password: str | None = field(default=None, repr=False)
    key_file: Path | None = None
    known_hosts: Path | None = None
    """Where its host key is known; None: where those of all others are."""

    @property
    def known_as(self) -> str:
        """The node's name in known_hosts."""
        return known_as(self.address, self.port)


@dataclass(frozen=True)
class HostKey:
    """A host key that nobody has confirmed yet."""

    login: Login
    kind: str  # ssh-ed25519
    blob: str  # base64

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` shows it."""
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def line(self) -> str:
        """As it stands in known_hosts."""
        return f"{self.login.known_as} {self.kind} {self.blob}"


@dataclass(frozen=True)
class Trouble:
    """Why a node could not be read: one sentence, with what to do."""

    words: str


Outcome = Answer | HostKey | Trouble


_open: set[Any] = set()


def end_all() -> None:
    """End every connection: what waits for a node's answer ends too."""
    for client in list(_open):
        client.close()


def contact(login: Login, known_hosts: Path) -> Outcome:
    """Log in to a node and read it; its host key where that is not known yet."""
    client = paramiko.SSHClient()
    _open.add(client)
    known_hosts = login.known_hosts or known_hosts
    client.set_missing_host_key_policy(policy())
    try:
        if known_hosts.is_file():
            client.load_system_host_keys(str(known_hosts))
        _connect(client, login)
        return _read(client, login)
    except Unknown as unknown:
        return HostKey(login, unknown.key.get_name(), unknown.key.get_base64())
    except Exception as fault:  # paramiko raises what sockets and parsers raise
        return Trouble(_explain(fault, login, known_hosts))
    finally:
        client.close()
        _open.discard(client)


def _connect(client: Any, login: Login) -> None:
    """With a password nothing else is tried: some nodes refuse everybody after a few wrong keys."""
    client.connect(
        login.address,
        port=login.port,
        username=login.user,
        password=login.password,
        key_filename=str(login.key_file) if login.key_file else None,
        allow_agent=login.password is None and login.key_file is None,
        look_for_keys=login.password is None and login.key_file is None,
        timeout=CONNECT_TIMEOUT_S,
        banner_timeout=BANNER_TIMEOUT_S,
        auth_timeout=LOGIN_TIMEOUT_S,
        channel_timeout=LOGIN_TIMEOUT_S,
    )


def _read(client: Any, login: Login) -> Outcome:
    channel = client.get_transport().open_session(timeout=LOGIN_TIMEOUT_S)
    channel.settimeout(ANSWER_TIMEOUT_S)
    until = time.monotonic() + ANSWER_TIMEOUT_S
    channel.exec_command(shipped.COMMAND)
    try:
        channel.sendall(shipped.program())
        channel.shutdown_write()
    except OSError:
        pass  # it has ended already; what it said tells why
    held = {"stdout": bytearray(), "stderr": bytearray()}
    while not (channel.exit_status_ready() and not channel.recv_ready() and not channel.recv_stderr_ready()):
        if time.monotonic() > until:
            said = noise.last_words((held["stderr"] or held["stdout"]).decode("utf-8", "replace"))[:200]
            there = f"; there was: {said}" if said else ""
            return Trouble(f"the reading program did not end within {ANSWER_TIMEOUT_S:.0f} s{there}")
        idle = True
        for stream, ready, read in (
            ("stdout", channel.recv_ready, channel.recv), ("stderr", channel.recv_stderr_ready, channel.recv_stderr)
        ):  # fmt: skip
            if ready():
                idle = False
                held[stream] += read(_CHUNK_BYTES)
                if len(held[stream]) > bounded.SCAN_BYTES:
                    words = bounded.too_much("", f"user {login.user}'s shell", stream, bounded.SCAN_BYTES)
                    return Trouble(f"{words}: see what its login files print")
        if idle and channel.closed:
            break
        if idle:
            time.sleep(_PAUSE_S)
    return _understood(bytes(held["stdout"]), held["stderr"].decode("utf-8", "replace"), login)


def _understood(said: bytes, err: str, login: Login) -> Outcome:
    """The probe's document, known by its form, among what else a login shell may print."""
    out, wrong = said.decode("utf-8", "replace"), ""
    for document in reversed(noise.documents(said)):
        if document.get("type") == shipped.TOO_OLD:
            oldest = ".".join(map(str, shipped.OLDEST))
            return Trouble(f"Python there is {str(document.get('python'))[:20]}; {oldest} is needed: another system")
        if document.get("type") == shipped.TYPE:
            answer = parse(document)
            if isinstance(answer, Answer):
                return answer
            wrong = wrong or f"its answer cannot be used: {answer}"
    if wrong:
        return Trouble(wrong)
    bmc = _bmc(login.address)
    if bmc:
        return Trouble(bmc)
    lines = [*err.splitlines(), *out.splitlines()]
    if any("python3" in line and "not found" in line for line in lines if not line.startswith("+")):
        return Trouble("python3 is not installed there; install it (apt-get install python3, dnf install python3)")
    last = (noise.last_words(err) or noise.last_words(out))[:200] or "nothing"
    return Trouble(f"user {login.user} logged in, and the reading program did not answer; there was: {last}")


def _explain(fault: Exception, login: Login, known_hosts: Path) -> str:
    """One sentence for what went wrong."""
    if isinstance(fault, paramiko.BadHostKeyException):
        return wrong_key(known_hosts, login.address, login.port, "reinstalled")
    if isinstance(fault, socket.gaierror):
        return "its name does not resolve; write its address"
    bmc = _bmc(login.address)
    if bmc:
        return bmc
    if isinstance(fault, paramiko.PasswordRequiredException):
        return "the private key has a passphrase; load it with ssh-add and leave --key out"
    if isinstance(fault, paramiko.AuthenticationException) or "No authentication methods" in str(fault):
        with_what = "password" if login.password is not None else "key"
        cure = "or by a key" if login.password is not None else "by --key, or --ask-password"
        return f"refuses the {with_what} for user {login.user}; log in as another user (--user) {cure}"
    if isinstance(fault, paramiko.ssh_exception.NoValidConnectionsError):
        fault = next(iter(fault.errors.values()))
    if isinstance(fault, ConnectionRefusedError):
        return f"refuses connections on port {login.port}; does sshd run there?"
    if isinstance(fault, (TimeoutError, OSError)):
        return f"does not answer on port {login.port} ({fault.strerror or 'timed out'}); is it up, at that address?"
    if isinstance(fault, paramiko.SSHException):
        return f"port {login.port} speaks no ssh that can be used here ({str(fault)[:120]}); is it the right port?"
    return f"could not be read ({type(fault).__name__}: {str(fault)[:120]})"


def _bmc(address: str) -> str | None:
    """In words that a BMC answers at an address; None where none does.

    A Redfish service tells what it is to everybody (DMTF DSP0266, service root); we say nothing to it but GET.
    """
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address, BMC_PORT, timeout=BMC_TIMEOUT_S, context=unverified)
    try:
        connection.request("GET", "/redfish/v1/")
        document = json.loads(connection.getresponse().read(_CHUNK_BYTES))
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    finally:
        connection.close()
    if not isinstance(document, dict) or "RedfishVersion" not in document:
        return None
    what = str(document.get("Product") or document.get("Name") or "Redfish")
    what = "".join(c for c in what if c.isprintable())[:80]
    return f"is a BMC ({what}), not the node; put the address of the node's operating system into the list"
