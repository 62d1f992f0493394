"""What is watched during a witnessed test: nodes by ssh, their links, their BMCs, Slurm on the head. All the time."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from toolkit.node.head import ssh_words
from validation.base import noise
from validation.measures.witness.witnessed import Line
from validation.model import Node
from validation.model.witness import Sense
from validation.probes.redfish import Refused, Session, Unread, target
from validation.probes.redfish_read import Reading

FIRST_S, SILENT_S, AGAIN_S = 12.0, 5.0, 1.0
"""For a login and its first words; after so long without a word a node is silent; between two tries to log in."""
BMC_EVERY_S, BMC_SESSION_S = 3.0, 300.0
_END = "WITNESS END"
SERVES = ("idle", "mixed", "allocated", "completing", "planned", "reserved")

Tell = Callable[[Line], None]


def node_script(ports: Sequence[str], slurm: bool) -> str:
    """What a node's shell prints every second until its reader goes: its boot, its links, Slurm's words on a head."""
    links = "; ".join(
        f"echo WITNESS LINK {shlex.quote(port)} $(cat /sys/class/net/{shlex.quote(port)}/carrier 2>/dev/null || echo 0)"
        for port in ports
    )
    asked = "timeout 3 sinfo --noheader --Node --format='WITNESS SLURM %N %T' 2>/dev/null; " if slurm else ""
    body = f"{links + '; ' if links else ''}{asked}echo {_END} || exit; sleep 1"
    return f"LC_ALL=C; export LC_ALL; while :; do {body}; done"


def slurm_word(state: str) -> str:
    """Slurm's state of a node in three words; what it appends (`idle*`: no answer) means that the node is away."""
    if state.endswith("*"):
        return "down"
    plain = state.rstrip("~#!%$@^-+").lower()
    return "serves" if plain in SERVES else "drained" if plain.startswith("drain") else "down"


class Senses:
    """All of a site's, each a thread. `tell` gets what changed, one at a time, the first reading of each thing too."""

    def __init__(self, nodes: Sequence[Node], bmcs: Mapping[str, object], tell: Tell) -> None:
        """`bmcs`: what the inventory declares of them, by node."""
        self._tell, self._gate, self._over = tell, threading.Lock(), threading.Event()
        self._now: dict[tuple[str, str, str], str] = {}
        self._first: set[str] = set()
        self._slurm_sees = False
        self._names = {f"node {node.name}" for node in nodes} | {f"bmc {name}" for name in bmcs}
        self._threads = [threading.Thread(target=self._node, args=(node,), daemon=True) for node in nodes]
        self._threads += [threading.Thread(target=self._bmc, args=(name, given), daemon=True)
                          for name, given in bmcs.items()]  # fmt: skip

    def __enter__(self) -> Senses:
        """Begin to watch."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *fault: object) -> None:
        """End; what runs on nodes ends with its ssh."""
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=3)

    def ready(self) -> bool:
        """Whether everything has answered once, or has been found silent."""
        with self._gate:
            return self._names <= self._first

    def put(self, sense: Sense, node: str, what: str, value: str) -> None:
        """A reading; told where it is another than before."""
        with self._gate:
            key = (sense, node, what)
            if self._now.get(key) != value:
                self._now[key] = value
                self._tell(Line(at=round(time.time(), 3), sense=sense, node=node, what=what, value=value))

    def _done(self, name: str) -> None:
        with self._gate:
            self._first.add(name)

    def _node(self, node: Node) -> None:
        script = node_script([port.interface for port in node.ports], "heads" in node.groups)
        words = [*ssh_words(node.ssh), "-o", "ConnectTimeout=4", f"exec sh -c {shlex.quote(script)}"]
        words.insert(1, "-T")
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                self._read(node, words)
            if not self._over.is_set():
                self.put("node", node.name, "", "silent")
                self._done(f"node {node.name}")
            self._over.wait(AGAIN_S)

    def _read(self, node: Node, words: Sequence[str]) -> None:
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
        ) as process:  # fmt: skip
            try:
                assert process.stdout is not None
                self._lines(node, process.stdout.fileno())
            finally:
                process.kill()

    def _lines(self, node: Node, stream: int) -> None:
        held, patience = b"", FIRST_S
        heard = time.monotonic()
        while not self._over.is_set() and time.monotonic() - heard < patience:
            if not select.select([stream], [], [], 0.5)[0]:
                continue
            chunk = os.read(stream, 1 << 16)
            if not chunk:
                return
            *lines, held = (held + chunk[-(1 << 16) :]).split(b"\n")
            for line in lines:
                if self._line(node, noise.printable(line.decode("utf-8", "replace"))):
                    heard, patience = time.monotonic(), SILENT_S

    def _line(self, node: Node, line: str) -> bool:
        """Whether it was the last of a round, which shows that the node answers."""
        words = line.split()
        if words[:2] == ["WITNESS", "LINK"] and len(words) == 4:
            self.put("link", node.name, words[2], "up" if words[3] == "1" else "down")
        elif words[:2] == ["WITNESS", "SLURM"] and len(words) == 4:
            self.put("slurm", words[2], "", slurm_word(words[3]))
        elif line == _END:
            self.put("node", node.name, "", "answers")
            self._done(f"node {node.name}")
            return True
        return False

    def _bmc(self, name: str, given: object) -> None:
        while not self._over.is_set():
            try:
                with Session(target(given), BMC_SESSION_S) as session:
                    until = time.monotonic() + BMC_SESSION_S - 30
                    while not self._over.is_set() and time.monotonic() < until:
                        for what, value in Reading(session).power_states().items():
                            self.put("bmc", name, what, noise.printable(value)[:60])
                        self._done(f"bmc {name}")
                        self._over.wait(BMC_EVERY_S)
            except (Refused, Unread):
                self._done(f"bmc {name}")
            self._over.wait(BMC_EVERY_S)
