"""Notebook servers of JupyterHub (role jupyterhub): started, looked at and ended as the user whose they are.

The hub has no root. By sudo it calls three programs as a user of the pool, `start`, `look` and `end`, which are the
functions here. A server goes on alone (package kept), so that neither the hub nor its end has to do with it. What the
hub sends (token, key of the server's TLS) comes on standard input and is in files that the user alone can read.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from toolkit.lease import LeaseError, engines, kept_note
from toolkit.lease.client import ask, running
from toolkit.lease.client.running import Say
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.fields import Fields
from toolkit.lease.kept import folder, record, starting
from toolkit.lease.kept.record import Kept
from toolkit.lease.lease_request import LeaseWish
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.notebook import here
from toolkit.lease.notebook.server import write_private

#: What administrators offer: the Python of each environment, by its name.
ENVIRONMENTS = Path("/etc/elastic-ai/jupyterhub/environments.json")
SERVE = Path("/usr/lib/elastic-ai/jupyterhub/bin/serve")
PROGRAM = Path(__file__).with_name("hub_server.py")
KEY, CERTIFICATE, AUTHORITY, ORDER, PORT, KEPT = "key.pem", "certificate.pem", "authority.pem", "order", "port", "kept"
#: A server that is asked to end has ended within this time; then its lease is cancelled.
ENDS_S = 25.0
#: Of `start`, `look` and `end`: Slurm may take a minute.
ANSWER_S = 140.0
LOOK_S = 0.2
_ANY = r"(?s:[^\0]*)"


@dataclass(frozen=True)
class HubOrder:
    """What the hub orders. environment: a name in ENVIRONMENTS. variables: lines NAME=VALUE, JupyterHub's own alone.
    The others are the texts of PEM files, for TLS between proxy, hub and server."""

    environment: str
    wish: LeaseWish
    variables: str
    key: str
    certificate: str
    authority: str

    @classmethod
    def read(cls, text: str) -> HubOrder:
        """LeaseError for anything else."""
        fields = Fields.of(text, "the hub's order")
        part = fields.text("part", r"[0-9./]{1,16}")
        seconds = fields.number("seconds", most=366 * 86_400)
        found = cls(
            environment=fields.text("environment", r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}"),
            wish=LeaseWish(
                count=fields.number("count", least=1, most=1024),
                part=None if part == "1" else part,
                gpu_class=fields.text("gpu_class", r"[\w.-]{0,64}"),
                seconds=seconds or None,
            ),
            variables=fields.secret("variables", r"(JUPYTERHUB_[A-Z_]{1,64}=[^\0\n]{0,8192}\n)*"),
            key=fields.secret("key", _ANY),
            certificate=fields.text("certificate", _ANY),
            authority=fields.text("authority", _ANY),
        )
        fields.end()
        found.wish.check()
        return found


def python_of(environment: str) -> str:
    """LeaseError where administrators offer no environment of that name."""
    try:
        offered = json.loads(ENVIRONMENTS.read_text())
    except (OSError, ValueError) as fault:
        raise LeaseError(f"{ENVIRONMENTS}: {fault}") from None
    if environment not in offered:
        raise LeaseError(f"there is no environment {environment!r} here; choose one of {', '.join(sorted(offered))}")
    return str(offered[environment])


def engine_of(host: Host, python: str) -> str:
    """The engine for the framework of that Python; where it has none, the site's first, for kernels of the user's own.
    LeaseError where this machine has no engine."""
    found = here.engine_for(host, "", python)
    if isinstance(found, engines.Installed):
        return found.engine
    usable = [one.engine for one in engines.all_installed(host.engine_dir) if not engines.run_elsewhere(one.engine)]
    if not usable:
        raise LeaseError(f"no notebook server can have GPUs here: {found}")
    return usable[0]


def _folder(name: str) -> Path:
    if not re.fullmatch(folder.NAME, name):
        raise LeaseError("a notebook server is named by 12 hexadecimal digits")
    return folder.own_folder("hub") / name


def _plain_environment() -> dict[str, str]:
    """A login's, as far as sudo does not say it: nothing of the hub's is passed on."""
    user = pwd.getpwuid(os.geteuid())
    return {
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": user.pw_shell,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
    }


def start(host: Host, order: HubOrder) -> str:
    """Ask the pool for the GPUs and let the server go on alone; its name. It returns as soon as it is in the queue.

    Servers of this user that an earlier hub has lost are ended. LeaseError in words for the user.
    """
    python = python_of(order.environment)
    _end_all(host, [old for old in folder.own_folder("hub").iterdir() if re.fullmatch(folder.NAME, old.name)])
    name = secrets.token_hex(6)
    path = _folder(name)
    path.mkdir(mode=0o700)
    os.environ.clear()
    os.environ.update(_plain_environment())
    os.chdir(os.environ["HOME"] if Path(os.environ["HOME"]).is_dir() else "/")
    said: list[bytes] = []
    try:
        for file, text in ((KEY, order.key), (CERTIFICATE, order.certificate), (AUTHORITY, order.authority)):
            write_private(str(path / file), text)
        wish = order.wish
        asked = {"python": python, "count": wish.count, "part": wish.part or "1", "gpu_class": wish.gpu_class,
                 "seconds": wish.seconds or 0, "variables": order.variables}  # fmt: skip
        write_private(str(path / ORDER), json.dumps(asked))
        kept = starting.keep(starting.Wish(("notebooks", "of", "the", "hub")), [str(path)], said.append, str(SERVE))
        if isinstance(kept, int):
            words = b"".join(said).decode("utf-8", "replace").strip().splitlines()
            raise LeaseError(words[-1] if words else f"the notebook server ended with {kept}")
        write_private(str(path / KEPT), kept.path.name)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return name


def _kept(path: Path) -> Kept | None:
    try:
        name = (path / KEPT).read_text()
        return record.read(folder.programs() / name) if re.fullmatch(folder.NAME, name) else None
    except (OSError, LeaseError):
        return None


def look(host: Host, name: str) -> dict[str, object]:
    """state: waiting (for its turn), starting, running or ended. lease: its number, 0 where there is none. port: of
    127.0.0.1, 0 before it listens. place, expected: in the queue, 0 and "" where they are not known."""
    path = _folder(name)
    kept = _kept(path)
    answer: dict[str, object] = {"state": "ended", "lease": 0, "port": 0, "place": 0, "expected": "", "why": ""}
    if kept is None:
        return answer
    answer["lease"] = kept.status.lease or 0
    if kept.over:
        return answer | {"why": kept.status.why}
    if kept.status.state in ("starting", "waiting"):
        with suppress(LeaseError):
            if kept.status.lease is not None:
                turn = host.slurm.turn(kept.status.lease)
                answer |= {"place": turn.place or 0, "expected": str(turn.start or "")}
        return answer | {"state": "waiting"}
    with suppress(OSError, ValueError):
        return answer | {"state": "running", "port": int((path / PORT).read_text())}
    return answer | {"state": "starting"}


def end(host: Host, name: str) -> None:
    """End the server, give its GPUs back, and leave nothing of it. One that has ended already is no error. LeaseError
    where it does not end."""
    _end_all(host, [_folder(name)])


def _end_all(host: Host, paths: Sequence[Path]) -> None:
    """All at once, for the hub does not wait ENDS_S for each."""
    until, left = time.monotonic() + ENDS_S, list(paths)
    while left:
        late, going = time.monotonic() > until, []
        for path in left:
            kept = _kept(path)
            if kept is not None and not kept.over:
                if kept.status.pid:
                    with suppress(ProcessLookupError):
                        os.kill(kept.status.pid, signal.SIGTERM)
                if not late or kept.status.lease is None:
                    going.append(path)
                    continue
                host.slurm.cancel(kept.status.lease)
            shutil.rmtree(path, ignore_errors=True)
        if late and going:  # without a lease there is nothing to cancel; its folder stays, for the next try
            raise LeaseError("a notebook server does not end; try again in a minute")
        left = going
        if left:
            time.sleep(LOOK_S)


def _start_server(
    host: Host,
    argv: Sequence[str],
    endpoints: Sequence[LeaseEndpoint],
    say: Say,
    _chosen: signal.Signals | None = None,
    *,
    path: Path,
    variables: str,
) -> int:
    """A ProgramStart: the server on the endpoints of its lease."""
    with running.private_folder() as private:
        news = here.News(private / "news", say)
        first = endpoints[0]
        order = {"folder": str(path), "news": str(private / "news"), "lease": first.lease, "ends": first.deadline,
                 "variables": variables}  # fmt: skip
        write_private(str(private / ORDER), json.dumps(order))
        return running.start_and_wait(
            host, [*argv, str(private / ORDER)], endpoints, news.notice, signal.SIGUSR1, here.SAVES_S,
            told_lost=news.lost,
        )  # fmt: skip


def serve(path: Path) -> int:
    """In its unit: ask for the GPUs, serve notebooks, give the GPUs back. The server's exit code."""
    kept_note.kept()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + signal.SIGTERM))
    fields = Fields.in_file(path / ORDER)
    (path / ORDER).unlink()  # the token is in it
    python, part, seconds = fields.text("python"), fields.text("part"), fields.number("seconds")
    host = this_host()
    wish = LeaseWish(
        count=fields.number("count"),
        part=None if part == "1" else part,
        gpu_class=fields.text("gpu_class"),
        seconds=seconds or None,
        engine=engine_of(host, python),
    )

    def say(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    submission = ask.against_pool(host, wish, "run", say)
    running.check_servers(host, submission.servers if submission.request.spread else submission.jobs, wish.engine)
    start_server = partial(_start_server, path=path, variables=fields.secret("variables", _ANY))
    return running.run(host, submission, [python, str(PROGRAM)], say, None, start_server)


def main(program: str, argv: Sequence[str], text: str) -> str:
    """What a program of the hub's prints, as JSON. LeaseError where it cannot be done, or not within ANSWER_S: the hub
    cannot end what sudo has started."""

    def late(*_: object) -> None:
        raise LeaseError("the pool does not answer; try again in a minute")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, ANSWER_S)
    try:
        return _main(program, argv, text)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _main(program: str, argv: Sequence[str], text: str) -> str:
    host = this_host()
    if os.geteuid() == 0:
        raise LeaseError("notebook servers are of users, and not of root")
    if program == "start" and not argv:
        return json.dumps({"name": start(host, HubOrder.read(text))})
    if program == "look" and len(argv) == 1:
        return json.dumps(look(host, argv[0]))
    if program == "end" and len(argv) == 1:
        end(host, argv[0])
        return "{}"
    raise LeaseError("usage: start; look NAME; end NAME")
