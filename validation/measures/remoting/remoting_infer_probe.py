"""Answers of a network on one GPU, natively on its server and from a client through the engine, in turns, by batch.

Forward passes alone, each waited for. All of it in one lease, as the training of remoting_train.

`stdout`: of each job, under a line `== turn 1 of 2: native 64`, the document of elastic-ai-train. `facts`: server,
emulated, engine, engine_release.
"""

from __future__ import annotations

from dataclasses import dataclass

from validation.measures.remoting import remoting_train_probe
from validation.probes import ProbeDoc


@dataclass
class Asked(remoting_train_probe.Asked):
    """What is asked of this probe."""


def probe(args: Asked) -> ProbeDoc:
    """A digest of the answers, and seconds of each, of every job."""
    return remoting_train_probe.both_ways("remoting-infer", args, "--infer")
