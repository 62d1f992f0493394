"""Which decoders a training measures, where: on one rank, on a node, and on all nodes."""

from __future__ import annotations

from collections.abc import Sequence

from validation.measures.training.decoder import KIND
from validation.model import Measurement, Node
from validation.plan import training_choice
from validation.plan.request import Part, Request, transport_of
from validation.probes.train_decoders import DECODERS, TINY

WARMUP, STEPS = 5, 35
SEQUENCES = 8  # of a step of the tiny one, over all ranks: those of its recorded curve
BATCH = {"decoder-1b": 8, "decoder-8b": 2}  # sequences of a rank and step, for GPUs of 80 GB
OPTION = "decoders"
START_S, GPU_START_S, STEP_S, GPU_STEP_S = 6.0, 90.0, 0.3, 2.0  # only estimates of the plan


def plan(request: Request, part: Part, head: Node, servers: Sequence[Node], across: bool) -> None:
    """A round for each job. The tiny one is for processors, the others take GPUs."""
    criteria = request.serving(KIND)
    words = request.words.get(OPTION, "")
    if not criteria or not words:
        named = ", ".join(criteria)
        part.leave_out(f"decoders ({named}): none was asked for (--decoders tiny, or 1b,8b on GPUs)", *criteria)
        return
    gpus, each = training_choice.on_gpus(servers), min(n.slots for n in servers)
    for name in training_choice.decoders(words):
        if name != TINY and not gpus:
            part.leave_out(f"{DECODERS[name].title} parameters: the inventory declares no GPU that trains it")
            continue
        counts = {1: 1, each: 1, **({each * len(servers): len(servers)} if across else {})}
        for ranks, nodes in counts.items():
            shardings = ("ddp",) if name != TINY and not DECODERS[name].sharded else ("ddp", "fsdp")
            shardings = ("fsdp",) if DECODERS[name].sharded else shardings
            for sharding in shardings if ranks > 1 else ("ddp",):
                if (DECODERS[name].sharded and ranks == 1) or (name == TINY and SEQUENCES % ranks):
                    continue
                part.rounds.append([_job(request, name, sharding, head, servers[:nodes], ranks, gpus)])


def _job(
    request: Request, name: str, sharding: str, head: Node, hosts: Sequence[Node], ranks: int, gpus: bool
) -> Measurement:
    tiny = name == TINY
    begins, step = (GPU_START_S, GPU_STEP_S) if gpus and not tiny else (START_S, STEP_S)
    estimated = begins + (WARMUP + STEPS) * step
    names = [n.name for n in hosts]
    return Measurement(
        id=f"{KIND}.{name}-{sharding}.{ranks}",
        suite="training",
        kind=KIND,
        nodes=tuple(dict.fromkeys((head.name, *names))),
        params={
            "label": str(ranks),
            "ranks": ranks,
            "ranks_per_node": ranks // len(hosts),
            "hosts": tuple(names),
            "warmup": WARMUP,
            "steps": STEPS,
            "batch": SEQUENCES // ranks if tiny else BATCH[name],
            "transport": transport_of(request, hosts),
            "model": name,
            "precision": "fp32" if tiny else "bf16",
            "device": "cpu" if tiny else "gpu",
            "sharding": sharding,
        },
        criteria=(*request.serving(KIND), *(c.id for c in request.criteria if c.id == "tn.clocks" and not tiny)),
        estimated_s=estimated,
        timeout_s=10 * estimated + 120,
    )
