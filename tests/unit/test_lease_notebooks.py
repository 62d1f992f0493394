"""`toolkit jupyter` before it has a lease, and what is in no argument: refusals, the port, the token, the news."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.lease_forms import endpoint
from tests.support.lease_host import FakeHost
from toolkit.cli import cli
from toolkit.commands import jupyter as command
from toolkit.lease import LeaseError
from toolkit.lease.client import running
from toolkit.lease.kept import folder
from toolkit.lease.notebook import here, request, server, server_python, there
from toolkit.lease.notebook.request import NotebookRequest

ALL = {"jupyterlab": "4.6.6", "notebook": "7.5.0", "jupyter_server": "2.21.1", "ipykernel": "7.1.0"}


@pytest.mark.parametrize(
    ("without", "app"),
    [((), "jupyterlab"), (("jupyterlab",), "notebook"), (("jupyterlab", "notebook"), "jupyter_server")],
)
def test_the_best_that_a_python_has_serves_notebooks(without: tuple[str, ...], app: str) -> None:
    has = {name: "" if name in without else release for name, release in ALL.items()}
    assert server_python.choose("/x/python3", has).app == app


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"jupyter_server": ""},
            "neither JupyterLab n",
        ),
        ({"jupyter_server": "1.24.0"}, r"\(jupyter_server 1.24.0 is older than 2\)"),
        ({"ipykernel": ""}, "has no ipykernel, which runs a notebook's cells"),
    ],
)
def test_what_a_python_lacks_is_named(changed: dict[str, str], words: str) -> None:
    with pytest.raises(LeaseError, match=words):
        server_python.choose("/x/python3", ALL | changed)


def test_an_old_classic_notebook_is_passed_over() -> None:
    assert server_python.choose("/x", ALL | {"jupyterlab": "", "notebook": "6.4.12"}).app == "jupyter_server"


def test_a_python_is_asked_what_it_has() -> None:
    """This one, the tests' own, has no notebook server."""
    with pytest.raises(LeaseError, match="install them there"):
        server_python.find(sys.executable)


def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    """What the command reports; AssertionError where it went on to a lease."""
    host = FakeHost(folder=tmp_path)
    monkeypatch.setattr(command, "this_host", lambda: host)
    monkeypatch.setattr(command, "ready", lambda: pytest.fail("a GPU would be asked for"))
    monkeypatch.setattr(command.starting, "keep", lambda *_: pytest.fail("it would go on alone"))
    done = CliRunner().invoke(cli, ["jupyter", *options], prog_name="toolkit")
    assert done.exit_code == 2, done.output
    return done.output


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_what_can_be_known_is_refused_before_a_gpu_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detach: tuple[str, ...]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = refused(tmp_path, monkeypatch, "--port", port, *detach)
        assert f"--port {port}: a program on this machine has it already" in words
    assert "no such folder" in refused(tmp_path, monkeypatch, "--folder", str(tmp_path / "none"), *detach)
    (tmp_path / "file").touch()
    assert "not a folder" in refused(tmp_path, monkeypatch, "--folder", str(tmp_path / "file"), *detach)
    words = refused(tmp_path, monkeypatch, "--where", "client", *detach)
    assert "no notebook server can run here: no engine is installed here; --where server" in words
    assert "on the GPU server (--where server) there" in refused(
        tmp_path, monkeypatch, "--where", "server", "--engine", "torch", *detach
    )


def test_a_machine_with_the_engine_and_without_jupyter_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine.json").write_text('{"engine": "torch", "release": "r", "torch": ["2.13"]}')
    monkeypatch.setattr(here, "refuse_framework", lambda *_: None)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert "-m pip install jupyterlab" in refused(tmp_path, monkeypatch)


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(request, "FIRST_PORT", taken.getsockname()[1])
        assert request.free_port() > taken.getsockname()[1]


def order(tmp_path: Path, **changes: Any) -> server.Order:
    made = {
        "app": "jupyterlab", "folder": str(tmp_path), "token": "the-token", "port": 8888, "retries": 50, "socket": "",
        "browser": False, "news": str(tmp_path / "news"), "url_file": str(tmp_path / "url"), "hint": "", "lease": 41,
        "ends": None,
    }  # fmt: skip
    return server.Order(**{**made, **changes})  # type: ignore[typeddict-item]


