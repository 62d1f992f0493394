"""Imaginary sites: their nodes, plans, results as healthy ones would give them, the judge's verdict, run directories.

Tests spoil them one at a time. The numbers are invented; nothing here was measured.
"""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.driver import whole
from validation.base.yaml_text import plain
from validation.judging.run_data import RunData
from validation.model import (
    Bom,
    Denied,
    LabLink,
    Measurement,
    Node,
    Plan,
    Port,
    Provenance,
    Result,
    RunInfo,
    Sample,
    SshTarget,
    Topology,
    VerdictDoc,
)
from validation.model.node_facts import NodeFacts
from validation.plan.suites import SUITES, make_plan
from validation.rules.fabric import load_fabric, read_fabric
from validation.rules.profile import Profile, load_profile, read_profile
from validation.rules.reference import packaged
from validation.rules.waiver import Waiver
from validation.run.catalogue import load_criteria, read_criteria
from validation.run.kept import as_kept
from validation.run.read import tied
from validation.verdict.judge import judge

CRITERIA = load_criteria()
RUN = "run-1"
NAMES = ("head", "client1", "gpu1", "gpu2")
LAB_LINK = LabLink(rate_gbps=1.0, rtt_max_us=1000)
ALL = ("preflight", "transport", "training")
STACK = {"os": "debian 12", "openmpi": "4.1.4"}
BOM = Bom(model="nspawn", gpu_model="", gpu_count=0, nic_model="", fabric_port_count=1)
FACTS: dict[str, Any] = {
    "type": "node",
    "virt": "systemd-nspawn",
    "lab": "lab",
    "model": "nspawn",
    "gpu_count": 0,
    "gpu_model": "",
    "nic_model": "",
    "fabric_ports": [{"interface": "fab0", "operstate": "up", "mtu": 9000, "speed_mbit": 10000}],
    "rdma_devices": [],
    "pci": [{"what": "nic", "interface": "fab0"}],
    "os": "debian 12",
    "kernel": "6.1.0",
    "python": "3.11.2",
    "openmpi": "4.1.4",
    "docker": "29.9.0",
    "docker_package": "docker-ce 5:29.9.0-1~debian.12~bookworm",
    "runc": "1.4.3",
    "library_env": {"settings": []},
    "tuning": {"governors": [], "sysctls": []},
    "state": {"utc_offset_s": 0, "name_servers": [], "file_systems": [], "others_busy_processors": 0.0},
    "horovod": "",
    "torch": "",
    "probes": "0.1.0",
    **dict.fromkeys(("driver", "fabric_manager", "cuda", "cudnn", "nccl", "ofed", "container_toolkit", "dcgm"), ""),
    **dict.fromkeys(("slurm", "stack_release"), ""),
    **{key: [] for key in ("stand_ins", "not_applicable", "drift", "reboot_pending")},
}
NONE_AGAIN = [Sample(metric="retransmits", value=0, unit="count")]
RATES = {"1": 500.0, "intra": 620.0, "inter": 900.0}


def node(name: str, index: int, port: Mapping[str, Any] | None = None, **changes: Any) -> Node:
    """A container of the lab with one fabric port, the `index`-th address of its networks; `port` is changed of it."""
    group = {"head": "heads", "client1": "clients"}.get(name, "gpu_servers")
    at = "{}.{}".format(*(part + at for at, part in enumerate(divmod(index - 1, 250))))
    values: dict[str, Any] = {
        "name": name,
        "groups": (group,),
        "ssh": SshTarget(host=f"10.77.{at}"),
        "ports": (Port(**{"interface": "fab0", "address": f"10.78.{at}", "prefix": 24, **(port or {})}),),
        "slots": 2 if group == "gpu_servers" else 1,
        "bom": BOM,
        "stack": STACK,
        "virtual": "systemd-nspawn",
    }
    return Node(**{**values, **changes})


