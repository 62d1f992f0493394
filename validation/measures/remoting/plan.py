"""Remoting: copies through the engine, attempts on isolation, fractions of memory, tenants that train on parts of a
GPU and beside noisy and failing neighbours, trainings and answers remotely and natively, on one GPU and on several; by
the users' own commands.
"""

from __future__ import annotations

from collections.abc import Sequence

from validation.measures.remoting import plan_here, plan_pooled, plan_tensorflow, plan_torch
from validation.measures.remoting.remoting_scale_probe import prefixes
from validation.measures.remoting.remoting_train_probe import VERBS
from validation.model import Measurement, Node, Param
from validation.plan.request import Part, Request, Suite

#: Bytes of a copy, timed copies, copies of 4 bytes. Emulated devices are small, and their figures judge nothing.
REAL = (64 << 20, 9, 200)
VIRTUAL = (2 << 20, 3, 20)
WHOLES = (2 * ("1/2",), 4 * ("1/4",), 7 * ("1/7",), ("3/4", "5/20"))
#: Trainings in turns: numbers of an image, width of the network, steps, turns, batches. On real GPUs 6 x 1024 x 8192
#: operations for an image of 4 KiB, 12 000 for each byte; ResNet-50 has 40 000 (24.6e9 for 600 kB in fp32), so that the
#: network counts for more here. On emulated GPUs something that ends soon.
TRAIN_REAL = (1024, 8192, 40, 3, ("8", "32", "128", "512"))
TRAIN_VIRTUAL = (64, 32, 12, 2, ("8", "32", "64"))
#: Tenants on parts of a GPU: numbers of an image, width, batch, steps, turns. Of seven tenants on two busy processors
#: one of 60 steps had ended before another began, in one turn of eight; those of 240 had half a second together.
SHARES_REAL = (1024, 8192, 32, 200, 4)
SHARES_VIRTUAL = (64, 32, 32, 240, 1)
#: Trainings on several GPUs: numbers of an image, width, images of a step on each GPU, steps, turns.
WORLDS_REAL = (1024, 8192, 128, 40, 3)
WORLDS_VIRTUAL = (64, 32, 32, 12, 2)
#: Answers: numbers of an image, width, steps, turns, batches.
INFER_REAL = (1024, 8192, 400, 3, ("1", "8", "64"))
INFER_VIRTUAL = (64, 32, 101, 2, ("1", "8", "64"))
#: A tenant beside its neighbours: numbers of an image, width, batch, its noisy neighbour's batch, steps, turns.
BESIDE_REAL = (1024, 8192, 32, 512, 1000, 3)
BESIDE_VIRTUAL = (64, 32, 32, 512, 600, 1)
#: A program that gives its GPU: images of a step, numbers of an image, width, milliseconds of a step at least; steps of
#: the one that takes it, and of the first after it has gone on.
MOVE_REAL = (32, 1024, 8192, 50, 100)
MOVE_VIRTUAL = (32, 64, 32, 50, 40)
#: The longest time after its start in which a lease cannot be taken that is waited for: half an hour of a policy's
#: would be half an hour of the whole pool's.
SAFE_S = 300.0
#: What is measured between emulated machines: that data and a training go by verbs and arrive as they were sent. What
#: else leases must do is shown by labs of containers within minutes.
TRAIN = "remoting-train"
EMULATED_KINDS = ("remoting-copy", TRAIN)
MOVE_S = 240.0  # a grace, the servers' next look, and three leases
TRAIN_S = 12.0  # a job: its start through the scheduler or the engine, its data, its steps
START_S = 10.0  # a lease's way through the scheduler
ISOLATE_S = 60.0
SENT_BYTES = 1 << 20  # to the GPU and back, by the program that runs natively, remotely and on a part


def plan(request: Request) -> Part:
    """One measurement at a time: each needs GPU servers to itself."""
    if request.topology.here is not None:
        return plan_here.plan(request, request.topology.here)
    part = Part()
    clients = [n for n in request.topology.nodes if "clients" in n.groups]
    servers = [n for n in request.topology.nodes if "gpu_servers" in n.groups]
    if not clients or not servers:
        part.leave_out(f"remoting: no node in group {'clients' if not clients else 'gpu_servers'}")
        return part
    if servers[0].remoting_transport == VERBS:
        return _by_verbs(request, part, clients, servers)
    return _from(request, part, clients, servers)


