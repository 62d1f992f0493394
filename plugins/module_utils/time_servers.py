"""Whether time servers answer: one question of SNTP (RFC 4330) to each, all at once, before chrony is installed."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time

PORT = 123
LIMIT_S = 3.0
AGAIN_S = 1.0
#: Version 4, mode 3 (a client); the time of sending, which the answer repeats, is any number: nobody is told ours.
QUESTION = struct.Struct("!B39x8s")
SERVES = 4


def _of_answer(packet: bytes, asked: bytes) -> str | None:
    """What an answer says: "" for a time; None where it answers another question."""
    if len(packet) < 48 or packet[0] & 7 != SERVES or packet[24:32] != asked:
        return None
    leap, stratum = packet[0] >> 6, packet[1]
    if stratum == 0:
        return f"it refuses ({packet[12:16].decode('ascii', 'replace').strip(chr(0)) or 'without a reason'})"
    return "it has no time itself (not synchronised)" if leap == 3 or stratum > 15 else ""


def _ask(name: str, port: int, limit_s: float) -> str:
    """Why this server gives no time, "" where it does."""
    end = time.monotonic() + limit_s
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_DGRAM)
    except OSError as fault:
        return f"no address of this name ({fault.strerror or fault})"
    said, asked, sockets = "", os.urandom(8), list[socket.socket]()
    try:
        for family, kind, protocol, _, address in found:
            try:
                one = socket.socket(family, kind, protocol)
                sockets.append(one)
                one.connect(address)
            except OSError as fault:  # no route, no IPv6
                said = said or str(fault.strerror or fault).lower()
        send_at = 0.0
        while sockets and time.monotonic() < end:
            if time.monotonic() >= send_at:
                send_at = time.monotonic() + AGAIN_S
                for one in sockets:
                    try:
                        one.send(QUESTION.pack(4 << 3 | 3, asked))
                    except OSError as fault:
                        said = str(fault.strerror or fault).lower()
            wait = max(0.0, min(send_at, end) - time.monotonic())
            for one in select.select(sockets, [], [], wait)[0]:
                try:
                    answer = _of_answer(one.recv(512), asked)
                except OSError as fault:  # nothing listens there: a message of ICMP
                    said = str(fault.strerror or fault).lower()
                    continue
                if answer == "":
                    return ""
                said = answer or said
    finally:
        for one in sockets:
            one.close()
    return said or f"no answer within {limit_s:g} s"


def ask_time_servers(names: list[str], port: int = PORT, limit_s: float = LIMIT_S) -> dict[str, str]:
    """By server why it gives no time, "" where it does; also of a name that nobody resolves within the limit."""
    said = dict.fromkeys(names, f"no answer within {limit_s:g} s")

    def ask(name: str) -> None:
        said[name] = _ask(name, port, limit_s)

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in said]
    for one in threads:
        one.start()
    end = time.monotonic() + limit_s + 0.5
    for one in threads:
        one.join(max(0.0, end - time.monotonic()))
    return dict(said)