def lab(
    names: Iterable[str] = NAMES, rate: float = 1.0, site: str = "lab", first: int = 11, **changes: Any
) -> Topology:
    """`changes` of every node, as `node` takes them."""
    nodes = tuple(node(name, first + i, **changes) for i, name in enumerate(names))
    return Topology(site=site, nodes=nodes, lab_link=LAB_LINK.model_copy(update={"rate_gbps": rate}))


def hardware(names: Iterable[str] = NAMES, site: str = "customer", **changes: Any) -> Topology:
    """The same nodes as real machines, as far as the inventory says."""
    return lab(names, site=site, virtual=None, **changes).model_copy(update={"lab_link": None})


def plan_of(
    topology: Topology,
    suites: Iterable[str] = ALL,
    fabric: str = "tcp10",
    run: str = RUN,
    options: dict[str, Any] | None = None,
) -> Plan:
    return make_plan(run, topology, load_fabric(fabric), CRITERIA, tuple(suites), options)


def around(value: float, count: int, unit: str, metric: str, spread: float = 0.002, seed: str = "") -> list[Sample]:
    generator = random.Random(f"{metric}{value}{seed}")
    return [
        Sample(metric=metric, value=value * (1 + generator.uniform(-spread, spread)), unit=unit) for _ in range(count)
    ]


def job_samples(m: Measurement, images_per_s: float, spread: float, count: int = 100) -> list[Sample]:
    """Of a training job: rates, and of several ranks what the all-reduce takes."""
    shares = around(0.2, count, "ratio", "allreduce_ratio") if m.params["ranks"] != 1 else []
    return [*around(images_per_s, count, "images/s", "images_per_s", spread), *shares]


def provenance(nodes: Iterable[str] = ("gpu1",), **changes: Any) -> Provenance:
    values: dict[str, Any] = {
        "tool": "test", "tool_version": "1", "command": ("test",), "started": "2026-11-21T10:00:00Z",
        "ended": "2026-11-21T10:00:01Z", "duration_s": 1,
    }  # fmt: skip
    return Provenance(**{"nodes": tuple(nodes), **values, **changes})


def result(of: Measurement | str, samples: Iterable[Sample] = (), **changes: Any) -> Result:
    """`of`: what was measured, or its name."""
    name, nodes = (of, ("gpu1",)) if isinstance(of, str) else (of.id, of.nodes)
    values: dict[str, Any] = {"run": RUN, "measurement": name, "status": "ok", "samples": tuple(samples)}
    return Result(**{**values, "provenance": provenance(nodes), **changes})


