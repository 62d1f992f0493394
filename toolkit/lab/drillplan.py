"""Which faults a drill plants at once, on which nodes, and which suites of a validation can find them.

Faults of one turn are on different nodes and cannot hide each other: a GPU's is found on its own node whatever the
fabric does, and of sick ports there are so few at once that most pairs of each healthy one are fine.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolkit.errors import LabError
from toolkit.lab import faults
from toolkit.lab.leaf.leaf import CROSSED
from toolkit.lab.spec import LabSpec, NodeSpec
from validation.plan.suites import SUITES
from validation.rules.criterion import Criterion
from validation.run.catalogue import load_criteria

SHORT = (
    "slow-link",
    "lossy-link",
    "cable-swapped",
    "wrong-time-zone",
    "disk-full",
    "nccl-pinned",
    "pcie-x8",
    "ecc",
    "gpu-missing",
    "library-empty",
)
"""The short drill: of each sort some that a container with nothing but the probes can have."""

AT_PORT = frozenset(
    {
        "slow-link",
        "slow-sending",
        "slow-receiving",
        "cable-swapped",
        "duplicate-address",
        "lossy-link",
        "port-closed",
        "flapping-port",
        "wrong-mtu",
        "port-down",
        "rxe-missing",
        "rocev1-gid",
        "firewall-4791",
        "dscp-unset",
    }
)
"""Faults whose very part is the node's fabric port; the others' is the node, or its GPU."""

REFUSED = {"rxe-missing": "no RDMA device"}
"""Faults with which a validation does not begin, and what the line of its error says that names the node. Of a fault
beside it nothing would be known."""

ALONE = frozenset({"noisy-neighbour", "dead-node", *REFUSED})
"""What reaches other nodes of a lab: a container's programs take the host's processors, and a node that dies in
mid-run costs its partners their measurements. And what is refused."""

IN_MID_RUN = frozenset({"dead-node"})
"""Planted when the first results are there: a node that does not answer at the begin is refused, and nothing runs."""

BESIDES = {"flapping-port": ("tr.tcpbw",), "dead-node": ("tr.tcpbw",), "bmc-event": ("tr.tcpbw",)}
"""Criteria whose measurements a fault is felt in, besides those of the criteria that find it; an event of a BMC needs a
suite after preflight, during which it comes."""

WITHOUT = ("pf.converged",)
"""What no fault of a drill needs and takes minutes: site.yml in check mode."""

ALWAYS = "facts"
"""The kind of measurement that a narrow validation has too, whatever is planted."""


@dataclass(frozen=True)
class Turn:
    """What is planted at once; `suites` of the validation after it. A turn without faults is a clean one."""

    name: str
    planted: tuple[tuple[str, NodeSpec], ...]
    suites: tuple[str, ...]

    @property
    def words(self) -> str:
        """`ecc on gpu2, slow-link on gpu3`; of none `clean`."""
        return ", ".join(f"{kind} on {node.name}" for kind, node in self.planted) or "clean"


def suites_of(kind: str) -> tuple[str, ...]:
    """The suites in which a fault is found, in their usual order; preflight is always among them."""
    wanted = {"preflight", *(_criteria()[id_].suite for id_ in _needed(kind))}
    return tuple(suite for suite in SUITES if suite in wanted)


def without(turn: Turn, narrow: bool) -> tuple[str, ...]:
    """Criteria that a turn's validation leaves out; `narrow`: also those whose kind of measurement finds none of its
    faults, of a clean turn none of all faults.
    """
    if not narrow:
        return WITHOUT
    kinds = [kind for kind, _ in turn.planted] or list(faults.FAULTS)
    wanted = {ALWAYS, *(_criteria()[id_].kind for kind in kinds for id_ in _needed(kind))}
    return tuple(
        one.id
        for one in _criteria().values()
        if one.id in WITHOUT or (one.suite in turn.suites and one.kind not in wanted)
    )


def _needed(kind: str) -> tuple[str, ...]:
    return *faults.FAULTS[kind].found_by, *BESIDES.get(kind, ())


@functools.cache
def _criteria() -> dict[str, Criterion]:
    """Each criterion by its id."""
    return {criterion.id: criterion for criterion in load_criteria()}


def candidates(spec: LabSpec, kind: str) -> list[NodeSpec]:
    """Nodes that can have a fault, those first on which it is told best: GPU servers from the last on, but the first
    of three or more, which stays well beside its equals; then clients, then that server, then heads.
    """
    servers = [node for node in spec.nodes if node.group == "gpu_servers"]
    well = servers[0] if len(servers) > 2 else None
    order = sorted(
        spec.nodes,
        key=lambda n: (n.group == "heads", n is well, n.group != "gpu_servers", -n.number),
    )
    found = []
    for node in order:
        try:
            faults.check(spec, node, kind)
        except LabError:
            continue
        found.append(node)
    return found


def turns(spec: LabSpec, kinds: Iterable[str], alone: bool = False) -> list[Turn]:
    """The faults that a lab can have, in as few turns as they fit into, those of the same suites together; with
    `alone` one at a time.
    """
    wanted = [kind for kind in dict.fromkeys(kinds) if candidates(spec, kind)]
    wanted.sort(key=lambda kind: (kind in ALONE, -len(suites_of(kind)), suites_of(kind), kind not in AT_PORT))
    made: list[dict[str, NodeSpec]] = []
    for kind in wanted:
        place = None
        for planted in made if not (alone or kind in ALONE) else ():
            if not ALONE & planted.keys() and (node := _place(spec, kind, planted)) is not None:
                place = planted, node
                break
        if place is None:
            made.append({kind: candidates(spec, kind)[0]})
        else:
            place[0][kind] = place[1]
    made.sort(key=lambda planted: (bool(ALONE & planted.keys()), max(len(suites_of(kind)) for kind in planted)))
    return [_turn(number, planted) for number, planted in enumerate(made, 1)]  # the quick ones first


def _turn(number: int, planted: dict[str, NodeSpec]) -> Turn:
    wanted = {suite for kind in planted for suite in suites_of(kind)}
    return Turn(f"turn-{number}", tuple(planted.items()), tuple(suite for suite in SUITES if suite in wanted))


def _place(spec: LabSpec, kind: str, planted: dict[str, NodeSpec]) -> NodeSpec | None:
    """A node on which the fault hides none of those and is hidden by none; None where there is none."""
    used = {node.name for node in planted.values()} | {_twin(spec, node) for k, node in planted.items() if _steals(k)}
    if not set(suites_of(kind)) <= {suite for other in planted for suite in suites_of(other)}:
        return None  # the others' run would become longer by it
    if kind in AT_PORT and 2 * (len(AT_PORT & planted.keys()) + 1) >= len(spec.nodes):
        return None
    heads = {node.name for node in spec.nodes if node.group == "heads"}
    free = [node for node in candidates(spec, kind) if node.name not in used | heads]
    if _steals(kind):
        free = [node for node in free if _twin(spec, node) not in used]
    servers = [node.name for node in spec.nodes if node.group == "gpu_servers"]
    well = [name for name in servers if name not in used]
    return next((n for n in free if n.name not in servers or len(servers) < 3 or len(well) > 1), None)


def _steals(kind: str) -> bool:
    return kind in ("duplicate-address", CROSSED)


def _twin(spec: LabSpec, node: NodeSpec) -> str:
    return faults.twin(spec, node).name


def clean(number: int, suites: Sequence[str]) -> Turn:
    """A turn without a fault."""
    return Turn(f"clean-{number}", (), tuple(suites))
