"""A small site on loopback addresses, for tests of execution and of the command line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tests.support.site import CRITERIA, LAB_LINK, node
from validation.model import Bom, Measurement, Node, Plan, Result, SshTarget, Topology
from validation.plan.suites import make_plan
from validation.rules.fabric import load_fabric


def topology(count: int = 3, tcp_only: Collection[str] = (), **ssh: Any) -> Topology:
    """gpu1... on loopback addresses, reached with these arguments of SshTarget; those in `tcp_only` carry no RDMA."""

    def local(i: int) -> Node:
        name, at = f"gpu{i}", f"127.0.0.{i + 1}"
        port = {"interface": "lo", "address": at, "prefix": 8, "rdma": name not in tcp_only}
        way = SshTarget(host=at, **ssh)
        return node(name, i, port, ssh=way, virtual="loopback", slots=1, bom=Bom(), stack={})

    return Topology(site="loopback", nodes=tuple(map(local, range(1, count + 1))), lab_link=LAB_LINK)


def plan(topo: Topology, *suites: str, **options: int) -> Plan:
    return make_plan("test", topo, load_fabric("tcp10"), CRITERIA, suites or ("preflight",), options)


def only(whole: Plan, *ids: str) -> Plan:
    """A plan of some of another one's measurements, each in its own round."""
    measurements = tuple(whole.measurement(i) for i in ids)
    return whole.model_copy(update={"measurements": measurements, "rounds": tuple((i,) for i in ids)})


class Quiet:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.results: dict[str, Result] = {}
        self.began: list[str] = []
        self.lines: list[str] = []

    def planned(self, plan: Plan, done: Collection[str]) -> None:
        self.lines.append(f"planned {len(plan.measurements)} done {len(done)}")

    def started(self, m: Measurement) -> None:
        self.began.append(m.id)

    def finished(self, m: Measurement, result: Result) -> None:
        self.results[m.id] = result

    def again(self, rounds: Sequence[Sequence[Measurement]]) -> None:
        self.lines.append("again " + " | ".join(" ".join(m.id for m in some) for some in rounds))

    def said(self, text: str) -> None:
        self.lines.append(text)


def processes_of(*words: str) -> list[str]:
    """Command lines of processes that hold all of `words`: what should have been reaped. A lab's nodes have theirs."""
    found = []
    here = Path("/proc/self/ns/pid").readlink()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if (entry / "ns/pid").readlink() != here:
                continue
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        if state != "Z" and all(word in line for word in words):
            found.append(f"{entry.name} {line}")
    return found
