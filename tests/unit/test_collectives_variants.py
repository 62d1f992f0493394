"""NCCL rail by rail, with NVLS on and off, and by the network alone: each switch is traced in NCCL's own log.

Reports and logs are constructed (tests/support/collectives_documents.py); no GPU took part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import rdma_case
from tests.support.collectives_documents import document_of, nccl_log
from tests.support.site import BOM, CRITERIA, RUN, criterion, hardware, lab, plan_of, result, verdict_of
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.collectives import collectives_probe as probe
from validation.measures.training.nccl_log import nccl_path
from validation.model import CriterionVerdict, Measurement, Port, Topology
from validation.plan.suites import make_plan
from validation.rules.fabric import load_fabric

RAILS, NETWORK, NVLS = "tr.ncclrail", "tr.nccliso", "tr.ncclnvls"
ON = "gpu1:4711:4799 [0] NCCL INFO NVLS comm 0x7f00 headRank 0 nHeads 8 buffSize 1048576\n"
Change = Callable[[Measurement], dict[str, Any] | None]


def site(rails: int = 3, model: str = "H100") -> Topology:
    """Two GPU servers with so many fabric ports, each in a subnet of its own."""
    whole = hardware(("gpu1", "gpu2"), first=13, bom=BOM.model_copy(update={"gpu_model": model}))
    nodes = []
    for number, node in enumerate(whole.nodes):
        ports = [node.ports[0]]
        ports += [Port(interface=f"fab{i}", address=f"10.{78 + i}.0.{13 + number}", prefix=24) for i in range(1, rails)]
        nodes.append(node.model_copy(update={"ports": tuple(ports)}))
    return whole.model_copy(update={"nodes": tuple(nodes)})


def own_device(facts: dict[str, Any], _: bool) -> None:
    """Each port of a node is a card's of its own: fab2 is mlx5_2."""
    for port in facts["ports"]:
        port["device"] = f"mlx5_{port['interface'][3:]}"


def judged(id_: str, change: Change = lambda m: None, topology: Topology | None = None) -> CriterionVerdict:
    """A criterion of two healthy servers, where jobs print what `change` says."""
    topology = topology or site()
    plan = plan_of(topology, ("preflight", "training"), "roce40")
    found = []
    for m in plan.measurements:
        if m.kind == "rdma-ports":
            found.append(rdma_case.ports_of(topology, m, own_device))
        elif m.kind == "facts":
            found += [r for r in rdma_case.results(topology, plan) if r.measurement == m.id]
        elif m.kind == "collectives":
            told = {"port_gb_s": 5.0 * (1 if m.params.get("variant") == "rail" else 3), **usual(m), **(change(m) or {})}
            samples, facts = parse(m.kind, document_of(m, **told), m.params)  # type: ignore[arg-type]
            found.append(result(m, samples, facts=facts))
    return criterion(verdict_of(topology, plan, found, fabric="roce40"), id_)


def hosts_of(m: Measurement) -> list[str]:
    return [name for name in m.params["hosts"] for _ in range(int(str(m.params["ranks_per_node"])))]  # type: ignore[union-attr]


def usual(m: Measurement) -> dict[str, Any]:
    """What healthy jobs say: the rail's device alone, and NVLS in a node."""
    if m.params.get("variant") == "rail":
        return {"stderr": nccl_log(hosts_of(m), devices=(f"mlx5_{m.params['rail']}:1",))}
    if m.params["label"] == "inside":
        return {"stderr": nccl_log(hosts_of(m), inside="P2P/CUMEM") + ON}
    return {"scale": 0.75} if m.params.get("variant") == "nvls-off" else {}


def of(variant: str, **told: Any) -> Change:
    return lambda m: told if m.params.get("variant") == variant else None


# --- the plan


def test_jobs_with_something_off_follow_the_usual_ones_count_in_time_and_are_left_out_where_it_is_to_be_quick() -> None:
    plan = plan_of(site(), ("training",), "roce40")
    ids = [m.id for m in plan.measurements if m.params.get("variant")]
    assert ids == [
        "collectives.nvls-off.gpu1", "collectives.nvls-off.gpu2", "collectives.isolated.gpu1",
        "collectives.isolated.gpu2", "collectives.isolated", "collectives.rail.fab0", "collectives.rail.fab1",
        "collectives.rail.fab2",
    ]  # fmt: skip
    assert {m.estimated_s for m in plan.measurements if m.id in ids} == {30.0}
    for m in plan.measurements:
        if m.kind == "collectives":  # what is judged of the usual jobs is not judged of these
            assert {RAILS, NETWORK, NVLS}.isdisjoint(m.criteria) is not bool(m.params.get("variant"))
            assert ("tr.nccl" in m.criteria) is not bool(m.params.get("variant"))
    for options, topology in (({"quick": 1}, site()), ({}, lab())):
        short = make_plan(RUN, topology, load_fabric("roce40"), CRITERIA, ("training",), options)
        assert not [m for m in short.measurements if m.params.get("variant")]
        assert {RAILS, NETWORK, NVLS} <= {id_ for one in short.left_out for id_ in one.criteria}
    single = plan_of(site(1, "V100"), ("training",), "roce40")
    assert [m.id for m in single.measurements if m.params.get("variant") in ("rail", "nvls-off")] == []
    assert {RAILS, NVLS} <= {id_ for one in single.left_out for id_ in one.criteria}