def test_the_server_here_gets_its_token_in_a_file_that_its_user_alone_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "state", lambda: tmp_path / "state")
    seen: dict[str, Any] = {}

    def start(_host: object, argv: list[str], *_: object, **_more: object) -> int:
        file = Path(argv[-1])
        seen.update(argv=argv, mode=stat.S_IMODE(file.stat().st_mode), order=json.loads(file.read_text()), file=file)
        return 0

    monkeypatch.setattr(running, "start_and_wait", start)
    found = here.Fit("torch", server_python.Python("/x/python3", "jupyterlab"))
    for _ in range(2):
        before = seen.get("order", {}).get("token")
        code = here.start(
            FakeHost(), ["/x/python3", "server.py"], [endpoint()], print, request=NotebookRequest(), found=found,
            folder=tmp_path,
        )  # fmt: skip
        token = seen["order"]["token"]
        assert (code, seen["mode"], len(token)) == (0, 0o600, 48)
        assert not any(token in word for word in seen["argv"])
        assert token not in json.dumps(dict(os.environ))
        assert not seen["file"].exists()
        assert token != before, "of an earlier server"


class Keeper:
    """Of a lease that goes on."""

    notice = idle = ending = None
    start = end = lambda self: None


class Ssh:
    """A program in ssh's place, that ends with this exit code before the URL of the server or after it. taken: the
    ports that another program has by then."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: list[int], taken: int) -> None:
        self.ports: list[int] = []
        self.codes, self.left, self.sockets = codes, taken, []  # type: ignore[var-annotated]
        monkeypatch.setattr(folder, "state", lambda: tmp_path / "state")
        monkeypatch.setattr(there, "keep", lambda _ends: ([Keeper()], threading.Event()))
        monkeypatch.setattr(there.connection, "ssh_command", self.command)

    def command(self, _target: object, _words: list[str], _ports: object, more: tuple[str, ...]) -> list[str]:
        self.ports.append(int(more[0].split(":")[1]))
        if self.left:
            self.left -= 1
            self.sockets.append(socket.create_server(("127.0.0.1", self.ports[-1])))
        code = self.codes.pop(0)
        return ["sh", "-c", f"read order; [ {code} != 0 ] || echo URL; exit {code}"]

    def start(self, port: int | None = None) -> tuple[int, list[str]]:
        said: list[str] = []
        try:
            wanted = NotebookRequest(folder="/data", port=port)
            return there.start(FakeHost(), (), [endpoint(where="server")], said.append, request=wanted), said
        finally:
            for one in self.sockets:
                one.close()


def test_a_port_that_was_taken_while_the_lease_was_waited_for_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = Ssh(tmp_path, monkeypatch, [255, 255, 0], taken=2)
    code, said = ssh.start()
    first, second, third = ssh.ports
    assert (code, first < second < third) == (0, True)
    assert said == [
        f"port {first} was taken meanwhile; it is {second} now",
        f"port {second} was taken meanwhile; it is {third} now",
    ]


def test_ports_are_not_tried_for_ever_and_not_for_a_fault_of_another_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = Ssh(tmp_path, monkeypatch, [255] * 9, taken=9)
    code, said = ssh.start()
    assert (code, len(said)) == (255, 3)
    assert len(ssh.ports) == 4
    for code, taken in ((255, 0), (1, 1)):
        ssh = Ssh(tmp_path, monkeypatch, [code] * 9, taken=taken)
        assert ssh.start() == (code, [])
        assert len(ssh.ports) == 1
    with socket.create_server(("127.0.0.1", 0)) as free:
        named = free.getsockname()[1]
    ssh = Ssh(tmp_path, monkeypatch, [255] * 9, taken=1)
    with pytest.raises(LeaseError, match=f"--port {named}: a program on this machine has it already"):
        ssh.start(named)


def test_the_port_is_chosen_when_the_lease_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def free() -> int:
        return 8888 + len(given)

    submission = SimpleNamespace(request=SimpleNamespace(servers_there=1))
    monkeypatch.setattr(there, "free_port", free)
    monkeypatch.setattr(there.ask, "against_pool", lambda *_: submission)
    monkeypatch.setattr(running, "run", lambda *words: given.update(start=words[-1]) or 0)
    assert there.run(FakeHost(), NotebookRequest(), print, "") == 0
    monkeypatch.setattr(there, "keep", lambda _ends: ([], threading.Event()))
    served: list[int] = []
    monkeypatch.setattr(there, "_serve_at", lambda port, *_: served.append(port) or (0, True))
    given["start"](FakeHost(), (), [endpoint(where="server")], print)
    assert served == [8889]

    def none() -> int:
        raise LeaseError("ports are all in use here")

    monkeypatch.setattr(there, "free_port", none)
    monkeypatch.setattr(there.ask, "against_pool", lambda *_: pytest.fail("a GPU would be asked for"))
    with pytest.raises(LeaseError, match="all in use"):
        there.run(FakeHost(), NotebookRequest(), print, "")


def no_space(_path: str, _text: str) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_url_is_printed_where_no_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "write_private", no_space)
    server.started(SimpleNamespace(base_url="/", default_url="/lab", port=8889, certfile=""), order(tmp_path))
    assert capsys.readouterr().out == "http://127.0.0.1:8889/lab?token=the-token\n"
    assert Ssh(tmp_path, monkeypatch, [0], taken=0).start() == (0, [])
    assert capsys.readouterr().out == "URL\n"


def test_the_server_there_gets_its_token_on_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program that takes ssh's place, and ends with its input as the server does."""
    monkeypatch.setattr(folder, "state", lambda: tmp_path / "state")
    given: list[str] = []

    def ssh(_target: object, words: list[str], _ports: object, more: tuple[str, ...]) -> list[str]:
        given.extend([*words, *more])
        return ["sh", "-c", f'read order; echo "$order" > {tmp_path}/order; echo URL; cat > {tmp_path}/news']

    lost = threading.Event()
    monkeypatch.setattr(there.connection, "ssh_command", ssh)
    monkeypatch.setattr(there, "keep", lambda _ends: ([Keeper()], lost))
    monkeypatch.setattr(there.running, "LOST_S", 0.2)
    lost.set()
    told: list[str] = []
    ends = [endpoint(where="server")]
    monkeypatch.setattr(running, "lost_words", lambda *_: "its time is over")
    assert there.start(FakeHost(), (), ends, told.append, request=NotebookRequest(folder="/data", port=8890)) == 0
    sent = json.loads((tmp_path / "order").read_text())
    assert (sent["folder"], sent["port"], sent["news"], len(sent["token"])) == ("/data", 8890, "-", 48)
    assert not any(sent["token"] in word for word in given)
    assert any(word == f"-L127.0.0.1:8890:{sent['socket']}" for word in given)
    news = json.loads((tmp_path / "news").read_text())
    assert news == {"text": "lease 41 has ended: its time is over", "end": True}
    assert told == ["lease 41 has ended: its time is over"]


