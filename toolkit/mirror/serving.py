"""Serves a mirror by HTTP or HTTPS to the nodes of a hall, and says what their inventory needs for it."""

from __future__ import annotations

import http.server
import ssl
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from toolkit.errors import UsageFault
from toolkit.mirror.building import KEYS, fingerprints
from toolkit.mirror.documents import PLAN, Plan
from toolkit.mirror.images import Door, image_of

#: Requests that are answered at once; more wait in the queue of the socket.
MOST = 64
TIMEOUT_S = 60.0
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
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise UsageFault(f"--listen {address}: has the form ADDRESS:PORT, as 10.0.0.5:8080")
    if (certificate is None) != (private_key is None):
        raise UsageFault("--certificate and --private-key go together: give both, or none")
    return Place(host, int(port), certificate, private_key)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of the mirror; no list of a folder, and nothing outside of it."""

    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S

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
        asked = Path(self.translate_path(self.path)).resolve()
        if root not in (asked, *asked.parents) or any(part.startswith(".") for part in asked.relative_to(root).parts):
            self.send_error(404)
            return False
        return True

    def log_message(self, format: str, *args: object) -> None:
        """No line for each of thousands of files."""


class Server(http.server.ThreadingHTTPServer):
    """A bounded number of threads."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, where: Place, folder: Path) -> None:
        """Listen. OSError."""
        self._free = threading.BoundedSemaphore(MOST)
        self._tls = _context(where)
        super().__init__((where.host, where.port), partial(Handler, directory=str(folder)))

    def process_request(self, request: object, client_address: object) -> None:
        """Wait for a free thread, and answer in it."""
        self._free.acquire()
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Answer one, with TLS where it is wanted: its handshake keeps no other waiting."""
        try:
            if self._tls is not None:
                request.settimeout(TIMEOUT_S)  # type: ignore[attr-defined]
                request = self._tls.wrap_socket(request, server_side=True)  # type: ignore[arg-type]
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        except OSError:
            self.shutdown_request(request)  # type: ignore[arg-type]
        finally:
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
    head = "# Written by toolkit mirror serve: every repository of the nodes is the mirror's. mirror_upstream is what\n"
    head += "# the inventory had before, from which toolkit mirror plan goes on.\n"
    return f"---\n{head}{yaml.safe_dump(values, sort_keys=False)}"
