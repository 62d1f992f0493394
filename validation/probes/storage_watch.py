"""Work that may hang, in a process of its own: who waits for it never touches the storage.

The work sends what it found step by step, and says before each step how long that may take. When it is silent for
longer it is killed, and what it had found until then is kept.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from validation.probes.storage_place import Refused
from validation.probes.supervise import descendants, die_with_parent
from validation.probes.tool import Stopped, on_term_stop_the_tool, stopped

STOP_S = 2.5  # for the work to clean up after TERM; the supervisor kills after 3 s
LOOK_S = 0.1

Say = Callable[[str, float], None]
"""`say(what, limit_s)`: before a step."""
Tell = Callable[..., None]
"""`tell(key=value, ...)`: what was found."""


def watched(what: str, work: Callable[[Say, Tell], None], first_s: float) -> dict[str, Any]:
    """What the work told, with `refused` (words) where it may not be done, or `silent` (words) where it hung.

    `what` did not answer then: the path. `first_s`: how long the first step may take. Stopped after TERM.
    """
    read, write = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(read)
        _work(work, write)
    os.close(write)
    found: dict[str, Any] = {}
    try:
        _listen(read, worker, what, first_s, found)
    finally:
        os.close(read)
        _end(worker)
    return found


def _listen(read: int, worker: int, what: str, limit_s: float, found: dict[str, Any]) -> None:
    doing, until, kept = "the first look", time.monotonic() + limit_s, b""
    told_to_stop = 0.0
    while True:
        ready, _, _ = select.select([read], [], [], LOOK_S)
        chunk = os.read(read, 1 << 16) if ready else b""
        if ready and not chunk:
            break
        kept += chunk
        *lines, kept = kept.split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "limit_s" in said:
                doing, limit_s = said["doing"], said["limit_s"]
                until = time.monotonic() + limit_s
            else:
                found.update(said)
        if stopped():
            told_to_stop = told_to_stop or time.monotonic()
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGTERM)
            if time.monotonic() > told_to_stop + STOP_S:
                break
        elif time.monotonic() > until:
            found["silent"] = f"{what} did not answer in {limit_s:g} s ({doing})"
            return
    if stopped():
        raise Stopped


def _end(worker: int) -> None:
    """Kill what is left of it. A process that hangs in the kernel is not waited for."""
    for pid in [*descendants(worker), worker]:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        with suppress(ChildProcessError):
            if os.waitpid(worker, os.WNOHANG)[0] == 0:
                time.sleep(0.02)
                continue
        return


def _work(work: Callable[[Say, Tell], None], write: int) -> None:
    """The forked side. Never returns."""

    def send(line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        while data:
            data = data[os.write(write, data) :]

    def say(what: str, limit_s: float) -> None:
        if stopped():
            raise Stopped
        send({"doing": what, "limit_s": limit_s})

    def tell(**found: Any) -> None:
        send(found)

    try:
        die_with_parent()
        on_term_stop_the_tool()
        work(say, tell)
    except Refused as refusal:
        tell(refused=str(refusal))
    except Stopped:
        pass
    except BaseException as fault:  # told by the one that waits; a second document must not come
        with suppress(OSError):
            tell(refused=f"{type(fault).__name__}: {fault}")
    finally:
        os._exit(0)