def test_jupyter_is_told_what_its_users_own_settings_cannot_open(tmp_path: Path) -> None:
    words = server.arguments(order(tmp_path))
    assert {"--ServerApp.ip=127.0.0.1", "--KernelManager.transport=ipc", "--no-browser"} <= set(words)
    assert "--IdentityProvider.token=the-token" in words
    there_ = server.arguments(order(tmp_path, socket="/dev/shm/jupyter-x/s"))
    assert "--ServerApp.sock=/dev/shm/jupyter-x/s" in there_
    assert "--ServerApp.port=8888" in there_, (
        "Jupyter refuses any other beside a socket, also one of its user's settings"
    )


def test_sockets_of_kernels_have_a_short_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    made = Path(server.short_folder())
    try:
        assert len(str(made)) + server.KERNEL_BYTES <= server.SOCKET_BYTES
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    finally:
        made.rmdir()


class Connection:
    """A notebook's."""

    def __init__(self) -> None:
        self.kernel_manager = SimpleNamespace(execution_state="idle")
        self.written: list[tuple[str, object]] = []

    def write_stderr(self, text: str, header: object) -> None:
        self.written.append((text, header))


def announce(tmp_path: Path, text: str, end: bool) -> None:
    with (tmp_path / "news").open("a") as stream:
        stream.write(json.dumps({"text": text, "end": end}) + "\n")


def test_news_are_in_the_cell_that_runs_and_else_in_the_next(tmp_path: Path) -> None:
    announcer, one = server.Announcer(order(tmp_path)), Connection()
    announcer.cell(one, "first")
    one.kernel_manager.execution_state = "busy"
    announce(tmp_path, "idle", end=False)
    announcer.running([one])
    announcer.running([one])
    assert one.written == [("idle", "first")]
    one.kernel_manager.execution_state = "idle"
    announce(tmp_path, "ended", end=True)
    announcer.running([one])
    assert len(one.written) == 1, "a cell that has ended takes nothing more"
    announcer.cell(one, "second")
    announcer.cell(one, "third")
    assert one.written[1:] == [("ended", "second"), ("ended", "third")], "the end is in each cell after it"
    announcer.running([])
    assert announcer.cells == {}


def test_the_end_of_the_leases_time_is_reported_before(tmp_path: Path) -> None:
    announcer, one = server.Announcer(order(tmp_path, ends=time.time() + server.WARN_S + 60)), Connection()
    announcer.look()
    assert announcer.texts == []
    announcer.ends = time.time() + 120
    announcer.look()
    announcer.look()
    announcer.cell(one, "next")
    assert one.written == [("lease 41 ends in 2 min: its time is over then; save this notebook", "next")]


def test_the_url_is_in_a_file_of_its_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = SimpleNamespace(base_url="/", default_url="/lab", port=8889, certfile="")
    server.started(app, order(tmp_path))
    url = "http://127.0.0.1:8889/lab?token=the-token"
    assert capsys.readouterr().out == f"{url}\n"
    assert (tmp_path / "url").read_text() == url
    assert stat.S_IMODE((tmp_path / "url").stat().st_mode) == 0o600
