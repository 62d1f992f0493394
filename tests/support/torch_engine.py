"""The engine `torch`, built once for a source and a torch; its servers on loopback; programs natively or by it.

    with server(folder) as one:
        native, remote = run(program, "native"), run(program, "remote", one)
        assert native.losses == remote.losses

A program is a file, or text, that takes `cuda` where there is one and prints `loss HEX` (float.hex) lines; both sides
compute with one thread. Its values are read, for what is not read proves nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tests.support import torch_env
from tests.support.torch_env import BUILD, ROOT, alone, say
from toolkit.engine import torch_build

TOKEN = "0123456789abcdef-torch"
PROGRAMS = ROOT / "tests/torch_programs"
MIB = 1 << 20
START_S = 120  # a server imports torch before it listens; beside other tests that takes a while
KEPT = 4  # builds of other sources that stay
Where = Literal["native", "remote"]


@cache
def built(sanitized: bool = False, python: Path | None = None) -> Path:
    """Folder of the engine for a Python's torch, or the tests'; kept under build/, for compiling takes minutes."""
    torch = torch_build.ask(str(python or torch_env.python()))
    release = torch_build.default_release()
    folder = BUILD / f"torch-engine{'-sanitized' if sanitized else ''}-{torch.version}-{release}"
    with alone(folder.name):
        if not (folder / "engine.json").exists():
            began = time.monotonic()
            say(f"building the engine torch for {torch.version}")
            torch_build.build_folder(folder, [torch], release, sanitized=sanitized)
            say(f"built {folder.relative_to(ROOT)} in {time.monotonic() - began:.0f} s")
    return folder


@dataclass
class Server:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    def said(self) -> str:
        """What it wrote on stderr so far."""
        return (self.folder / "log").read_text(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """What it has reported so far; the last line may be under way."""
        lines = (self.folder / "events").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def children(self) -> list[int]:
        """Its children, the oldest first: one for each session that is open."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in listed]

    def environment(self, **more: str) -> dict[str, str]:
        """Of a client of this server alone."""
        return client_environment([self], **more)


def client_environment(servers: list[Server], **more: str) -> dict[str, str]:
    """Of a client whose devices are those of the servers, in their order."""
    tokens = servers[0].folder / "client-tokens"
    new = tokens.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    new.write_text(f"{TOKEN}\n" * len(servers))
    new.chmod(0o600)
    new.replace(tokens)
    return {
        **torch_env.plain_environment(),
        "ELASTIC_AI_TORCH_SERVERS": ",".join(f"127.0.0.1:{one.port}" for one in servers),
        "ELASTIC_AI_TOKEN_FILE": str(tokens),
        "PYTHONPATH": str(built() / "python"),
        **more,
    }


@contextmanager
def server(
    folder: Path, *options: str, engine: Path | None = None, python: Path | None = None, **settings: str
) -> Iterator[Server]:
    """A server on a free port of loopback with one thread; it and its children are gone afterwards."""
    folder.mkdir(exist_ok=True, parents=True)
    token, port_file = folder / "token", folder / "port"
    port_file.unlink(missing_ok=True)
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    launcher = (engine or built()) / "bin" / torch_build.LAUNCHER
    command = [str(python or torch_env.python()), str(launcher), "--bind", "127.0.0.1", "--port", "0"]
    command += ["--port-file", str(port_file), "--token-file", str(token), "--device", "cpu"]
    if "--allow" not in options:
        command += ["--allow", "127.0.0.1"]
    with (folder / "events").open("wb") as events, (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--report-fd", str(events.fileno()), *options],
            env={**torch_env.plain_environment(), **settings},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[events.fileno()],
        )  # fmt: skip
    try:
        until = time.monotonic() + START_S
        while not (port_file.exists() and port_file.read_text().strip()):
            ended = process.poll() is not None
            log_text = (folder / "log").read_text(errors="replace")[-2000:]
            assert not ended, f"the server ended with {process.returncode}: {log_text}"
            assert time.monotonic() < until, f"the server does not listen: {log_text}"
            time.sleep(0.02)
        yield Server(process, int(port_file.read_text()), folder)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def servers_of_a_lease(folder: Path, devices: Sequence[int], *options: str) -> Iterator[list[Server]]:
    """Servers with so many devices each, that know each other; one entry for each device."""
    folder.mkdir(exist_ok=True, parents=True)
    peers, secret = folder / "peers", folder / "peer-token"
    secret.write_text("of-the-servers-" + os.urandom(16).hex() + "\n")
    with ExitStack() as stack:
        made: list[Server] = []
        for i, count in enumerate(devices):
            known = ("--devices", str(count), "--peers", str(peers), "--peer-token-file", str(secret), *options)
            made += [stack.enter_context(server(folder / f"server{i}", *known))] * count
        peers.write_text("".join(f"127.0.0.1 {port}\n" for port in dict.fromkeys(one.port for one in made)))
        yield made


