"""From what a node's GPUs and kernel report to what is wrong and what mends it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from validation.base.counting import number_of
from validation.measures.gpu.health import GpuHealthFacts, GpuReading
from validation.measures.gpu.xid_table import meaning

Cure = Literal["reset", "reboot", "replace"]
"""What mends it: a reset of the GPUs, a restart of the node, another part."""
WORST: tuple[Cure, ...] = ("replace", "reboot", "reset")


class Fault(BaseModel):
    """One thing that is wrong. `lasting`: it is a state and not an event, so it counts when two readings show it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cure: Cure
    words: str
    lasting: bool = False


class Seen(BaseModel):
    """What is remembered of a node between two readings. `boot`, `newest_us`: up to where its kernel log was judged.
    `states`: lasting faults of the last reading, which is when they are first seen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    boot: str = ""
    newest_us: int = 0
    states: tuple[str, ...] = ()


def judged(facts: GpuHealthFacts, seen: Seen | None, gpus: int) -> tuple[list[Fault], Seen]:
    """What is wrong now, and what to remember. `gpus`: how many Slurm gives out there, 0 where that is not known.

    At the first look at a node lines that are in its log already are left alone: nobody knows who has dealt with them.
    What is a state counts then too, once a second reading shows the same.
    """
    log = facts.kernel_log
    found = list(_states(facts, gpus))
    if seen is not None:
        since = seen.newest_us if seen.boot == log.boot else 0
        for line in log.lines:
            row = meaning(line.kind, line.code, line.words)
            if line.at_us > since and row.meaning in ("replace", "reset"):
                code = "" if line.code is None else f" {line.code}"
                cure: Cure = "replace" if row.meaning == "replace" else "reset"
                of = f" of {line.address}" if line.address else ""
                found.append(Fault(cure=cure, words=f"Xid{code}{of}: {row.words}"))
    before = seen.states if seen is not None else ()
    states = tuple(fault.words for fault in found if fault.lasting)
    sure = [fault for fault in found if not fault.lasting or fault.words in before]
    newest = max([log.newest_us or 0, *(line.at_us for line in log.lines)])
    return sure, Seen(boot=log.boot, newest_us=newest, states=states)


def _states(facts: GpuHealthFacts, gpus: int) -> Iterator[Fault]:
    if facts.unread:
        yield Fault(cure="reboot", words="the NVIDIA driver does not answer", lasting=True)
        return
    for _ in facts.lost[:1]:
        yield Fault(cure="replace", words=f"GPUs that do not answer: {len(facts.lost)}", lasting=True)
    if len(facts.gpus) + len(facts.lost) < gpus:
        there = len(facts.gpus) + len(facts.lost)
        yield Fault(
            cure="replace", words=f"it has {there} of {number_of(gpus, 'GPU')} that Slurm gives out", lasting=True
        )
    for gpu in facts.gpus:
        yield from _of_gpu(gpu)


def _of_gpu(gpu: GpuReading) -> Iterator[Fault]:
    if gpu.memory_unrepairable or gpu.rows_failed:
        yield Fault(cure="replace", words=f"{gpu.words}: its memory cannot be repaired", lasting=True)
    elif gpu.rows_pending or gpu.pages_pending or gpu.channel_repair_pending or gpu.tpc_repair_pending:
        yield Fault(cure="reset", words=f"{gpu.words}: a repair waits for a reset", lasting=True)
    if gpu.ecc_uncorrected:
        yield Fault(cure="reset", words=f"{gpu.words}: uncorrectable memory errors", lasting=True)


def cure_of(faults: Sequence[Fault]) -> Cure:
    """What mends all of them together."""
    cures = {fault.cure for fault in faults}
    return next(one for one in WORST if one in cures)


def reason_of(faults: Sequence[Fault]) -> str:
    """In a line for Slurm."""
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0].words}{more}"
