"""Transport over RDMA: first light, bandwidth, latency and UCX for every ordered pair of fabric ports that have it.

On hardware a pair of ports takes about 100 s in each direction: 3 operations x 3 runs of 3 s with 4 queue pairs and
messages of 8 MiB (ngc_multinode_perf's and Azure's settings), the same in both directions at once, a sweep over all
sizes, rdma_cm beside socket setup, latencies and UCX; of more than 64 ports, where each operation runs once, half of
that. Between emulated machines a message of 64 KiB takes milliseconds, so there a run is some hundred messages, what
matters being that it works: about 35 s in each direction, and a few sizes stand for the sweep, whose 16 MiB per message
of each size would take longer than all else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from validation.base.counting import number_of
from validation.measures.gpu.kinds import gpus_of
from validation.model import Endpoint, Measurement, Node, Param, Topology
from validation.plan.pairing import ALL_PAIRS_PORTS
from validation.plan.request import PORTS, RDMA_PORTS, Part, Request, pair_id, pair_rounds

CONTROL_PORT = 18515  # perftest's and ibv_rc_pingpong's own
UCX_PORT = 13337  # ucx_perftest's own
OPERATIONS = ("write", "read", "send")
RUNS = 3  # of each judged bandwidth, so that its spread shows
SECONDS = 3
MESSAGE_BYTES = 8 << 20
LAB_MESSAGE_BYTES = 64 << 10
QPS = 4
LAB_QPS = 2
LAB_SIZES = ((256, 100), (1 << 20, 5))  # beside the usual message: (bytes, messages)
SWEEP_MESSAGES = 1000  # of each size from 2 bytes to 8 MiB; at 100 Gbit/s about 2 s
UCX_TESTS = (("put_lat", 8), ("put_bw", 65536), ("tag_bw", 1 << 20))  # (test, bytes)
FUNCTIONAL = "tr.rdmafn"
CUDA_S = 4  # both ends start CUDA; without persistence each GPU takes about a second


@dataclass(frozen=True)
class _Pace:
    """How much is measured: iterations of each tool, and what a session costs beyond them, in seconds.

    perftest sleeps a second in each session; the rest is the start of two probes and two tools.
    """

    light: int
    messages: int
    samples: int
    ucx: int
    session_s: float
    qp_timeout: int | None = None


HARDWARE = _Pace(light=1000, messages=0, samples=5000, ucx=10000, session_s=1.8)
VIRTUAL = _Pace(light=500, messages=1000, samples=1000, ucx=1000, session_s=1.8)
EMULATED = _Pace(light=100, messages=100, samples=200, ucx=100, session_s=3.0, qp_timeout=16)
"""perftest's own timeout of 67 ms (14) runs out on a busy emulated machine, and Soft-RoCE then repeats what was under
way until an operation fails; 16 is 0.27 s, so that a dead way still ends a run within 3 s."""


def rdma_topology(topology: Topology, part: Part | None = None) -> Topology:
    """The nodes with the ports on which RDMA is asked for; what is left out is said in `part`."""
    without = [f"{n.name}/{p.interface}" for n in topology.nodes for p in n.ports if not p.rdma]
    if without and part is not None:
        part.leave_out(f"RDMA on ports that the inventory declares TCP-only (rdma: false): {', '.join(without)}")

    def only(node: Node) -> Node:
        return node.model_copy(update={"ports": tuple(p for p in node.ports if p.rdma)})

    return topology.model_copy(update={"nodes": tuple(n for n in map(only, topology.nodes) if n.ports)})


def plan(request: Request, part: Part) -> None:
    """Add the RDMA rounds to the transport suite's part; nothing on a fabric without RDMA."""
    if not request.fabric.needs_rdma:
        return
    link = request.topology.lab_link
    pace = HARDWARE if link is None else EMULATED if link.emulated else VIRTUAL
    topology = rdma_topology(request.topology, part)
    if pace is not HARDWARE:
        part.leave_out(
            f"RDMA in a rehearsal: runs of {number_of(pace.messages, 'message')} of 64 KiB instead of "
            f"{RUNS} runs of {SECONDS} s; "
            "three sizes instead of a sweep over all; other sizes and both ways at once for one direction of each pair"
        )
    _Rounds(request, topology, part, pace).all()


