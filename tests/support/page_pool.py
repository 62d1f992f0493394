"""The page of a made-up pool, served by the real server: uvicorn, TLS, sockets. What is made up is Slurm's answers, and
PAM's one password.

As a program, `python -m tests.support.page_pool FOLDER PORT`, it serves until SIGTERM, for benchmarks.
"""

from __future__ import annotations

import http.client
import json
import os
import pwd
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.lease_texts import Job, jobs_of, node_text, slurm_job
from toolkit.lease.jobs.slurm import SlurmError
from toolkit.lease.jobs.slurm_text import PoolNode, SlurmJob, parse_nodes
from toolkit.login.helper import Desk, answered
from toolkit.page.app import Page
from toolkit.page.http import BASE
from toolkit.page.server import Certificate, PageServer, configured
from toolkit.page.settings import Settings

if TYPE_CHECKING:
    import pytest

PASSWORD = "correct horse"
SERVERS, EACH, WAITING = 25, 8, 300


def many(servers: int = SERVERS, waiting: int = WAITING) -> tuple[list[PoolNode], list[Job]]:
    """25 servers of 8 GPUs, three quarters of them taken whole or in parts, and 300 that wait."""
    text = "".join(
        node_text(f"gpu{n}", "MIXED", f"gpu:v100:{EACH},shard:v100:{EACH * 140}") for n in range(1, servers + 1)
    )
    jobs: list[Job] = []
    for n in range(servers * EACH * 3 // 4):
        gres = f"gpu:v100:1(IDX:{n % 6})" if n % 3 else f"shard:v100:70(IDX:{n % 6})"
        jobs += slurm_job(1000 + n, gres=gres, node=f"gpu{n // 6 + 1}", user=f"user{n % 40}")
    for n in range(waiting):
        fields = {"state": "PENDING", "end": None, "user": f"user{n % 40}", "priority": 5000 - n}
        jobs += slurm_job(5000 + n, gres="", state_reason="Resources", **fields)
    return parse_nodes(text), jobs


def known_users(monkeypatch: pytest.MonkeyPatch, *users: str) -> None:
    """This machine has accounts of these names, as far as the helper of passwords sees."""
    found = {name: pwd.struct_passwd((name, "x", 1001 + n, 1001, "", "/", "/bin/sh")) for n, name in enumerate(users)}
    monkeypatch.setattr("toolkit.login.helper.pwd.getpwnam", lambda name: found[name])


@dataclass
class MadeUp:
    """Slurm: what it answers, and how often it was asked."""

    servers: list[PoolNode]
    known: list[Job]
    away: str = ""
    asked: list[float] = field(default_factory=list)
    #: Gets a line for each question.
    log: Path | None = None

    def _ask(self) -> None:
        self.asked.append(time.monotonic())
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{self.asked[-1]}\n")
        if self.away:
            raise SlurmError(self.away)

    def nodes(self) -> Sequence[PoolNode]:
        self._ask()
        return self.servers

    def jobs(self) -> Sequence[SlurmJob]:
        self._ask()
        return jobs_of(self.known)

    def ending(self, number: int) -> None:
        self.known = [job | {"job_state": "COMPLETING"} if job["job_id"] == number else job for job in self.known]

    def end(self, number: int) -> None:
        self.known = [job for job in self.known if job["job_id"] != number]


def certificate(folder: Path, days: int = 30) -> tuple[str, str]:
    """A certificate of its own, with its key."""
    crt, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
         str(days), "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(key), "-out", str(crt)],
        check=True, capture_output=True,
    )  # fmt: skip
    return str(crt), str(key)


class Helper:
    """The helper of logins, at a socket, with a PAM that knows one password; what it was asked to run is kept."""

    def __init__(self, folder: Path, *users: str) -> None:
        self.path = folder / "login.sock"
        self._folder, self._users = folder / "login", users
        self._folder.mkdir()
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self.path))
        self._door.listen(64)
        self.ran: list[tuple[list[str], str]] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _run(self, command: Sequence[str], account: object, more: Mapping[str, str]) -> tuple[int, str]:
        who = account.pw_name if isinstance(account, pwd.struct_passwd) else more["SUDO_UID"]
        self.ran.append((list(command), who))
        return 0, f"lease {command[-1]}: released"

    def _serve(self) -> None:
        while True:
            try:
                there, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(there,), daemon=True).start()

    def _answer(self, there: socket.socket) -> None:
        desk = Desk(
            self._folder, lambda user, word: user in self._users and word == PASSWORD, lambda _: True, self._run,
            time.monotonic, lambda _: None,
        )  # fmt: skip
        with there, there.makefile("rb") as lines:
            there.sendall(json.dumps(answered(desk, lines.readline())).encode() + b"\n")

    def close(self) -> None:
        self._door.close()


