"""`machines.py validate -i inventories/NAME ...`: the command line, with nodes that answer as the named machines would.

What they say is constructed (tests/support/machines.py, tests/support/tool_texts.py) in the forms of the tools: figures
that the fabric allows, facts that say real machines. So the way from an inventory's plan to a signed acceptance can be
walked without the machines. Nothing is measured, and nothing is accepted by it.

WALK_MACHINES in the environment, JSON, replaces nodes' machines: {"gpu1": "C4140_M"}.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import compute_case, gpu_container_case, gpu_health_case, machines, tool_texts
from tests.support import gpu_copies_documents as gpu_copies
from tests.support import gpu_load_documents as gpu_load
from tests.support import gpu_tools_documents as gpu_tools
from tests.support.asbuilt_documents import built, checked, converged
from tests.support.collectives_documents import BEST, nccl_log, port_lines, torch_document
from tests.support.machine_parts import parts
from tests.support.remote_move_documents import move_document
from tests.support.remote_neighbours_documents import BESIDE
from tests.support.remote_pooled_documents import pooled_document
from tests.support.remote_shares_documents import shares_document
from tests.support.remote_train_documents import infer_document, train_document
from tests.support.remote_unchanged_documents import unchanged_document
from tests.support.remote_worlds_documents import MADE as WORLDS
from tests.support.remoting_documents import attempts_made
from tests.support.site import plugged
from tests.support.switch_documents import seat
from toolkit import acceptance
from toolkit.cli import main
from validation.execute import Remote
from validation.execute.measure import utc_now
from validation.execute.remote import Output
from validation.measures.collectives.bounds import Layout, ceiling
from validation.measures.compute import exact as compute_exact
from validation.measures.gpu.load import LoadGpu
from validation.measures.gpu.load_judge import branches
from validation.measures.training import training_turns_probe
from validation.model import Node
from validation.probes.asked import make
from validation.rules.gpus import memory_rate

SOCKPERF, KINDS = (Path(__file__).parents[1] / folder for folder in ("sockperf", "kinds"))
SHARE = 0.96
"""Of a port's rate, that is carried."""
LATENCY_US = {"write": 1.9, "send": 2.0, "read": 3.4}
PLENTY = 10**14
"""Bytes, and packets, that an adapter has counted."""
MIB, GIB = 1 << 20, 1 << 30
LOAD_KEYS = ("name", "uuid", "address", "card", "numa")
RATE = 800  # images/s of a rank: above what is published of each machine with all of its GPUs
MEMORY_GB_S = 180
"""Of two sockets with six channels of 2400 MT/s and more, some three quarters."""


class Recorded(Remote):
    """A probe that has said what it says; a serving one is ready, and goes when it is told to."""

    def __init__(self, node: str, said: Mapping[str, Any], serves: bool) -> None:
        """No process is behind it."""
        lines = [*([{"ready": True}] if serves else []), said]
        self.node = node
        self._output = Output(0, "".join(json.dumps(line) + "\n" for line in lines).encode(), b"")

    @property
    def ended(self) -> bool:
        """It has, before it began."""
        return True

    async def first_document(self) -> dict[str, Any] | None:
        """The first of its lines."""
        return self._output.documents()[0]

    def go(self) -> None:
        """Nothing waits."""

    async def finish(self) -> Output:
        """All that it says."""
        await asyncio.sleep(0)
        return self._output

    async def stop(self) -> Output:
        """The same."""
        return self._output


