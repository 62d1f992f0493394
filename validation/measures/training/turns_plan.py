"""Training in several ways, in turns: worlds, torchrun, scale-up and scale-out, transports, files, processors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from validation.base.counting import number_of
from validation.measures.training.facts import Cores, Layout
from validation.model import Measurement, Node, Param
from validation.plan import training_choice
from validation.plan.request import Part, Request, transport_of
from validation.plan.training_choice import Choice, Config

KIND = "training-turns"
TURNS = 2
STEPS, VIRTUAL_STEPS, VIRTUAL_WARMUP = 50, 20, 3  # of each turn: together the 100 steps of the short test
MOST_NODES = 8  # of a layout: the whitepaper's world is 8 GPUs
CORES, VIRTUAL_CORES = (1, 2, 4, 8, 16), (1, 2)  # of each rank
SHOWS = {"rdma": "vgg16", "input": "alexnet"}
"""Networks that show it where ResNet-50 hardly does: horovod pull request 44; Dell whitepaper 2019, section 7.4.2."""
CRITERIA = {
    "scale": ("tn.turns", "tn.twin"),
    "outup": ("tn.outup",),
    "rdma": ("tn.rdma",),
    "gdr": ("tn.gdr",),
    "input": ("tn.cpu", "tn.cores"),
}
JOB_S, VIRTUAL_JOB_S = 45.0, 6.0  # one job of one turn; only estimates of the plan


def plan(
    request: Request, part: Part, choice: Choice, head: Node, servers: Sequence[Node], across: bool, data: str
) -> None:
    """Rounds of one measurement each; what is not planned is left out with its criteria and the reason."""
    wanted = request.serving(KIND)
    ids = {name: tuple(c for c in of if c in wanted) for name, of in CRITERIA.items()}
    several, first = list(servers) if across else [], servers[0]
    each = min(n.slots for n in servers)
    shared = all(n.virtual for n in servers)  # processors of one host, which more ranks would only wait for
    if shared and several and ids["scale"]:
        part.leave_out("training in turns in a rehearsal: numbers of ranks are those of nodes, one rank of each")
    if request.options.get("quick"):
        every = [c for of in ids.values() for c in of]
        if every:
            part.leave_out("training in turns: only where the run is not to be quick", *every)
        return
    ways: dict[str, tuple[str, ...]] = {
        "scale": worlds(1 if shared else each, len(several)),
        "outup": layouts(each, len(several)),
        "rdma": ("rdma", "tcp") if several and transport_of(request, several) != "tcp" else (),
        "input": ("synthetic", "real", *(str(Cores(n)) for n in (VIRTUAL_CORES if first.virtual else CORES))),
    }
    ways["gdr"] = ("gdr-on", "gdr-off") if ways["rdma"] and training_choice.on_gpus(servers) else ()
    for name, why in _why_not(request, several, each, bool(ways["rdma"])).items():
        if ids[name] and not ways[name]:
            part.leave_out(f"{why}", *ids[name])
    for name in CRITERIA:
        if not ids[name] or not ways[name]:
            continue
        hosts, ranks = ([first], first.slots) if name == "input" else (several, each)
        if shared and name != "outup":
            ranks = 1
        for config in _configs(choice, servers, name):
            part.rounds.append([_job(request, name, config, head, hosts, ranks, ways[name], ids[name], data)])


def layouts(each: int, nodes: int) -> tuple[str, ...]:
    """One world on one node and on several: `1x8`, `2x4`, `4x2`; none where there is nothing to compare.

    `each`: ranks that fit on a node, `nodes`: how many there are.
    """
    counts = [n for n in (1, 2, 4, 8) if n <= min(nodes, MOST_NODES) and each % n == 0]
    return tuple(str(Layout(n, each // n)) for n in counts) if len(counts) > 1 else ()


def worlds(each: int, nodes: int) -> tuple[str, ...]:
    """One rank, all of a node, all of all nodes by mpirun and by torchrun; none where one server trains alone.

    `each`: ranks that fit on a node, `nodes`: how many there are.
    """
    found = (*map(str, (Layout(1, 1), Layout(1, each), Layout(nodes, each))), "torchrun")
    return tuple(dict.fromkeys(found)) if nodes > 1 else ()


def _why_not(request: Request, several: Sequence[Node], each: int, rdma: bool) -> dict[str, str]:
    """Why each of them is not planned, where it is not."""
    alone = "there are no two GPU servers of different hosts"
    bare = ", ".join(n.name for n in several if not n.ports[0].rdma)
    no_port = f"the first fabric port of {bare} is TCP-only" if bare else f"{request.fabric.name} has no RDMA"
    return {
        "scale": f"numbers of ranks in turns (tn.turns), and torchrun beside mpirun (tn.twin): {alone}",
        "outup": "scale-up against scale-out (tn.outup): "
        + (alone if not several else f"{number_of(each, 'rank')} of a server cannot be shared by two"),
        "rdma": "training over RDMA beside TCP (tn.rdma): " + (no_port if several else alone),
        "gdr": "training with and without GPUDirect (tn.gdr): "
        + ("the inventory declares no GPUs" if rdma else no_port if several else alone),
        "input": "training on files (tn.cpu)",
    }


def _configs(choice: Choice, servers: Sequence[Node], name: str) -> tuple[Config, ...]:
    """What was asked for; by default also the network that shows it, on GPUs."""
    found = choice.configs(servers)
    shows = SHOWS.get(name)
    if choice.models or shows is None or not training_choice.on_gpus(servers):
        return found
    more = Choice((shows,), choice.batches, choice.gpus, choice.precisions)
    return tuple(dict.fromkeys((*more.configs(servers), *found)))


def _job(
    request: Request,
    name: str,
    config: Config,
    head: Node,
    hosts: Sequence[Node],
    ranks: int,
    ways: tuple[str, ...],
    criteria: tuple[str, ...],
    data: str,
) -> Measurement:
    virtual = all(n.virtual for n in hosts)
    gpus = training_choice.on_gpus(hosts)
    steps = request.options.get("steps", VIRTUAL_STEPS * TURNS if virtual else STEPS * TURNS)
    params: Mapping[str, Param] = {
        "label": name,
        "ways": ways,
        "turns": TURNS,
        "ranks": ranks if name == "outup" else ranks * len(hosts),  # of outup: one world, on fewer or more of them
        "ranks_per_node": ranks,
        "hosts": tuple(n.name for n in hosts),
        "warmup": request.options.get("warmup", VIRTUAL_WARMUP if virtual else 10),
        "steps": max(1, steps // TURNS),
        "batch": config.batch,
        "transport": transport_of(request, hosts),
        "model": config.model,
        "precision": config.precision,
        "device": "gpu" if gpus else "cpu" if virtual else "any",
    }
    estimated = len(ways) * TURNS * (VIRTUAL_JOB_S if virtual else JOB_S)
    return Measurement(
        id=f"{KIND}.{config.prefix}{name}",
        suite="training",
        kind=KIND,
        nodes=tuple(dict.fromkeys((head.name, *(n.name for n in hosts)))),
        params={**params, **({"data": data} if data else {})},
        criteria=criteria,
        estimated_s=estimated,
        timeout_s=10 * estimated + 120,
    )
