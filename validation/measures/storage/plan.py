"""Storage: what the inventory declares, on each node alone, on all nodes at once, and between nodes that share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from validation.base.counting import number_of
from validation.model import Measurement, Node, Param, Storage
from validation.plan.request import Part, Request, Suite

SECONDS, RAMP_S = 5, 1  # shorter runs are no figures: 256 MB were moved in 0.1 s
SIZE_MIB, VIRTUAL_SIZE_MIB = 4096, 256
STREAMS, VIRTUAL_STREAMS = 8, 2
FILES, VIRTUAL_FILES = 10_000, 2_000
ALONE_NODES = 8
"""Of nodes that share a storage so many are measured alone, one after another. Project default."""
ANSWER_S = 10.0
OPS = ("write", "read", "randwrite", "randread")
ONE = ("one-write", "one-read")
TOGETHER = ("write", "read", "randread")
OWN_S, FILES_S, SHARED_S, PICTURES_S = 6.0, 4.0, 15.0, 10.0
GDS = ("st.gdsread", "st.gdswrite")
GDS_S = 25.0
BESIDE, BANDWIDTH_PORT = "st.beside", 5201  # iperf3's own
LIMIT_S = 900.0
"""Of a measurement: its probe ends every step by itself long before."""


def plan(request: Request) -> Part:
    """Storage that nodes share first by what they see of each other, then everything alone, then all at once."""
    part = Part()
    every = {one.name: one for node in request.topology.nodes for one in node.storage}
    kinds = {kind: request.serving(kind) for kind in ("storage-shared", "storage-alone", "storage-together")}
    if not every:
        criteria = [id_ for found in kinds.values() for id_ in found]
        part.leave_out("no storage is declared (host variable storage)", *criteria)
        part.excused = True
        return part
    by_name = {name: [node for node in request.topology.nodes if _of(node, name)] for name in sorted(every)}
    shared = [name for name in by_name if every[name].shared]
    for name in shared:
        if len(by_name[name]) < 2:
            part.leave_out(f"storage {name}: one node alone declares it, nothing of sharing is measured")
    together = [name for name in shared if len(by_name[name]) > 1]
    if not together and every:
        part.leave_out("no storage that nodes share is declared", *kinds["storage-shared"], *kinds["storage-together"])
    for name in together if kinds["storage-shared"] else ():
        part.rounds.append([_shared(name, by_name[name], kinds["storage-shared"])])
    if kinds["storage-alone"]:
        for name in by_name:
            part.rounds += _alone(part, name, by_name[name], name in shared, kinds["storage-alone"])
    for name in together if kinds["storage-together"] else ():
        part.rounds.append([_together(name, by_name[name], kinds["storage-together"])])
    if not any(_has_gpus(node) for nodes in by_name.values() for node in nodes):
        wanted = [id_ for id_ in GDS if id_ in kinds["storage-alone"]]
        part.leave_out("GPUDirect Storage: no node with storage has a GPU (bom.gpu_count)", *wanted)
    return part


def _has_gpus(node: Node) -> bool:
    """Real ones: an emulated GPU is a library, which no storage reaches."""
    return bool(node.bom.gpu_count) and not node.emulated_gpus


def _of(node: Node, name: str) -> Storage | None:
    return next((one for one in node.storage if one.name == name), None)


def declared(node: Node, name: str) -> Storage:
    """A node's storage of that name; KeyError where it declares none."""
    found = _of(node, name)
    if found is None:
        raise KeyError(f"{node.name} has no storage {name}")
    return found


def _load(node: Node, storage: Storage, ops: Sequence[str]) -> dict[str, Param]:
    size = round(storage.size_gib * 1024) if storage.size_gib else VIRTUAL_SIZE_MIB if node.virtual else SIZE_MIB
    return {
        "name": storage.name, "ops": tuple(ops), "size_mib": size,
        "streams": VIRTUAL_STREAMS if node.virtual else STREAMS, "seconds": SECONDS, "ramp_s": RAMP_S,
        "files": VIRTUAL_FILES if node.virtual else FILES, "answer_s": ANSWER_S,
    }  # fmt: skip


def _measurement(
    id_: str, kind: str, nodes: Sequence[Node], params: Mapping[str, Param], criteria: tuple[str, ...], takes: float
) -> Measurement:
    return Measurement(
        id=id_, suite="storage", kind=kind, nodes=tuple(node.name for node in nodes), params=dict(params),
        criteria=criteria, estimated_s=takes, timeout_s=LIMIT_S,
    )  # fmt: skip


def _alone(
    part: Part, name: str, nodes: Sequence[Node], shared: bool, criteria: tuple[str, ...]
) -> list[list[Measurement]]:
    """Of a node's own storage all nodes in one round; of a shared one a round for each node, for a part of many."""
    chosen = list(nodes)
    if shared and len(nodes) > ALONE_NODES:
        chosen = [nodes[at * len(nodes) // ALONE_NODES] for at in range(ALONE_NODES)]
        part.leave_out(
            f"storage {name}: {ALONE_NODES} of {number_of(len(nodes), 'node')} are measured alone, and all at once"
        )
    found = []
    for at, node in enumerate(chosen):
        ops = (*OPS, *ONE) if at == 0 or not shared else OPS  # one stream of one node is that of all
        storage = declared(node, name)
        mine = tuple(id_ for id_ in criteria if id_ not in GDS or _has_gpus(node))
        direct = bool(set(GDS) & set(mine))
        params = {**_load(node, storage, ops), "path": storage.path, **({"gds": True} if direct else {})}
        takes = OWN_S + len(ops) * (SECONDS + RAMP_S + 0.5) + FILES_S + PICTURES_S + GDS_S * direct
        found.append(_measurement(f"storage-alone.{node.name}-{name}", "storage-alone", [node], params, mine, takes))
    return [[m] for m in found] if shared else [found]


def _together(name: str, nodes: Sequence[Node], criteria: tuple[str, ...]) -> Measurement:
    load = {**_load(nodes[0], declared(nodes[0], name), TOGETHER), "nodes": tuple(node.name for node in nodes)}
    takes = 2 * OWN_S + len(TOGETHER) * (SECONDS + RAMP_S + 1.0)
    if BESIDE in criteria and all(node.ports and node.ports[0].address for node in nodes):
        load["port"] = BANDWIDTH_PORT
        takes += 2 * (SECONDS + RAMP_S + 2.0)
    return _measurement(f"storage-together.{name}", "storage-together", nodes, load, criteria, takes)


def _shared(name: str, nodes: Sequence[Node], criteria: tuple[str, ...]) -> Measurement:
    params: dict[str, Param] = {"name": name, "nodes": tuple(node.name for node in nodes), "answer_s": ANSWER_S}
    return _measurement(f"storage-shared.{name}", "storage-shared", nodes, params, criteria, SHARED_S)


SUITE = Suite("storage", 35, plan)
