"""What PyTorch trains where remoting is measured by the engine torch: networks, sizes and batches of the documents on
GPUs; on processors the same layers with few channels and small images, whose rates judge nothing. TensorFlow's are in
plan_tensorflow.

On a rehearsal's further servers one network is enough: what it proves there is that they compute the same. Parts are
held by each server, so that each is cut in every way.
"""

from __future__ import annotations

from typing import NamedTuple

from validation.measures.remoting.remoting_train_probe import VERBS
from validation.model import Measurement, Node, Param
from validation.plan.request import Request

MAIN = "resnet50"
#: Seconds that a process takes before its first step: PyTorch, a session, the network's weights.
PROCESS_S = 5.0
EMULATED_S = 40.0  # the same on an emulated machine, where importing PyTorch takes 20 s
START_S = 10.0
ATTEMPTS_S = 90.0
#: Not of these programs: a model of counted calls, of which PyTorch's are the engine's own.
#: A kernel that fails is the first engine's; by PyTorch a neighbour that is killed is one of the attempts (rm.isolate).
NOT_BY_TORCH = ("rm.model", "rm.fault")


class Size(NamedTuple):
    """Side of an image in pixels, by how much channels are divided, images of a step."""

    side: int
    thin: int
    batches: tuple[str, ...]


REAL = {
    "alexnet": Size(224, 1, ("64", "128", "256", "512")),
    "googlenet": Size(224, 1, ("32", "64", "128")),
    "inception3": Size(299, 1, ("32", "64", "128")),
    "resnet50": Size(224, 1, ("32", "64", "128")),
    "vgg16": Size(224, 1, ("32", "64")),
}
VIRTUAL = {
    "alexnet": Size(63, 8, ("4", "16")),
    "inception3": Size(75, 8, ("2", "8")),
    "resnet50": Size(32, 8, ("2", "8", "32")),
    "vgg16": Size(32, 8, ("4", "16")),
}
#: Steps, after how many the loss is read, turns.
TRAIN_REAL, TRAIN_VIRTUAL = (41, 10, 2), (13, 4, 2)
INFER_REAL, INFER_VIRTUAL = (201, 1, 2), (31, 1, 2)
ANSWERS_REAL, ANSWERS_VIRTUAL = ("1", "8", "64"), ("1", "8")

#: Parts of one GPU, in words of `toolkit run -p`.
WHOLES = (3 * ("1/3",), 2 * ("1/2",), 4 * ("1/4",), 7 * ("1/7",), ("3/4", "1/4"))
#: Tenants: the network's size, images of a step, steps, turns. A seventh of an emulated GPU has 36 MiB.
SHARES_REAL, SHARES_VIRTUAL = (16, 201, 10, 3), (4, 61, 4, 1)

#: Beside a neighbour that does its worst: images of a step of each, steps, after how many the loss is read, turns.
BESIDE_REAL, BESIDE_VIRTUAL = (16, 128, 201, 10, 3), (4, 32, 41, 4, 1)
#: Which gives its GPU: images of a step, milliseconds of a step at least; steps of the one that takes it, and of the
#: first after it has gone on; after how many the loss is read.
MOVE_REAL, MOVE_VIRTUAL = (32, 100, 41, 1), (4, 200, 9, 1)
MOVE_S = 240.0  # a grace, the servers' next look, and three leases

#: On several GPUs: images of a step on each, steps, after how many the loss is read, turns.
WORLDS_REAL, WORLDS_VIRTUAL = (64, 41, 10, 2), (4, 9, 4, 1)


def load_of(network: str, size: Size, every: int) -> tuple[str, ...]:
    """The program's options."""
    return ("--network", network, "--side", str(size.side), "--thin", str(size.thin), "--every", str(every))


