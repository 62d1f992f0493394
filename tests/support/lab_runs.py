"""What tests of runs on the nodes of a lab ask of a run's folder, and of the nodes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Protocol

from validation.model import Plan

TOOLS = "iperf3|sockperf|mpirun|orted|validation.probes"


class Nodes(Protocol):
    """A lab's."""

    def processes(self, node: str, pattern: str) -> str:
        """Those of the node whose command line matches."""


def planned(run: Path) -> Plan:
    """Its plan."""
    return Plan.model_validate_json((run / "plan.json").read_text())


def result_ids(run: Path) -> list[str]:
    """Measurements that stand in results.jsonl; a line that is being written does not count."""
    text = (run / "results.jsonl").read_text() if (run / "results.jsonl").exists() else ""
    return [json.loads(line)["measurement"] for line in text.split("\n")[:-1]]


def nothing_left(lab: Nodes) -> dict[str, str]:
    """Processes of ours on the nodes, after the time that the supervisors allow themselves."""
    for _ in range(30):
        found = {n: lab.processes(n, TOOLS) for n in ("head", "client1", "gpu1", "gpu2")}
        if not any(found.values()):
            break
        time.sleep(0.5)
    return {n: text for n, text in found.items() if text}
