"""Nodes that meet in a storage which they share, by nothing but files there.

A file is opened with O_CREAT, read or written, and closed: on NFS that asks the server each time, whereas a name that
was looked for and not there is remembered for up to half a minute. Clocks of nodes are never compared.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from validation.probes.tool import Stopped, stopped

LOOK_S = 0.01
COME_S = 30.0  # for all nodes to come; the launcher starts them together
END_S = 10.0
WRITERS = 8  # of more nodes, so many are spread over all
TURNS = 3  # of each writer
CONTENT, NEW = "content", "new"


def writers(nodes: list[str]) -> list[str]:
    """Those that write: all of few, of many some that are spread."""
    if len(nodes) <= WRITERS:
        return list(nodes)
    return [nodes[at * len(nodes) // WRITERS] for at in range(WRITERS)]


def rounds(nodes: list[str]) -> list[tuple[str, str]]:
    """Writer and what it writes, of each round."""
    each = [CONTENT] * TURNS + [NEW]
    return [(node, what) for node in writers(nodes) for what in each]


class Meeting:
    """One node among `nodes`. `present`: those that answered."""

    def __init__(self, folder: Path, node: str, nodes: list[str]) -> None:
        """`folder`: the same for all of them; made where it is not there."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self.folder, self.node, self.nodes = folder, node, nodes
        self.others = [one for one in nodes if one != node]
        self.present: list[str] = []
        self.nonce = secrets.token_hex(8)

    def read(self, name: str) -> dict[str, Any]:
        """What a file has that another node wrote; nothing where it is not written yet, or is being written."""
        file = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            found = json.loads(os.read(file, 1 << 16) or b"{}")
        except ValueError:
            return {}
        finally:
            os.close(file)
        return found if isinstance(found, dict) else {}

    def write(self, name: str, said: dict[str, Any]) -> float:
        """Write a file whole; when that was done, by this node's monotonic clock."""
        file = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            data = json.dumps(said).encode()
            os.ftruncate(file, 0)
            os.write(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        return time.monotonic()

    def look_until(self, until: float) -> bool:
        """Wait a moment; False when the time is over. Stopped after TERM."""
        if stopped():
            raise Stopped
        time.sleep(LOOK_S)
        return time.monotonic() < until

    def come(self, limit_s: float = COME_S) -> list[str]:
        """Wait for the others; those that are here now (each has answered with what this one wrote just now)."""
        until, seen, said = time.monotonic() + limit_s, dict[str, str](), dict[str, str]()
        self.write(f"hello.{self.node}", {"nonce": self.nonce, "seen": seen})
        here: set[str] = set()
        while True:
            for other in self.others:
                hello = self.read(f"hello.{other}")
                if hello.get("nonce"):
                    seen[other] = str(hello["nonce"])
                if hello.get("seen", {}).get(self.node) == self.nonce:
                    here.add(other)
            if seen != said:
                said = dict(seen)
                self.write(f"hello.{self.node}", {"nonce": self.nonce, "seen": said})
            if len(here) == len(self.others) or not self.look_until(until):
                break
        self.present = [one for one in self.nodes if one == self.node or one in here]
        return self.present

    def at(self, node: str, step: int) -> bool:
        """Whether a node has come to a step."""
        found = self.read(f"at.{node}")
        return found.get("nonce") == self.nonce_of(node) and found.get("step", -1) >= step

    def nonce_of(self, node: str) -> str:
        """By which what a node writes now is told from what it left of an earlier time."""
        return str(self.read(f"hello.{node}").get("nonce"))

    def wait_for(self, nodes: Iterable[str], step: int, limit_s: float) -> dict[str, float]:
        """When (monotonic) each of these nodes was seen at `step`; one that was not seen in time is not there."""
        until, seen, left = time.monotonic() + limit_s, dict[str, float](), list(nodes)
        while left:
            for node in list(left):
                if self.at(node, step):
                    seen[node] = time.monotonic()
                    left.remove(node)
            if left and not self.look_until(until):
                break
        return seen

    def step(self, number: int) -> None:
        """Say that this node is at a step."""
        self.write(f"at.{self.node}", {"nonce": self.nonce, "step": number})

    def together(self, number: int, limit_s: float) -> list[str]:
        """Come to a step and wait until the others are there; those that did not come."""
        self.step(number)
        others = [one for one in self.present if one != self.node]
        seen = self.wait_for(others, number, limit_s)
        return [one for one in others if one not in seen]

    def part(self, number: int) -> None:
        """The end: the first node that came removes the folder when nobody looks into it any more."""
        self.together(number, END_S)
        self.step(number + 1)
        if self.node == self.present[0]:
            self.wait_for([one for one in self.present if one != self.node], number + 1, END_S)
            self.remove()

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
