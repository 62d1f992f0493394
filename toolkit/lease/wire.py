"""The owner's connection to a lease's agent: who speaks proves that he has the token, and never sends it.

Both sides send lines of ASCII. Owner, before anything is said to him: `knock NUMBER MAC`, where MAC is
HMAC-SHA256(token, "knock:" + NUMBER) and NUMBER is never used again, so that he has a place that no stranger takes; it
proves nothing else. Agent: `elastic-ai-lease 2 NONCE`. Owner: `owner ANSWER`, where ANSWER is
HMAC-SHA256(token, "owner:" + NONCE). Agent: `welcome DEADLINE PROOF` with PROOF = HMAC-SHA256(token, "agent:" + NONCE),
so that an owner does not talk to an impostor; or it closes without a word. Then the owner sends `alive` every few
seconds, which the agent answers with `until DEADLINE` (seconds since the epoch). When it learns that the lease ends
early, it says `ends SECONDS CODE WORDS`, and when it ends it, `end CODE WORDS`. `idle SECONDS MINUTES`: its GPUs were
not used for so many minutes, and it ends in so many seconds unless they are; `idle -`: they are used again. Where its
NVML says so, `use PLACE BYTES PERCENT PERCENT` follows an `until`: of the device at that place of its own, how much of
the lease's memory is in use, and in how much of the time kernels ran and memory was busy; -1 for what is not known.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from toolkit.lease.fields import Fields

GREETING = "elastic-ai-lease 2"
MAX_LINE = 512
_NONCE = re.compile(r"[0-9a-f]{32}")


class EndCode(Enum):
    """Why a lease ended, as far as its client has to tell it apart."""

    TIME = "time"
    CLIENT = "client"
    TAKEN_BACK = "taken-back"
    ENGINE = "engine"
    PREEMPTED = "preempted"
    ADMINISTRATOR = "administrator"
    IDLE = "idle"
    LOST = "lost"  # the client's own word: the server does not answer any more


#: The sentence for each end that has only one.
WORDS = {
    EndCode.TIME: "its time is over",
    EndCode.TAKEN_BACK: "it was taken back",
    EndCode.PREEMPTED: "a job of higher priority needs its GPUs",
    EndCode.ADMINISTRATOR: "the administrator ended it",
    EndCode.IDLE: "its GPUs were not used for longer than its class may leave them so",
}


@dataclass(frozen=True)
class Ending:
    """The end of a lease, for programs and for people."""

    code: EndCode
    words: str


@dataclass(frozen=True)
class Notice:
    """An end that is announced: `left_s` seconds from when it was said."""

    ending: Ending
    left_s: float


@dataclass(frozen=True)
class IdleNotice:
    """GPUs that were not used for `minutes`, and are taken back `left_s` seconds from when it was said, unless they
    are."""

    left_s: int
    minutes: int


@dataclass(frozen=True)
class Use:
    """What a device of a lease does: bytes of the lease's memory that are in use, percent of time in which kernels ran,
    and in which memory was busy; None for what is not known."""

    used_bytes: int | None = None
    percent: int | None = None
    memory_percent: int | None = None

    def words(self) -> str:
        """As `use` has it, and the file that a program's NVML reads (engine/nvml/lease.h)."""
        return " ".join(
            "-1" if one is None else str(one) for one in (self.used_bytes, self.percent, self.memory_percent)
        )


_USE = re.compile(r"([0-9]{1,4}) (-1|[0-9]{1,18}) (-1|[0-9]{1,3}) (-1|[0-9]{1,3})")


def parse_use(rest: str) -> tuple[int, Use] | None:
    """Place and use in what follows `use`; None where it is none."""
    found = _USE.fullmatch(rest)
    if found is None:
        return None
    place, *told = map(int, found.groups())
    used, percent, memory = (None if one < 0 else one for one in told)
    return place, Use(used, percent, memory)


def parse_end(rest: str) -> Ending:
    """The ending in what follows `end`; LOST where its code is none of ours."""
    code, _, words = rest.partition(" ")
    known = {one.value: one for one in EndCode}
    return Ending(known[code], words) if code in known else Ending(EndCode.LOST, rest)


