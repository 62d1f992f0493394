"""RDMA between the memory of GPUs: which GPU an end takes, what its perftest can, and what is made of its figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.rdma_case import TRANSPORT, machines, vms
from tests.support.rdma_documents import CASES, doc
from tests.support.site import criterion, healthy, plan_of, result, verdict_of
from tests.support.trees import SERVERS, write
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.rdma import rdma_gpu_probe, rdma_serving_probe
from validation.model import Judgement, Plan, Result, Topology
from validation.probes import rdma
from validation.probes.tool import Ran

ID = "tr.rdmagpu"
CASE = "constructed-4.5-write_bw-cuda"
PLAIN = "  -d, --ib-dev=<dev>  Use IB device <dev>\n      --report_gbits\n"
CUDA = PLAIN + "      --use_cuda=<cuda device id> Use CUDA specific device for GPUDirect RDMA testing\n"
DMABUF = CUDA + "      --use_cuda_dmabuf Use CUDA DMA-BUF for GPUDirect RDMA testing\n"
ENDS = {"address": "10.0.0.1", "peer": "10.0.0.2", "port": 18515, "transport": "ib"}
ASKED = rdma_gpu_probe.Asked(interface="ib0", **ENDS, seconds=3, size_bytes=1 << 23, qps=4)  # type: ignore[arg-type]


# --- which GPU, and how -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "interface", "bus"),
    [("C4140-K", "ib0", None), ("XE9680", "rail0", 0x15), ("XE9680", "rail5", 0x97), ("R740", "ib0", None)],
)
def test_the_gpu_that_is_nearest_to_the_port_is_taken(tmp_path: Path, server: str, interface: str, bus: Any) -> None:
    write(SERVERS[server], tmp_path)
    gpus = [card for card in rdma_gpu_probe.pcie.collect([interface], tmp_path) if card["what"] == "gpu"]
    port = next(card for card in rdma_gpu_probe.pcie.collect([interface], tmp_path) if card["what"] == "nic")
    found = rdma_gpu_probe.nearest(interface, [card["address"] for card in gpus], tmp_path)
    mine = next(card for card in gpus if card["address"] == found)
    assert mine["numa"] == port["numa"]
    assert rdma_gpu_probe.nearness(port, mine) == max(rdma_gpu_probe.nearness(port, card) for card in gpus)
    if bus is not None:  # one switch for both
        assert {one["address"] for one in mine["above"]} & {one["address"] for one in port["above"]}
    assert rdma_gpu_probe.nearest(interface, [], tmp_path) == ""


def test_dmabuf_is_taken_where_the_module_is_not_loaded_and_the_build_knows_it(tmp_path: Path) -> None:
    assert [rdma_gpu_probe.way(text, tmp_path) for text in (CUDA, DMABUF)] == ["", "dmabuf"]
    (tmp_path / "module/nvidia_peermem").mkdir(parents=True)
    assert [rdma_gpu_probe.way(text, tmp_path) for text in (CUDA, DMABUF)] == ["peermem", "peermem"]


@pytest.mark.parametrize(
    ("help_text", "why"),
    [
        (PLAIN, "its ib_write_bw was built without CUDA (--help has no --use_cuda)"),
        (CUDA, "neither is nvidia_peermem loaded nor does its ib_write_bw know DMA-BUF"),
        ("", "its ib_write_bw was built without CUDA"),
    ],
)
def test_an_end_that_cannot_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, help_text: str, why: str) -> None:
    monkeypatch.setattr(rdma_gpu_probe, "run_tool", lambda *_, **__: Ran(["ib_write_bw"], 0, help_text, ""))
    found = rdma_gpu_probe.choose(ASKED, tmp_path)
    assert found["no_gpu"].startswith(why)
    assert rdma_gpu_probe.options(found) == []


def test_both_ends_name_their_own_gpu_to_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    device = rdma.Device("mlx5_0", 1, "ib0", "InfiniBand", "ACTIVE", "", 0, "", "")
    chosen = {"gpu": 3, "gpu_address": "0000:1a:00.0", "gpu_name": "V100", "gpu_memory": "dmabuf"}
    monkeypatch.setattr(rdma_gpu_probe.rdma_perftest_probe, "look", lambda _: device)
    monkeypatch.setattr(rdma_gpu_probe, "choose", lambda _: chosen)
    ran: list[Any] = []
    monkeypatch.setattr(rdma, "run_on", lambda _, command, facts, __: ran.append((command, facts)))
    rdma_gpu_probe.measure(ASKED)
    command, facts = ran[0]
    assert command[-3:] == ["--use_cuda=3", "--use_cuda_dmabuf", "10.0.0.2"]
    assert facts["gpu_address"] == "0000:1a:00.0"
    _, command, _, facts = rdma_serving_probe._plan(ASKED)
    assert command[-2:] == ["--use_cuda=3", "--use_cuda_dmabuf"]
    assert facts == chosen


def test_memory_that_the_adapter_cannot_register_is_no_limit_of_lockable_memory() -> None:
    said = "Couldn't allocate MR\n"
    plain = rdma.explain(Ran(["ib_write_bw", "-d", "mlx5_0"], 1, "", said))
    gpus = rdma.explain(Ran(["ib_write_bw", "--use_cuda=0"], 1, "", said))
    assert plain is not None
    assert gpus is not None
    assert (plain.code, gpus.code) == ("memlock", "gpu-memory")
    assert "the adapter cannot register the GPU's memory" in str(gpus)


# --- what it printed --------------------------------------------------------------------------------------------------


def parsed(text: str = "", **facts: Any) -> Any:
    kind, told, known, params = CASES[CASE]
    return parse(kind, doc(kind, text or told, {**known, **facts}), params)


def without(end: dict[str, Any], why: str) -> dict[str, Any]:
    """An end that used its host's memory."""
    kept = {key: value for key, value in end.items() if not key.startswith("gpu")}
    return {**kept, "no_gpu": why, "stdout": CASES["constructed-4.5-write_bw"][1]}


