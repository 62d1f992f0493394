"""A link of stated rate and delay in front of a TCP port: the toolkit's relay on loopback."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from toolkit.engine.local_build import compile_relay


@cache
def program() -> Path:
    """The relay, built once for a test run."""
    folder = Path(tempfile.mkdtemp(prefix="eai-relay-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return compile_relay(folder)


@contextmanager
def relay(port: int, gbps: float = 0.0, delay_ms: float = 0.0) -> Iterator[int]:
    """A port of loopback by which `port` is reached: each way so much later, at so many 10^9 bit/s (0: no limit)."""
    words = [str(program()), "127.0.0.1", str(port), str(int(gbps * 1e9 / 8)), str(int(delay_ms * 1000))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()
