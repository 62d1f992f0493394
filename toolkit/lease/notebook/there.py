"""A notebook server on the GPU server itself, in the lease's own ssh connection (package shell).

There it listens at a socket of the user's, and at no port: no other user of that server can connect to it. ssh forwards
a port of 127.0.0.1 here to that socket. Its order, with the token, and what becomes of the lease go to it on its
standard input, which ssh encrypts. It ends when its input does.
"""

from __future__ import annotations

import json
import secrets
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.client import ask, running
from toolkit.lease.client.placement import server_refusal
from toolkit.lease.client.run_request import RunRequest
from toolkit.lease.client.running import FORWARDED, Say, Watch
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.heartbeat import Keeper, keep
from toolkit.lease.machine.host import Host
from toolkit.lease.notebook import here, server
from toolkit.lease.notebook.request import NotebookRequest, free_port, new_token
from toolkit.lease.shell import connection, keys

PROGRAM = ("jupyter",)
#: How many are tried, one after another, and ssh's own exit code: it could not listen, or not connect.
PORTS, SSH_FAILED = 4, 255


def order(request: NotebookRequest, lease: int, ends: float | None, port: int, socket: str) -> server.Order:
    """For the server there: by what it has, in the folder that is the same on both."""
    return {
        "app": "",
        "folder": request.folder or str(Path.cwd()),
        "token": new_token(),
        "port": port,
        "retries": 0,
        "socket": socket,
        "browser": False,
        "news": "-",
        "url_file": "",
        "hint": "" if request.detach else here.HINT,
        "lease": lease,
        "ends": ends,
    }


class Remote(subprocess.Popen[bytes]):
    """ssh with the notebook server at its other end, which ends when its input does. listens: whether its URL came."""

    listens = False

    def add(self, text: str, end: bool) -> None:
        """News for the notebooks."""
        self._write(json.dumps({"text": text, "end": end}))

    def _write(self, line: str) -> None:
        assert self.stdin is not None
        with suppress(OSError, ValueError):  # it has ended, or ends
            self.stdin.write(f"{line}\n".encode())
            self.stdin.flush()

    def send_signal(self, sig: int) -> None:
        """The one that comes before a lease's end changes nothing: its reason is in the news."""
        if sig == signal.SIGKILL:
            super().send_signal(sig)
        elif sig != signal.SIGUSR1:
            assert self.stdin is not None
            with suppress(OSError):
                self.stdin.close()


@contextmanager
def _signals_to(remote: Remote) -> Iterator[None]:
    """Ctrl-C and what else asks us to end asks the server to end."""
    numbers = (signal.SIGINT, *(one for one in FORWARDED if one != signal.SIGUSR1))
    before = {number: signal.signal(number, lambda *_: remote.send_signal(signal.SIGTERM)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(remote: Remote, url: Path) -> None:
    """Its first line is its URL."""
    assert remote.stdout is not None
    for line in remote.stdout:
        text = line.decode("utf-8", "backslashreplace").strip()
        print(text, flush=True)
        if not remote.listens:
            remote.listens = True
            with suppress(OSError):  # a full disk: it is printed
                server.write_private(str(url), text)


def _serve(
    host: Host,
    first: LeaseEndpoint,
    say: Say,
    request: NotebookRequest,
    kept: tuple[Sequence[Keeper], threading.Event],
    url: Path,
) -> int:
    """Until it ends: at a port of this machine's that is free now, or the next one where another program took it."""
    port = request.port or free_port()
    for left in reversed(range(PORTS)):
        code, served = _serve_at(port, host, first, say, request, kept, url)
        if served or code != SSH_FAILED:
            break
        if request.port:
            connection.refuse_taken([port])  # in words
            break
        before, port = port, free_port()
        if port == before or not left:
            break
        say(f"port {before} was taken meanwhile; it is {port} now")
    return code


def _serve_at(
    port: int,
    host: Host,
    first: LeaseEndpoint,
    say: Say,
    request: NotebookRequest,
    kept: tuple[Sequence[Keeper], threading.Event],
    url: Path,
) -> tuple[int, bool]:
    """ssh's exit code, and whether the server listened or was to end."""
    socket = f"/dev/shm/jupyter-{secrets.token_hex(8)}/s"  # noqa: S108 - its folder is made there, and is nobody else's
    words = shlex.join(["exec", "python3", "-c", Path(server.__file__).read_text(), "-"])
    forward = (f"-L{connection.LOOPBACK}:{port}:{socket}", "-oExitOnForwardFailure=yes", "-T")
    command = connection.ssh_command(connection.Target(first.lease, first.node), [words], (), forward)
    (keepers, lost) = kept
    remote = Remote(
        ["setpriv", "--pdeathsig", "TERM", "--", *command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    with _signals_to(remote):
        remote._write(json.dumps(order(request, first.lease, first.deadline, port, socket)))
        reader = threading.Thread(target=_show, args=(remote, url), daemon=True)
        reader.start()

        def notice(text: str) -> None:
            say(text)
            remote.add(text, end=False)

        def told_lost(text: str) -> None:
            say(text)
            remote.add(text, end=True)

        watch = Watch(host, first.lease, keepers, lost, notice, signal.SIGUSR1, running.LOST_S, told_lost=told_lost)
        code = watch.wait(remote)
        reader.join(1)
    assert remote.stdin is not None
    return code, remote.listens or remote.stdin.closed or lost.is_set()


def start(
    host: Host,
    _argv: Sequence[str],
    endpoints: Sequence[LeaseEndpoint],
    say: Say,
    _chosen: signal.Signals | None = None,
    *,
    request: NotebookRequest,
) -> int:
    """A ProgramStart: the server on the first of the lease's servers, until its user or the lease ends it."""
    url, (keepers, lost) = here.url_file(endpoints[0].lease), keep(endpoints)
    url.unlink(missing_ok=True)
    try:
        for keeper in keepers:
            keeper.start()
        return _serve(host, endpoints[0], say, request, (keepers, lost), url)
    finally:
        for keeper in keepers:
            keeper.end()
        url.unlink(missing_ok=True)


def refuse(host: Host, request: NotebookRequest) -> None:
    """LeaseError where no program of this user's may run on the servers, or this machine cannot reach one there."""
    against = server_refusal(host, RunRequest(PROGRAM, request.wish))
    if against:
        raise LeaseError(f"no notebook server can run on the GPU server: {against}")
    keys.user_key()
    connection.ssh_command(connection.Target(1), (), ())
    if request.folder is None:
        request.own_folder()


def run(host: Host, request: NotebookRequest, say: Say, told: str) -> int:
    """Ask for the GPUs, serve notebooks there, give the GPUs back; the server's exit code. told: why there."""
    if request.port is None:
        free_port()  # or it is refused, before anything is leased
    submission = ask.against_pool(host, request.wish, "run", say, "server")
    if submission.request.servers_there > 1:
        raise LeaseError("a notebook server has the GPUs of one server, which has not so many; ask for fewer")
    say(f"notebooks run on the GPU server, by its python3{told}")
    return running.run(host, submission, PROGRAM, say, None, partial(start, request=request))


__all__ = ["Remote", "order", "refuse", "run", "start"]
