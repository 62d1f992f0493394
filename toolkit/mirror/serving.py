"""Serves a mirror by HTTP or HTTPS to the nodes of a hall, and says what their inventory needs for it."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from toolkit.errors import UsageFault
from toolkit.mirror import manifest
from toolkit.mirror.building import KEYS, fingerprints
from toolkit.mirror.documents import PLAN, Plan
from toolkit.mirror.images import Door, image_of

#: Requests that are answered at once; more wait in the queue of the socket.
MOST = 256
OF_ONE = 64
"""Connections of one address; what is beyond is closed. apt and dnf have a few each."""
TIMEOUT_S = 60.0
HEAD_S = 30.0
"""For a request to be whole: one that says a letter now and then is not waited for."""
MOST_PORT = 65535
_SIGNING = (manifest.MANIFEST, manifest.STATEMENT, manifest.SIGNATURE)
_TEMPLATES = ("{{", "{%", "{#")
DEFAULT = "0.0.0.0:8080"


@dataclass(frozen=True)
class Place:
    """Where it listens. certificate, private_key: PEM files, for HTTPS."""

    host: str
    port: int
    certificate: Path | None = None
    private_key: Path | None = None

    @property
    def scheme(self) -> str:
        """`http`, or `https`."""
        return "https" if self.certificate else "http"


def place(address: str, certificate: Path | None, private_key: Path | None) -> Place:
    """Of HOST:PORT. UsageFault."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageFault(f"--listen {address}: is not of the form ADDRESS:PORT, as 10.0.0.5:8080")
    if len(port) > 5 or int(port) > MOST_PORT:
        raise UsageFault(f"--listen {address}: port {port} is none; name one from 1 to {MOST_PORT}")
    if (certificate is None) != (private_key is None):
        raise UsageFault("--certificate and --private-key go together: give both, or none")
    return Place(host, int(port), certificate, private_key)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of the mirror that are signed; no list of a folder, and nothing outside of it."""

    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S
    names: frozenset[str]

    def __init__(self, *given: Any, names: frozenset[str], directory: str) -> None:
        """names: of the files that are served."""
        self.names = names
        super().__init__(*given, directory=directory)

    def handle_one_request(self) -> None:
        """Answer one, if it comes as a whole."""
        late = threading.Timer(HEAD_S, self._give_up)
        late.daemon = True
        self._late = late
        late.start()
        try:
            super().handle_one_request()
        finally:
            late.cancel()

    def parse_request(self) -> bool:
        """Read the head of a request, which has come as a whole then."""
        read = super().parse_request()
        self._late.cancel()
        return read

    def _give_up(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def list_directory(self, path: object) -> None:
        """A folder has no page."""
        self.send_error(404)

    def do_GET(self) -> None:
        """Answer, if the file is below the mirror, and no link out of it."""
        if self._inside():
            super().do_GET()

    def do_HEAD(self) -> None:
        """The same without the file."""
        if self._inside():
            super().do_HEAD()

    def _inside(self) -> bool:
        root = Path(self.directory).resolve()
        try:
            name = Path(self.translate_path(self.path)).relative_to(self.directory).as_posix()
            asked = root / name
            there = name in self.names and asked.is_file() and asked.resolve() == asked  # no link on the way
        except ValueError:  # a NUL in it, or another folder
            there = False
        if not there:
            self.send_error(404)
        return there

    def log_message(self, format: str, *args: object) -> None:
        """No line for each of thousands of files."""


class Server(http.server.ThreadingHTTPServer):
    """A bounded number of threads."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, where: Place, folder: Path, names: Iterable[str]) -> None:
        """Listen. names: of the files that are signed, which are served beside the signature. OSError."""
        self._free = threading.BoundedSemaphore(MOST)
        self._held: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._tls = _context(where)
        handler = partial(Handler, directory=str(folder), names=frozenset((*names, *_SIGNING)))
        super().__init__((where.host, where.port), handler)

    def verify_request(self, request: object, client_address: Any) -> bool:
        """No address takes all threads."""
        with self._counting:
            if self._held[client_address[0]] >= OF_ONE:
                return False
            self._held[client_address[0]] += 1
            return True

    def process_request(self, request: object, client_address: object) -> None:
        """Wait for a free thread, and answer in it."""
        self._free.acquire()
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: Any) -> None:
        """Answer one, with TLS where it is wanted: its handshake keeps no other waiting."""
        try:
            if self._tls is not None:
                request.settimeout(TIMEOUT_S)  # type: ignore[attr-defined]
                request = self._tls.wrap_socket(request, server_side=True)  # type: ignore[arg-type]
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        except OSError:
            self.shutdown_request(request)  # type: ignore[arg-type]
        finally:
            with self._counting:
                self._held[client_address[0]] -= 1
                if not self._held[client_address[0]]:
                    del self._held[client_address[0]]
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no matter of the mirror's."""


def _context(where: Place) -> ssl.SSLContext | None:
    if where.certificate is None or where.private_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(where.certificate, where.private_key)
    except (OSError, ssl.SSLError) as fault:
        raise UsageFault(f"{where.certificate}: cannot be used with {where.private_key}: {fault}") from None
    return context


def read_plan(folder: Path) -> Plan:
    """The plan of a finished mirror. UsageFault."""
    try:
        return Plan.model_validate_json((folder / PLAN).read_bytes())
    except (OSError, ValueError):
        raise UsageFault(
            f"{folder / PLAN}: cannot be read: this is no mirror; make one with toolkit mirror build"
        ) from None


def refuse_changed(folder: Path, signed: manifest.Signed) -> None:
    """UsageFault where what goes into the inventory, the plan and the keys, is not what was signed."""
    keys = {path.relative_to(folder).as_posix() for path in (folder / KEYS).glob("*")}
    kept = {name for name in signed.manifest if name.startswith(f"{KEYS}/")}
    off = manifest.differing(folder, signed, sorted({PLAN, *keys, *kept}))
    if off:
        raise UsageFault(
            f"{folder / off[0]}: is not the signed one; nothing is served; toolkit mirror verify {folder} names all"
        )


def image_door(where: Place, url: str) -> Door:
    """Where the registry of images listens: at the port after that of the mirror."""
    return Door(urlsplit(url).hostname or where.host, where.port + 1, where.certificate, where.private_key)


def variables(folder: Path, plan: Plan, fingerprint: str, url: str, registry: str = "") -> str:
    """mirror.yml: what an inventory needs, so that every repository of its nodes is this mirror's. registry: its
    images' address, "" where none is served."""
    values: dict[str, object] = {
        "repos_mirror": f"{url.rstrip('/')}/packages",
        "repos_distribution": True,
        "repos_key_dir": str((folder / KEYS).resolve()),
        "repos_fingerprints": fingerprints(plan, fingerprint),
        "repos_urls": {},
        "mirror_upstream": plan.upstream,
    }
    if registry and plan.images:
        values["horovod_image"] = image_of(plan.images[0]).at(registry)
        values["mirror_upstream"] = {**plan.upstream, "horovod_image": plan.images[0]}
    for name, value in values.items():
        if any(mark in str(value) for mark in _TEMPLATES):
            mark = next(mark for mark in _TEMPLATES if mark in str(value))
            raise UsageFault(f"{folder / PLAN}: has {mark} in {name}, which Ansible would run; nothing is served")
    head = "# Written by toolkit mirror serve: every repository of the nodes is the mirror's. mirror_upstream is what\n"
    head += "# the inventory had before, from which toolkit mirror plan goes on.\n"
    return f"---\n{head}{yaml.safe_dump(values, sort_keys=False)}"