def parse_notice(rest: str) -> Notice | None:
    """The notice in what follows `ends`; None where it is none."""
    seconds, _, ending = rest.partition(" ")
    return Notice(parse_end(ending), float(seconds)) if re.fullmatch(r"[0-9]{1,9}", seconds) else None


def parse_idle(rest: str) -> IdleNotice | None:
    """The notice in what follows `idle`; None where it is none, or no longer."""
    seconds, _, minutes = rest.partition(" ")
    found = re.fullmatch(r"[0-9]{1,9}", seconds) and re.fullmatch(r"[0-9]{1,9}", minutes)
    return IdleNotice(int(seconds), int(minutes)) if found else None


@dataclass(frozen=True)
class Deadline:
    """Until when a lease is good, as root tells its agent by a file that holds one JSON document.

    until: seconds since the epoch, for people; None without an end. due: the same moment by the server's monotonic
    clock, which alone ends the lease, so that a step of the other does not. code: why it ends then. idle_due, by the
    same clock: when it is taken back unless its GPUs are used, after they were not for idle_s; else both None.
    """

    until: float | None = None
    due: float | None = None
    code: EndCode = EndCode.TIME
    idle_due: float | None = None
    idle_s: float | None = None

    @property
    def early(self) -> bool:
        """Whether the lease ends before its time."""
        return self.code is not EndCode.TIME

    def text(self) -> str:
        """The file's content."""
        told = {} if self.idle_due is None else {"idle_due": self.idle_due, "idle_s": self.idle_s}
        return json.dumps({"until": self.until, "due": self.due, "code": self.code.value, **told}) + "\n"

    @classmethod
    def read(cls, path: Path) -> Deadline:
        """What the file says. FileNotFoundError where there is none, DamagedDocument where it says nothing of the kind:
        an end that is no moment would never come."""
        fields = Fields.in_file(path)
        # Before the server's start, where the lease's end was so.
        until, due = fields.seconds_or_none("until"), fields.seconds_or_none("due", least=-1e15)
        code = EndCode(fields.text("code", "|".join(one.value for one in EndCode)))
        idle = fields.has("idle_due")
        deadline = cls(
            until, due, code, fields.seconds("idle_due") if idle else None, fields.seconds("idle_s") if idle else None
        )
        fields.end()
        if (until is None) != (due is None):
            fields.refuse("due", "is there without until, or until without due")
        return deadline


def proof(token: str, side: str, nonce: str) -> str:
    """What shows knowledge of the token for this connection; `side` is owner or agent."""
    return hmac.new(token.encode(), f"{side}:{nonce}".encode(), hashlib.sha256).hexdigest()


def proves(answer: str, token: str, side: str, nonce: str) -> bool:
    """Whether `answer` is that proof, compared in constant time."""
    return hmac.compare_digest(answer.encode(), proof(token, side, nonce).encode())


def knock(token: str) -> str:
    """The owner's first line, another one each time."""
    number = secrets.token_hex(16)
    return f"knock {number} {proof(token, 'knock', number)}"


def knocks(rest: str, token: str) -> str:
    """The number of a knock by what follows `knock`, "" where it does not show the token."""
    number, _, shown = rest.partition(" ")
    return number if _NONCE.fullmatch(number) and proves(shown, token, "knock", number) else ""


def nonce_of(greeting: str) -> str:
    """The nonce of an agent's first line, '' when it is none."""
    words = greeting.rsplit(" ", 1)
    return words[1] if len(words) == 2 and words[0] == GREETING and _NONCE.fullmatch(words[1]) else ""


class LineBuffer:
    """Bytes in, whole lines out; `overflow` when the other side sends what is no line of ours."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self._kept = b""
        self.overflow = False

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete now, without their end."""
        *lines, self._kept = (self._kept + data).split(b"\n")
        self.overflow = self.overflow or len(self._kept) > MAX_LINE or any(len(line) > MAX_LINE for line in lines)
        return [line.decode("ascii", "replace").strip() for line in lines]