def healthy(measurement: Measurement, link_gbps: float = 1.0, facts: dict[str, Any] | None = None) -> Result:
    """What a healthy node or link of the lab measures."""
    if measurement.kind == "facts":
        return result(measurement, facts={**FACTS, **(facts or {})})
    if measurement.kind == "path-mtu":
        return result(measurement, [Sample(metric="path_mtu_bytes", value=9000, unit="bytes")])
    if measurement.kind == "tcp-bandwidth":
        rates = around(0.985 * link_gbps, 12, "Gbit/s", "tcp_bandwidth_gbps", seed=measurement.id)
        return result(measurement, [*rates, *NONE_AGAIN], facts={"receiver_mean_gbps": 0.985 * link_gbps})
    if measurement.kind == "tcp-latency":
        return result(measurement, around(40, 20, "us", "tcp_rtt_us", 0.05, seed=measurement.id))
    if measurement.kind.startswith("rdma-") and measurement.endpoints:
        return healthy_rdma(measurement)
    if measurement.kind in ("incast", "all-to-all"):
        samples, facts = switch_parsed(measurement, 0.95 * link_gbps)
        return result(measurement, samples, facts=facts)
    if measurement.kind in ("as-built", "converged"):
        from tests.support.healthy_nodes import as_built  # which stands on this module

        return as_built(measurement)
    if measurement.kind == "dcgm-diag":
        absent = {"type": "dcgm", "form": 0, "level": measurement.params["level"], "returncode": 127, "version": ""}
        return result(measurement, facts={**absent, "driver": "", "trouble": "none here", "gpus": [], "tests": []})
    if measurement.kind == "gpu-health":
        from tests.support import gpu_health_case  # which stands on this module

        return gpu_health_case.read(measurement, gpu_health_case.facts(1))
    if measurement.kind == "gpu-container":
        from tests.support import gpu_container_case  # which stands on this module

        return gpu_container_case.read(measurement, gpu_container_case.facts(1))
    if measurement.kind == "rdma-ports":
        from tests.support.rdma_case import ports_of  # which stands on this module

        return ports_of(LAB, measurement, None)
    if measurement.kind == "cabling":
        return result(measurement, facts=plugged({"fab0": ("leaf1", f"Eth1/{measurement.nodes[0][-1]}")}))
    if measurement.kind == "collectives":
        from tests.support.collectives_documents import healthy_collectives

        return healthy_collectives(measurement, port_gb_s=link_gbps / 8)
    if measurement.kind == "gpu-copies":
        from tests.support.healthy_nodes import gpu_copies

        return gpu_copies(measurement)
    if measurement.kind in ("gpu-load", "gpu-tools"):
        from tests.support.gpu_load_documents import healthy_others  # which only some sites need

        return healthy_others(measurement)
    if measurement.kind == "training-turns":
        from tests.support.turns_documents import healthy_turns  # which stands on this module

        return healthy_turns(measurement)
    if measurement.kind == "training-long":
        from tests.support.long_documents import healthy_long  # the same

        return healthy_long(measurement)
    if measurement.kind in ("remoting-train", "remoting-infer"):
        from tests.support.remote_train_documents import infer_result, train_result  # which stand on this module

        return (train_result if measurement.kind == "remoting-train" else infer_result)(measurement)
    if measurement.kind == "remoting-shares":
        from tests.support.remote_shares_documents import shares_result  # the same

        return shares_result(measurement)
    if measurement.kind in ("remoting-neighbours", "remoting-noreboot"):
        from tests.support.remote_neighbours_documents import beside_result  # the same

        return beside_result(measurement)
    if measurement.kind in ("remoting-scale", "remoting-layout"):
        from tests.support.remote_worlds_documents import worlds_result  # the same

        return worlds_result(measurement)
    if measurement.kind == "remoting-unchanged":
        from tests.support.remote_unchanged_documents import unchanged_result  # the same

        return unchanged_result(measurement)
    if measurement.kind == "remoting-move":
        from tests.support.remote_move_documents import move_result  # the same

        return move_result(measurement)
    if measurement.kind == "remoting-pooled":
        from tests.support.remote_pooled_documents import pooled_result  # the same

        return pooled_result(measurement)
    rate = RATES[str(measurement.params["label"])]
    return result(measurement, job_samples(measurement, rate, 0.05), facts=trained(measurement))


def switch_parsed(measurement: Measurement, gbps: float) -> Any:
    """Samples and facts of an incast or of all to all, each receiver with that rate."""
    from tests.support.switch_documents import switch_document  # which few sites need
    from validation.kinds import parse

    return parse(measurement.kind, switch_document(measurement, gbps), measurement.params)  # type: ignore[arg-type]


def trained(measurement: Measurement, *carriers: Mapping[str, str]) -> dict[str, Any]:
    """Facts of a training job; `carriers`: what its log tells, by default what the fabric has."""
    params, hosts = measurement.params, measurement.params["hosts"]
    told: Iterable[Mapping[str, str]] = carriers
    if not carriers and len(hosts) > 1:
        ucx = {"library": "UCX", "transport": "rc_mlx5", "device": "mlx5_0:1"}
        told = [{"library": "Open MPI", "transport": "tcp"} if params["transport"] == "tcp" else ucx]
    return {
        "type": "training", "world_size": params["ranks"], "batch": params["batch"], "warmup": params["warmup"],
        "hosts": [name for name in hosts for _ in range(int(params["ranks_per_node"]))], "steps": params["steps"],
        "loss_first": 2.3, "loss_last": 0.2, "parameters": 109698, "threads": 1, "python": "3.11.2", "torch": "1.13.1",
        "horovod": "0.28.1", "mpi": "4.1.4", "carriers": list(told),
    }  # fmt: skip


