"""What all nodes read from and write to a shared storage at the same time: each runs this probe.

As `storage-alone` without small files; before each operation the nodes wait for each other, by files in the storage
itself. `stdout` has in addition `present` (the nodes that came), and with each operation `late` (nodes that were not
there when it began) and `waited_s`, and `beside` (storage_beside.py).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from validation.measures.storage import storage_alone_probe as alone
from validation.measures.storage import storage_beside
from validation.probes import ProbeDoc, storage_fio
from validation.probes.storage_meet import COME_S, Meeting
from validation.probes.storage_place import Own
from validation.probes.storage_watch import Say, Tell, watched
from validation.probes.tool import Ran, Stopped, document

WAIT_S = storage_fio.LAYOUT_S + storage_fio.OVER_S
BESIDE_S = 90.0


@dataclass
class Asked(alone.Asked):
    """What is asked of this probe: the same, and which nodes take part."""

    nodes: list[str] = field(default_factory=list)
    address: str = ""  # of this node in the fabric; "": nothing is measured beside the network
    peer: str = ""  # the next node's
    port: int = 5201


def probe(args: Asked) -> ProbeDoc:
    """Measure beside the others."""

    def work(say: Say, tell: Tell) -> None:
        load = alone.ready(args, say, tell, len(args.nodes))
        with Own(args.path, args.token, args.node) as own:
            meeting = Meeting(own.meet, args.node, args.nodes)
            say("meeting the other nodes", COME_S + 30)
            tell(present=meeting.come())
            steps = iter(range(1, len(args.ops) + 2))

            def before(name: str) -> dict[str, Any]:
                say(f"waiting for the other nodes before {name}", WAIT_S + 30)
                begin = time.monotonic()
                late = meeting.together(next(steps), WAIT_S)
                return {"late": late, "waited_s": round(time.monotonic() - begin, 3)}

            try:
                laid = alone.measure_ops(args, load, own, say, tell, before)
                if args.address and laid is not None:
                    say("the network alone, then beside the storage", 2 * (WAIT_S + BESIDE_S))
                    asked = (args.address, args.peer, args.port, args.seconds + args.ramp_s)
                    by = storage_fio.engine()
                    reading = lambda: storage_fio.measure("read", laid, own.folder, by)  # noqa: E731
                    tell(beside=storage_beside.measure(asked, meeting, len(args.ops) + 1, WAIT_S, reading))
                say("leaving the other nodes", 60.0)
                meeting.part(len(args.ops) + 3)
            except (Stopped, OSError):
                meeting.remove()
                raise
            say("removing what was written", 120.0)

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        return alone.report("storage-together", args, watched(args.path, work, args.answer_s))

    return document("storage-together", "fio", measure, lambda ran: "")