class Client:
    """A browser without script: cookies, forms, TLS."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.host, self.port = host, port
        self.cookies: dict[str, str] = {}
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE

    def send(
        self, method: str, path: str, form: Mapping[str, str] | None = None, **headers: str
    ) -> tuple[int, Mapping[str, str], str]:
        """path: below BASE."""
        there = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=30)
        sent = {"cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items()), **headers}
        body = None if form is None else urllib.parse.urlencode(form)
        if body is not None:
            sent.setdefault("content-type", "application/x-www-form-urlencoded")
        there.request(method, BASE + path, body, sent)
        answer = there.getresponse()
        words = answer.read().decode()
        for line in answer.headers.get_all("set-cookie") or []:
            name, _, value = line.partition(";")[0].partition("=")
            if "Max-Age=0" in line:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        there.close()
        return answer.status, {k.lower(): v for k, v in answer.headers.items()}, words

    def get(self, path: str) -> str:
        status, _, words = self.send("GET", path)
        assert status == 200, (status, words)
        return words

    def secret(self, path: str) -> str:
        """What the first form of a page carries."""
        return self.get(path).split('name="form" value="')[1].split('"')[0]

    def log_in(self, user: str, password: str = PASSWORD) -> int:
        form = {"form": self.secret("/login"), "user": user, "password": password}
        return self.send("POST", "/login", form)[0]

    def events(self) -> Iterator[dict[str, str]]:
        """The parts, as they come."""
        there = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=30)
        there.request(
            "GET", f"{BASE}/events", headers={"cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        )
        answer = there.getresponse()
        assert answer.status == 200, answer.status
        for line in answer:
            if line.startswith(b"data: ") and line.strip() != b"data: {}":  # which is a beat
                yield json.loads(line[6:])


@dataclass
class Served:
    """A page that is up."""

    page: Page
    source: MadeUp
    settings: Settings
    helper: Helper

    def client(self) -> Client:
        return Client(self.settings.port)

    def announce(self, words: str) -> None:
        """As the controller's Prolog and Epilog do: with logger, which puts its own words in front."""
        subprocess.run(
            ["logger", "--socket", self.settings.events, "-d", "--socket-errors=off", "-t", "pool", "--", words],
            check=True,
        )


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def served(folder: Path, source: Any, users: Sequence[str] = (), **settings: Any) -> Iterator[Served]:
    """The page until the end of the block."""
    crt, key = certificate(folder)
    helper = Helper(folder, *users)
    chosen = replace(
        Settings(
            site="Pool of the test", address="127.0.0.1", port=free_port(), reading="open", certificate=crt, key=key,
            prometheus="", runs="", events=str(folder / "events"), login=str(helper.path),
            pool_file=str(folder / "pool.json"),
        ),
        **settings,
    )  # fmt: skip
    kept: list[Certificate] = []

    def look() -> str:
        return kept[0].trouble() if kept and not kept[0].renew() else ""

    page = Page(chosen, source, look)
    config = configured(page.app, chosen)
    kept.append(Certificate(chosen, config.ssl))
    server = PageServer(config, page.live.close)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while (page.collector.asked < 2 and not getattr(source, "away", "")) or not server.started:
        assert time.monotonic() < until, "the page does not start"
        time.sleep(0.02)
    time.sleep(0.05)
    yield Served(page, source, chosen, helper)
    page.live.close()
    server.should_exit = True
    thread.join(20)
    helper.close()
    assert not thread.is_alive(), "the page does not end"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    crt, key = certificate(folder)
    here = Settings(
        address="127.0.0.1", port=int(sys.argv[2]), reading="open", certificate=crt, key=key, prometheus="", runs="",
        events=str(folder / "events"), pool_file=str(folder / "pool.json"),
    )  # fmt: skip
    made = MadeUp(*many(), log=folder / "asked")
    ran = Page(here, made, lambda: "")
    print(os.getpid(), flush=True)
    PageServer(configured(ran.app, here), ran.live.close).run()
