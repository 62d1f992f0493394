"""Reads many nodes at once: the keys that are new are confirmed once for all of them, between two passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from toolkit.scan import known_hosts, shipped
from toolkit.scan.answer import Answer
from toolkit.scan.contact import HostKey, Login, Outcome, Trouble, contact, end_all
from toolkit.scan.wanted import Wanted

AT_ONCE = 32

Confirm = Callable[[Sequence[HostKey]], bool]
"""Shows keys to a person and asks; True: they are the nodes' own."""
Tell = Callable[[Wanted, Outcome], None]


@dataclass(frozen=True)
class Read:
    """A node of the list, and what became of it."""

    wanted: Wanted
    login: Login
    outcome: Answer | Trouble


def read(
    nodes: Sequence[tuple[Wanted, Login]], file: Path, confirm: Confirm, tell: Tell, at_once: int = AT_ONCE
) -> list[Read]:
    """Read all nodes; `file` is known_hosts. Each is told as soon as it is read."""
    found = dict(zip((wanted for wanted, _ in nodes), _all(nodes, file, tell, at_once), strict=True))
    logins = dict(nodes)
    for wanted, outcome in found.items():
        if isinstance(outcome, HostKey) and wanted.host_key not in (None, outcome.fingerprint):
            words = f"its host key is {outcome.fingerprint}, and {wanted.place} says {wanted.host_key}"
            found[wanted] = Trouble(f"{words}; nothing was sent; is that the node?")
            tell(wanted, found[wanted])
    new = {wanted: outcome for wanted, outcome in found.items() if isinstance(outcome, HostKey)}
    to_ask = [key for wanted, key in new.items() if wanted.host_key is None]
    if new:
        agreed = not to_ask or confirm(to_ask)
        taken = {wanted: key for wanted, key in new.items() if wanted.host_key is not None or agreed}
        if taken:
            for place in {key.login.known_hosts or file for key in taken.values()}:
                known_hosts.add([key for key in taken.values() if (key.login.known_hosts or file) == place], place)
            second = [(wanted, logins[wanted]) for wanted in taken]
            found |= dict(zip(taken, _all(second, file, tell, at_once), strict=True))
        for wanted in new.keys() - taken.keys():
            found[wanted] = Trouble("its host key was not confirmed; nothing was sent to it")
            tell(wanted, found[wanted])
    return [Read(wanted, logins[wanted], _settled(outcome)) for wanted, outcome in found.items()]


def _settled(outcome: Outcome) -> Answer | Trouble:
    if isinstance(outcome, HostKey):
        return Trouble("its host key changed between two connections; do several machines have this address?")
    return outcome


def _all(nodes: Sequence[tuple[Wanted, Login]], file: Path, tell: Tell, at_once: int) -> list[Outcome]:
    """In the order of `nodes`; at most `at_once` connections at a time."""
    shipped.program()
    pool = ThreadPoolExecutor(max_workers=max(1, min(at_once, len(nodes))), thread_name_prefix="scan")
    try:
        started = {pool.submit(contact, login, file): wanted for wanted, login in nodes}
        for ended in as_completed(started):
            if not isinstance(ended.result(), HostKey):
                tell(started[ended], ended.result())
        return [task.result() for task in started]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_all()  # interrupted: nobody waits for nodes that do not answer
