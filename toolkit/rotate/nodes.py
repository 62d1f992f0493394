"""The machines of a site, asked at once by ssh; what is secret goes through ssh alone and is written nowhere here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.node import sent
from toolkit.node.head import Head
from toolkit.rotate import there
from validation.base.errors import ToolkitError
from validation.model import Node, Topology

AT_ONCE = 32
TIMEOUT_S = 120.0
GROUPS = ("heads", "gpu_servers", "clients")
AGAIN = "; run the same command again"
Say = Callable[[str], None]
Faults = dict[str, str]
"""Node -> why."""


class RotationFault(ToolkitError):
    """A rotation that did not come to its end."""

    def __init__(self, what: str, then: str = "") -> None:
        """`what` is; `then`: what to do."""
        super().__init__(what + then, Exit.FAILED)
        self.what = what


def ask(node: Node, verb: str, asked: Mapping[str, Any]) -> dict[str, Any] | str:
    """A verb of `there` on a node; text where it could not be done, as a sentence."""
    return sent.ask(node, there.__file__, asked, TIMEOUT_S, [verb])


class Machines:
    """Head, GPU servers and clients of an inventory."""

    def __init__(self, topology: Topology, without: Sequence[str] = ()) -> None:
        """UsageFault for a node that is to be left out and is not there, and for the head."""
        self.head = Head(topology).node
        every = [node for node in topology.nodes if set(node.groups) & set(GROUPS)]
        names = [node.name for node in every]
        if strange := [name for name in without if name not in names]:
            raise UsageFault(f"--without {strange[0]}: no such node; the inventory has {', '.join(names)}")
        if self.head.name in without:
            raise UsageFault(f"--without {self.head.name}: the head has the key of all others and cannot be left out")
        self.nodes = [node for node in every if node.name not in without]

    def on_head(self, verb: str, **asked: Any) -> dict[str, Any]:
        """A verb on the head. RotationFault where it is not done."""
        said = ask(self.head, verb, asked)
        if isinstance(said, str):
            raise RotationFault(f"{self.head.name}: {said}", AGAIN)
        return said

    def each(
        self, verb: str, asked: Mapping[str, Mapping[str, Any]], at_once: int = AT_ONCE
    ) -> tuple[dict[str, dict[str, Any]], Faults]:
        """A verb on several nodes at once, each with its own request: answers, and why others have none."""
        nodes = [node for node in self.nodes if node.name in asked]
        with ThreadPoolExecutor(max(1, min(at_once, len(nodes)))) as workers:
            said = list(workers.map(lambda node: ask(node, verb, asked[node.name]), nodes))
        pairs = list(zip((node.name for node in nodes), said, strict=True))
        return (
            {name: one for name, one in pairs if not isinstance(one, str)},
            {name: one for name, one in pairs if isinstance(one, str)},
        )

    def all(self, verb: str, at_once: int = AT_ONCE, **asked: Any) -> tuple[dict[str, dict[str, Any]], Faults]:
        """The same request to all nodes."""
        return self.each(verb, {node.name: asked for node in self.nodes}, at_once)


def listed(faults: Mapping[str, str]) -> str:
    """`gpu1: no route to host; gpu2: ...`, at most three of them."""
    words = [f"{name}: {why}" for name, why in sorted(faults.items())]
    more = f"; and {len(words) - 3} more" if len(words) > 3 else ""
    return "; ".join(words[:3]) + more
