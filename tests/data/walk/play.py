"""`play.py validate ...`: the command line, with nodes that answer with recordings instead of measuring.

The tools' outputs are tests/data's, as they were written (iperf3 over a link of 1 Gbit/s, sockperf, ping); the facts of
the nodes are constructed. What is made of them is a run of real machines as the toolkit itself writes one, so that the
way to an acceptance can be walked without them: docs/how-to/acceptance.md. Nothing is measured, and
nothing is accepted by it.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))  # it is run by its path

from tests.support import gpu_container_case
from tests.support import gpu_copies_documents as gpu_copies
from tests.support import gpu_load_documents as gpu_load
from tests.support import gpu_tools_documents as gpu_tools
from tests.support.driver import whole
from tests.support.site import plugged
from tests.support.switch_documents import seat
from toolkit import acceptance
from toolkit.cli import main
from validation.execute import Remote
from validation.execute.measure import utc_now
from validation.measures.asbuilt.checks import checks_of
from validation.model import Node
from validation.model.built import Deployment, NodeBuilt

DATA = Path(__file__).parents[1]
GEN2, GEN3 = {"gt_s": 5.0, "lanes": 2}, {"gt_s": 8.0, "lanes": 16}
OFF = {"capable": True, "control": 0}
NIC = {
    "what": "nic", "interface": "fab0", "address": "0000:19:00.0", "link": GEN2, "card": GEN2, "numa": 0,
    "board": "0x8086 0x1563 0x1028 0x1fa9", "firmware": "0x80000f32", "link_layer": "Ethernet",
    "read_request_bytes": 512,
    "above": [{"address": "0000:17:00.0", "link": GEN2, "card": GEN2, "acs": OFF}], "host_bridge": "0000:17",
}  # fmt: skip
GPU = {
    "what": "gpu", "address": "0000:3b:00.0", "link": GEN3, "card": GEN3, "numa": 0,
    "above": [{"address": "0000:3a:00.0", "link": GEN3, "card": GEN3, "acs": OFF}], "host_bridge": "0000:3a",
}  # fmt: skip
NVLINKS = [{"number": n, "up": True} for n in range(6)]
DRIVER = "libnvidia-compute-580 580.173.02-1ubuntu1"
ADDRESSES = {"client1": "198.51.100.11", "gpu1": "198.51.100.21", "gpu2": "198.51.100.22"}
"""Of the fabric ports, as in three-nodes."""
ODD = {"client1": {"docker": "29.8.1"}}
"""What differs from the declared stack: the fault that the run finds."""


def facts(node: str) -> dict[str, Any]:
    """What a node says of itself; constructed."""
    gpu = node.startswith("gpu")
    found: dict[str, Any] = {
        "virt": "none", "lab": "", "model": "PowerEdge C4140" if gpu else "PowerEdge R640", "cpu_count": 40,
        "gpu_count": int(gpu), "gpu_model": "Tesla V100-SXM2-16GB" if gpu else "", "nic_model": "Broadcom BCM5720",
        "fabric_ports": [{"interface": "fab0", "operstate": "up", "mtu": 9000, "speed_mbit": 1000}],
        "rdma_devices": [], "pci": [NIC, GPU] if gpu else [NIC],
        "nvlink": [{"address": GPU["address"], "links": NVLINKS}] if gpu else None,
        "os": "ubuntu 24.04", "kernel": "6.8.0-137-generic", "python": "3.12.3", "openmpi": "", "docker": "29.9.0",
        "horovod": "", "torch": "", "probes": "0.1.0", "driver": DRIVER if gpu else "", "fabric_manager": "",
        "cuda": "", "cudnn": "", "nccl": "", "ofed": "", "container_toolkit": "", "dcgm": "", "slurm": "",
        "stack_release": "", "docker_package": "docker-ce 5:29.9.0-1~ubuntu.24.04~noble", "runc": "1.4.3",
        "library_env": {"settings": []}, "tuning": {"governors": [], "sysctls": []},
        "state": {
            "addresses": [{"interface": "fab0", "address": ADDRESSES[node]}], "utc_offset_s": 0, "name_servers": [],
            "file_systems": [], "others_busy_processors": 0.0,
        },
        "stand_ins": [], "not_applicable": [], "drift": [], "reboot_pending": [],
    }  # fmt: skip
    return {**found, **(whole(DRIVER.split()[1].partition("-")[0]) if gpu else {}), **ODD.get(node, {})}


def document(kind: str, node: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A probe's document around a recording."""
    tool, version, stdout, found = "facts", "0.1.0", "", {}
    if kind == "facts":
        found = facts(node)
    elif kind == "cabling":
        found = plugged({"fab0": ("leaf1", f"Eth1/{ADDRESSES[node].rpartition('.')[2]}")})
        tool, stdout = "probes", json.dumps(found)
    elif kind == "gpu-container":
        found = gpu_container_case.facts(1)
        tool, version, stdout = "docker", found["docker"], json.dumps(found)
    elif kind == "gpu-health":
        recorded = json.loads((DATA / "kinds/gpu-health.json").read_text())["document"]["facts"]
        found = {**recorded, "emulated": False, "gpus": recorded["gpus"][:1]}  # as if it were a GPU of hardware
        tool, version, stdout = "NVML", found["driver"], json.dumps(found)
    elif kind == "path-mtu":
        tool, version, stdout = "ping", "20221126", (DATA / "ping/20221126-mtu9000.out").read_text()
    elif kind == "tcp-bandwidth":
        tool, version, stdout = "iperf3", "3.12", (DATA / "iperf3/3.12-shaped-1gbit.json").read_text()
    elif kind == "tcp-latency":
        tool, version, stdout = "sockperf", "3.7", (DATA / "sockperf/3.7-tcp.out").read_text()
        found = json.loads((DATA / "sockperf/3.7-tcp.facts.json").read_text())
    elif kind in ("incast", "all-to-all", "serve"):  # two senders to each of three nodes; constructed
        tool, stdout = "iperf3", seat(asked, kind == "serve", 2, 0.95)
    elif kind == "gpu-copies":
        said = gpu_copies.document(gpu_copies.report(asked, int(asked["gpus"])))
        stdout, found = said["stdout"], said["facts"]
    elif kind == "gpu-load":
        said = gpu_load.document(gpu_load.report(asked, int(asked["gpus"])))
        stdout, found = said["stdout"], said["facts"]
    elif kind == "gpu-tools":
        said = gpu_tools.document()
        stdout, found = said["stdout"], said["facts"]
    else:
        sys.exit(f"play.py: there is no recording of {kind}; choose a profile or suites without it")
    now = utc_now()
    return {
        "kind": kind, "tool": tool, "tool_version": version, "command": ["recorded", tool], "returncode": 0,
        "stdout": stdout, "stderr": "", "facts": found, "started": now, "ended": now, "duration_s": 0.0, "error": None,
    }  # fmt: skip