def processors(kind: str, asked: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """(stdout, facts) of what a node's processors do, one of them for all."""
    if kind == "exact-compute":
        one = {"cpu": 0, "turns": 3, "digests": {compute_exact.reference(): 3}}
        return json.dumps({"cpus": 1, "seconds": asked["seconds"], "processors": [one]}), {"cpus": 1, "turns": 3}
    took, facts = asked["window_s"], {"cpus": 1, "array_bytes": GIB, "cache_bytes": MIB}
    window = {"late_s": 0, "seconds": took, "end_s": took, "bytes": int(MEMORY_GB_S * took * 1e9), "gb_s": MEMORY_GB_S}
    windows = [{"window": number, **window} for number in range(asked["repeats"])]
    return json.dumps({**facts, "copy": [{"cpu": 0, "verified": True, "windows": windows}]}), facts


def _serial(node: int, gpu: int) -> str:
    return f"CONSTRUCTED-{node + 1}{gpu + 1}"


class Player:
    """A launcher whose nodes are all there, and are the machines of their site."""

    def __init__(self, site: str) -> None:
        """`site`: the inventory's folder."""
        replaced = json.loads(os.environ.get("WALK_MACHINES", "{}"))
        self.machines = {**machines.SITES[Path(site).name], **{n: getattr(machines, m) for n, m in replaced.items()}}
        self.nodes: dict[str, Node] = {}

    async def connect(self, nodes: Sequence[Node]) -> dict[str, str]:
        """Every node answers."""
        self.nodes |= {node.name: node for node in nodes}
        return {}

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        """The words of a probe's command line end with its name and parameters."""
        kind, asked = probe[-2], json.loads(probe[-1])
        serves = kind == "serve"
        if serves:
            kind, asked = asked["tool"], asked["asked"]
        return Recorded(node, self.document(kind, asked, node, serves), serves)

    async def here(self, node: str, probe: Sequence[str]) -> Remote:
        """What is asked from this machine: every as-built check passes, and site.yml would change nothing."""
        now = {key: utc_now() for key in ("started", "ended")}
        said = (
            checked(node, self.nodes[node].groups, **now)
            if "as-built" in probe
            else converged(map(built, self.nodes), **now)
        )
        return Recorded(node, {**said, "command": ["constructed"]}, False)

    async def alive(self, node: str) -> str | None:
        """It answers."""
        return None

    async def close(self) -> None:
        """Nothing is left running."""

    def document(self, kind: str, asked: dict[str, Any], name: str, serves: bool) -> dict[str, Any]:
        """A probe's document; of a serving end its facts, which are half of the proof."""
        tool, stdout, facts = self.alike(name, *self.said(kind, asked, self.nodes[name], serves))
        now = utc_now()
        return {
            "kind": "serve" if serves else kind, "tool": tool, "tool_version": "1", "command": ["constructed", tool],
            "returncode": 0, "stdout": stdout, "stderr": "", "facts": facts, "started": now, "ended": now,
            "duration_s": 1.0, "error": None,
        }  # fmt: skip

    def alike(self, name: str, tool: str, stdout: str, facts: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """The same with one version of each program and one address and serial number of each GPU, for the makers of
        documents have each their own.
        """
        machine, node = self.machines[name], self.nodes[name]
        found = machines.facts(machine, node, 9000)
        whole = {"550.54.15": found["driver"], "580.159.03": found["driver"], "2.27.7": found["nccl"]}
        whole |= dict.fromkeys(("2.7.1", "2.9.0"), found["torch"])
        if tool == "NVML" or (tool == "torch" and '"serial"' in stdout):
            cards = [card["address"] for card in found["pci"] if card["what"] == "gpu"]
            place = list(self.nodes).index(name)
            for index, address in enumerate(cards):
                whole[f"0000:{(0x1A if tool == 'NVML' else 1) + index:02x}:00.0"] = address
                whole[f'"serial": "165{index}"'] = f'"serial": "{_serial(place, index)}"'
            for gpu in facts.get("gpus", ()) if tool == "NVML" else ():
                gpu["serial"] = _serial(place, gpu["index"])
            stdout = json.dumps(facts) if tool == "NVML" else stdout
        words = re.compile("|".join(map(re.escape, whole)))
        text = words.sub(lambda one: str(whole[one[0]]), stdout)
        said = words.sub(lambda one: str(whole[one[0]]), json.dumps(facts))
        return tool, text, json.loads(said)

    def said(self, kind: str, asked: dict[str, Any], node: Node, serves: bool) -> tuple[str, str, dict[str, Any]]:
        """(tool, what it prints, facts)."""
        machine, mtu = self.machines[node.name], 4092 if self.machines[node.name].layer == "InfiniBand" else 9000
        if kind == "facts":
            found = {**machines.facts(machine, node, mtu), "constructed": True}
            found["parts"] = parts(list(self.nodes).index(node.name), found)
            brief = {key: found[key] for key in ("fabric_ports", "rdma_devices")}
            return "facts", "", brief if asked.get("rdma_only") else found
        if kind == "cabling":
            found = plugged({name: ("leaf1", f"Eth1/{node.name}") for name in asked["interfaces"]})
            return "probes", json.dumps(found), found
        if kind == "gpu-container":
            found = gpu_container_case.facts(machine.gpus)
            return "docker", json.dumps(found), found
        if kind == "dcgm-diag":  # the documents tell of none
            return (
                "DCGM",
                "",
                {"level": asked["level"], "returncode": 127, "said": "dcgmi is not installed on this node"},
            )
        if kind == "gpu-health":
            found = gpu_health_case.facts(machine.gpus, model=machine.gpu)
            return "NVML", json.dumps(found), found
        if kind == "rdma-ports":
            return "probes", "", machines.rdma_ports(machine, node, mtu, asked["interfaces"], bool(asked.get("brief")))
        if kind == "ib-fabric":
            there = [each for each in self.nodes.values() if each.ports]
            guids = {each.name: machines.guid_of(each.ports[0].address) for each in there}
            found = {"interfaces": asked["interfaces"], "devices": [f"{machine.device}/1"]}
            speed = machine.rate_words.split()[-1]
            return "infiniband-diags", tool_texts.infiniband(asked, guids, speed, machine.device), found
        if kind == "path-mtu":
            return "ping", tool_texts.ping(asked), {}
        if kind in ("tcp-bandwidth", "iperf3"):
            text = "" if serves else tool_texts.iperf3(asked, SHARE * float(node.ports[0].rate_gbps or 0))
            return "iperf3", text, {}
        if kind in ("tcp-latency", "sockperf"):
            found = {} if serves else json.loads((SOCKPERF / "3.7-tcp.facts.json").read_text())
            return "sockperf", "" if serves else (SOCKPERF / "3.7-tcp.out").read_text(), found
        if kind in ("incast", "all-to-all"):
            together = (
                sum(bool(each.ports) for each in self.nodes.values()) if kind == "incast" else len(asked["peers"]) + 1
            )
            rate = SHARE * float(node.ports[0].rate_gbps or 0)
            return "iperf3", seat(asked, serves, len(asked["peers"]) if serves else together - 1, 0.9 * rate), {}
        if kind.startswith("rdma-"):
            return self.rdma(kind, asked, node, serves)
        if kind == "gpu-compute":
            document = compute_case.document([compute_case.gpu(n, asked, machine.gpu) for n in range(machine.gpus)])
            return "torch", document["stdout"], document["facts"]
        if kind in ("exact-compute", "memory-bandwidth"):
            return "probes", *processors(kind, asked)
        return self.work(kind, asked, node)

    def load(self, asked: Mapping[str, Any], gpus: Sequence[dict[str, Any]]) -> tuple[str, str, dict[str, Any]]:
        """Memory of both NUMA nodes, and all GPUs at once: 0.78 of what the host's ports above them carry."""
        placed = [{**one, "numa": one["card"]["numa"]} for one in gpus]
        tree = branches([LoadGpu.model_validate({k: one[k] for k in LOAD_KEYS}) for one in placed]) or []
        share = {number: 0.78 * branch.rate / len(branch.gpus) for branch in tree for number in branch.gpus}
        alike = [share.get(number, 1.0) for number in range(len(gpus))]
        found = gpu_load.document(gpu_load.report(asked, placed, together=lambda _: alike))
        return "probes", found["stdout"], found["facts"]

    def rdma(self, kind: str, asked: dict[str, Any], node: Node, serves: bool) -> tuple[str, str, dict[str, Any]]:
        """One end of a measurement between two RDMA ports."""
        machine = self.machines[node.name]
        ib = machine.layer == "InfiniBand"
        # of 56 Gbit/s InfiniBand data has 54.54, of all other rates here the whole
        gbps = SHARE * min(float(node.ports[0].rate_gbps or 0), 54.54 if ib and "FDR" in machine.rate_words else 1e9)
        here, there = (machines.gid(machine, asked[key]) for key in ("address", "peer"))
        index = 0 if ib else 3
        found: dict[str, Any] = {
            "device": machine.device, "rdma_port": 1, "gid_index": index, "gid": here, "active_mtu": 4096,
            "roce_version": "" if ib else "RoCE v2", "link_layer": machine.layer, "port_rate": "", "counters": {},
            "memlock": "unlimited",
            **{f"{way}_{unit}": PLENTY for way in ("sent", "received") for unit in ("packets", "bytes")},
        }  # fmt: skip
        said = ""
        if kind == "rdma-gpu":
            address = next(c for c in machines.facts(machine, node, 9000)["pci"] if c["what"] == "gpu")["address"]
            found |= {"gpu": 0, "gpu_address": address, "gpu_name": machine.gpu, "gpu_memory": "peermem"}
            said = tool_texts.cuda(0, address, "peermem", machine.gpu)
        if serves:
            return kind, tool_texts.ucx_server(asked) if kind == "rdma-ucx" else said, found
        if kind == "rdma-first-light":
            return "ibv_rc_pingpong", tool_texts.pingpong(asked, 6.0, here, there), found
        if kind == "rdma-ucx":
            return "ucx_perftest", tool_texts.ucx(asked, 2.1, gbps), found
        found |= {"op": asked["op"], "cm": asked["cm"]}
        if kind == "rdma-latency":
            return "perftest", tool_texts.perftest_latency(asked, machine, index, LATENCY_US[asked["op"]]), found
        return "perftest", said + tool_texts.perftest_bandwidth(asked, machine, index, gbps), found

    def collectives(self, asked: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """All GPUs of the servers, at three quarters of what the ports of one allow."""
        places = dict(each.rsplit(":", 1) for each in asked["hosts"])
        there = [n for n in self.nodes.values() for p in n.ports if p.address in places]
        hosts = [n.name for n in there for _ in range(asked["ranks"] // len(there))]
        best = {op: 0.2 * rate for op, rate in BEST.items()}
        if len(there) > 1:
            at = Layout(asked["ranks"] // len(there), len(there), "", float(there[0].ports[0].rate_gbps or 0) / 8)
            best = {op: 0.75 * (found[0] if (found := ceiling(op, at)) else 1.0) for op in best}
        more: dict[str, Any] = {"ops": asked["ops"]} if "ops" in asked else {}
        alone = "NCCL_P2P_DISABLE=1" in asked.get("variables", ())
        if alone:  # each rank by its share of the ports
            each = asked["ranks"] // len(there)
            best = dict.fromkeys(best, 0.7 * float(there[0].ports[0].rate_gbps or 0) / 8 / each)
        made = torch_document(hosts, asked["sizes"], "nccl", best, model=self.machines[hosts[0]].gpu, **more)
        port = self.machines[hosts[0]].device
        ways = {"inside": "NET/IB/0"} if alone else {}
        rdma = asked["transport"] != "tcp"
        log = nccl_log(hosts, rdma, there[0].ports[0].interface, (f"{port}:1",), **ways)
        log += port_lines([node.name for node in there], rdma)
        return "torch", log + made["stdout"], made["facts"]

    def train(self, asked: dict[str, Any], share: float = 1.0) -> tuple[str, str]:
        """Rank 0's report of a job, at a share of the usual rate, and what its libraries say."""
        places = dict(each.rsplit(":", 1) for each in asked["hosts"])
        hosts = [
            n.name
            for n in self.nodes.values()
            for p in n.ports
            if p.address in places
            for _ in range(int(places[p.address]))
        ]
        kept = 1 if asked["ranks"] == 1 else 0.975 if len(places) == 1 else 0.95  # of what each rank has alone
        text = tool_texts.training(asked, hosts[: asked["ranks"]], share * RATE * asked["ranks"] * kept)
        device, several = self.machines[hosts[0]].device, list(dict.fromkeys(hosts))
        lane = f"{'rc_mlx5' if device == 'mlx5_0' else 'rc_verbs'}/{device}:1" if device else ""
        log = tool_texts.ucx_log(several, lane)
        if asked["transport"] == "tcp" and len(several) > 1:
            log = f"[{hosts[0]}:7] mca: bml: Using tcp btl for send to [[1,1],2] on node {several[1]}\n"
        return text, log

    def work(self, kind: str, asked: dict[str, Any], node: Node) -> tuple[str, str, dict[str, Any]]:
        """Training on the GPU servers, and GPUs over the network."""
        if kind == "training-short":
            text, log = self.train(asked)
            return "horovod", log + text, json.loads(text)
        if kind == "training-turns":
            whole, shares = "", {"tcp": 0.8, "real": 0.99, "cores-1": 0.3, "cores-2": 0.6}
            for turn in range(1, asked["turns"] + 1):
                for way in asked["ways"]:
                    job = vars(training_turns_probe.job_of(make(training_turns_probe.Asked, asked), way))
                    text, log = self.train(job, shares.get(way, 1.0))
                    if way.startswith("gdr"):  # far from each other, as the documents' machines have it
                        log += (
                            f"gpu1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> {job['ranks'] - 1}[0] [send] via NET/IB/0\n"
                        )
                    whole += f"== turn {turn} of {asked['turns']}: {way}\n{log}{text}"
            return "horovod", whole, {}
        if kind == "collectives":
            return self.collectives(asked)
        if kind in ("gpu-copies", "gpu-load"):
            machine = self.machines[node.name]
            cards = [card for card in machines.facts(machine, node, 9000)["pci"] if card["what"] == "gpu"]
            gpus = [gpu_copies.gpu(i, machine.gpu, card=card, address=card["address"]) for i, card in enumerate(cards)]
            if kind == "gpu-load":
                return self.load(asked, gpus)
            memory = memory_rate(machine.gpu)
            inside = 0.87 * memory.gb_s if memory else 1.0

            def rate(cell: Mapping[str, Any]) -> float:
                return inside if cell["what"] == "local" else gpu_copies.usual(cell)

            found = gpu_copies.document(gpu_copies.report(asked, gpus, rate=rate))
            return "probes", found["stdout"], found["facts"]
        if kind == "gpu-tools":
            found = gpu_tools.document()  # the documents tell of none
            return "NVIDIA's tools", found["stdout"], found["facts"]
        who = {"engine": "an engine", "engine_release": "1", "emulated": False}
        if kind == "remoting-copy":
            gpus = {name: self.machines[name].gpus for name in asked["servers"]}
            found = {"servers": asked["servers"], "gpus": sum(gpus.values()), **who}
            return "toolkit", tool_texts.copybench(asked, node.name, gpus), found
        if kind == "remoting-isolate":
            attempts = attempts_made(elsewhere=asked["elsewhere"])
            found = {"server": asked["server"], "elsewhere": asked["elsewhere"], "attempts": attempts, "gone_s": 1.5}
            return "toolkit", "", {**found, **who}
        if kind == "remoting-fraction":
            count = len(asked["parts"])
            whole = 16384
            shares = [part.split("/") for part in asked["parts"]]
            totals = [int(whole * int(a) / int(b)) * MIB for a, b in shares]
            found = {
                "server": asked["server"],
                "parts": asked["parts"],
                "uuids": ["GPU-0"] * count,
                "memory_mib": whole,
                "reserved_mib": 0,
                "context_bytes": MIB,
            }
            taken = {"total_bytes": totals, "taken_bytes": totals, "codes": [2] * count, "beyond": "waiting"}
            return "toolkit", "", {**found, **taken, **who}
        if kind in ("remoting-train", "remoting-infer"):
            made = (train_document if kind == "remoting-train" else infer_document)(asked, emulated=False)
            return "toolkit", made["stdout"], {"server": asked["server"], **who}
        if kind == "remoting-shares":
            made = shares_document(asked, emulated=False)
            return "toolkit", made["stdout"], {"server": asked["server"], "parts": asked["parts"], **who}
        if kind in (*WORLDS, *BESIDE):
            # the documents have every layout a little above the native one
            how = {"ratios": dict.fromkeys(("L", "LR", "R"), 1.02)} if kind == "remoting-layout" else {}
            made = {**WORLDS, **BESIDE}[kind](asked, emulated=False, **how)
            return "toolkit", made["stdout"], {**made["facts"], **who}
        if kind == "remoting-unchanged":
            made = unchanged_document(asked, emulated=False)
            return "toolkit", made["stdout"], {**made["facts"], **who}
        if kind == "remoting-move":
            made = move_document(asked, emulated=False)
            return "toolkit", made["stdout"], {**made["facts"], **who}
        if kind == "remoting-pooled":
            made = pooled_document(asked, emulated=False)
            return "toolkit", made["stdout"], {**made["facts"], **who}
        kept = KINDS / f"{kind}.json"  # of a measurement that depends on no machine's form: as it was recorded
        recorded = json.loads(kept.read_text()) if kept.exists() else {"params": None}
        if recorded["params"] == json.loads(json.dumps(asked)):
            return "probes", recorded["document"]["stdout"], recorded["document"]["facts"]
        sys.exit(f"machines.py: nothing is made up of {kind} with {asked}; choose a profile or suites without it")


acceptance.make_launcher = Player

if __name__ == "__main__":
    sys.argv[0] = "toolkit"
    main()
