"""MPI and NCCL take the fabric's RDMA where it has that, and their own logs prove it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import rdma_case
from tests.support.site import ALL, REAL_FACTS, criterion, healthy, healthy_rdma, plan_of, result, trained, verdict_of
from tests.support.tool_documents import TRAINING_PARAMS, doc, training
from validation.kinds import job_for, parse
from validation.measures.training.carriers import carriers
from validation.measures.training.facts import Carrier, TrainingFacts
from validation.model import Measurement, Result, Topology, VerdictDoc

SITE = rdma_case.machines(2)
UCX_TCP = {"library": "UCX", "transport": "tcp", "device": "eth0"}
NCCL_SOCKET = {"library": "NCCL", "transport": "Socket"}
NCCL_IB = {"library": "NCCL", "transport": "IB"}
UCX_RC = {"library": "UCX", "transport": "rc_mlx5", "device": "mlx5_0:1"}
LOGS = Path("tests/data/carriers")


def judged(
    *told: dict[str, str],
    fabric: str = "roce40",
    topology: Topology = SITE,
    spoil: rdma_case.Spoil | None = None,
    **facts: Any,
) -> VerdictDoc:
    plan = plan_of(topology, ALL, fabric)
    ports = {r.measurement: r for r in rdma_case.results(topology, plan, spoil)}

    def one(m: Measurement) -> Result:
        if m.kind == "training-short":
            return healthy(m).model_copy(update={"facts": TrainingFacts.model_validate({**trained(m, *told), **facts})})
        return ports.get(m.id) or (healthy_rdma(m, device="mlx5_0") if m.endpoints else healthy(m, facts=REAL_FACTS))

    return verdict_of(topology, plan, [one(m) for m in plan.measurements if m.kind != "ib-fabric"], fabric=fabric)


def job(fabric: str, label: str = "inter", topology: Topology = SITE) -> Measurement:
    return plan_of(topology, ALL, fabric).measurement(f"training-short.{label}")


def command(fabric: str, **port: Any) -> str:
    from validation.measures.training import training_short_probe

    m = job(fabric, topology=rdma_case.hardware(["gpu1", "gpu2"], port=port) if port else SITE)
    call = job_for(m, SITE).probe
    return " ".join(training_short_probe.command_for(training_short_probe.Asked(**call.params)))


@pytest.mark.parametrize("fabric", ["roce40", "ib-edr", "pvrdma100"])
def test_on_an_rdma_fabric_mpi_has_ucx_and_ucx_has_no_tcp(fabric: str) -> None:
    line = command(fabric)
    assert "--mca pml ucx --mca btl self " in line
    assert "-x UCX_TLS=rc,ud,sm,self -x UCX_LOG_LEVEL=info" in line
    assert "-x NCCL_IB_DISABLE=0 -x NCCL_DEBUG=INFO" in line
    assert "-x NCCL_SOCKET_IFNAME==fab0 " in line
    assert line.endswith(f"--transport {job(fabric).params['transport']} --ends fab0@10.78.0.13,fab0@10.78.0.14")
    assert "tcp,self" not in line


def test_on_a_tcp_fabric_mpi_and_nccl_have_tcp_alone() -> None:
    line = command("tcp10")
    assert "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include 10.78.0.0/24" in line
    assert "-x NCCL_IB_DISABLE=1" in line
    assert "--transport" not in line
    assert "UCX" not in line


def test_ports_without_rdma_train_over_tcp_and_the_plan_says_so() -> None:
    bare = rdma_case.hardware(["gpu1", "gpu2"], port={"rdma": False})
    plan = plan_of(bare, ("training",), "roce40")
    assert plan.measurement("training-short.inter").params["transport"] == "tcp"
    assert any("tn.path" in left.criteria and "gpu1, gpu2 is TCP-only" in left.why for left in plan.left_out)
    assert "tn.path" not in plan.measurement("training-short.inter").criteria


@pytest.mark.parametrize("fabric", ["roce40", "ib-fdr", "pvrdma100"])
def test_training_over_the_fabrics_rdma_passes(fabric: str) -> None:
    found = criterion(judged(UCX_RC, NCCL_IB, fabric=fabric), "tn.path")
    assert (found.verdict, found.coverage) == ("pass", "1/1 jobs")
    assert found.judgements[0].text == "UCX: rc_mlx5 on mlx5_0:1; NCCL: IB"


@pytest.mark.parametrize("told", [[UCX_TCP], [UCX_RC, NCCL_SOCKET], [{"library": "Open MPI", "transport": "tcp"}]])
def test_training_over_tcp_on_a_fabric_with_rdma_is_a_finding(told: list[dict[str, str]]) -> None:
    verdict = judged(*told)
    found = criterion(verdict, "tn.path")
    assert (found.verdict, found.reason_code) == ("fail", "not-working")
    assert "roce40 has RDMA, and training did not take it" in found.reason
    assert any("tn.path" in f.criteria and "did not take it" in f.text for f in verdict.findings)
    assert (verdict.sign_off, verdict.exit_code) == ("REJECTED", 1)


def test_training_over_another_port_than_the_fabrics_is_a_finding() -> None:
    found = criterion(judged({**UCX_RC, "device": "mlx5_7:1"}), "tn.path")
    assert (found.verdict, found.reason_code) == ("fail", "not-working")
    assert "mlx5_7:1; the fabric ports are mlx5_0:1" in found.reason


def test_a_log_that_does_not_tell_proves_nothing() -> None:
    found = criterion(judged(carriers=[]), "tn.path")
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert criterion(judged(fabric="tcp10"), "tn.path").verdict == "not-applicable"


def test_only_jobs_across_nodes_show_what_the_fabric_carries() -> None:
    assert "tn.path" in job("roce40").criteria
    assert not any("tn.path" in job("roce40", label).criteria for label in ("1", "intra"))


def test_every_fabric_port_of_a_server_may_carry_it_and_no_other() -> None:
    rail = {"interface": "fab1", "address": "10.79.0.13"}
    nodes = [
        node.model_copy(update={"ports": (*node.ports, node.ports[0].model_copy(update=rail))}) if node.ports else node
        for node in SITE.nodes
    ]
    railed = SITE.model_copy(update={"nodes": tuple(nodes)})

    def named(facts: dict[str, Any], _: bool) -> None:
        for number, port in enumerate(facts["ports"]):
            port["device"] = f"mlx5_{number}"

    on = {number: {**NCCL_IB, "device": f"mlx5_{number}:1"} for number in (1, 2)}
    assert criterion(judged(UCX_RC, on[1], topology=railed, spoil=named), "tn.path").verdict == "pass"
    astray = criterion(judged(UCX_RC, on[2], topology=railed, spoil=named), "tn.path")
    assert "mlx5_2:1; the fabric ports are mlx5_0:1, mlx5_1:1" in astray.reason


@pytest.mark.parametrize(
    ("conf", "hca", "gid"),
    [
        (None, "=mlx5_0:1", "3"),
        ("NCCL_IB_TC=106\n", "=mlx5_0:1", "3"),
        ("NCCL_IB_HCA==mlx5_0\n", "=mlx5_0:1", "3"),
        ("# NCCL_IB_HCA==mlx5_9\nNCCL_IB_HCA==mlx5_0,mlx5_1\n", None, None),
        ("NCCL_IB_HCA==mlx5_0\nNCCL_IB_GID_INDEX=5\n", "=mlx5_0:1", None),
    ],
    ids=["no file", "says nothing of it", "the same", "two rails", "its GID"],
)
def test_a_rank_takes_the_adapters_that_its_node_tells_nccl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conf: str | None, hca: str | None, gid: str | None
) -> None:
    from validation.probes import train_world

    for name in ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "UCX_NET_DEVICES", "UCX_IB_GID_INDEX", "GLOO_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    path = tmp_path / "nccl.conf"
    if conf is not None:
        path.write_text(conf)
    monkeypatch.setattr(train_world, "NCCL_CONF", path)
    device = SimpleNamespace(name="mlx5_0", port=1, gid_index=3)
    monkeypatch.setattr(train_world.rdma, "look", lambda *_: device)
    train_world.take_device("roce", "fab0@192.0.2.1,lo@127.0.0.1")
    assert os.environ["UCX_NET_DEVICES"] == "mlx5_0:1"
    assert os.environ["UCX_IB_GID_INDEX"] == "3"
    assert (os.environ.get("NCCL_IB_HCA"), os.environ.get("NCCL_IB_GID_INDEX")) == (hca, gid)


# --- the logs of the libraries ----------------------------------------------------------------------------------------


def test_what_real_libraries_said_over_tcp() -> None:
    assert [str(c) for c in carriers((LOGS / "openmpi-tcp.log").read_text())] == ["Open MPI: tcp"]
    ucx = carriers((LOGS / "ucx-tcp.log").read_text())
    assert [str(c) for c in ucx] == ["UCX: tcp on eth0", "UCX: tcp on lo"]
    assert not any(c.rdma for c in ucx)
    assert carriers((LOGS / "ucx-one-node.log").read_text()) == (), "shared memory leaves no node"


def test_what_ucx_says_over_rdma() -> None:
    """No RDMA device was at hand: the recorded lines with another lane, and the form of later releases."""
    older = (LOGS / "ucx-tcp.log").read_text().replace("tcp/lo tcp/eth0", "rc_verbs/rxe_fab0:1")
    later = "[17.1] [n1:162:0] ucp_worker.c:1855 UCX  INFO    0x100b240 inter-node cfg#3 tag(rc_mlx5/mlx5_0:1)\n"
    within = later.replace("inter-node", "intra-node").replace("mlx5_0", "mlx5_9")
    found = carriers(older + later + within)
    assert [str(c) for c in found] == ["UCX: rc_mlx5 on mlx5_0:1", "UCX: rc_verbs on rxe_fab0:1"]
    assert all(c.rdma for c in found)


def test_nccl_tells_its_network() -> None:
    log = """gpu1:3:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB fab0:10.78.0.13<0>
gpu1:3:9 [0] NCCL INFO Using network IB
gpu2:3:9 [0] NCCL INFO Using internal Network Socket"""
    assert [str(c) for c in carriers(log)] == ["NCCL: IB", "NCCL: Socket"]


def test_the_carriers_are_facts_of_the_result() -> None:
    log = "[gpu1:7] mca: bml: Using tcp btl for send to [[1,1],2] on node gpu2\n"
    found = doc("training-short", training())
    found["stderr"] = log
    _, facts = parse("training-short", found, TRAINING_PARAMS)
    assert isinstance(facts, TrainingFacts)
    assert facts.carriers == (Carrier(library="Open MPI", transport="tcp"),)
    assert not facts.carriers[0].rdma
    assert result(job("roce40"), facts=facts).facts_of(TrainingFacts) == facts
