"""The helper: root's, one question for each connection. It checks passwords, and acts as those who proved theirs.

No password is an argument, a variable, a file or a word of the journal; the name of a user that does not exist is not
written there either, for people type passwords into that field.
"""

from __future__ import annotations

import json
import os
import pwd
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.login import MOST_BYTES, READ_S, RUN_DIR, pam, tickets
from toolkit.login.attempts import Attempts, boot_s

FIRST_UID = 1000
"""People have this uid or a higher one; services and root do not log in."""

NOBODY = (65534, 65535, 2**32 - 1)

TOOLKIT = "/usr/bin/toolkit"
EXTEND = "/usr/lib/elastic-ai/lease/bin/extend"
MOST_MINUTES = 366 * 24 * 60
ACT_S = 120.0

Answer = dict[str, Any]


class Refused(Exception):
    """The question is none, or its ticket is."""


@dataclass(frozen=True)
class Desk:
    """What answers need, apart from the question. check, usable: PAM; run: starts a program as a user, or as root where
    `account` is None."""

    folder: Path
    check: Callable[[str, str], bool]
    usable: Callable[[str], bool]
    run: Callable[[Sequence[str], pwd.struct_passwd | None, Mapping[str, str]], tuple[int, str]]
    now: Callable[[], float]
    log: Callable[[str], None]


def _person(user: str) -> pwd.struct_passwd | None:
    try:
        account = pwd.getpwnam(user)
    except (KeyError, ValueError, UnicodeError):
        return None
    known = account.pw_uid >= FIRST_UID and account.pw_uid not in NOBODY
    return account if known and account.pw_name == user else None


def _text(question: Mapping[str, Any], key: str) -> str:
    value = question.get(key)
    if not isinstance(value, str) or not value:
        raise Refused(f"{key} is missing")
    return value


def _count(question: Mapping[str, Any], key: str, most: int) -> int:
    value = question.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise Refused(f"{key} is no number from 1 to {most}")
    return value


def _password(desk: Desk, question: Mapping[str, Any]) -> Answer:
    user, password = _text(question, "user"), _text(question, "password")
    account = _person(user)
    name = user if account else "a user that does not exist"
    # One without an account is counted and waits like others, or guesses at passwords would show who has one.
    mark, attempts = tickets.mark_of(tickets.key_of(desk.folder), user), Attempts(desk.folder)
    wait_s = attempts.begin(mark, desk.now())
    if wait_s > 0:
        desk.log(f"password of {name}: too many were wrong, not tried")
        return {"wait_s": round(wait_s, 1)}
    # A name without an account is checked as well, so that it takes as long.
    right = desk.check(user if account else "nobody", password) and account is not None
    desk.log(f"password of {name}: {'right' if right else 'wrong'}")
    if not right or account is None:
        return {"ticket": ""}
    attempts.right(mark, desk.now())
    return {"ticket": tickets.issue(tickets.key_of(desk.folder), user, account.pw_uid, desk.now())}


def owner(desk: Desk, question: Mapping[str, Any]) -> pwd.struct_passwd:
    """Whose ticket the question has. Refused where it is none, too old, or its account can no longer be used."""
    found = tickets.holder(tickets.key_of(desk.folder), _text(question, "ticket"), desk.now())
    account = None if found is None else _person(found[0])
    if found is None or account is None or account.pw_uid != found[1] or not desk.usable(found[0]):
        raise Refused("log in again")
    return account


def _release(desk: Desk, question: Mapping[str, Any]) -> Answer:
    account, lease = owner(desk, question), _count(question, "lease", 999_999_999)
    return _acted(desk, account, f"release {lease}", desk.run([TOOLKIT, "lease", "release", str(lease)], account, {}))


def _extend(desk: Desk, question: Mapping[str, Any]) -> Answer:
    account, lease = owner(desk, question), _count(question, "lease", 999_999_999)
    minutes = _count(question, "minutes", MOST_MINUTES)
    # The helper of leases runs as root anyway; it holds lease and policy against SUDO_UID.
    caller = {"SUDO_UID": str(account.pw_uid)}
    return _acted(desk, account, f"extend {lease}", desk.run([EXTEND, str(lease), str(minutes)], None, caller))


def _acted(desk: Desk, account: pwd.struct_passwd, what: str, done: tuple[int, str]) -> Answer:
    code, words = done
    desk.log(f"{account.pw_name}: {what}: exit {code}")
    return {"right": code == 0, "words": words}


VERBS: Mapping[str, Callable[[Desk, Mapping[str, Any]], Answer]] = {
    "password": _password,
    "release": _release,
    "extend": _extend,
}
"""What can be asked. Each checks all that the question has; whatever acts as a user begins with `owner`."""


def answered(desk: Desk, line: bytes) -> Answer:
    """The answer to one question."""
    try:
        question = json.loads(line)
        if not isinstance(question, dict):
            raise Refused("the question is no object")
        verb = question.get("do")
        if not isinstance(verb, str) or verb not in VERBS:
            raise Refused("the question is unknown")
        return VERBS[verb](desk, question)
    except Refused as fault:
        return {"right": False, "words": str(fault)}
    except (ValueError, RecursionError):
        return {"right": False, "words": "the question is no JSON"}


def run(command: Sequence[str], account: pwd.struct_passwd | None, more: Mapping[str, str]) -> tuple[int, str]:
    """Exit code of a program, and the last line that it printed. As `account` with its groups, or as root."""
    who = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": _groups(account)}
    name, home = ("root", "/root") if account is None else (account.pw_name, account.pw_dir)
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": home,
        "USER": name,
        "LOGNAME": name,
        **more,
    }
    try:
        done = subprocess.run(  # type: ignore[call-overload]
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            umask=0o077,
            start_new_session=True,
            timeout=ACT_S,
            check=False,
            **who,
        )
    except FileNotFoundError:
        return 127, f"{command[0]} is not installed here"
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {ACT_S:.0f} s"
    lines = done.stdout.decode("utf-8", "backslashreplace").strip().splitlines()
    return done.returncode, lines[-1][:1000] if lines else ""


def _groups(account: pwd.struct_passwd) -> list[int]:
    return os.getgrouplist(account.pw_name, account.pw_gid)


def _question(stream: int) -> bytes:
    """One line, within READ_S and MOST_BYTES; what arrived until then."""
    heard, until = b"", time.monotonic() + READ_S
    while b"\n" not in heard and len(heard) < MOST_BYTES:
        left = until - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            break
        part = os.read(stream, MOST_BYTES - len(heard))
        if not part:
            break
        heard += part
    return heard


def _log(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main(folder: Path = RUN_DIR) -> None:
    """Answer the one question of standard input, which is the connection."""
    desk = Desk(folder, pam.check, pam.usable, run, boot_s, _log)
    answer = answered(desk, _question(sys.stdin.fileno()))
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