def as_built(kind: str, node: str, nodes: Sequence[Node]) -> dict[str, Any]:
    """A document of what is asked from the controller: every check passed, nothing would change; constructed."""
    if kind == "converged":
        now = utc_now()
        said = [NodeBuilt(node=name.name, outcome="ok", ok=100, changed=0) for name in nodes]
        found = Deployment(
            inventory="site", who="recorded", began=now, ended=now, toolkit_version="0.1.0", commit="", modified=None,
            check=True, stages=("base",), finished=True, nodes=tuple(said),
        )  # fmt: skip
        return {"stdout": found.model_dump_json(), "facts": {"exit": 0}}
    names = checks_of(next(name.groups for name in nodes if name.name == node))
    cases = [
        f'<testcase classname="{file[:-3]}" name="{check}[ansible://{node}]" time="0" />'
        for file, _, check in (name.partition("::") for name in names)
    ]
    counts = f'errors="0" failures="0" skipped="0" tests="{len(cases)}"'
    text = f'<testsuites><testsuite name="pytest" {counts}>{"".join(cases)}</testsuite></testsuites>'
    return {"stdout": text, "facts": {"node": node, "exit": 0, "checks_sha256": "0" * 64}}


class Player:
    """A launcher whose nodes are all there and say what was recorded."""

    def __init__(self) -> None:
        """No node is known yet."""
        self.nodes: list[Node] = []

    async def connect(self, nodes: Sequence[Node]) -> dict[str, str]:
        """Every node answers."""
        self.nodes += nodes
        return {}

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        """A serving end is ready and goes by itself; any other prints its recording, held back until it may."""
        kind = next(word for word in probe if not word.startswith("-") and not word.replace(".", "").isdigit())
        if kind == "serve" and (asked := json.loads(probe[-1]))["tool"] in ("incast", "all-to-all"):
            served = shlex.quote(json.dumps(document("serve", node, asked["asked"])))
            ready = "echo '{\"ready\": true}'"
            return await Remote.spawn(node, ["sh", "-c", f"{ready}; printf '%s\\n' {served}"])
        if kind == "serve":
            return await Remote.spawn(node, ["sh", "-c", "echo '{\"ready\": true}'; sleep 0.1"])
        asked = json.loads(probe[-1]) if probe[-1].startswith("{") else {}
        said = shlex.quote(json.dumps(document(kind, node, asked)))
        hold = "read line; " if "--hold-s" in probe else ""
        return await Remote.spawn(node, ["sh", "-c", f"{hold}printf '%s\\n' {said}"])

    async def here(self, node: str, probe: Sequence[str]) -> Remote:
        """What was asked from this machine."""
        kind = next(word for word in probe if word in ("as-built", "converged"))
        said = {**document("facts", node, {}), "kind": kind, "tool": kind, **as_built(kind, node, self.nodes)}
        return await Remote.spawn(node, ["printf", "%s\\n", json.dumps(said)])

    async def alive(self, node: str) -> str | None:
        """It answers."""
        return None

    async def close(self) -> None:
        """Nothing is left running."""


acceptance.make_launcher = lambda site: Player()

if __name__ == "__main__":
    sys.argv[0] = "toolkit"
    main()
