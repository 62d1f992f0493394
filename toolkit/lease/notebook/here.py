"""A notebook server on this machine, whose kernels find the lease's GPUs by an engine as any program does."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from toolkit.lease import LeaseError, engines
from toolkit.lease.before import sees
from toolkit.lease.before.program_needs import Needs
from toolkit.lease.client import ask, running
from toolkit.lease.client.placement import refuse_framework
from toolkit.lease.client.running import Say
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.kept.folder import own_folder
from toolkit.lease.machine.host import Host
from toolkit.lease.notebook import server, server_python
from toolkit.lease.notebook.request import FIRST_PORT, MORE_PORTS, NotebookRequest, browser, new_token

#: After the lease has ended the server stays, so that its user reads why and the browser saves: Jupyter's own autosave
#: comes every 120 s.
SAVES_S = 180.0
HINT = "Ctrl-C ends it and gives the GPUs back; save your notebooks first"


@dataclass(frozen=True)
class Fit:
    """By which engine and Python it runs here."""

    engine: str
    python: server_python.Python


def engine_for(host: Host, wanted: str, python: str) -> engines.Installed | str:
    """The engine by which this Python's kernels have GPUs here, those for a framework first; else why there is none.
    LeaseError where the user wants one that is not enough."""
    if wanted:
        chosen = engines.installed(host.engine_dir, wanted)
        _refuse(chosen, python)
        return chosen
    there = engines.all_installed(host.engine_dir)
    if not there:
        return "no engine is installed here"
    whys = []
    for one in sorted(there, key=lambda one: not one.minors):
        try:
            _refuse(one, python)
        except LeaseError as fault:
            whys.append(str(fault))
        else:
            return one
    return whys[0]


def _refuse(engine: engines.Installed, python: str) -> None:
    adapter = engines.load(engine.engine)
    if not adapter.RUNS_RUNTIME and not adapter.RUNS_FRAMEWORKS:
        raise LeaseError(f"the engine here ({engine.engine}) brings no GPUs to PyTorch or TensorFlow")
    if engines.run_elsewhere(engine.engine) is not None:
        raise LeaseError(f"the engine here ({engine.engine}) runs programs by its own client, without leases")
    refuse_framework(engine, Needs("unknown", python=python))


def fit(host: Host, request: NotebookRequest) -> Fit | str:
    """How it runs here, else why it cannot. LeaseError where this Python would do, and serves no notebooks."""
    path = shutil.which("python3")
    if path is None:
        return "there is no python3 here"
    engine = engine_for(host, request.wish.engine, path)
    if isinstance(engine, str):
        return engine
    sees.refuse_none(_framework(engine.engine), request.wish.count, os.environ, cpu_ok=False)
    return Fit(engine.engine, server_python.find())


def _framework(engine: str) -> str:
    """That which an engine is for, "" for one that is for all programs."""
    return next((sees.FRAMEWORKS[name] for name in engines.load(engine).RUNS_FRAMEWORKS), "")


def url_file(lease: int) -> Path:
    """Where the URL of a lease's notebook server is, for its user alone, while it runs."""
    return own_folder("notebooks") / str(lease)


class News:
    """What becomes of the lease, for the notebooks."""

    def __init__(self, path: Path, say: Say) -> None:
        """path: the file that the server reads. say: to the terminal, as before."""
        self._path, self._say = path, say
        path.touch(mode=0o600)

    def _add(self, words: str, end: bool) -> None:
        with suppress(OSError), self._path.open("a") as stream:  # a full disk: the terminal has it
            stream.write(json.dumps({"text": words, "end": end}) + "\n")

    def notice(self, words: str) -> None:
        """Something that its user reads while the lease goes on."""
        self._say(words)
        self._add(words, end=False)

    def lost(self, words: str) -> None:
        """The lease has ended."""
        left = f"{SAVES_S / 60:.0f} minutes"
        self._say(words)
        self._say(f"the notebook server ends in {left}: save what the browser has not saved yet")
        self._add(f"{words}. The GPUs are gone. Save this notebook: its server ends in {left}", end=True)


def _order(request: NotebookRequest, found: Fit, folder: Path, news: Path, end: LeaseEndpoint) -> server.Order:
    return {
        "app": found.python.app,
        "folder": str(folder),
        "token": new_token(),
        "port": request.port or FIRST_PORT,
        "retries": 0 if request.port else MORE_PORTS,
        "socket": "",
        "browser": browser(request.detach),
        "news": str(news),
        "url_file": str(url_file(end.lease)),
        "hint": "" if request.detach else HINT,
        "lease": end.lease,
        "ends": end.deadline,
    }


def start(
    host: Host,
    argv: Sequence[str],
    endpoints: Sequence[LeaseEndpoint],
    say: Say,
    chosen: signal.Signals | None = None,
    *,
    request: NotebookRequest,
    found: Fit,
    folder: Path,
) -> int:
    """A ProgramStart: the server on the endpoints of its lease, until its user or the lease ends it."""
    lease = endpoints[0].lease
    with running.private_folder() as private:
        news, order = News(private / "news", say), private / "order"
        url = url_file(lease)
        url.unlink(missing_ok=True)
        text = json.dumps(_order(request, found, folder, private / "news", endpoints[0]))
        with os.fdopen(os.open(order, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(text)
        try:
            return running.start_and_wait(
                host, [*argv, str(order)], endpoints, news.notice, signal.SIGUSR1, SAVES_S, told_lost=news.lost
            )
        finally:
            url.unlink(missing_ok=True)


def run(host: Host, request: NotebookRequest, found: Fit, say: Say) -> int:
    """Ask for the GPUs, serve notebooks, give the GPUs back; the server's exit code."""
    folder = request.own_folder()
    wish = replace(request.wish, engine=found.engine)
    submission = ask.against_pool(host, wish, "run", say)
    running.check_servers(host, submission.servers if submission.request.spread else submission.jobs, found.engine)
    say(f"notebooks run here, in {folder}, by {found.python.path}; their GPUs by the engine {found.engine}")
    argv = [found.python.path, str(Path(server.__file__).resolve())]
    started = partial(start, request=request, found=found, folder=folder)
    seen = partial(sees.words_here, _framework(found.engine), environment=os.environ)
    return running.run(host, submission, argv, say, None, started, seen)
