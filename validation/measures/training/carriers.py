"""What carries a job between nodes, from the logs of the libraries themselves: UCX, Open MPI and NCCL at level info.

UCX tells of each kind of connection the transports and devices of its lanes, Open MPI of each peer the module (BTL),
NCCL of each communicator the network. What stays within a node (shared memory, a rank with itself) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validation.measures.training.facts import Carrier

# UCX 1.14 and later: `UCX  INFO  0x55.. inter-node cfg#2 tag(rc_mlx5/mlx5_0:1)`. Before, without the place:
# `UCX  INFO    ep_cfg[1]: tag(rc_verbs/rxe_fab0:1)`; there a connection within the node has lanes over memory, beside
# which others may stand that it would not take.
UCX = re.compile(
    r"\bUCX\s+INFO\s+(?:\S+ )?(?:(?P<where>self|intra-node|inter-node) cfg#\d+|ep_cfg\[\d+\]:)(?P<lanes>.*)"
)
LANE = re.compile(r"([a-z]+(?:_[a-z0-9]+)*)/([\w.-]+(?::\d+)?)")
BTL = re.compile(r"\bmca: bml: Using (\w+) btl for send to \[\[\d+,\d+\],\d+\] on node \S+")
WITHIN = frozenset({"self", "sm", "vader", "smcuda"})  # modules of Open MPI that never leave the node
NCCL = re.compile(r"\bNCCL INFO Using (?:internal )?[Nn]etwork (\w+)")


def carriers(log: str) -> tuple[Carrier, ...]:
    """What the log tells, each once, in the order of library, transport and device."""
    found = {carrier: None for line in log.splitlines() for carrier in _of(line)}
    return tuple(sorted(found, key=lambda c: (c.library, c.transport, c.device)))


def _of(line: str) -> Iterator[Carrier]:
    ucx = UCX.search(line)
    if ucx and ucx["where"] in (None, "inter-node"):
        lanes = LANE.findall(ucx["lanes"])
        if not any(device.startswith("memory") for _, device in lanes):  # self/memory0, sysv/memory, cma/memory
            for transport, device in lanes:
                yield Carrier(library="UCX", transport=transport, device=device)
    btl = BTL.search(line)
    if btl and btl[1] not in WITHIN:
        yield Carrier(library="Open MPI", transport=btl[1])
    nccl = NCCL.search(line)
    if nccl:
        yield Carrier(library="NCCL", transport=nccl[1])
