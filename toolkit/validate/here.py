"""`toolkit validate --here`: this machine by itself, without an inventory."""

from __future__ import annotations

import socket
from pathlib import Path

from toolkit.agreement import Agreement
from toolkit.errors import UsageFault
from toolkit.here import node_name, said, said_of_links, topology_here, with_engine
from toolkit.loudness import progress
from toolkit.validate.planned import PlannedRun
from toolkit.validate.request import ThisMachine
from validation.model import Scalar, Topology
from validation.plan.suites import UNASKED, make_plan
from validation.rules.fabric import no_fabric
from validation.run.catalogue import load_criteria, read_criteria


def plan_here(asked: ThisMachine) -> PlannedRun:
    """What is measured of this machine; says on stderr what it was found to be."""
    topology = topology_here()
    lines = said(topology)
    if "remoting" in asked.suites:
        topology = with_engine(topology)
        lines[-1:-1] = said_of_links(topology)
    for line in lines:
        progress(line)
    loaded, sources = no_fabric(), read_criteria()
    options: dict[str, Scalar] = {
        name: 1 for name, given in (("quick", asked.quick), ("anyway", asked.anyway)) if given
    }
    options |= {} if asked.minutes is None else {"minutes": asked.minutes}
    options |= {} if asked.segment is None else {"segment_s": 60 * asked.segment}
    plan = make_plan("plan", topology, loaded.fabric, load_criteria(sources), asked.suites or UNASKED, options)
    return PlannedRun(None, topology, None, loaded, sources, Agreement(None, "", (), {}), None, plan, options)


def refuse_elsewhere(topology: Topology, run_dir: Path) -> None:
    """UsageFault where a run of one machine is to be continued on another."""
    name = node_name(socket.gethostname())
    if topology.here is not None and topology.nodes[0].name != name:
        raise UsageFault(
            f"{run_dir}: is a run of {topology.nodes[0].name} by itself, and this is {name}; continue it there, or "
            "begin one of this machine: toolkit validate --here"
        )
