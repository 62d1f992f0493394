"""A session: one program's TensorFlow server, from its start to its end."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from elastic_ai_tfserver import INWARD

#: The import of TensorFlow from a cold disk, and the start of a server that opens its GPUs.
IMPORTS_S, STARTS_S = 90.0, 60.0
MOST_LINE = 65536


class SessionFault(Exception):
    """There is no session; the text is a sentence."""


class Worker:
    """A process with TensorFlow, which is somebody's server once it was told to be (`begin`)."""

    def __init__(self, given: argparse.Namespace, scratch: Path) -> None:
        """It is started, and imports TensorFlow."""
        self.name = secrets.token_hex(8)
        self.folder = Path(tempfile.mkdtemp(prefix="s", dir=scratch))
        (self.folder / "scratch").mkdir()
        self.version = ""
        self._reads = threading.Lock()
        limit = given.memory_limit - given.context_bytes if given.memory_limit else 0
        asked = {
            "folder": str(self.folder), "device": given.device, "devices": given.devices, "memory_limit": limit,
        }  # fmt: skip
        own = str(self.folder / "scratch")
        kept = ("PATH", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY",
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")  # fmt: skip
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {
            "HOME": own, "TMPDIR": own, "LD_PRELOAD": str(INWARD), "TF_CPP_MIN_LOG_LEVEL": "2",
            "CUDA_CACHE_PATH": f"{own}/ComputeCache",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("worker.py")), json.dumps(asked)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True,
        )  # fmt: skip
        self._came = b""

    def _line(self, limit_s: float) -> dict[str, Any]:
        """What it says next. SessionFault where it says nothing, or that it cannot."""
        assert self.process.stdout is not None
        handle, until = self.process.stdout.fileno(), time.monotonic() + limit_s
        while b"\n" not in self._came:
            left = until - time.monotonic()
            if left <= 0 or not select.select([handle], [], [], left)[0]:
                raise SessionFault(f"TensorFlow's server did not start within {limit_s:.0f} s")
            data = os.read(handle, 4096)
            if not data or len(self._came) > MOST_LINE:
                raise SessionFault(self.end_words())
            self._came += data
        line, _, self._came = self._came.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        if "fault" in said:
            raise SessionFault(said["fault"])
        return said

    def wait_import(self) -> str:
        """TensorFlow's version, once it is there. SessionFault where it does not come."""
        with self._reads:  # a session may want it while another one prepares it
            if not self.version:
                self.version = str(self._line(IMPORTS_S)["imported"])
        return self.version

    def begin(self) -> None:
        """It is a server now. SessionFault where it is none."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"begin\n")
            self.process.stdin.flush()
        except OSError:
            raise SessionFault(self.end_words()) from None
        self._line(STARTS_S)

    @property
    def file(self) -> str:
        """The file on which it listens."""
        return str(self.folder / "socket")

    def listen_back(self) -> socket.socket:
        """The file by which TensorFlow's server would reach its client, where a function has parts of both."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.folder / "client"))
        listener.listen(16)
        return listener

    def end_words(self) -> str:
        """Of one that has ended, or is about to: how."""
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "TensorFlow's server says nothing"
        if code < 0:
            name = signal.Signals(-code).name
            more = ": the lease's host memory may be full" if -code in (signal.SIGKILL, signal.SIGABRT) else ""
            return f"TensorFlow's server was ended by {name}{more}"
        return f"TensorFlow's server ended with exit code {code}"

    def end(self) -> None:
        """It and all that it started, with its memory and its files, at once."""
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Sessions:
    """The workers of a lease: one ahead, and those that have a program."""

    def __init__(self, given: argparse.Namespace, scratch: Path, most: int) -> None:
        """Nothing runs yet. most: sessions at a time."""
        self.given, self.scratch, self.most = given, scratch, most
        self.running: dict[str, Worker] = {}
        self._lock = threading.Lock()
        self._ahead: Worker | None = None
        self._taken = 0
        self._closed = False

    def prepare(self) -> str:
        """The one ahead: TensorFlow's version. SessionFault where it cannot be."""
        with self._lock:
            if self._closed:
                raise SessionFault("the lease ends")
            if self._ahead is not None and self._ahead.process.poll() is not None:
                self._ahead.end()  # it was ended by somebody else, as for the lack of memory
                self._ahead = None
            if self._ahead is None:
                self._ahead = Worker(self.given, self.scratch)
            ahead = self._ahead
        return ahead.wait_import()

    def begin(self) -> Worker:
        """A session's worker, which serves. SessionFault where there is none."""
        with self._lock:
            if self._taken >= self.most:
                held = "a part of a GPU has one program of TensorFlow at a time, which holds it to the part"
                raise SessionFault(held if self.most == 1 else f"the lease has {self.most} sessions already")
            if self._closed:
                raise SessionFault("the lease ends")
            self._taken += 1
            worker, self._ahead = self._ahead or Worker(self.given, self.scratch), None
            self.running[worker.name] = worker  # from now on, so that the lease's end is its end
        try:
            worker.wait_import()
            worker.begin()
        except BaseException:
            self.end(worker)
            raise
        return worker

    def end(self, worker: Worker) -> None:
        """A session has ended; its memory is free before another one may begin."""
        with self._lock:
            self.running.pop(worker.name, None)
        worker.end()
        with self._lock:
            self._taken -= 1

    def end_all(self) -> None:
        """Also the one ahead."""
        with self._lock:
            self._closed = True
            workers = [*self.running.values(), *([self._ahead] if self._ahead else [])]
            self._ahead = None
        for worker in workers:
            worker.end()
