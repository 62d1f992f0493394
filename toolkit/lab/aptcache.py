"""The lab's shared package cache: a small HTTP proxy between the nodes' apt and the machine's own mirrors.

Nodes cannot share an archives folder, because apt locks it. Packages (`*.deb`, which never change under their name)
are stored; indices are always fetched anew. The host name that stands in for the vendors' exists here alone, and is
answered from a folder. Packages of some size are also unpacked once, for all nodes (files/lab-dpkg-deb reads them).
Run as `python -m toolkit.lab.aptcache NETNS ADDRESS PORT FOLDER VENDOR_FOLDER UNPACKED_FOLDER`.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO

from toolkit.lab.spec import VENDOR_HOST

#: smallest and largest package that is unpacked for the nodes
UNPACKED_BYTES = (1 << 17, 1 << 26)
CLONE_NEWNET = 0x40000000  # linux/sched.h
HOP_BY_HOP = {"connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}


def vendor_file(address: str, folder: Path) -> Path | None:
    """The file below `folder` that an address of the vendors' stand-ins means; None when there is none."""
    parts = [p for p in urllib.parse.unquote(urllib.parse.urlsplit(address).path).split("/") if p not in ("", ".")]
    path = folder.joinpath(*parts)
    return path if ".." not in parts and path.is_file() else None


def unpack(package: Path, folder: Path) -> None:
    """Have the package's files in `folder` as a tar, named by its SHA-256; not those where it is not worth it, or that
    would keep apt waiting. A package that dpkg-deb cannot read is left to the nodes, who say so."""
    if not package.is_file() or not UNPACKED_BYTES[0] <= package.stat().st_size <= UNPACKED_BYTES[1]:
        return
    files = folder / f"{hashlib.sha256(package.read_bytes()).hexdigest()}.tar"
    if files.exists():
        return
    with tempfile.NamedTemporaryFile(dir=folder) as partial:
        done = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=partial, stderr=subprocess.DEVNULL, check=False
        )
        if done.returncode == 0:
            Path(partial.name).chmod(0o644)
            with contextlib.suppress(FileExistsError):  # another lab's cache was faster
                files.hardlink_to(partial.name)


class Handler(http.server.BaseHTTPRequestHandler):
    """One request of a node's apt."""

    folder: Path
    vendor: Path
    unpacked: Path
    locks: dict[str, threading.Lock]
    seen: set[str]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer from the store, or fetch, store (packages only) and answer."""
        if not self.path.startswith("http://"):
            self.send_error(400, "an http proxy for apt only")
            return
        if urllib.parse.urlsplit(self.path).hostname == VENDOR_HOST:
            self._send(vendor_file(self.path, self.vendor))
            return
        if not self.path.endswith(".deb"):
            self._relay(None)
            return
        stored = self.folder / (hashlib.sha256(self.path.encode()).hexdigest()[:16] + "-" + Path(self.path).name)
        # One download at a time per package: the other nodes wait and then read it from the store.
        with self.locks.setdefault(stored.name, threading.Lock()):
            there = stored.exists()
            if not there:
                self._relay(stored)
            if stored.name not in self.seen:
                unpack(stored, self.unpacked)
                self.seen.add(stored.name)
        if there:
            self._send(stored)

    def _send(self, path: Path | None) -> None:
        if path is None:
            self.send_error(404)
            return
        with path.open("rb") as body:
            self.send_response(200)
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            shutil.copyfileobj(body, self.wfile)

    def _relay(self, store: Path | None) -> None:
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP | {"host", "range"}}
        try:
            reply = urllib.request.urlopen(urllib.request.Request(self.path, headers=headers), timeout=60)  # noqa: S310
        except urllib.error.HTTPError as e:
            reply = e  # an answer like any other: 304 and 404 are apt's business
        except OSError as e:
            self.send_error(502, f"mirror not reached: {e}")
            return
        with reply:
            self.send_response(reply.status or 502)
            for key, value in reply.headers.items():
                if key.lower() not in HOP_BY_HOP:
                    self.send_header(key, value)
            if reply.headers.get("Content-Length") is None:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            if store is None or reply.status != 200:
                shutil.copyfileobj(reply, self.wfile)
                return
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as partial:
                received = self._copy_both(reply, partial)
            if str(received) == reply.headers.get("Content-Length"):
                Path(partial.name).replace(store)
            else:
                Path(partial.name).unlink()

    def _copy_both(self, source: IO[bytes], store: IO[bytes]) -> int:
        total = 0
        while chunk := source.read(1 << 18):
            total += len(chunk)
            store.write(chunk)
            self.wfile.write(chunk)
        return total

    def log_message(self, format: str, *args: object) -> None:
        """Silence: apt on the node reports what failed."""


def serve(netns: str, address: str, port: int, folder: Path, vendor: Path, unpacked: Path) -> None:
    """Listen inside `netns`, fetch from outside of it: only the lab can ask, and the machine's own network answers."""
    for path in (folder, unpacked):
        path.mkdir(parents=True, exist_ok=True)
    Handler.folder, Handler.vendor, Handler.unpacked = folder, vendor, unpacked
    Handler.locks, Handler.seen = {}, set()
    libc = ctypes.CDLL(None, use_errno=True)
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    inside = os.open(f"/run/netns/{netns}", os.O_RDONLY)
    if libc.setns(inside, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter {netns}")
    server = http.server.ThreadingHTTPServer((address, port), Handler)
    if libc.setns(outside, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot return from the network namespace")
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(Path, sys.argv[4:7]))
