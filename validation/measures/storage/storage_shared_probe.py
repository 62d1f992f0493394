"""Whether nodes see in a shared storage what each of them writes, and whether a lock of one holds for the others.

Each node runs this probe. Some of them write in turn; every other one says when it has read it. `seconds` of a row are
from the end of the write to the writer reading the answer: there and back, by one clock. A `new` name is looked for
from before it exists, which is when a node may remember for long that it is not there.

Locks are flock(2): one node holds it and the others ask; then all count in one file, each turn under the lock.
`stdout`: JSON with `place`, `present`, `seen` (rows of the writes of this node), `missed` (writers that this node
did not hear of), `held` (what this node was told while another held the lock), `count`, `refused`, `silent`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from validation.base.counting import number_of
from validation.probes import ProbeDoc
from validation.probes.storage_meet import COME_S, CONTENT, NEW, Meeting, rounds
from validation.probes.storage_place import Own, clear, looked_at, room
from validation.probes.storage_watch import Say, Tell, watched
from validation.probes.tool import Ran, document

ROUND_S = 5.0  # for a write to be seen: longer is worse than every bound
WRITER_S = 25.0  # for a writer to write
COUNTS = 200  # turns of all nodes together in the file that they count in
LOCK_S = 20.0
ALREADY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
ROOM_BYTES = 16 << 20


@dataclass
class Asked:
    """What is asked of this probe."""

    name: str  # of the storage
    path: str
    node: str
    token: str
    nodes: list[str]
    answer_s: float = 10.0
    filesystem: str = ""


class Watching:
    """The rounds of one node."""

    def __init__(self, meeting: Meeting) -> None:
        """meeting: whose nodes have come."""
        self.meeting = meeting
        self.others = [one for one in meeting.present if one != meeting.node]
        self.rows: list[dict[str, Any]] = []
        self.missed: list[str] = []
        self.begin = time.monotonic()

    def write(self, number: int, what: str) -> None:
        """This node writes; when each of the others has said that it saw it."""
        meeting, ready, told = self.meeting, 2 * number, 2 * number + 1
        listening = meeting.wait_for(self.others, ready, WRITER_S)
        if what == NEW:
            with open(meeting.folder / f"new.{number}", "w") as file:  # noqa: PTH123  # closed: so it is there
                file.write("new")
            done = time.monotonic()
        else:
            done = meeting.write(f"word.{meeting.node}", {"nonce": meeting.nonce, "round": number})
        seen = meeting.wait_for(listening, told, ROUND_S)
        self.rows.append(
            {
                "what": what,
                "done_s": round(done - self.begin, 6),
                "told_s": {other: round(at - self.begin, 6) for other, at in seen.items()},
                "seconds": {other: round(at - done, 6) for other, at in seen.items()},
                "unseen": [one for one in listening if one not in seen],
                "deaf": [one for one in self.others if one not in listening],
            }
        )
        meeting.step(told)

    def listen(self, number: int, writer: str, what: str) -> None:
        """Another node writes; say so when it is seen."""
        meeting = self.meeting
        there = meeting.folder / f"new.{number}"
        if what == NEW:
            there.exists()  # from here on this node may remember that it is not there
        meeting.step(2 * number)
        until = time.monotonic() + (WRITER_S if writer not in self.missed else 0.0) + ROUND_S
        seen = False
        while not seen and meeting.look_until(until):
            if what == NEW:
                seen = there.exists()
                if not seen and meeting.at(writer, 2 * number + 1):  # the writer has given it up
                    break
            else:
                word = meeting.read(f"word.{writer}")
                seen = word.get("nonce") == meeting.nonce_of(writer) and word.get("round", -1) >= number
        if not seen and what == CONTENT:
            self.missed.append(writer)
        meeting.step(2 * number + 1)

    def all(self) -> int:
        """Every round; the step after the last."""
        plan = rounds(self.meeting.present)
        for number, (writer, what) in enumerate(plan, 1):
            if writer == self.meeting.node:
                self.write(number, what)
            else:
                self.listen(number, writer, what)
        return 2 * len(plan) + 2


def _ask(file: int) -> str:
    """What the kernel says to a wish for the lock: `taken`, `refused`, or an error in its words."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        return (
            "refused" if fault.errno in ALREADY else f"{errno.errorcode.get(fault.errno or 0, '?')}: {fault.strerror}"
        )
    return "taken"


