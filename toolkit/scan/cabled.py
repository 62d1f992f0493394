"""The map of cables as a run found them."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from toolkit import rundir
from toolkit.cables import refuse_twins
from toolkit.errors import UsageFault
from validation.base.counting import number_of
from validation.measures.fabric.cabling import CablingFacts
from validation.model import Cable, Result
from validation.model.load import read_results
from validation.run.names import RESULTS


def of_run(run_dir: Path) -> tuple[list[Cable], list[str]]:
    """The cables that a run found, by node and port, and in words which ports it did not find in one switch port.

    UsageFault where the run did not look at cables, or found two of them in one switch port.
    """
    _, _, plan = rundir.asked(run_dir)
    of = {m.id: m.nodes[0] for m in plan.measurements if m.kind == "cabling"}
    results, _ = read_results(run_dir / RESULTS, plan.run)
    last: dict[str, Result] = {r.measurement: r for r in results if r.measurement in of}
    found = {of[name]: facts for name, r in last.items() if (facts := r.facts_of(CablingFacts)) is not None}
    if not found:
        raise UsageFault(f"{run_dir}: did not look at cables; make one that does: toolkit validate --suite preflight")
    cables, problems = [], [f"{node}: was not looked at" for node in of.values() if node not in found]
    for node, facts in found.items():
        for port in facts.ports:
            if len(port.peers) == 1:
                peer = port.peers[0]
                try:
                    cables.append(Cable(node=node, port=port.interface, switch=peer.name, switch_port=peer.label))
                except ValidationError:
                    problems.append(f"{node} {port.interface}: heard {peer}, no name for a map, and is left out")
            else:
                heard = number_of(len(port.peers), "switch port") if port.peers else "no switch"
                problems.append(f"{node} {port.interface}: heard {heard}, and is left out")
    refuse_twins(cables, lambda _: f"{run_dir}: cables")
    return cables, problems