def plugged(ends: Mapping[str, tuple[str, str] | list[tuple[str, str]]], **changes: Any) -> dict[str, Any]:
    """Facts of cables: port -> switch and port, or several of them that were heard there."""
    about = {"by": "lldpd", "chassis": "00:00:5e:00:53:01", "description": "", "age_s": 3}
    heard = {name: [peers] if isinstance(peers, tuple) else peers for name, peers in ends.items()}
    ports = [
        {"interface": name, "of": name, "optic": None,
         "heard": [{**about, "switch": switch, "port": port} for switch, port in peers]}
        for name, peers in heard.items()
    ]  # fmt: skip
    return {"type": "cabling", "ports": ports, "listeners": {"lldpd": ""}, **changes}


def healthy_rdma(measurement: Measurement, scale: float = 1.0, device: str = "rxe_fab0") -> Result:
    """What a healthy pair of RDMA ports of 40 Gbit/s measures, times `scale`, on `device` of both nodes."""
    op, both = measurement.params.get("op"), 2 if measurement.params.get("bidirectional") else 1
    facts = {"device": device, "peer_device": device, "gid_index": 1, "peer_gid_index": 1, "active_mtu": 4096}
    facts |= {"roce_version": "RoCE v2", "peer_roce_version": "RoCE v2"}
    facts |= {"link_layer": "Ethernet", "peer_link_layer": "Ethernet", "peer_active_mtu": 4096}
    metric, value, unit = {
        "rdma-first-light": ("rdma_pingpong_us", 6.0, "us"),
        "rdma-ucx": ("ucx_latency_us", 2.2, "us"),
        "rdma-latency": (f"rdma_{op}_latency_us", 2.0, "us"),
        "rdma-gpu": ("rdma_gpu_write_gbps", 38.0 * scale, "Gbit/s"),
        "rdma-bandwidth": (
            f"rdma_{op}_{'bidirectional' if both == 2 else 'bandwidth'}_gbps",
            38.5 * both * scale,
            "Gbit/s",
        ),
    }[measurement.kind]
    again = Sample(metric="rdma_retransmits", value=0, unit="count")
    return result(measurement, [Sample(metric=metric, value=value, unit=unit), again], facts=facts)


def with_facts(result: Result, **facts: Any) -> Result:
    """The result with other facts, as its node would have printed them."""
    assert not isinstance(result.facts, dict)
    return Result.model_validate({**dict(result), "facts": {**result.facts.model_dump(), **facts}})


def with_value(measurement: Measurement, value: float) -> Result:
    """A transport measurement with samples around another value."""
    metric, unit = {
        "tcp-bandwidth": ("tcp_bandwidth_gbps", "Gbit/s"),
        "tcp-latency": ("tcp_rtt_us", "us"),
        "path-mtu": ("path_mtu_bytes", "bytes"),
        "incast": ("incast_gbps", "Gbit/s"),
        "all-to-all": ("all_to_all_port_gbps", "Gbit/s"),
    }[measurement.kind]
    if measurement.kind == "path-mtu":
        return result(measurement, [Sample(metric=metric, value=value, unit=unit)])
    more = NONE_AGAIN if measurement.kind == "tcp-bandwidth" else []
    facts = {"receiver_mean_gbps": value} if more else {}
    return result(measurement, [*around(value, 12, unit, metric), *more], facts=facts)