def _by_verbs(request: Request, part: Part, clients: list[Node], servers: list[Node]) -> Part:
    """From the clients with an RDMA port; where none has one, from the last GPU server, whose own GPUs are left out."""
    able = [n for n in clients if any(port.rdma for port in n.ports)]
    unable = ", ".join(n.name for n in clients if n not in able)
    why = f"remoting from {unable}: the pool's leases go by verbs, and it has no fabric port with RDMA"
    if able or len(servers) < 2:
        if unable:
            part.leave_out(why)
        return _from(request, part, able, servers) if able else part
    part.leave_out(f"{why}; {servers[-1].name} is the client instead")
    _from(request, part, servers[-1:], servers[:-1])
    if slow := [n.name for n in servers if n.emulated]:
        part.rounds = [r for r in part.rounds if r[0].kind in EMULATED_KINDS]
        left = tuple(c.id for c in request.criteria if c.suite == "remoting" and c.kind not in EMULATED_KINDS)
        part.leave_out(f"the processors of {', '.join(slow)} are emulated: each lease takes them many seconds", *left)
    return part


def _from(request: Request, part: Part, clients: list[Node], servers: list[Node]) -> Part:
    """All measurements from these clients."""
    for client in clients:
        part.rounds.append([_copies(request, client, servers)])
    part.rounds.append([_scale(request, clients[0], servers)])
    part.rounds.append([_layout(request, servers)])
    part.rounds += [[m] for m in plan_torch.worlds(request, clients[0], servers)]
    # every server is tried, by one client each: the clients differ in nothing that these find
    for number, server in enumerate(servers):
        client = clients[number % len(clients)]
        others = [n.name for n in servers if n is not server]
        if not others:
            part.leave_out("remoting: no attempt from a machine without a lease: there is only one GPU server")
        params: dict[str, Param] = {"server": server.name, "elsewhere": others[0] if others else ""}
        nodes = (client.name, server.name, *others[:1])
        label = f"{client.name}.{server.name}"
        part.rounds.append([_one(request, "remoting-isolate", label, nodes, params, ISOLATE_S)])
        for whole in WHOLES:
            label = f"{client.name}.{server.name}.{'_'.join(whole).replace('/', '-')}"
            cut: dict[str, Param] = {"server": server.name, "parts": whole}
            estimated = START_S + 2.0 * len(whole)
            part.rounds.append([_one(request, "remoting-fraction", label, (client.name, server.name), cut, estimated)])
            part.rounds.append([_shares(request, client, server, whole)])
        for kind, sizes in (
            (TRAIN, (TRAIN_REAL, TRAIN_VIRTUAL)),
            ("remoting-infer", (INFER_REAL, INFER_VIRTUAL)),
        ):
            part.rounds.append([_both_ways(request, kind, client, server, *sizes)])
        elsewhere = others[0] if others else ""
        part.rounds += [[m] for m in plan_torch.attempts(request, client, server, elsewhere)]
        part.rounds += [[m] for m in plan_torch.both_ways(request, client, server, number == 0)]
        part.rounds += [[m] for m in plan_tensorflow.trainings(request, client, server, number == 0)]
        part.rounds += [[m] for m in plan_torch.shares(request, client, server)]
        part.rounds.append([_neighbours(request, client, server)])
        part.rounds += [[m] for m in plan_torch.neighbours(request, client, server)]
        cuts: dict[str, Param] = {"server": server.name, "wholes": tuple("+".join(whole) for whole in WHOLES)}
        estimated = 2 * START_S + 2.0 * sum(map(len, WHOLES))
        label = f"{client.name}.{server.name}"
        part.rounds.append([_one(request, "remoting-noreboot", label, (client.name, server.name), cuts, estimated)])
        part.rounds.append([_unchanged(request, client, server)])
    part.rounds.append([_move(request, clients[0], servers)])
    part.rounds += [[m] for m in plan_torch.move(request, clients[0], servers, SAFE_S)]
    plan_pooled.add(request, part, clients[0], servers)
    part.rounds = [r for r in part.rounds if r[0].criteria]
    _say_frameworks(part, (*clients, *servers))
    return part


def _say_frameworks(part: Part, nodes: Sequence[Node]) -> None:
    """Which of the frameworks' programs nothing is measured by, or not everywhere. Their criteria have others."""
    for title, engine, there in (
        ("PyTorch", "torch", [node.torch_engine for node in nodes]),
        ("TensorFlow", "tensorflow", [node.tensorflow_engine for node in nodes]),
    ):
        without = [node.name for node, has in zip(nodes, there, strict=True) if not has]
        if without:
            where = ", ".join(without)
            part.leave_out(f"remoting by {title}: remoting_engine_{engine}_artifact is not set for {where}")


def _copies(request: Request, client: Node, servers: list[Node]) -> Measurement:
    size, repeat, count = VIRTUAL if any(n.virtual for n in (client, *servers)) else REAL
    pairs = (sum(n.gpus or n.slots for n in servers) + 1) ** 2
    estimated = START_S + pairs * (repeat + 3) * (0.02 + size / 1e9) + pairs * count * 0.0005
    params: dict[str, Param] = {
        "servers": tuple(n.name for n in servers),
        "size_bytes": size,
        "repeat": repeat,
        "latency_count": count,
    }
    nodes = (client.name, *(n.name for n in servers))
    return _one(request, "remoting-copy", client.name, nodes, params, estimated)


