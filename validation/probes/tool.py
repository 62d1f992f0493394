"""What all probes share: run a tool, and write down what it did."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, NamedTuple

from validation.probes import ProbeDoc
from validation.probes.supervise import die_with_parent

MOST_BYTES = 32 << 20
"""Of what a tool prints on each of its streams; NCCL's log of a long job is about 3 MiB. The controller has a bound of
its own for the report (validation/base/bounded.py)."""
_CHUNK_BYTES = 1 << 16


SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where runuser, ethtool and ibstat are on some systems, and which a user's PATH may lack there."""


class Stopped(Exception):
    """The probe was told to stop (TERM): start no further tool."""


class Ran(NamedTuple):
    """How a tool ended. `returncode` is negative for a signal, 127 when the tool is not installed."""

    command: list[str]
    returncode: int
    stdout: str
    stderr: str

    @property
    def failure(self) -> str | None:
        """One line that says how the tool failed; None when it exited with 0."""
        if self.returncode == 0:
            return None
        how = f"signal {-self.returncode}" if self.returncode < 0 else f"exit status {self.returncode}"
        # iperf3 -J keeps its reason in the JSON and says only "exiting" on stderr
        said = group(r'^\s*"error":\s*"([^"]+)"', self.stdout) or last_line(self.stderr) or last_line(self.stdout)
        return f"{os.path.basename(self.command[0])} ended with {how}" + (f": {said}" if said else "")  # noqa: PTH119


_stopped = False
_running: list[subprocess.Popen[bytes]] = []


def stopped() -> bool:
    """Whether this probe was told to stop."""
    return _stopped


def last_line(text: str) -> str:
    """The last line that is not empty, or ""."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def search_sbin() -> None:
    """Search the folders of system programs too, after those that PATH has."""
    before = [one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if one]
    os.environ["PATH"] = os.pathsep.join([*before, *(one for one in SBIN if one not in before)])


def now() -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def on_term_stop_the_tool() -> None:
    """From here on TERM goes to the tools that run, and no other tool is started after it."""

    def stop(*_: object) -> None:
        global _stopped
        _stopped = True
        for process in _running:
            process.terminate()

    signal.signal(signal.SIGTERM, stop)


def start_tool(command: Sequence[str], env: Mapping[str, str] | None = None, cwd: str = "/") -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own, its output piped; raises Stopped after TERM, OSError as Popen does."""
    if _stopped:
        raise Stopped
    _running[:] = [one for one in _running if one.returncode is None]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    _running.append(process)
    if _stopped:  # TERM came in while it was being started
        process.terminate()
    return process


def finish_tool(command: Sequence[str], process: subprocess.Popen[bytes], timeout_s: float | None = None) -> Ran:
    """Wait for a started tool; after `timeout_s` it is killed and its exit status says so."""
    until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    assert process.stdout is not None
    assert process.stderr is not None
    held, too_much = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}, False
    with selectors.DefaultSelector() as ready:
        for stream in held:
            ready.register(stream, selectors.EVENT_READ)
        while ready.get_map():
            left_s = until - time.monotonic()
            if left_s <= 0:
                process.kill()
                until = left_s = float("inf")
            for key, _ in ready.select(None if left_s == float("inf") else left_s):
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if not chunk:
                    ready.unregister(key.fd)
                elif len(held[key.fd]) + len(chunk) <= MOST_BYTES:
                    held[key.fd] += chunk
                elif not too_much:
                    too_much = True
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)  # a session of its own: what it started goes with it
    try:
        process.wait(None if until == float("inf") else max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    process.stderr.close()
    out, err = (bytes(said).decode("utf-8", "replace") for said in held.values())
    if too_much:
        err += f"\n{command[0]} printed more than {MOST_BYTES >> 20} MiB and was ended\n"
    return Ran(list(command), process.returncode, out, err)


def run_tool(command: Sequence[str], timeout_s: float | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """Run `command` to its end in the C locale. A tool that is not installed comes back with exit status 127."""
    environment = dict(os.environ if env is None else env, LC_ALL="C")
    try:
        process = start_tool(command, environment)
    except FileNotFoundError:
        return Ran(list(command), 127, "", f"{command[0]} is not installed on this node")
    except OSError as error:
        return Ran(list(command), 126, "", f"{command[0]}: {error.strerror}")
    return finish_tool(command, process, timeout_s)


def document(
    kind: str,
    tool: str,
    measure: Callable[[], tuple[Ran, dict[str, Any], str | None]],
    version: Callable[[Ran], str],
) -> ProbeDoc:
    """Time `measure` and wrap what it returns: how the tool ended, facts, and what is wrong with what it did.

    `version` reads the tool's version from its own output, so that no second process is started for it.
    """
    started, begin = now(), time.monotonic()
    try:
        ran, facts, error = measure()
    except Stopped:
        ran, facts, error = Ran([tool], -signal.SIGTERM, "", ""), {}, "stopped before its end"
    return {
        "kind": kind,
        "tool": tool,
        "tool_version": version(ran),
        "command": ran.command,
        "returncode": ran.returncode,
        "stdout": ran.stdout,
        "stderr": ran.stderr,
        "facts": facts,
        "started": started,
        "ended": now(),
        "duration_s": round(time.monotonic() - begin, 3),
        "error": ran.failure or error,
    }


def group(pattern: str, text: str) -> str:
    """The first group of the first match of `pattern` in `text`, or ""."""
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1) if match else ""