class LossesDifferError(AssertionError):
    """A program ran to its end on both sides, and printed other losses."""


@dataclass(frozen=True)
class Ran:
    """How a program ended, and what it printed."""

    code: int
    out: str
    err: str
    losses: list[str] = field(default_factory=list)

    def result(self) -> Any:
        """The last line, as JSON."""
        return json.loads(self.out.splitlines()[-1])


def start(
    program: Path | str, where: Where, on: Server | None = None, *arguments: str, cwd: Path | None = None, **more: str
) -> subprocess.Popen[str]:
    """The program, running, with pipes; `more` are variables of its environment."""
    assert (where == "remote") == (on is not None), "a remote program needs a server, a native one has none"
    environment = on.environment(**more) if on else {**torch_env.plain_environment(), **more}
    if isinstance(program, Path):
        path = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{program.parent}:{path}" if path else str(program.parent)
    what = [str(program)] if isinstance(program, Path) else ["-c", program]
    return subprocess.Popen(
        [str(torch_env.python()), *what, *arguments],
        env=environment, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], limit_s: float = 120) -> Ran:
    """How it ended. AssertionError where it does not within the limit."""
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(
            f"the program did not end within {limit_s} s; it printed {out[-1000:]} {err[-2000:]}"
        ) from None
    return Ran(process.returncode, out, err, [line[5:] for line in out.splitlines() if line.startswith("loss ")])


def wait_until(holds: Callable[[], bool], what: str, limit_s: float = 60) -> None:
    """AssertionError after the limit."""
    until = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < until, f"not within {limit_s} s: {what}"
        time.sleep(0.02)


def line(program: subprocess.Popen[str], word: str = "") -> str:
    """Its next line; the whole of what it said where it has none."""
    assert program.stdout
    got = program.stdout.readline()
    assert got, ended(program)
    assert got.startswith(word), got
    return got.strip()


def go_on(program: subprocess.Popen[str]) -> None:
    """What waits for a line of its input."""
    assert program.stdin
    program.stdin.write("\n")
    program.stdin.flush()


def run(
    program: Path | str,
    where: Where,
    on: Server | None = None,
    *arguments: str,
    limit_s: float = 120,
    check: bool = True,
    cwd: Path | None = None,
    **more: str,
) -> Ran:
    """The program from its start to its end; with `check` it has to end well."""
    done = ended(start(program, where, on, *arguments, cwd=cwd, **more), limit_s)
    assert not check or done.code == 0, f"exit {done.code}: {done.out[-1000:]}\n{done.err[-3000:]}"
    return done


def start_with(program: Path | str, environment: Mapping[str, str], limit_s: float = 120) -> Ran:
    """The program, or its text, in that environment, to its good end."""
    process = subprocess.Popen(
        [str(torch_env.python()), *([str(program)] if isinstance(program, Path) else ["-c", program])],
        env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    done = ended(process, limit_s)
    assert done.code == 0, f"exit {done.code}: {done.out[-1000:]}\n{done.err[-3000:]}"
    return done


def same_bits(program: Path, on: Server, *arguments: str, **more: str) -> Mapping[Where, Ran]:
    """Runs it natively and by the engine, and holds every loss against the other's bits."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        native = run(program, "native", None, *arguments, cwd=Path(one), **more)
        remote = run(program, "remote", on, *arguments, cwd=Path(two), **more)
    assert native.losses, f"{program.name} printed no loss"
    assert "device cuda" in remote.out, f"{program.name} was not on the device: {remote.out[-500:]}"
    assert len(native.losses) == len(remote.losses), f"{program.name}: {native.losses}\n{remote.losses}"
    for step, (one, other) in enumerate(zip(native.losses, remote.losses, strict=True)):
        if one != other:
            raise LossesDifferError(
                f"{program.name}: losses differ at step {step}: natively {one}, by the engine {other}"
            )
    return {"native": native, "remote": remote}
