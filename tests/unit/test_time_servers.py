"""Time servers are asked before chrony is there: one that answers, and every way of not doing so."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.node_modules import load
from tests.support.preflight_case import NODE, WANTED, preflight

servers: Any = load("plugins/module_utils/time_servers.py")
Answer = Callable[[bytes], "bytes | None"]


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[int]:
    """A time server on this machine, and its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    packet, asker = own.recvfrom(512)
                    if packet == b"end":
                        return
                    said = answer(packet)
                    if said is not None:
                        own.sendto(said, asker)

        thread = threading.Thread(target=serve)
        thread.start()
        port = own.getsockname()[1]
        try:
            yield port
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"end", ("127.0.0.1", port))
            thread.join()


def time_of(question: bytes, leap: int = 0, stratum: int = 2, reference: bytes = b"GPS\0") -> bytes:
    """An answer as RFC 4330 has it: the question's time of sending is what it repeats."""
    return (
        bytes([leap << 6 | 4 << 3 | 4, stratum, 6, 0xEC])
        + bytes(8)
        + reference
        + bytes(8)
        + question[40:48]
        + bytes(16)
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (time_of, ""),
        (lambda question: None, "no answer within 0.3 s"),
        (lambda question: time_of(question, leap=3, stratum=0, reference=b"RATE"), "it refuses (RATE)"),
        (lambda question: time_of(question, leap=3), "it has no time itself (not synchronised)"),
        (lambda question: time_of(question, stratum=16), "it has no time itself (not synchronised)"),
        (lambda question: question, "no answer within 0.3 s"),
        (lambda question: time_of(bytes(48)), "no answer within 0.3 s"),
        (lambda question: time_of(question)[:20], "no answer within 0.3 s"),
    ],
    ids=["time", "silent", "refuses", "leap", "stratum", "echo", "of another question", "short"],
)
def test_what_a_server_says(answer: Answer, said: str) -> None:
    with serving(answer) as port:
        assert servers.ask_time_servers(["127.0.0.1"], port, 0.3) == {"127.0.0.1": said}


def test_the_question_is_one_of_a_client_and_tells_nothing() -> None:
    seen: list[bytes] = []
    with serving(lambda question: seen.append(question) or time_of(question)) as port:  # type: ignore[func-returns-value]
        servers.ask_time_servers(["127.0.0.1"], port, 2)
    (question,) = seen
    assert (len(question), question[0], question[1:40]) == (48, 0x23, bytes(39))


def test_a_port_where_nobody_listens_and_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        port = own.getsockname()[1]
    known = socket.getaddrinfo

    def resolve(name: str, *args: Any, **more: Any) -> Any:
        if name == "ntp.example.net":
            raise socket.gaierror(-2, "Name or service not known")
        return known(name, *args, **more)

    monkeypatch.setattr(servers.socket, "getaddrinfo", resolve)
    said = servers.ask_time_servers(["127.0.0.1", "ntp.example.net"], port, 0.2)
    assert said["127.0.0.1"] == "connection refused"
    assert said["ntp.example.net"] == "no address of this name (Name or service not known)"


def test_nobody_is_asked_where_none_is_named() -> None:
    assert servers.ask_time_servers([]) == {}


def notes(asked: list[str], container: bool = False, **said: str) -> list[str]:
    """What preflight notes of these servers."""
    observed = {**NODE, "time_servers": said, "in_container": container}
    found: list[str] = preflight.preflight_notes(observed, {**WANTED, "time": {"servers": asked}})
    return [one for one in found if "time server" in one]


def test_preflight_names_those_that_give_no_time() -> None:
    assert notes(["ntp1", "ntp2"], ntp1="", ntp2="") == []
    (some,) = notes(["ntp1", "ntp2"], ntp1="", ntp2="connection refused")
    assert some.startswith("a time server gives no time (ntp2: connection refused): see that")
    (all_of_them,) = notes(["ntp1"], ntp1="no answer within 3 s")
    assert all_of_them.startswith("none of its time servers gives the time (ntp1: no answer within 3 s): it would keep")
    assert "UDP port 123" in all_of_them


def test_a_container_says_why_nobody_was_asked() -> None:
    assert notes([], container=True) == []
    assert notes(["ntp1"], container=True) == [
        "its time servers were not asked: it is a container, and has its host's clock"
    ]