Sizes = tuple[int, int, int, int, tuple[str, ...]]


def _both_ways(request: Request, kind: str, client: Node, server: Node, real: Sizes, virtual: Sizes) -> Measurement:
    inputs, hidden, steps, turns, batches = virtual if client.virtual or server.virtual else real
    params: dict[str, Param] = {
        "server": server.name,
        "batches": batches,
        "turns": turns,
        "steps": steps,
        "inputs": inputs,
        "hidden": hidden,
    }
    estimated = START_S + 2 * turns * len(batches) * TRAIN_S
    if kind == TRAIN:
        params |= plan_torch.carried_by(server)
    label = f"{client.name}.{server.name}"
    return _one(request, kind, label, (client.name, server.name), params, estimated)


def _neighbours(request: Request, client: Node, server: Node) -> Measurement:
    virtual = client.virtual or server.virtual
    inputs, hidden, batch, noise, steps, turns = BESIDE_VIRTUAL if virtual else BESIDE_REAL
    params: dict[str, Param] = {"server": server.name, "turns": turns, "steps": steps, "batch": batch, "noise": noise}
    params |= {"inputs": inputs, "hidden": hidden}
    estimated = START_S + turns * 6 * TRAIN_S
    label = f"{client.name}.{server.name}"
    return _one(request, "remoting-neighbours", label, (client.name, server.name), params, estimated)


def _worlds(virtual: bool) -> dict[str, Param]:
    inputs, hidden, batch, steps, turns = WORLDS_VIRTUAL if virtual else WORLDS_REAL
    return {"turns": turns, "batch": batch, "steps": steps, "inputs": inputs, "hidden": hidden}


def _scale(request: Request, client: Node, servers: list[Node]) -> Measurement:
    nodes = (client, *servers)
    params = {"servers": tuple(n.name for n in servers), **_worlds(any(n.virtual for n in nodes))}
    jobs = int(str(params["turns"])) * (1 + len(prefixes(len(servers))))
    gpus = sum(n.gpus or n.slots for n in servers)
    estimated = START_S + jobs * (TRAIN_S + 0.5 * gpus)
    return _one(request, "remoting-scale", client.name, tuple(n.name for n in nodes), params, estimated)


def _layout(request: Request, servers: list[Node]) -> Measurement:
    """From the first server, whose own GPUs are the native ones; the second's are the remote ones."""
    nodes = servers[:2]
    near, far = nodes[0].name, nodes[1].name if len(nodes) > 1 else ""
    params: dict[str, Param] = {"server": near, "other": far, **_worlds(any(n.virtual for n in nodes))}
    estimated = 3 * START_S + int(str(params["turns"])) * 4 * (TRAIN_S + START_S)
    return _one(
        request, "remoting-layout", "+".join(n.name for n in nodes), tuple(n.name for n in nodes), params, estimated
    )


def _shares(request: Request, client: Node, server: Node, whole: tuple[str, ...]) -> Measurement:
    virtual = client.virtual or server.virtual
    inputs, hidden, batch, steps, turns = SHARES_VIRTUAL if virtual else SHARES_REAL
    params: dict[str, Param] = {
        "server": server.name,
        "parts": whole,
        "turns": turns,
        "steps": steps,
        "batch": batch,
        "inputs": inputs,
        "hidden": hidden,
    }
    label = f"{client.name}.{server.name}.{'_'.join(whole).replace('/', '-')}"
    estimated = START_S + turns * (TRAIN_S + 3.0 * len(whole))
    return _one(request, "remoting-shares", label, (client.name, server.name), params, estimated)


def _move(request: Request, client: Node, servers: list[Node]) -> Measurement:
    """From the first server to the second, where there is one."""
    nodes = (client, *servers[:2])
    batch, inputs, hidden, pace_ms, steps = MOVE_VIRTUAL if any(n.virtual for n in nodes) else MOVE_REAL
    params: dict[str, Param] = {"server": servers[0].name, "elsewhere": servers[1].name if len(servers) > 1 else ""}
    params |= {"batch": batch, "inputs": inputs, "hidden": hidden, "pace_ms": pace_ms, "steps": steps, "safe_s": SAFE_S}
    return _one(request, "remoting-move", client.name, tuple(n.name for n in nodes), params, MOVE_S)


def _unchanged(request: Request, client: Node, server: Node) -> Measurement:
    params: dict[str, Param] = {"server": server.name, "part": "1/2", "size_bytes": SENT_BYTES}
    label = f"{client.name}.{server.name}"
    return _one(request, "remoting-unchanged", label, (client.name, server.name), params, 3 * START_S)


def _one(
    request: Request, kind: str, label: str, nodes: tuple[str, ...], params: dict[str, Param], estimated: float
) -> Measurement:
    return plan_torch.one(request, kind, label, nodes, params, estimated, without=())


SUITE = Suite("remoting", 70, plan)
