"""Faults of a lab's switch: other lines of the port that a node's cable belongs in, until they are cleared."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.lab.leaf.constructed import Block, Spoil


@dataclass(frozen=True)
class LeafFault:
    """What it is, in words, words of the sentence that names it, and what it changes in the port's lines."""

    about: str
    words: str
    spoil: Spoil


def _without(line: str) -> Spoil:
    return lambda block: [one for one in block if one.strip() != line]


def _changed(line: str, other: str) -> Spoil:
    def spoil(block: Block) -> Block:
        return [one.replace(line, other) if one.strip() == line else one for one in block]

    return spoil


def _after(line: str, more: str) -> Spoil:
    def spoil(block: Block) -> Block:
        return [part for one in block for part in ([one, f" {more}"] if one.strip() == line else [one])]

    return spoil


LEAF_FAULTS = {
    "switch-mtu": LeafFault("the node's switch port has an MTU of 1500", "MTU 1500 is less",
                            _changed("mtu 9216", "mtu 1500")),
    "switch-pfc": LeafFault("the node's switch port has no flow control (PFC), and the node has it",
                            "PFC is one-sided", _without("priority-flow-control priority 3")),
    "switch-pfc-two": LeafFault("the node's switch port has flow control (PFC) on a second priority",
                                "PFC is on 2 priorities",
                                _after("priority-flow-control priority 3", "priority-flow-control priority 4")),
    "switch-dscp": LeafFault("the node's switch port does not map the DSCP of RoCE", "DSCP 26 of RoCE is not mapped",
                             _changed("qos-map dscp-tc ROCE", "qos-map dscp-tc STORAGE")),
    "switch-cnp": LeafFault("the node's switch port sends congestion notifications through a queue that is not first",
                            "are in a droppable queue",
                            _changed("scheduler-policy ROCE", "scheduler-policy ROCE-SHARED")),
}  # fmt: skip
