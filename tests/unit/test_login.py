"""The helper of logins: what it checks before it acts, what it counts, and what it writes down."""

from __future__ import annotations

import json
import pwd
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from toolkit.login import client, pam, tickets
from toolkit.login.attempts import EACH, EACH_S, TOGETHER, Attempts
from toolkit.login.helper import EXTEND, TOOLKIT, Desk, answered, run

ALICE = pwd.struct_passwd(("alice", "x", 1001, 1001, "", "/home/alice", "/bin/bash"))
SERVICE = pwd.struct_passwd(("munge", "x", 110, 110, "", "/", "/bin/false"))
RIGHT = "correct horse"


@dataclass
class Room:
    """A helper whose PAM knows one password, with what it did."""

    folder: Path
    now_s: float = 1000.0
    can: bool = True
    ran: list[tuple[list[str], str, dict[str, str]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def ask(self, **question: object) -> dict[str, object]:
        desk = Desk(
            self.folder, lambda _, password: password == RIGHT, lambda _: self.can, self._run, lambda: self.now_s,
            self.said.append,
        )  # fmt: skip
        return answered(desk, json.dumps(question).encode())

    def _run(self, command: Sequence[str], account: object, more: Mapping[str, str]) -> tuple[int, str]:
        self.ran.append((list(command), account.pw_name if account else "root", dict(more)))
        return 0, "released"

    def ticket(self) -> str:
        return str(self.ask(do="password", user="alice", password=RIGHT)["ticket"])


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    known = {"alice": ALICE, "munge": SERVICE, "root": pwd.getpwnam("root")}
    monkeypatch.setattr("toolkit.login.helper.pwd.getpwnam", known.__getitem__)
    return Room(tmp_path)


def test_a_right_password_gives_a_ticket_that_acts_as_its_user_alone(room: Room) -> None:
    ticket = room.ticket()
    assert room.ask(do="release", ticket=ticket, lease=12) == {"right": True, "words": "released"}
    assert room.ran == [([TOOLKIT, "lease", "release", "12"], "alice", {})]
    room.ask(do="extend", ticket=ticket, lease=12, minutes=60)
    assert room.ran[1] == ([EXTEND, "12", "60"], "root", {"SUDO_UID": "1001"})


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody-here", RIGHT), ("root", RIGHT), ("munge", RIGHT)]
)
def test_a_wrong_password_and_accounts_that_are_no_persons_get_no_ticket(room: Room, user: str, password: str) -> None:
    assert room.ask(do="password", user=user, password=password) == {"ticket": ""}


def test_no_ticket_is_made_up_changed_or_kept_too_long(room: Room) -> None:
    ticket = room.ticket()
    made = [
        ticket.replace("alice", "bob"),
        ticket.replace(":1001:", ":0:"),
        "0" * 64 + ticket[64:],
        "é" + ticket[1:],
        tickets.issue(b"another key" * 3, "alice", 1001, room.now_s),
        ":",
    ]
    for one in made:
        assert room.ask(do="release", ticket=one, lease=12) == {"right": False, "words": "log in again"}
    room.now_s += 8 * 3600
    assert room.ask(do="release", ticket=ticket, lease=12)["words"] == "log in again"
    assert room.ran == []


def test_an_account_that_was_locked_since_acts_no_more(room: Room) -> None:
    ticket = room.ticket()
    room.can = False
    assert room.ask(do="extend", ticket=ticket, lease=12, minutes=5)["words"] == "log in again"
    assert room.ran == []


@pytest.mark.parametrize("lease", ["12; rm -rf /", "--all", -1, 0, True, 1e3, None, [12], 10**10])
def test_a_lease_is_a_number_and_nothing_else(room: Room, lease: object) -> None:
    assert room.ask(do="release", ticket=room.ticket(), lease=lease)["right"] is False
    assert room.ran == []


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"null", b"{", b'{"do": "shell"}', b'{"do": ["password"]}', b"[" * 9000, b'{"do":"password"}']
)
def test_a_question_that_is_none_is_answered_with_an_error(room: Room, line: bytes) -> None:
    desk = Desk(room.folder, lambda *_: True, lambda _: True, room._run, lambda: 0.0, room.said.append)
    assert answered(desk, line)["right"] is False


