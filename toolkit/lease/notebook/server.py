"""The notebook server itself, in its user's own Python: Jupyter, for one user of this machine, and what becomes of the
lease, reported in the notebooks.

It imports nothing of the toolkit's. Its order comes in a file that its user alone can read, or on standard input: the
token of the URL is in no argument list, in no environment and in no log. Kernels speak over sockets in a folder of the
user's, because any user of a machine can read what a kernel prints to a port of 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict

#: Longest path of a Unix socket, and what Jupyter appends to its folder: /kernel-UUID-ipc-5.
SOCKET_BYTES, KERNEL_BYTES = 107, 51
LOOK_MS = 300
CONNECTIONS = "jupyter_server.services.kernels.connection"
#: So long before the time of its lease is over a notebook reports it.
WARN_S = 300.0
#: Each way to serve notebooks, the best first: what is imported, its class.
APPS = {
    "jupyterlab": ("jupyterlab.labapp", "LabApp"),
    "notebook": ("notebook.app", "JupyterNotebookApp"),
    "jupyter_server": ("jupyter_server.serverapp", "ServerApp"),
}


class Order(TypedDict):
    """app: a key of APPS, "" for the best there is. port, retries: of 127.0.0.1, with how many after it; socket: a path
    to listen at in their place. browser: whether one is started. news: a file of lines, "-" for standard input, with
    whose end the server ends too. url_file: where its URL is written, "" for nowhere. hint: what is printed after it.
    ends: when its lease does, seconds since the epoch."""

    app: str
    folder: str
    token: str
    port: int
    retries: int
    socket: str
    browser: bool
    news: str
    url_file: str
    hint: str
    lease: int
    ends: float | None


def short_folder() -> str:
    """A new folder for this user alone, whose sockets have a path that is short enough."""
    name = "jupyter-12345678"
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", "/tmp"):  # noqa: S108 - a new folder in it
        fits = len(os.fsencode(base)) + 1 + len(name) + KERNEL_BYTES <= SOCKET_BYTES
        if Path(base).is_absolute() and fits and os.access(base, os.W_OK | os.X_OK):
            return tempfile.mkdtemp(prefix="jupyter-", dir=base)
    return tempfile.mkdtemp(prefix="jupyter-")


def arguments(order: Order) -> list[str]:
    """Jupyter's, in this process alone: what its user's own configuration has does not go before them."""
    where = [f"--ServerApp.port={order['port']}", f"--ServerApp.port_retries={order['retries']}"]
    if order["socket"]:
        # beside a socket Jupyter takes its default port alone, which it then does not open
        where = [f"--ServerApp.sock={order['socket']}", "--ServerApp.sock_mode=0600", "--ServerApp.port=8888"]
    return [
        "--ServerApp.ip=127.0.0.1",
        *where,
        f"--ServerApp.root_dir={order['folder']}",
        f"--IdentityProvider.token={order['token']}",
        "--PasswordIdentityProvider.hashed_password=",
        "--ServerApp.allow_remote_access=False",
        "--ServerApp.answer_yes=True",
        "--ServerApp.log_level=WARN",
        "--Application.log_level=WARN",
        "--KernelManager.transport=ipc",
        *(["--allow-root"] if os.geteuid() == 0 else []),
        *([] if order["browser"] else ["--no-browser"]),
    ]


class Announcer:
    """Reports in the notebooks what becomes of the lease: in the cell that runs, else at the next one."""

    def __init__(self, order: Order) -> None:
        """Each line of the news is a thing to report: a text, and whether it is the end."""
        self.file, self.read = Path(order["news"]), 0
        self.lease, self.ends = order["lease"], order["ends"]
        self.texts: list[str] = []
        self.ended = ""
        self.cells: dict[Any, tuple[Any, int]] = {}  # of each connection: the last request, how many texts were shown
        if order["news"] == "-":
            threading.Thread(target=self.follow_input, daemon=True).start()

    def follow_input(self) -> None:
        """The news; with their end the server ends."""
        for line in sys.stdin:
            self.add(line)
        os.kill(os.getpid(), signal.SIGTERM)

    def add(self, line: str | bytes) -> None:
        """A line of the news."""
        told = json.loads(line)
        self.texts.append(told["text"])
        self.ended = told["text"] if told["end"] else self.ended

    def cell(self, connection: Any, header: Any) -> None:
        """A cell starts."""
        shown = self.cells.get(connection, (None, 0))[1]
        self.cells[connection] = (header, shown)
        if self.ended and shown >= len(self.texts):
            self.write(connection, self.ended)
        else:
            self.show(connection)

    def show(self, connection: Any) -> None:
        """What was not shown in its notebook yet."""
        header, shown = self.cells[connection]
        for text in self.texts[shown:]:
            self.write(connection, text)
        self.cells[connection] = (header, len(self.texts))

    def write(self, connection: Any, text: str) -> None:
        """Into the cell whose request was the last."""
        connection.write_stderr(text, self.cells[connection][0])

    def look(self) -> None:
        """Read what was appended."""
        with contextlib.suppress(OSError), self.file.open("rb") as stream:  # of standard input there is none
            stream.seek(self.read)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self.read += len(line)
                self.add(line)
        if self.ends is not None and time.time() > self.ends - WARN_S:
            minutes = max(1, round((self.ends - time.time()) / 60))
            self.texts.append(f"lease {self.lease} ends in {minutes} min: its time is over then; save this notebook")
            self.ends = None

    def running(self, connections: Collection[Any]) -> None:
        """Show it at once where a cell runs; of a cell that has ended the notebook takes nothing more."""
        self.look()
        for connection in list(self.cells):
            if connection not in connections:
                del self.cells[connection]
            elif connection.kernel_manager.execution_state == "busy":
                self.show(connection)


def listen_to_cells(announcer: Announcer) -> Callable[[], None]:
    """Jupyter's connections report each cell before its kernel has it. What this Jupyter has not, it does without."""
    try:
        connection = importlib.import_module(f"{CONNECTIONS}.channels").ZMQChannelsWebsocketConnection
        take_apart = importlib.import_module(f"{CONNECTIONS}.base").deserialize_msg_from_ws_v1
    except (ImportError, AttributeError):
        return lambda: None
    handle = connection.handle_incoming_message

    def incoming(self: Any, message: Any) -> None:
        handle(self, message)
        try:
            if isinstance(message, bytes):
                channel, parts = take_apart(message)
                header = json.loads(bytes(parts[0])) if channel == "shell" else {}
            else:
                header = json.loads(message).get("header") or {}
            if header.get("msg_type") == "execute_request":
                announcer.cell(self, header)
        except Exception as fault:  # of another release of Jupyter: the cell goes on
            self.log.warning("the lease's news is not shown in this notebook: %r", fault)

    connection.handle_incoming_message = incoming
    return lambda: announcer.running(getattr(connection, "_open_sockets", set()))


