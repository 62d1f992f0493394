"""The command line in a process of its own, without the second that starting Python and importing the toolkit takes.

One server for each run of pytest imports the toolkit and Ansible once and forks a process for every command: with
folder, environment, arguments and streams of its own, as from a shell; nothing that a command does reaches the next.
What the command line asks Ansible of an inventory is forked too, unless it would find settings: Ansible takes those of
its folder and environment while it is imported, which is why there is a second server, in this repository's folder.
Where it is about a fresh interpreter, a terminal or a signal, tests start the command itself.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO
from unittest import mock

from validation.base import bounded

HERE = Path(__file__).parent
REPO = HERE.parents[1]
ANSIBLE = Path(sys.executable).parent
TIMEOUT_S = 300
#: PYTHONPATH of a command that lays out no PDF and may use tests.support.
COMMAND_PATH = os.pathsep.join(map(str, (HERE / "quick_pdf", REPO)))
_servers: dict[Path, subprocess.Popen[str]] = {}


def command(
    cwd: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    program: Path | None = None,
    settings: Path = Path("/"),
) -> subprocess.CompletedProcess[str]:
    """`toolkit ARGUMENTS`, or `python PROGRAM ARGUMENTS`, in folder `cwd`, with nothing to read from stdin.

    `settings` is the folder whose ansible.cfg holds.
    """
    with tempfile.TemporaryDirectory() as folder:
        request = _request(cwd, arguments, environment, program, Path(folder))
        server = _running(settings)
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, "the server of commands has ended"
        return _said(arguments, int(answer), Path(folder))


def ansible(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One of Ansible's commands in this repository, with its settings."""
    return command(REPO, arguments, {**os.environ, **environment}, ANSIBLE / name, REPO)


def asking_ansible() -> contextlib.AbstractContextManager[object]:
    """While it lasts, the toolkit's own questions to Ansible within this repository go through the server."""

    def run(words: Sequence[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return _in_bytes(command(REPO, words[2:], os.environ, Path(words[1]), REPO))

    return mock.patch("toolkit.inventory_source.bounded", types.SimpleNamespace(run=run))


def _in_bytes(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.encode(), done.stderr.encode())


def _request(
    cwd: Path, arguments: Sequence[str], environment: Mapping[str, str], program: Path | None, folder: Path
) -> dict[str, object]:
    return {
        "cwd": str(cwd),
        "environment": dict(environment),
        "arguments": [str(program) if program else "toolkit", *map(str, arguments)],
        "program": str(program) if program else None,
        "streams": [str(folder / "out"), str(folder / "err")],
    }


def _said(arguments: Sequence[str], code: int, folder: Path) -> subprocess.CompletedProcess[str]:
    out, err = ((folder / name).read_text(encoding="utf-8") for name in ("out", "err"))
    return subprocess.CompletedProcess(list(arguments), code, out, err)


def _running(settings: Path) -> subprocess.Popen[str]:
    if settings not in _servers:
        bare = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        server = subprocess.Popen(
            [sys.executable, str(HERE / "warm.py")],
            cwd=settings, env=bare, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        _servers[settings] = server
        atexit.register(server.communicate)
    return _servers[settings]


def _inventory(words: Sequence[str], **options: object) -> subprocess.CompletedProcess[bytes]:
    """bounded.run of a forked command: the reader of inventories as it would run here, itself where it has
    settings."""
    if Path("ansible.cfg").exists() or any(name.startswith("ANSIBLE_") for name in os.environ):
        return bounded.run(words, **options)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        request = _request(Path.cwd(), words[2:], os.environ, Path(words[1]), Path(folder))
        return _in_bytes(_said(words, _forked(request), Path(folder)))


def _work(cwd: str, environment: dict[str, str], arguments: list[str], program: str | None, streams: list[str]) -> None:
    """What the forked process does: becomes the command. SystemExit is how it ends."""
    for number, name in enumerate([os.devnull, *streams]):
        file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    more = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [*([str(Path(program).parent)] if program else []), *more]
    sys.argv = arguments
    if program:
        runpy.run_path(program, run_name="__main__")
    else:
        from toolkit.cli import main

        main()


def _forked(request: dict[str, object]) -> int:
    """Runs one command; its exit code, as a shell would tell it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _work(**request)  # type: ignore[arg-type]
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))  # this server goes on
    signal.alarm(TIMEOUT_S)
    status = os.waitpid(child, 0)[1]
    signal.alarm(0)
    return os.waitstatus_to_exitcode(status)


def _serve(requests: IO[str]) -> None:
    """One command for each line, one after the other."""
    import gc

    import toolkit.cli
    import toolkit.inventory_source

    for name in ("ansible.cli.inventory", "ansible.cli.playbook", "validation.report.formats"):
        importlib.import_module(name)

    toolkit.inventory_source.bounded = types.SimpleNamespace(run=_inventory)  # type: ignore[assignment]

    for name in ("bundle", "compare", "deploy", "fabrics", "profiles", "report", "sign", "validate", "verify"):
        toolkit.cli.cli.get_command(None, name)  # type: ignore[arg-type,attr-defined]
    gc.freeze()
    for line in requests:
        print(_forked(json.loads(line)), flush=True)


if __name__ == "__main__":
    sys.path.remove(str(HERE))
    _serve(sys.stdin)