def _wait_for_lock(meeting: Meeting, file: int) -> str:
    until = time.monotonic() + LOCK_S
    while (said := _ask(file)) == "refused":
        if not meeting.look_until(until):
            return f"not given in {LOCK_S:g} s"
    return said


def held(meeting: Meeting, step: int) -> dict[str, str]:
    """The first node holds the lock: what each other one is told meanwhile (`meanwhile`), and when it is let go
    (`after`); the holder says what it was told itself."""
    file = os.open(meeting.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    holder = meeting.present[0]
    try:
        if meeting.node == holder:
            said = {"holder": _wait_for_lock(meeting, file)}
            meeting.together(step, LOCK_S)
            meeting.together(step + 1, LOCK_S)  # all have asked
            fcntl.flock(file, fcntl.LOCK_UN)
            meeting.together(step + 2, LOCK_S)
            return said
        meeting.together(step, LOCK_S)
        meanwhile = _ask(file)
        if meanwhile == "taken":
            fcntl.flock(file, fcntl.LOCK_UN)
        meeting.together(step + 1, LOCK_S)
        meeting.together(step + 2, LOCK_S)
        after = _wait_for_lock(meeting, file)
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
        return {"meanwhile": meanwhile, "after": after}
    finally:
        os.close(file)


def counted(meeting: Meeting, step: int) -> dict[str, Any]:
    """All count in one file, each turn under the lock: how often this one did, and what stands there at the end."""
    turns = max(1, COUNTS // len(meeting.present))
    meeting.together(step, LOCK_S)
    done, fault = 0, ""
    for _ in range(turns):
        file = os.open(meeting.folder / "count", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            state = _wait_for_lock(meeting, file)
            if state != "taken":
                fault = state
                break
            number = int(os.pread(file, 32, 0) or b"0")
            os.pwrite(file, str(number + 1).encode(), 0)
            os.fsync(file)
            fcntl.flock(file, fcntl.LOCK_UN)
            done += 1
        finally:
            os.close(file)
    late = meeting.together(step + 1, LOCK_S * 2)
    file = os.open(meeting.folder / "count", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _wait_for_lock(meeting, file)
        total = int(os.pread(file, 32, 0) or b"0")
    finally:
        os.close(file)
    meeting.together(step + 2, LOCK_S)
    return {"turns": turns, "done": done, "total": total, "fault": fault, "late": late}


def probe(args: Asked) -> ProbeDoc:
    """Meet the others and look at each other's files."""

    def work(say: Say, tell: Tell) -> None:
        place = looked_at(args.path, args.filesystem or None)
        say("what an earlier run left", 60.0)
        tell(cleared=clear(args.path))
        say("how much room there is", args.answer_s)
        place.update(room(args.path, ROOM_BYTES, 20 * len(args.nodes)))
        tell(place=place)
        with Own(args.path, args.token, args.node) as own:
            meeting = Meeting(own.meet, args.node, args.nodes)
            try:
                say("meeting the other nodes", COME_S + 30)
                tell(present=meeting.come())
                if len(meeting.present) > 1:
                    number = len(rounds(meeting.present))
                    say("looking for what the others write", number * (WRITER_S + ROUND_S) + 30)
                    watching = Watching(meeting)
                    step = watching.all()
                    tell(seen=watching.rows, missed=watching.missed)
                    say("locks", 12 * LOCK_S)
                    tell(held=held(meeting, step))
                    tell(count=counted(meeting, step + 3))
                    meeting.part(step + 6)
                else:
                    meeting.remove()
            except BaseException:
                meeting.remove()
                raise

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        found = watched(args.path, work, args.answer_s)
        text = json.dumps({"name": args.name, "node": args.node, "path": args.path, **found})
        facts = {"met": number_of(len(found.get("present", [])), "node")}
        return Ran(["storage-shared", args.path], 0, text, ""), facts, None

    return document("storage-shared", "probes", measure, lambda ran: "")