def write_private(path: str, text: str) -> None:
    """A file that this user alone can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)


def started(app: Any, order: Order) -> None:
    """The server listens: report its URL, to its user alone."""
    path = f"{app.base_url.rstrip('/')}/{app.default_url.lstrip('/')}"
    port = order["port"] if order["socket"] else app.port
    url = f"{'https' if app.certfile else 'http'}://127.0.0.1:{port}{path}?token={order['token']}"
    print(url, flush=True)
    if order["url_file"]:
        with contextlib.suppress(OSError):  # a full disk: it is printed
            write_private(order["url_file"], url)
    if order["hint"]:
        print(order["hint"], file=sys.stderr, flush=True)


def chosen(order: Order) -> str:
    """A key of APPS. SystemExit says what is missing on this machine."""
    here = os.uname().nodename
    if not Path(order["folder"]).is_dir():
        sys.exit(f"{here} has no folder {order['folder']}; name one of its own by --folder")
    os.chdir(order["folder"])
    found = next((app for app in APPS if order["app"] in ("", app) and find_spec(app)), None)
    if found is None or find_spec("jupyter_server") is None or find_spec("ipykernel") is None:
        sys.exit(f"{sys.executable} on {here} serves no notebooks; install jupyterlab there")
    return found


def serve(order: Order) -> None:
    """Until it is ended by a signal; files are written by then, and kernels are gone."""
    os.environ["JUPYTER_RUNTIME_DIR"] = runtime = short_folder()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # of the lease's end: the reason is in the announcer's file
    try:
        module, name = APPS[chosen(order)]
        if order["socket"]:
            Path(order["socket"]).parent.mkdir(mode=0o700)
        starter = getattr(importlib.import_module(module), name)
        if hasattr(starter, "initialize_server"):
            app = starter.initialize_server(argv=arguments(order))
        else:
            app = starter.instance()
            app.initialize(arguments(order))
        ioloop = importlib.import_module("tornado.ioloop")
        look = ioloop.PeriodicCallback(listen_to_cells(Announcer(order)), LOOK_MS)
        look.start()
        ioloop.IOLoop.current().add_callback(started, app, order)
        app.start()
    finally:
        shutil.rmtree(runtime, ignore_errors=True)
        if order["socket"]:
            shutil.rmtree(Path(order["socket"]).parent, ignore_errors=True)


if __name__ == "__main__":
    sys.path[:1] = []  # the toolkit's own folder
    serve(json.loads(sys.stdin.readline() if sys.argv[1] == "-" else Path(sys.argv[1]).read_text()))