def test_a_rail_is_one_port_of_each_host_and_what_is_off_is_told_to_nccl() -> None:
    topology = site()
    plan = plan_of(topology, ("training",), "roce40")
    rail = job_for(plan.measurement("collectives.rail.fab1"), topology).probe.params
    assert rail["ends"] == ["fab1@10.79.0.13", "fab1@10.79.0.14"]
    alone = job_for(plan.measurement("collectives.isolated"), topology).probe.params
    assert alone["ends"][1] == "fab1@10.79.0.13"
    command = probe.mpirun(probe.Asked(**alone), 100)
    for variable in ("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_MNNVL_ENABLE=0"):
        assert command[command.index(variable) - 1] == "-x"
    assert next(word for word in command if word.startswith("NCCL_DEBUG_SUBSYS=")).endswith(",ENV")


def test_operations_that_were_not_planned_are_no_report_of_the_job() -> None:
    topology = site()
    m = plan_of(topology, ("training",), "roce40").measurement("collectives.rail.fab1")
    assert parse(m.kind, document_of(m), m.params)  # type: ignore[arg-type]
    with pytest.raises(ParseError, match="not planned"):
        parse(m.kind, document_of(m, ops=("all_reduce", "all_gather")), m.params)  # type: ignore[arg-type]


def test_what_nccl_says_was_set_is_read() -> None:
    """The forms of NCCL 2.18 to 2.29, some with a point at the end."""
    log = "".join(
        f"gpu1:1:2 [0] NCCL INFO {line}\n"
        for line in ("NCCL_IB_TC set by environment to 106.", "NCCL_P2P_DISABLE set by environment to 1",
                     "NCCL_SOCKET_IFNAME set to =fab0")
    )  # fmt: skip
    assert nccl_path(log, ["gpu1"]).settings == ("NCCL_IB_TC=106", "NCCL_P2P_DISABLE=1", "NCCL_SOCKET_IFNAME==fab0")


# --- rail by rail


def test_rails_that_are_alike_pass_and_one_that_is_slow_is_named() -> None:
    fine = judged(RAILS)
    assert (fine.verdict, len(fine.judgements)) == ("pass", 3), fine.reason
    slow = judged(RAILS, lambda m: {"scale": 0.9} if m.params.get("rail") == 1 else None)
    assert [j.verdict for j in slow.judgements] == ["pass", "fail", "pass"]
    assert slow.judgements[1].subject == "cluster, rail fab1 alone, 4 ranks"
    assert "-10." in slow.judgements[1].reason


def test_a_rail_that_was_not_alone_or_no_rdma_proves_nothing_of_it() -> None:
    def two(m: Measurement) -> dict[str, Any] | None:
        if m.params.get("rail") != 1:
            return None
        return {"stderr": nccl_log(hosts_of(m), devices=("mlx5_0:1", "mlx5_1:1"))}

    both = judged(RAILS, two)
    [odd] = [j for j in both.judgements if j.verdict == "not-measured"]
    assert odd.reason == "it was not alone: mlx5_0:1 taken, the rail is mlx5_1:1"
    socket = judged(
        RAILS, lambda m: {"stderr": nccl_log(hosts_of(m), net="Socket")} if m.params.get("rail") == 2 else None
    )
    assert "not the rail's RDMA" in next(j.reason for j in socket.judgements if j.verdict == "fail")
    mute = judged(RAILS, of("rail", stderr=""))
    assert {j.verdict for j in mute.judgements} == {"not-measured"}


# --- NVLS


def test_nvls_is_compared_at_one_size_where_the_log_tells_of_it_and_only_there() -> None:
    fine = judged(NVLS)
    assert (fine.verdict, len(fine.judgements)) == ("pass", 2), fine.reason
    assert "1.33 times as fast" in fine.judgements[0].reason
    assert "without NVLS, at 2147483648 bytes" in fine.judgements[0].reason
    useless = judged(NVLS, of("nvls-off", scale=0.99))
    assert (useless.verdict, useless.reason_code) == ("fail", "below-floor")
    none = judged(NVLS, lambda m: {"stderr": nccl_log(hosts_of(m))} if m.params["label"] == "inside" else None)
    assert (none.verdict, "NCCL takes no NVLS" in none.reason) == ("not-applicable", True)


def test_a_switch_without_effect_is_no_measurement() -> None:
    def still(m: Measurement) -> dict[str, Any] | None:
        return {"stderr": nccl_log(hosts_of(m)) + ON} if m.params.get("variant") == "nvls-off" else None

    found = judged(NVLS, still)
    assert (found.verdict, "had no effect" in found.reason) == ("not-measured", True)

    def peers(m: Measurement) -> dict[str, Any] | None:
        return {"stderr": nccl_log(hosts_of(m))} if m.params.get("variant") == "isolated" else None

    network = judged(NETWORK, peers)
    assert {j.verdict for j in network.judgements} == {"not-measured"}
    assert "NCCL_SHM_DISABLE=1 had no effect: 2 x P2P in a node" in network.judgements[0].reason


# --- the network alone


def test_the_network_alone_is_proved_by_the_log_and_cannot_carry_more_than_the_ports() -> None:
    fine = judged(NETWORK)
    assert (fine.verdict, len(fine.judgements)) == ("pass", 3), fine.reason
    assert "2 x NET/IB in a node" in fine.judgements[0].reason
    bound = fine.judgements[0].bound
    assert bound is not None
    assert bound.ceiling == pytest.approx(3 * 5 / 2)
    fast = judged(NETWORK, of("isolated", scale=2))  # as the published "MNNVL disabled" that changed nothing
    assert {j.reason_code for j in fast.judgements} == {"above-ceiling"}
    socket = judged(NETWORK, lambda m: {"stderr": nccl_log(hosts_of(m), inside="NET/Socket/0", net="Socket")}
                    if m.params.get("variant") == "isolated" else None)  # fmt: skip
    assert {j.verdict for j in socket.judgements} == {"fail"}