def test_an_end_without_a_gpu_gives_no_figure_and_its_reason() -> None:
    known = CASES[CASE][2]
    samples, facts = parsed(peer=without(known["peer"], "its ib_write_bw was built without CUDA"))
    assert samples == []
    assert facts["peer_no_gpu"] == "its ib_write_bw was built without CUDA"
    assert facts["gpu_address"] == "0000:1a:00.0"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda t: t.replace("Picking device No. 1", "Picking device No. 0"), "picked GPU 0 instead of 1"),
        (lambda t: t[t.index("-----") :], "picked GPU none instead of 1"),
        (lambda t: t.replace("using DMA-BUF", "using"), "did not hand the memory over as dmabuf"),
        (lambda t: t.replace("allocated GPU", "allocated"), "took no memory of a GPU"),
        (lambda t: t.replace("address is 1A:00", "address is 1B:00"), "GPU 1 of this end is not 0000:1a:00.0"),
    ],
)
def test_a_figure_counts_only_with_the_gpu_that_was_found(changed: Any, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parsed(changed(CASES[CASE][1]))


def test_no_gpu_and_no_reason_is_refused() -> None:
    with pytest.raises(ParseError, match="names no GPU, and no reason"):
        parsed(peer=without(CASES[CASE][2]["peer"], ""))


# --- planned and judged -----------------------------------------------------------------------------------------------


def with_gpus(site: Topology, **changes: Any) -> Topology:
    """The site, whose servers have four GPUs each."""
    nodes = [n.model_copy(update={"bom": n.bom.model_copy(update={"gpu_count": 4}), **changes}) for n in site.nodes]
    kept = tuple(new if "gpu" in new.name else old for new, old in zip(nodes, site.nodes, strict=True))
    return site.model_copy(update={"nodes": kept})


def gpus_of(plan: Plan) -> list[Any]:
    return [m for m in plan.measurements if m.kind == "rdma-gpu"]


def test_it_is_planned_between_servers_with_gpus_of_hardware() -> None:
    site = with_gpus(machines(2))
    plan = plan_of(site, TRANSPORT, "roce40", options={"anyway": 1})
    assert {m.nodes for m in gpus_of(plan)} == {("gpu1", "gpu2"), ("gpu2", "gpu1")}
    assert {m.criteria for m in gpus_of(plan)} == {(ID,)}  # whether RDMA works is not shown by it
    job = job_for(gpus_of(plan)[0], site)
    assert job.probe.params["anyway"] is True
    assert job.server is not None
    assert job.server.params["tool"] == "rdma-gpu"
    rehearsal = plan_of(with_gpus(vms(2), emulated_gpus=4), TRANSPORT, "roce40")
    assert gpus_of(rehearsal) == []
    why = "no adapter reaches that of emulated ones"
    assert any(why in one.why and ID in one.criteria for one in rehearsal.left_out)


def judged(change: Any) -> Judgement:
    """The judgement on the way from gpu1 to gpu2, whose result `change` makes of the measurement."""
    site = with_gpus(machines(2))
    plan = plan_of(site, TRANSPORT, "roce40")
    results: list[Result] = [change(m) if m in gpus_of(plan) else healthy(m) for m in plan.measurements]
    found = criterion(verdict_of(site, plan, results, fabric="roce40"), ID).judgements
    return next(j for j in found if "gpu1" in str(j.subject).partition("to")[0])


def test_where_no_node_has_gpus_it_has_no_meaning() -> None:
    site = machines(2)
    plan = plan_of(site, TRANSPORT, "roce40")
    assert gpus_of(plan) == []
    verdict = verdict_of(site, plan, [healthy(m) for m in plan.measurements], fabric="roce40")
    assert criterion(verdict, ID).verdict == "not-applicable"


def test_the_figure_is_reported_beside_that_of_host_memory() -> None:
    places = {"gpu_address": "0000:1a:00.0", "gpu_memory": "peermem", "peer_gpu_address": "0000:3b:00.0",
              "peer_gpu_memory": "dmabuf"}  # fmt: skip

    def one(m: Any) -> Result:
        whole = healthy(m)
        return whole.model_copy(update={"facts": {**whole.plain, **places}})

    found = judged(one)
    assert (found.verdict, found.reason_code) == ("not-applicable", "reported")
    assert "38 Gbit/s, GPU 0000:1a:00.0 of gpu1 (peermem) to GPU 0000:3b:00.0 of gpu2 (dmabuf)" in found.reason
    assert "host memory 38.5 Gbit/s" in found.reason


def test_a_perftest_without_cuda_is_not_measured_and_withholds_nothing() -> None:
    found = judged(lambda m: result(m, [], facts={"no_gpu": "its ib_write_bw was built without CUDA"}))
    assert (found.verdict, found.reason_code) == ("not-measured", "no-bound")
    assert found.reason == "gpu1: its ib_write_bw was built without CUDA"


def test_more_than_the_line_is_an_error_of_the_measurement() -> None:
    def fast(m: Any) -> Result:
        whole = healthy(m)
        samples = [s.model_copy(update={"value": 400.0}) for s in whole.samples if s.unit == "Gbit/s"]
        return whole.model_copy(update={"samples": tuple(samples)})

    found = judged(fast)
    assert (found.verdict, found.reason_code) == ("not-measured", "above-ceiling")
