"""The reference engine and the emulated devices, built once for a test run, and processes that use them on loopback."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from toolkit.engine import build

ROOT = Path(__file__).parents[2]
TOKEN = "0123456789abcdef-token"
MIB = 1 << 20
UUIDS = [f"GPU-11111111-2222-3333-4444-55555555550{i}" for i in range(2)]
PRELUDE = """
import ctypes, json, os, sys, threading, time
from ctypes import byref, c_size_t, c_uint64, c_void_p, c_int, c_float
from toolkit.lease.programs.copybench import Cuda, CudaError
cuda = Cuda()
def start(ordinal=0):
    cuda.cuInit(0)
    context = c_void_p()
    cuda.cuDevicePrimaryCtxRetain(byref(context), ordinal)
    cuda.cuCtxSetCurrent(context)
    return context
def alloc(bytes):
    pointer = c_uint64()
    cuda.cuMemAlloc_v2(byref(pointer), c_size_t(bytes))
    return pointer
def info():
    free, total = c_size_t(), c_size_t()
    cuda.cuMemGetInfo_v2(byref(free), byref(total))
    return free.value, total.value
def code(call, *arguments):
    try:
        call(*arguments)
    except CudaError as e:
        return e.code
    return 0
def said(value):
    print(json.dumps(value), flush=True)
"""


@dataclass
class Carrier:
    """What servers and clients of a test have beside the rest; `engine_verbs.py` has them speak verbs."""

    options: tuple[str, ...] = ()
    server: dict[str, str] = field(default_factory=dict)
    client: dict[str, str] = field(default_factory=dict)
    libraries: str = ""  # a folder more where libraries are looked for


carrier = Carrier()


def library_path(folder: Path) -> str:
    """LD_LIBRARY_PATH with that folder."""
    return f"{folder}:{carrier.libraries}" if carrier.libraries else str(folder)


@cache
def built() -> Path:
    """Folder with bin/, lib/ (release "test"), other/lib/ (release "other") and devices/."""
    folder = Path(tempfile.mkdtemp(prefix="eai-engine-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    build.compile_engine(folder, "test")
    build.compile_engine(folder / "other", "other")
    build.compile_devices(folder / "devices")
    return folder


@cache
def sanitized() -> Path:
    """As `built`, bin/ and devices/ under AddressSanitizer and UndefinedBehaviorSanitizer."""
    folder = Path(tempfile.mkdtemp(prefix="eai-engine-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    build.compile_engine(folder, "test", sanitized_server=True)
    build.compile_devices(folder / "devices", sanitized=True)
    return folder


def describe(
    folder: Path, memory_bytes: int = 256 * MIB, name: str = "Emulated V100", **more: int | str
) -> dict[str, str]:
    """Two emulated GPUs of their own; the environment in which the emulated driver finds them."""
    entries = [
        {
            "uuid": u,
            "name": name,
            "memory_bytes": memory_bytes,
            "sm_count": 80,
            "pci_bus_id": f"00000000:1{i}:00.0",
            **more,
        }
        for i, u in enumerate(UUIDS)
    ]
    (folder / "gpus.json").write_text(json.dumps({"gpus": entries}))
    return {
        "ELASTIC_AI_EMULATED_GPUS": str(folder / "gpus.json"),
        "ELASTIC_AI_EMULATED_STATE": str(folder / "state"),
    }


@dataclass
class Server:
    """A running server."""

    process: subprocess.Popen[str]
    port: int
    folder: Path
    devices: dict[str, str]

    def events(self) -> list[dict[str, Any]]:
        """What it has reported so far; the last line may be under way."""
        lines = (self.folder / "events").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def child(self) -> int:
        """The child of the connection that came last."""
        return int([e for e in self.events() if e["event"] == "client"][-1]["pid"])


@contextmanager
def server(
    folder: Path,
    *options: str,
    devices: dict[str, str] | None = None,
    programs: Callable[[], Path] = built,
    **settings: str,
) -> Iterator[Server]:
    """A server on a free port of loopback; it and its children are gone afterwards."""
    folder.mkdir(exist_ok=True)
    devices = devices or describe(folder)
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    port_file = folder / "port"
    command = [str(programs() / "bin/elastic-ai-refserver"), "--port-file", str(port_file)]
    command += ["--token-file", str(token)]
    if "--allow" not in options:
        command += ["--allow", "127.0.0.1"]
    with (folder / "events").open("w") as events:
        command += ["--report-fd", str(events.fileno()), *carrier.options, *options]
        environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": library_path(programs() / "devices"),
            **devices,
            **carrier.server,
            **settings,
        }
        process = subprocess.Popen(command, env=environment, pass_fds=[events.fileno()], text=True)
    try:
        wait_for(port_file.exists)
        yield Server(process, int(port_file.read_text()), folder, devices)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(10)


def wait_for(condition: Callable[[], bool], limit_s: float = 10) -> None:
    """Return when it holds; AssertionError after `limit_s`."""
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


@dataclass
class Client:
    """The environment of a client of some servers."""

    addresses: str
    folder: Path
    token: str = TOKEN
    library: str = "lib"
    more: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Of a process."""
        token = self.folder / "client-token"
        new = token.with_suffix(".new")
        new.write_text(f"{self.token}\n")
        new.replace(token)  # another client may be reading it
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "LD_LIBRARY_PATH": library_path(built() / self.library),
            **carrier.client,
            "ELASTIC_AI_SERVERS": self.addresses,
            "ELASTIC_AI_TOKEN_FILE": str(token),
            **self.more,
        }

    def start(self, script: str) -> subprocess.Popen[str]:
        """The script, running, with pipes for both directions."""
        return subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script],
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, limit_s: float = 60) -> tuple[Any, str]:
        """What the script says (its last line, as JSON) and its stderr."""
        process = self.start(script)
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"the client hung; it said: {process.communicate()}") from None
        assert process.returncode == 0, err
        return json.loads(out.splitlines()[-1]), err


def client_of(*servers: Server, **options: Any) -> Client:
    """A client of these servers."""
    addresses = ",".join(f"127.0.0.1:{s.port}" for s in servers)
    return Client(addresses, servers[0].folder, **options)


def local(folder: Path, devices: dict[str, str], **more: str) -> Client:
    """A program that uses the emulated devices themselves."""
    return Client("", folder, library="devices", more=devices | more)