def addressed(topology: Topology, results: Iterable[Result]) -> list[Result]:
    """The results, with the addresses of the topology in facts that say nothing of them: each node has its own."""
    found = []
    for one in results:
        facts = one.facts_of(NodeFacts)
        if facts is not None and facts.state is not None and facts.state.addresses is None and not facts.state.unread:
            names = {n.name: n for n in topology.nodes}
            node = names.get(one.provenance.nodes[0]) if one.provenance.nodes else None
            own = [{"interface": p.interface, "address": p.address} for p in node.ports] if node else []
            one = with_facts(one, state={**facts.state.model_dump(), "addresses": own})
        found.append(one)
    return found


def results_of(plan: Plan, spoil: Callable[[Measurement], Result | None] | None = None, **kwargs: Any) -> list[Result]:
    """Healthy results of the whole plan; `spoil` returns a measurement's other result, or None to leave it healthy."""
    return [(spoil(m) if spoil else None) or healthy(m, **kwargs) for m in plan.measurements]


def run_info(topology: Topology, plan: Plan, **changes: Any) -> RunInfo:
    values: dict[str, Any] = {
        "run": plan.run, "created": created(plan.run), "toolkit_version": "0.1.0", "site": topology.site,
        "inventory": f"inventories/{topology.site}", "fabric": plan.fabric, "suites": plan.suites,
        "command": ("toolkit", "validate", "--fabric", plan.fabric), "documents": {},
    }  # fmt: skip
    return RunInfo(**{**values, **changes})


def write_results(run_dir: Path, results: Iterable[Result], cut_after: int | None = None) -> None:
    """results.jsonl, after `cut_after` results with a torn last line."""
    lines = [r.model_dump_json() + "\n" for r in results]
    if cut_after is not None:
        lines = [*lines[:cut_after], lines[cut_after][:40]]
    (run_dir / "results.jsonl").write_text("".join(lines))


def created(run: str) -> str:
    """When a run of this name began; of one whose name says nothing, always the same moment."""
    found = re.match(r"(\d{4}-\d\d-\d\dT)(\d\d)-(\d\d)-(\d\d)Z", run)
    return "{}{}:{}:{}Z".format(*found.groups()) if found else "2026-11-21T10:15:00Z"


def write_run(
    run_dir: Path,
    topology: Topology,
    plan: Plan,
    results: list[Result],
    waivers: tuple[Waiver, ...] = (),
    judged: bool = True,
    cut_after: int | None = None,
    criteria: Mapping[str, str] | None = None,
    profile: str = "",
) -> Path:
    """A run directory whose raw logs are there already. `criteria`: texts of more files of criteria, by name;
    `profile`: the acceptance profile that it is judged by.
    """
    results = addressed(topology, results)
    (run_dir / "criteria").mkdir(parents=True)
    (run_dir / "reference").mkdir()
    for source in packaged().sources:
        (run_dir / "reference" / source.path.name).write_text(source.text)
    for name, document in (("topology", topology), ("plan", plan)):
        (run_dir / f"{name}.json").write_text(document.model_dump_json(indent=2))
    (run_dir / "fabric.yml").write_text(read_fabric(plan.fabric).text)
    for name, text in ({source.path.name: source.text for source in read_criteria()} | dict(criteria or {})).items():
        (run_dir / "criteria" / name).write_text(as_kept(text))
    if waivers:
        listed = [w.model_dump(mode="json") for w in waivers]
        (run_dir / "waivers.yml").write_text(plain({"waivers": listed}))
    write_results(run_dir, results, cut_after)
    if profile:
        (run_dir / "profile.yml").write_text(read_profile(profile, CRITERIA, SUITES)[1].text)
    info = run_info(topology, plan, documents=tied(run_dir)).model_copy(update={"profile": profile or None})
    (run_dir / "run.json").write_text(info.model_dump_json(indent=2))
    if judged:
        known = load_criteria(run_dir / "criteria")
        agreed = load_profile(profile, known, SUITES) if profile else None
        verdict = judge(RunData(info, topology, plan, load_fabric(plan.fabric), known, results, waivers, agreed))
        (run_dir / "verdict.json").write_text(verdict.model_dump_json(indent=2))
    return run_dir