class _Rounds:
    """Makes the rounds, one kind of run after the other, so that a round's measurements take equally long."""

    def __init__(self, request: Request, topology: Topology, part: Part, pace: _Pace) -> None:
        self.request = request
        self.topology = topology
        self.part = part
        self.pace = pace
        self.lab = pace is not HARDWARE
        self.fleet = sum(len(node.ports) for node in topology.nodes) > ALL_PAIRS_PORTS
        self.runs = 1 if self.lab or self.fleet else RUNS
        self.what = PORTS if topology.nodes == request.topology.nodes else RDMA_PORTS

    def all(self) -> None:
        """First light, bandwidth, both ways at once, sweep, latency, UCX. Of a fleet each operation once: what is
        left undecided is measured again anyway, and a port that is unlike itself meets several others.
        """
        if self.fleet and not self.lab:
            self.part.leave_out(
                f"RDMA of more than {ALL_PAIRS_PORTS} ports: one run of each operation instead of {RUNS}, UCX by one "
                "test, no sweep over sizes, no rdma_cm beside the socket setup"
            )
        pace, mtu = self.pace, self.request.fabric.rdma_mtu
        self.add("rdma-first-light", "", {"size_bytes": 4096, "iterations": pace.light, "mtu": mtu}, 0.5)
        for op in OPERATIONS:
            for run in range(1, 1 + self.runs):
                self.add("rdma-bandwidth", op if run == 1 else f"{op}-{run}", self.bandwidth(op), self.run_s())
        for op in OPERATIONS if not self.lab else ("write",):
            both = {**self.bandwidth(op), "bidirectional": True}
            self.add("rdma-bandwidth", f"{op}-both", both, self.run_s() + 1, self.once)
        # rdma_cm finds the GID by itself; on hardware beside the socket setup, in a rehearsal reads take it anyway
        if not self.lab and not self.fleet:
            self.add("rdma-bandwidth", "write-cm", {**self.bandwidth("write"), "cm": "rdma_cm"}, self.run_s())
        self.sizes()
        for op in OPERATIONS:
            self.add("rdma-latency", op, {"op": op, "cm": "socket", "size_bytes": 2, "iterations": pace.samples}, 0.5)
        for test, size in UCX_TESTS[:1] if self.lab or self.fleet else UCX_TESTS:
            ucx: dict[str, Param] = {"ucx_test": test, "size_bytes": size, "iterations": pace.ucx, "warmup": 10}
            self.add("rdma-ucx", test, ucx, 0.5)
        self.gpus()

    def gpus(self) -> None:
        """Writes between the memory of GPUs, where both nodes have some; reported."""
        have = {node.name for node in self.topology.nodes if gpus_of(node, self.request.topology) is not None}
        criteria = self.request.serving("rdma-gpu")
        if criteria and have and (self.lab or len(have) < 2):
            few = "no adapter reaches that of emulated ones" if self.lab else "one node has GPUs"
            self.part.leave_out(f"RDMA between GPUs' memory: {few}", *criteria)
        if self.lab:
            return
        anyway: dict[str, Param] = {"anyway": True} if self.request.options.get("anyway") else {}
        both = {**self.bandwidth("write"), **anyway}
        self.add("rdma-gpu", "", both, self.run_s() + CUDA_S, lambda a, b: {a.node, b.node} <= have, functional=False)

    def sizes(self) -> None:
        """Other message sizes than the judged one; reported, not judged."""
        other = {**self.bandwidth("write"), "qps": 1, "seconds": 0}
        if self.fleet and not self.lab:
            return
        if not self.lab:
            sweep = {**other, "size_bytes": 0, "iterations": SWEEP_MESSAGES}
            self.add("rdma-bandwidth", "write-sweep", sweep, 8, judged=False)
            return
        for size, messages in LAB_SIZES:
            one = {**other, "size_bytes": size, "iterations": messages}
            self.add("rdma-bandwidth", f"write-{size}", one, self.run_s(), self.once, judged=False)

    def bandwidth(self, op: str) -> dict[str, Param]:
        """Parameters of a bandwidth run. In a rehearsal the operations share out what hardware is asked in full."""
        if not self.lab:
            size, qps = MESSAGE_BYTES, QPS
            return {"op": op, "cm": "socket", "size_bytes": size, "iterations": 0, "seconds": SECONDS, "qps": qps}
        return {
            "op": op,
            "cm": "rdma_cm" if op == "read" else "socket",
            "size_bytes": LAB_MESSAGE_BYTES,
            "iterations": self.pace.messages,
            "qps": LAB_QPS if op == "write" else 1,
        }

    def run_s(self) -> float:
        """Seconds of a bandwidth run beyond its session."""
        return 0.8 if self.lab else SECONDS + 0.2

    @staticmethod
    def once(source: Endpoint, destination: Endpoint) -> bool:
        """One direction of each pair."""
        return source.node < destination.node

    def add(
        self,
        kind: str,
        label: str,
        params: dict[str, Param],
        run_s: float,
        which: Callable[[Endpoint, Endpoint], bool] | None = None,
        judged: bool = True,
        functional: bool = True,
    ) -> None:
        """Rounds of one kind of run over all pairs, or those that `which` picks. `functional`: it shows whether RDMA
        works at all."""
        known = {c.id for c in self.request.criteria}
        figures = self.request.serving(kind) if judged else ()
        criteria = tuple(dict.fromkeys([*(c for c in (FUNCTIONAL,) if c in known and functional), *figures]))
        if not criteria:
            return
        port = UCX_PORT if kind == "rdma-ucx" else CONTROL_PORT
        whole: dict[str, Param] = {**params, "port": port, "transport": self.request.fabric.transport}
        if self.pace.qp_timeout is not None and kind in ("rdma-bandwidth", "rdma-latency"):
            whole["qp_timeout"] = self.pace.qp_timeout
        estimated = round(self.pace.session_s + run_s, 1)

        def make(source: Endpoint, destination: Endpoint) -> Measurement:
            return Measurement(
                id=pair_id(f"{kind}.{label}" if label else kind, source, destination),
                suite="transport",
                kind=kind,
                nodes=(source.node, destination.node),
                endpoints=(source, destination),
                params=whole,
                criteria=criteria,
                estimated_s=estimated,
                # where nothing arrives Soft-RoCE sends again for ever, so that first light ends by its deadline
                timeout_s=round(4 * estimated + (5 if kind == "rdma-first-light" else 15), 1),
            )

        for one in pair_rounds(self.topology, self.request.fabric, self.what, make, self.part):
            kept = one if which is None else one.only(which)
            if kept:
                self.part.rounds.append(kept)