def sized(network: str, size: Size, every: int, of: tuple[str, ...] = ()) -> dict[str, Param]:
    """Parameters that say what is trained; of: the options that name the framework, none of PyTorch."""
    return {
        "load": (*of, *load_of(network, size, every)),
        "inputs": 3 * size.side**2,
        "hidden": max(1, 64 // size.thin),
    }


def carried_by(server: Node) -> dict[str, Param]:
    """The parameter of a training that says what its bytes go by, where that is no TCP."""
    return {"transport": server.remoting_transport} if server.remoting_transport == VERBS else {}


def one(
    request: Request,
    kind: str,
    label: str,
    nodes: tuple[str, ...],
    params: dict[str, Param],
    estimated: float,
    without: tuple[str, ...] = NOT_BY_TORCH,
) -> Measurement:
    """A measurement. without: criteria that it does not serve; as given those that are not for PyTorch."""
    return Measurement(
        id=f"{kind}.{label}",
        suite="remoting",
        kind=kind,
        nodes=nodes,
        params=params,
        criteria=tuple(c for c in request.serving(kind) if c not in without),
        estimated_s=round(estimated, 1),
        timeout_s=round(5 * estimated + 240, 1),
    )


def training(
    request: Request,
    client: Node,
    server: Node,
    load: dict[str, Param],
    batches: tuple[str, ...],
    name: str,
    begins_s: float = 1.0,
) -> Measurement:
    """A training natively and through the engine. begins_s: of each batch size, beside its steps."""
    virtual = client.virtual or server.virtual
    steps, _, turns = TRAIN_VIRTUAL if virtual else TRAIN_REAL
    params: dict[str, Param] = {"server": server.name, "batches": batches, "turns": turns, "steps": steps, **load}
    each_s = begins_s if virtual else begins_s + steps * 0.4
    process_s = EMULATED_S if client.emulated or server.emulated else PROCESS_S
    estimated = START_S + 2 * turns * (process_s + len(batches) * (each_s + (process_s - PROCESS_S) / 4))
    label = f"{client.name}.{server.name}.{name}"
    return one(request, "remoting-train", label, (client.name, server.name), params, estimated)


def both_ways(request: Request, client: Node, server: Node, first: bool) -> list[Measurement]:
    """Trainings and answers, natively and through the engine; first: the pool's first server."""
    if not (client.torch_engine and server.torch_engine):
        return []
    virtual = client.virtual or server.virtual
    sizes = VIRTUAL if virtual else REAL
    _, every, _ = TRAIN_VIRTUAL if virtual else TRAIN_REAL
    slow = client.emulated or server.emulated
    networks = [name for name in sizes if (first and not slow) or not virtual or name == MAIN]
    made = [
        training(
            request, client, server, sized(name, sizes[name], every) | carried_by(server), sizes[name].batches, name
        )
        for name in networks
    ]
    steps, every, turns = INFER_VIRTUAL if virtual else INFER_REAL
    batches = ANSWERS_VIRTUAL if virtual else ANSWERS_REAL
    params: dict[str, Param] = {"server": server.name, "batches": batches, "turns": turns, "steps": steps}
    params |= sized(MAIN, sizes[MAIN], every)
    estimated = START_S + 2 * turns * (PROCESS_S + len(batches) * 2.0)
    label = f"{client.name}.{server.name}.{MAIN}"
    made.append(one(request, "remoting-infer", label, (client.name, server.name), params, estimated))
    return [m for m in made if m.criteria]


def shares(request: Request, client: Node, server: Node) -> list[Measurement]:
    """Tenants on parts of a GPU, together beside the whole."""
    if not (client.torch_engine and server.torch_engine):
        return []
    virtual = client.virtual or server.virtual
    batch, steps, every, turns = SHARES_VIRTUAL if virtual else SHARES_REAL
    size = (VIRTUAL if virtual else REAL)[MAIN]
    made = []
    for whole in WHOLES:
        params: dict[str, Param] = {"server": server.name, "parts": whole, "turns": turns, "steps": steps}
        params |= {"batch": batch, **sized(MAIN, size, every)}
        label = f"{client.name}.{server.name}.{MAIN}.{'_'.join(whole).replace('/', '-')}"
        estimated = START_S + turns * (1 + len(whole)) * PROCESS_S
        made.append(one(request, "remoting-shares", label, (client.name, server.name), params, estimated))
    return [m for m in made if m.criteria]


def attempts(request: Request, client: Node, server: Node, elsewhere: str) -> list[Measurement]:
    """Memory of parts, and attempts on their isolation, by PyTorch programs."""
    if not (client.torch_engine and server.torch_engine):
        return []
    label = f"{client.name}.{server.name}.torch"
    made = []
    for whole in WHOLES:
        params: dict[str, Param] = {"server": server.name, "parts": whole, "engine": "torch"}
        name, nodes = f"{label}.{'_'.join(whole).replace('/', '-')}", (client.name, server.name)
        made.append(one(request, "remoting-fraction", name, nodes, params, START_S + PROCESS_S * len(whole)))
    params = {"server": server.name, "elsewhere": elsewhere, "engine": "torch"}
    nodes_ = (client.name, server.name, *([elsewhere] if elsewhere else []))
    made.append(one(request, "remoting-isolate", label, nodes_, params, ATTEMPTS_S))
    return [m for m in made if m.criteria]


def neighbours(request: Request, client: Node, server: Node) -> list[Measurement]:
    """A tenant of half a GPU, alone and beside a neighbour that trains with large batches without end."""
    if not (client.torch_engine and server.torch_engine):
        return []
    virtual = client.virtual or server.virtual
    batch, noise, steps, every, turns = BESIDE_VIRTUAL if virtual else BESIDE_REAL
    params: dict[str, Param] = {"server": server.name, "turns": turns, "steps": steps, "batch": batch, "noise": noise}
    params |= sized(MAIN, (VIRTUAL if virtual else REAL)[MAIN], every)
    label, estimated = f"{client.name}.{server.name}.{MAIN}", START_S + turns * 5 * PROCESS_S
    made = one(request, "remoting-neighbours", label, (client.name, server.name), params, estimated)
    return [made] if made.criteria else []


def move(request: Request, client: Node, servers: list[Node], safe_s: float) -> list[Measurement]:
    """From the first server to the second, where there is one."""
    nodes = (client, *servers[:2])
    if not all(node.torch_engine for node in nodes):
        return []
    virtual = any(node.virtual for node in nodes)
    batch, pace_ms, steps, every = MOVE_VIRTUAL if virtual else MOVE_REAL
    params: dict[str, Param] = {"server": servers[0].name, "elsewhere": servers[1].name if len(servers) > 1 else ""}
    params |= {"batch": batch, "pace_ms": pace_ms, "steps": steps, "safe_s": safe_s}
    params |= sized(MAIN, (VIRTUAL if virtual else REAL)[MAIN], every)
    made = one(request, "remoting-move", f"{client.name}.{MAIN}", tuple(n.name for n in nodes), params, MOVE_S)
    return [made] if made.criteria else []


def worlds(request: Request, client: Node, servers: list[Node]) -> list[Measurement]:
    """One training on several GPUs: over more and more servers, and in layouts."""
    if not all(node.torch_engine for node in (client, *servers)):
        return []
    virtual = any(node.virtual for node in (client, *servers))
    batch, steps, every, turns = WORLDS_VIRTUAL if virtual else WORLDS_REAL
    size = (VIRTUAL if virtual else REAL)[MAIN]
    params: dict[str, Param] = {"turns": turns, "batch": batch, "steps": steps, **sized(MAIN, size, every)}
    names = tuple(node.name for node in servers)
    near, far = names[0], names[1] if len(names) > 1 else ""
    estimated = START_S + turns * 4 * (2 * PROCESS_S + 0.4 * steps)
    scaled: dict[str, Param] = {"servers": names, **params}
    laid_out: dict[str, Param] = {"server": near, "other": far, **params}
    made = [
        one(request, "remoting-scale", f"{client.name}.{MAIN}", (client.name, *names), scaled, estimated),
        one(request, "remoting-layout", f"{'+'.join(names[:2])}.{MAIN}", names[:2], laid_out, estimated),
    ]
    return [m for m in made if m.criteria]