def test_guesses_are_counted_by_user_and_a_right_password_forgets_them(room: Room) -> None:
    for _ in range(EACH - 1):
        room.ask(do="password", user="alice", password="guess")
    assert room.ticket()
    for _ in range(EACH):
        assert room.ask(do="password", user="alice", password="guess") == {"ticket": ""}
    waits = room.ask(do="password", user="alice", password=RIGHT)
    assert waits == {"wait_s": EACH_S}
    room.now_s += EACH_S + 0.1
    assert room.ticket()


def test_guesses_do_not_show_who_has_an_account(room: Room) -> None:
    """Each name has its own count, so that what one waits for says nothing of another."""

    def answers(user: str) -> list[object]:
        return [room.ask(do="password", user=user, password="guess") for _ in range(EACH + 1)]

    assert answers("nobody-here") == answers("alice") == answers("nor-here") == answers("munge")


def test_one_password_for_all_names_is_slow_too(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    assert [attempts.begin(f"user{n}", 5.0) for n in range(TOGETHER)] == [0.0] * TOGETHER
    assert attempts.begin("another", 5.0) > 0


def test_guesses_at_the_same_time_are_counted_before_they_are_made(tmp_path: Path) -> None:
    let = []
    threads = [
        threading.Thread(target=lambda: let.append(Attempts(tmp_path).begin("alice", 5.0) == 0)) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(let) == EACH


def test_neither_a_password_nor_a_name_without_a_user_is_written_anywhere(room: Room) -> None:
    room.ask(do="password", user="my secret typed here", password="hunter2")
    room.ask(do="password", user="alice", password="hunter2")
    room.ticket()
    written = "".join(room.said) + "".join(path.read_text("latin-1") for path in room.folder.iterdir())
    assert "alice: wrong" in written
    assert "hunter2" not in written
    assert RIGHT not in written
    assert "secret typed" not in written


def test_the_key_is_root_s_alone_and_one_for_all_helpers(tmp_path: Path) -> None:
    keys = set()
    threads = [threading.Thread(target=lambda: keys.add(tickets.key_of(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 1
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_program_runs_as_the_user_with_a_clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/tmp/mine")
    me = pwd.getpwnam("nobody")
    script = "import os; print(os.getuid(), os.environ.get('SLURM_CONF'), os.environ['LOGNAME'], os.getgroups())"
    code, words = run(["/usr/bin/python3", "-c", script], me, {})
    assert (code, words) == (0, f"{me.pw_uid} None nobody [{me.pw_gid}]")


def _pam(folder: Path, rules: str) -> Path:
    (folder / "elastic-ai-login").write_text(rules)
    return folder


def test_pam_gets_the_password_and_its_answer_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real libpam, with rules of the test's own: pam_exec hands the password to a program on its input."""
    script = tmp_path / "is-right"
    script.write_text("#!/bin/sh\ntest \"$(tr -d '\\000')\" = 'päss word'\n")
    script.chmod(0o755)
    rules = _pam(tmp_path, f"auth required pam_exec.so expose_authtok quiet {script}\naccount required pam_permit.so\n")
    assert pam.check("nobody", "päss word", rules)
    assert not pam.check("nobody", "päss wor", rules)
    assert not pam.check("nobody", "päss word\0", rules)
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    assert not pam.check("nobody", "\ud800", rules)
    assert not lost, "an error in the conversation, of which PAM knows nothing"
    assert pam.usable("nobody", rules)
    closed = _pam(tmp_path, f"auth required pam_exec.so expose_authtok quiet {script}\naccount required pam_deny.so\n")
    assert not pam.check("nobody", "päss word", closed)
    assert not pam.usable("nobody", closed)


def test_a_service_asks_at_a_socket_and_hears_one_answer(tmp_path: Path) -> None:
    """client.py against the helper's own main, started for the connection as systemd does it."""
    path = tmp_path / "login.sock"
    program = f"from pathlib import Path; from toolkit.login.helper import main; main(Path({str(tmp_path)!r}))"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()

        def serve() -> None:
            there, _ = door.accept()
            with there:
                subprocess.run([sys.executable, "-c", program], stdin=there, stdout=there, check=True)

        thread = threading.Thread(target=serve)
        thread.start()
        done = client.release("not a ticket", 12, path)
        thread.join()
    assert done == client.Done(False, "log in again")
    with pytest.raises(client.LoginError, match=r"is elastic-ai-login\.socket active"):
        client.release("x", 1, tmp_path / "none.sock")
