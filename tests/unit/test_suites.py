"""Plans: everything in rounds, nobody twice in a round, what is left out said in words."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.site import (
    ALL,
    BOM,
    CRITERIA,
    criterion,
    hardware,
    lab,
    node,
    plan_of,
    results_of,
    run_info,
    verdict_of,
)
from toolkit.verdict_text import print_verdict
from validation.model import Bmc, Bom, Port, Storage, Topology
from validation.plan.suites import DEFAULT, SUITES, PlanError, make_plan
from validation.rules.fabric import load_fabric


def kinds(plan, kind):
    return [m for m in plan.measurements if m.kind == kind]


def test_the_labs_plan():
    plan = plan_of(lab())
    counts = Counter(m.kind for m in plan.measurements)
    pairs = {"path-mtu": 12, "tcp-bandwidth": 12, "tcp-latency": 12}
    switch = {"incast": 1, "all-to-all": 1}
    training = {"training-short": 3, "training-turns": 3, "collectives": 1, "training-long": 1}
    assert counts == {"facts": 4, "cabling": 4, **pairs, **switch, **training}
    assert len(plan.rounds) == 1 + 1 + 6 + 6 + 6 + 2 + 3 + 3 + 1 + 1
    assert [left.why for left in plan.left_out] == [
        "no BMC is declared for any node (host variable bmc)",
        "no switch is declared (variable switches)",
        "incast and all to all in a rehearsal: one set of ports, and one of them receives",
        "hours of the long test (tn.hours): no network of the document is trained",
        "decoders (tn.tflops, tn.losses): none was asked for (--decoders tiny, or 1b,8b on GPUs)",
        "tf_cnn_benchmarks (tn.tfcnn): only where the operator has it, by --tf-cnn-benchmarks",
        "training in turns in a rehearsal: numbers of ranks are those of nodes, one rank of each",
        "collective operations inside a node: a rehearsal takes one rank of each of two nodes",
        "NVLS on and off, isolated runs and rails of NCCL: a rehearsal has no NCCL",
        "the long test in a rehearsal: a small network on a tiny set, which is made there",
    ]
    assert plan.estimated_s == pytest.approx(sum(max(plan.measurement(i).estimated_s for i in r) for r in plan.rounds))


@pytest.mark.parametrize(
    "names", [("head", "gpu1"), ("head", "client1", "gpu1", "gpu2"), tuple(f"gpu{i}" for i in range(7))]
)
def test_rounds_hold_each_measurement_once_and_each_node_at_most_once(names):
    plan = plan_of(lab(names))
    ids = [i for r in plan.rounds for i in r]
    assert sorted(ids) == sorted(m.id for m in plan.measurements)
    assert len(ids) == len(set(ids))
    for ids in plan.rounds:
        measurements = [plan.measurement(i) for i in ids]
        assert len({m.kind for m in measurements}) == 1
        busy = [n for m in measurements for n in m.nodes]
        assert len(busy) == len(set(busy))


def test_every_measurement_serves_a_criterion_and_can_end():
    plan = plan_of(lab())
    known = {c.id for c in CRITERIA}
    for measurement in plan.measurements:
        assert measurement.criteria
        assert set(measurement.criteria) <= known
        assert measurement.timeout_s > measurement.estimated_s > 0
        assert "/" not in measurement.id


def test_every_criterion_with_a_probe_is_planned():
    plans = [plan_of(lab(emulated_gpus=4), fabric=fabric) for fabric in ("tcp10", "roce40", "ib-edr")]
    plans.append(plan_of(lab(), [suite for suite in SUITES if suite not in DEFAULT]))
    with_gpus = hardware(bom=BOM.model_copy(update={"gpu_count": 1}))  # NVIDIA's own tools look at no emulated device
    plans.append(plan_of(with_gpus, ["compute"]))
    real = hardware(("gpu1", "gpu2"), bom=BOM.model_copy(update={"gpu_model": "H100"}))  # a lab has no NCCL
    second = [Port(interface="fab1", address=f"10.79.0.{i}", prefix=24) for i in (1, 2)]
    rails = [n.model_copy(update={"ports": (*n.ports, p)}) for n, p in zip(real.nodes, second, strict=True)]
    plans.append(plan_of(real.model_copy(update={"nodes": tuple(rails)}), ["training"], fabric="roce40"))
    gpus = hardware(("gpu1", "gpu2"), bom=Bom(gpu_count=2, gpu_model="V100"))
    plans.append(plan_of(gpus))  # the lab trains nothing that takes hours
    plans.append(plan_of(gpus, ["training"], options={"data": "/data/imagenet", "checkpoints": "/data/checkpoints"}))
    plans.append(plan_of(gpus, options={"tf_cnn_benchmarks": "/opt/x.py"}))
    plans.append(plan_of(lab(), ["training"], options={"decoders": "tiny"}))
    direct = [n.model_copy(update={"ports": tuple(p.model_copy(update={"rdma": True}) for p in n.ports)})
              for n in gpus.nodes]  # fmt: skip
    plans.append(plan_of(gpus.model_copy(update={"nodes": tuple(direct)}), ["transport", "training"], fabric="roce40"))
    plans.append(plan_of(hardware(bmc=Bmc(address="10.0.9.1", user="acceptance"))))
    plans.append(plan_of(hardware().model_copy(update={"switches": ("leaf1",)})))
    home = (Storage(name="home", path="/mnt/home", shared=True),)
    plans.append(plan_of(hardware(storage=home, bom=Bom(gpu_count=2, gpu_model="H100")), ["storage", "burn-in"]))
    plans.append(plan_of(hardware(), ["recovery"], options={"reboots": 1}))
    with_bmc = hardware(bmc=Bmc(address="10.0.9.1", user="acceptance"))
    plans.append(plan_of(with_bmc, ["recovery"], options={"power_cycles": 1}))
    planned = {c for plan in plans for m in plan.measurements for c in m.criteria}
    assert planned == {c.id for c in CRITERIA if c.no_probe is None}


def test_the_same_topology_gives_the_same_plan():
    assert plan_of(lab()) == plan_of(lab())


def test_training_on_emulated_processors_is_left_out_with_its_criteria_named():
    topology = lab()
    emulated = [n.model_copy(update={"virtual": "qemu", "emulated": True}) for n in topology.nodes]
    topology = topology.model_copy(update={"nodes": tuple(emulated)})
    plan = plan_of(topology)
    assert not kinds(plan, "training-short")
    assert any("tn.short" in left.criteria and "gpu1, gpu2 are emulated" in left.why for left in plan.left_out)
    with pytest.raises(PlanError, match="suite training would measure nothing"):
        plan_of(topology, ("training",))


def test_training_that_the_inventory_leaves_out_is_not_planned_and_said_to_be_so():
    topology = lab()

    def without(*names: str):
        nodes = [n.model_copy(update={"trains": n.name not in names}) for n in topology.nodes]
        return plan_of(topology.model_copy(update={"nodes": tuple(nodes)}))

    plan = without("gpu1", "gpu2")
    assert not kinds(plan, "training-short") + kinds(plan, "collectives")
    (left,) = [left for left in plan.left_out if "horovod_state: absent" in left.why]
    assert "leaves it out of gpu1, gpu2" in left.why
    assert {"tn.short", "tn.intra", "tn.inter"} <= set(left.criteria)
    verdict, shown = verdict_of(topology, plan, results_of(plan)), io.StringIO()
    assert "horovod_state: absent" in criterion(verdict, "tn.short").reason
    print_verdict(Console(file=shown, width=200), run_info(topology, plan), verdict, Path("run"), None)
    assert re.search(r"not measured: \d+ criteria .*, suite not selected or left out of the plan;", shown.getvalue())
    some = kinds(without("gpu1"), "training-short")
    assert {tuple(m.params["hosts"]) for m in some} == {("gpu2",)}


def test_training_jobs():
    jobs = {m.id: m for m in kinds(plan_of(lab()), "training-short")}
    assert set(jobs) == {"training-short.1", "training-short.intra", "training-short.inter"}
    assert [jobs[f"training-short.{k}"].params["ranks"] for k in ("1", "intra", "inter")] == [1, 2, 4]
    inter = jobs["training-short.inter"]
    assert inter.nodes == ("head", "gpu1", "gpu2")
    assert inter.params["hosts"] == ("gpu1", "gpu2")
    assert (inter.params["warmup"], inter.params["steps"]) == (10, 100)


def test_one_gpu_server_leaves_the_job_across_nodes_out_and_says_so():
    plan = plan_of(lab(("head", "gpu1")))
    assert any("tn.inter" in left.criteria for left in plan.left_out)
    topology = lab(("head", "gpu1", "gpu2"))
    single = Topology(
        site="lab", lab_link=topology.lab_link, nodes=tuple(n.model_copy(update={"slots": 1}) for n in topology.nodes)
    )
    plan = plan_of(single)
    assert any("tn.intra" in left.criteria for left in plan.left_out)
    assert len(kinds(plan, "training-short")) == 2


def test_streams_follow_the_links_rate():
    def streams(topology, fabric):
        return kinds(plan_of(topology, ("transport",), fabric), "tcp-bandwidth")[0].params["streams"]

    assert streams(lab(), "tcp100") == 1
    assert streams(lab(rate=25), "tcp100") == 8
    assert streams(Topology(site="x", nodes=lab().nodes), "tcp100") == 8


def test_options():
    fabric = load_fabric("tcp10")
    plan = make_plan("r", lab(), fabric, CRITERIA, ALL, {"seconds": 7, "batch": 4, "steps": None})
    assert kinds(plan, "tcp-bandwidth")[0].params["seconds"] == 7
    assert kinds(plan, "training-short")[0].params["batch"] == 4
    for bad in ({"secs": 3}, {"seconds": 0}, {"seconds": "3"}, {"seconds": True}, {"steps": 1.5}):
        with pytest.raises(PlanError, match=next(iter(bad))):
            make_plan("r", lab(), fabric, CRITERIA, ALL, bad)


def test_large_fleets_are_sampled_and_it_is_said():
    plan = plan_of(hardware([f"gpu{i}" for i in range(80)]), ("preflight", "transport"))
    pairs = kinds(plan, "tcp-bandwidth")
    assert len(pairs) == 8 * 2 * 40
    assert len({m.id for m in pairs}) == len(pairs)
    assert {m.nodes[0] for m in pairs} == {f"gpu{i}" for i in range(80)}
    (left,) = [left for left in plan.left_out if "pairs of" in left.why]  # once, not for each kind
    assert left.why == "pairs of fabric ports: 320 of 3160 are measured (sampled)"
    (coverage,) = plan.coverage
    assert "sampled: 80 of 80 ports, 320 of 3160 pairs of ports" in coverage.text
    assert "0 % between a port and its leaf switch, 89.9 % between two ports only" in coverage.text
    full = plan_of(lab([f"gpu{i}" for i in range(64)]), ("transport",))
    assert len(kinds(full, "tcp-bandwidth")) == 64 * 63
    assert [left.why for left in full.left_out] == [
        "incast and all to all in a rehearsal: one set of ports, and one of them receives"
    ]
    assert full.coverage[0].whole


def test_declared_leaf_switches_are_all_met_in_pairs():
    def on_leaf(number, i):
        port = Port(interface="fab0", address=f"10.78.0.{i + 1}", prefix=24, leaf=f"leaf{number}")
        return node(f"gpu{i}", i + 1, ports=(port,), virtual=None)

    topology = Topology(site="s", nodes=tuple(on_leaf(i // 16, i) for i in range(96)))
    plan = plan_of(topology, ("preflight", "transport"))
    (coverage,) = plan.coverage
    assert (coverage.method, coverage.leaf_pairs, coverage.leaf_pairs_possible) == ("by leaf", 15, 15)
    met = {frozenset(int(n.removeprefix("gpu")) // 16 for n in m.nodes) for m in kinds(plan, "tcp-bandwidth")}
    assert len(met) == 15 + 6  # every two leaf switches, and each by itself
    assert "15 of 15 pairs of leaf switches" in coverage.text


def test_of_a_fleet_each_rdma_operation_runs_once_and_it_is_said():
    def per_pair(count):
        topology = hardware([f"gpu{i}" for i in range(count)])
        plan = plan_of(topology, ("transport",), "roce40")
        first = kinds(plan, "rdma-first-light")[0]
        mine = [m for m in plan.measurements if m.endpoints == first.endpoints and m.kind.startswith("rdma")]
        return plan, Counter(m.kind for m in mine), sum(m.estimated_s for m in mine)

    small, every, long_s = per_pair(4)
    fleet, few, short_s = per_pair(66)
    assert every["rdma-bandwidth"] > few["rdma-bandwidth"] >= 3  # write, read and send
    assert few["rdma-latency"] == every["rdma-latency"] == 3
    assert few["rdma-first-light"] == few["rdma-ucx"] == 1
    assert short_s < long_s / 1.8
    assert any("RDMA of more than 64 ports: one run" in left.why for left in fleet.left_out)
    assert not any("RDMA of more than" in left.why for left in small.left_out)
    assert {c for m in small.measurements for c in m.criteria} == {c for m in fleet.measurements for c in m.criteria}


def test_rdma_over_fewer_ports_has_a_coverage_of_its_own():
    topology = hardware()
    plan = plan_of(topology, ("preflight", "transport"), "roce40")
    assert [one.what for one in plan.coverage] == ["fabric ports"]
    bare = topology.nodes[0].ports[0].model_copy(update={"rdma": False})
    fewer = (topology.nodes[0].model_copy(update={"ports": (bare,)}), *topology.nodes[1:])
    plan = plan_of(topology.model_copy(update={"nodes": fewer}), ("preflight", "transport"), "roce40")
    assert [(one.what, one.ports) for one in plan.coverage] == [("fabric ports", 4), ("fabric ports with RDMA", 3)]


def test_ports_meet_only_in_their_own_subnet():
    def rails(name, i):
        return node(
            name,
            i,
            ports=(
                Port(interface="fab0", address=f"10.78.0.{i}", prefix=24),
                Port(interface="fab1", address=f"10.79.0.{i}", prefix=24),
            ),
        )

    topology = Topology(site="s", nodes=tuple(rails(f"gpu{i}", i) for i in range(1, 5)))
    plan = plan_of(topology, ("transport",))
    pairs = kinds(plan, "tcp-bandwidth")
    assert len(pairs) == 2 * 12
    assert all(m.endpoints[0].port == m.endpoints[1].port for m in pairs)
    apart = Topology(
        site="s",
        nodes=(node("gpu1", 1), node("gpu2", 2, ports=(Port(interface="f", address="10.1.0.1", prefix=24),))),
    )
    with pytest.raises(PlanError, match="no two ports in the same subnet"):
        plan_of(apart, ("transport",))


def test_tcp_bandwidth_over_infiniband_is_planned_for_its_report_alone():
    plan = plan_of(lab(), ALL, "ib-edr")
    assert {m.criteria for m in plan.measurements if m.kind == "tcp-bandwidth"} == {("tr.ipoib",)}
    assert kinds(plan, "tcp-latency")


def test_copies_of_gpus_are_planned_where_pairs_of_ports_were_left_out_by_name_and_not_by_a_mistake():
    pairs = ",".join(c.id for c in CRITERIA if c.suite == "transport" and c.scope == "pair")
    plan = plan_of(lab(emulated_gpus=4), ("preflight", "transport"), options={"without": pairs})
    assert {m.kind for m in plan.measurements if m.suite == "transport"} >= {"gpu-copies"}
    assert not kinds(plan, "tcp-bandwidth")