def judged_by(
    topology: Topology, plan: Plan, results: Iterable[Result], profile: Profile | None, waivers: Iterable[Waiver] = ()
) -> VerdictDoc:
    """By an acceptance profile."""
    return verdict_of(topology, plan, results, waivers, profile=profile)


def verdict_of(
    topology: Topology,
    plan: Plan,
    results: Iterable[Result],
    waivers: Iterable[Waiver] = (),
    fabric: str = "tcp10",
    profile: Profile | None = None,
) -> VerdictDoc:
    info = run_info(topology, plan, fabric=fabric)
    return judge(
        RunData(
            info, topology, plan, load_fabric(fabric), CRITERIA, addressed(topology, results), tuple(waivers), profile
        )
    )


def criterion(verdict: VerdictDoc, id_: str) -> Any:
    return next(c for c in verdict.criteria if c.id == id_)


LAB = lab()
PLAN = plan_of(LAB)
REAL = hardware()
GEN3 = {"gt_s": 8.0, "lanes": 16}
LINK = {"link": GEN3, "card": GEN3, "numa": 0}


def below(root: str, **slot: Any) -> dict[str, Any]:
    """What is above a card in the port of the host at bus `root`, of x16 at 8 GT/s."""
    off = {"capable": True, "control": 0}
    port = {"address": f"0000:{root}:00.0", "link": GEN3, "card": {**GEN3, **slot}, "acs": off}
    return {"above": [port], "host_bridge": f"0000:{root}"}


ADAPTER = {
    "board": "0x15b3 0x1015 0x15b3 0x0003", "firmware": "14.32.1010", "link_layer": "Ethernet",
    "read_request_bytes": 512,
}  # fmt: skip
NIC = {"what": "nic", "interface": "fab0", "address": "0000:3b:00.0", **LINK, **below("3a"), **ADAPTER}
GPU = {"what": "gpu", "address": "0000:18:00.0", **LINK, **below("17")}
REAL_PCI = [NIC, GPU]
REAL_FACTS = {"virt": "none", "lab": "", "pci": REAL_PCI, **whole("580.173.02")}


def spoil(kind, pick, value):
    """Measurements of `kind` of which `pick(source, destination)` holds get another value."""

    def change(m):
        if m.kind == kind and pick(m.endpoints[0].node, m.endpoints[1].node):
            return with_value(m, value)
        return None

    return change


def judged(change, topology=LAB, plan=PLAN, waivers=(), **kwargs):
    return verdict_of(topology, plan, results_of(plan, change, **kwargs), waivers)


def busy(where: str = "host", **shares: float) -> tuple[Denied, ...]:
    """A lab's host that lost 23 % of its time, unless said otherwise."""
    host = Denied(where="host", seconds=4, cpus=2, steal=0.0)
    mine = Denied(where=where, seconds=4, cpus=2, **(shares or {"steal": 0.23}))
    return (mine,) if where == "host" else (mine, host)


def scaled(m):
    """Training as real hardware does it: the lab's ranks share cores, these do not."""
    if m.kind != "training-short":
        return None
    rate = {"1": 500, "intra": 970, "inter": 1900}[m.params["label"]]
    return result(m, job_samples(m, rate, 0.02), facts=trained(m))


def real_results(plan, facts=None, spoil=scaled):
    return results_of(plan, spoil, link_gbps=9.9 / 0.985 * 0.99, facts={**REAL_FACTS, **(facts or {})})


def waiver(criterion: str = "tr.tcpbw", **changes: Any) -> Waiver:
    when, expires = datetime.date(2026, 11, 1), datetime.date(2026, 12, 31)
    values: dict[str, Any] = {"who": "A. Person", "when": when, "why": "cable on order", "expires": expires}
    return Waiver(**{"criterion": criterion, **values, **changes})


def waive_all(verdict):
    return [waiver(c.id) for c in verdict.criteria if c.verdict not in ("pass", "not-applicable")]
