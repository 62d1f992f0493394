"""Copies of GPUs judged: by each GPU's own link, the links of pairs, data sheets and peers; and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import gpu_copies_documents as made
from tests.support.gpu_copies_case import judged, over_nvlink, planned, reasons, topology
from tests.support.site import CRITERIA, criterion, hardware, lab, plan_of, result, verdict_of, write_run
from validation.kinds import parse
from validation.measures.gpu.copies_figures import gpu_figures
from validation.measures.gpu.kinds import FULL, QUICK
from validation.model import Found
from validation.plan.suites import make_plan
from validation.probes.gpu_bench import sizes
from validation.report.documents import read_run
from validation.rules.fabric import load_fabric
from validation.rules.gpus import pcie_rate

pytestmark = pytest.mark.engines


def test_healthy_gpus_pass_and_the_bound_follows_from_the_link() -> None:
    verdict = judged(made.report)
    for id_ in ("tr.h2d", "tr.local", "tr.matrix"):
        assert criterion(verdict, id_).verdict == "pass", criterion(verdict, id_).reason
    bound = criterion(verdict, "tr.h2d").judgements[0].bound
    assert bound is not None
    assert bound.ceiling == pytest.approx(8 * 16 * 128 / 130 / 8)
    assert bound.floor == pytest.approx(0.75 * bound.ceiling)
    assert any("8 GT/s x 16 lanes x 128/130 / 8 = 15.75 GB/s" in line for line in bound.derivation)
    assert pcie_rate(5, 16)[0] == pytest.approx(8)
    assert pcie_rate(32, 16)[0] == pytest.approx(63.02, abs=0.01)


def test_a_card_that_trained_to_half_its_lanes_is_judged_by_what_it_negotiated_and_a_slow_one_fails() -> None:
    narrow = [made.gpu(0), made.gpu(1, card=made.card("0000:1b:00.0", (8.0, 8), (8.0, 16)))]

    def half(cell: Any) -> float:
        return made.usual(cell) * (0.5 if 1 in (cell["source"], cell["target"]) else 1)

    assert criterion(judged(lambda p: made.report(p, narrow, rate=half)), "tr.h2d").verdict == "pass"
    slow = judged(lambda p: made.report(p, rate=half))
    assert set(reasons(slow, "tr.h2d")) == {"gpu1, H to GPU 1", "gpu1, GPU 1 to H"}
    assert "below the floor of 11.82" in reasons(slow, "tr.h2d")["gpu1, H to GPU 1"]


def test_faster_than_the_link_is_no_pass_and_without_a_link_there_is_no_bound() -> None:
    fast = judged(lambda p: made.report(p, rate=lambda c: 2 * made.usual(c)))
    assert criterion(fast, "tr.h2d").reason_code == "above-ceiling"
    bare = [made.gpu(i, card=None, generation=None) for i in range(2)]
    assert criterion(judged(lambda p: made.report(p, bare)), "tr.h2d").reason_code == "no-bound"
    by_nvml = [made.gpu(i, card=None) for i in range(2)]
    assert criterion(judged(lambda p: made.report(p, by_nvml)), "tr.h2d").verdict == "pass"


def test_a_superchip_is_not_held_against_its_pci_express_link() -> None:
    chips = [made.gpu(i, name="NVIDIA GB200") for i in range(2)]
    verdict = judged(lambda p: made.report(p, chips, rate=lambda c: 200 if "2" in c["what"] else made.usual(c)))
    found = criterion(verdict, "tr.h2d")
    assert found.reason_code == "no-bound"
    assert "NVLink-C2C" in found.reason


def test_pairs_below_one_switch_are_held_against_their_own_links() -> None:
    switched = []
    for i in range(2):
        card = made.card(made.gpu(i)["address"])
        narrow = {"gt_s": 8.0, "lanes": 4}
        up = {"address": made.SWITCH, "link": narrow, "card": narrow}
        slot = card["above"][0]
        root = {**up, "address": "0000:15:00.0"}
        switched.append(made.gpu(i, card={**card, "above": [root, up, slot]}))
    bound = criterion(judged(lambda p: made.report(p, switched)), "tr.p2p").judgements[0].bound
    assert bound is not None
    assert bound.ceiling == pytest.approx(15.75, abs=0.01)  # and not the switch's 3.94
    up = criterion(judged(lambda p: made.report(p, switched)), "tr.h2d").judgements[0].bound
    assert up is not None
    assert up.ceiling == pytest.approx(3.94, abs=0.01)


def test_a_gpu_whose_clocks_are_held_low_is_named_with_them() -> None:
    state = {"sm_mhz": 345, "sm_max_mhz": 1530, "throttle_reasons": ["applications_clocks_setting"]}
    asleep = [made.gpu(0), made.gpu(1, state=state)]

    def late(wait: Any) -> float:
        return made.latency(wait) * (4 if wait["source"] == wait["target"] == 1 else 1)

    why = reasons(judged(lambda p: made.report(p, asleep, wait=late)), "tr.local")
    assert list(why) == ["gpu1, inside GPU 1"]
    assert (
        "GPU 1: 345 of 1530 MHz, 110 W, 44 C; held at 345 of 1530 MHz (applications_clocks_setting)"
        in why["gpu1, inside GPU 1"]
    )


def test_a_missing_gpu_a_failed_copy_and_wrong_data_are_holes() -> None:
    verdict = judged(made.report, gpus=4)
    assert "2 of 4 GPUs are there" in criterion(verdict, "tr.matrix").reason

    def broken(params: Any) -> dict[str, Any]:
        report = made.report(params)
        for cell in report["cells"]:
            if cell["what"] == "peer" and cell["source"] == 1:
                cell["error"] = "cuMemcpyPeerAsync: CUDA_ERROR_ECC_UNCORRECTABLE (214)"
            if cell["what"] == "h2d" and cell["target"] == 0 and cell["bytes"] == params["largest_bytes"]:
                cell["verified"] = False
        return report

    verdict = judged(broken)
    found = criterion(verdict, "tr.matrix")
    assert found.verdict == "fail"
    assert "GPU 1 to GPU 0: cuMemcpyPeerAsync: CUDA_ERROR_ECC_UNCORRECTABLE" in found.reason
    assert "H to GPU 0: its data were wrong" in found.reason
    assert criterion(verdict, "tr.h2d").verdict == "not-measured"


def test_emulated_gpus_are_complete_and_prove_no_rate() -> None:
    verdict = judged(lambda p: made.report(p, emulated=True), whole=lab(("gpu1",), emulated_gpus=2))
    assert criterion(verdict, "tr.matrix").verdict == "pass"
    for id_ in ("tr.h2d", "tr.local"):
        assert criterion(verdict, id_).reason_code == "virtual"
        assert criterion(verdict, id_).judgements[0].value
    verdict = judged(lambda p: made.report(p, emulated=True))  # which is no hardware, whatever the inventory says
    for id_ in ("tr.h2d", "tr.local", "tr.matrix"):
        assert criterion(verdict, id_).reason_code == "virtual"


def test_a_node_that_nobody_counted_may_have_none_and_a_site_without_gpus_owes_no_copies() -> None:
    whole = topology()
    bare = whole.nodes[0].model_copy(update={"bom": whole.nodes[0].bom.model_copy(update={"gpu_count": None})})
    none = {"devices": [], "why": "no libcuda.so.1: the GPU driver is not installed"}
    verdict = judged(lambda p: none, whole=whole.model_copy(update={"nodes": (bare,)}))
    assert criterion(verdict, "tr.matrix").verdict == "not-measured"
    assert "no libcuda.so.1" in criterion(verdict, "tr.matrix").reason
    plan = plan_of(hardware(), ("transport",))
    found = criterion(verdict_of(hardware(), plan, []), "tr.h2d")
    assert (found.verdict, found.reason) == ("not-applicable", "the inventory declares no GPU of any node")


def test_it_is_planned_where_gpus_are() -> None:
    plan = plan_of(lab(("gpu1", "gpu2"), emulated_gpus=2), ("transport",))
    assert [m.nodes for m in plan.measurements if m.kind == "gpu-copies"] == [("gpu1",), ("gpu2",)]
    assert not [m for m in plan_of(lab(), ("transport",)).measurements if m.kind == "gpu-copies"]
    assert not [m for m in plan_of(hardware(), ("transport",)).measurements if m.kind == "gpu-copies"]
    (m,) = planned(topology(4)).measurements
    assert m.params["gpus"] == 4
    assert m.params["largest_bytes"] == FULL["largest_bytes"]
    found = Found(user="x", gpus=2, gpu_trouble="", torch="", torch_python="")
    alone = hardware(("gpu1",)).model_copy(update={"here": found})
    assert planned(alone).measurements[0].params["gpus"] == 2
    plan = make_plan("r", alone, load_fabric("tcp10"), CRITERIA, ("transport",), {"anyway": 1, "quick": 1})
    assert plan.measurements[0].params == {**QUICK, "gpus": 2, "anyway": True}
    ill = alone.model_copy(update={"here": found.model_copy(update={"gpu_trouble": "no NVIDIA driver"})})
    left = plan_of(ill, ("preflight", "transport")).left_out
    assert any("no NVIDIA driver" in one.why and "tr.h2d" in one.criteria for one in left)
    assert QUICK["largest_bytes"] < FULL["largest_bytes"]  # type: ignore[operator]


# --- pairs, memory, peers


ALL_IDS = ("tr.h2d", "tr.p2p", "tr.local", "tr.p2plat", "tr.matrix", "tr.uniform", "tr.hbm")


def test_a_healthy_node_passes_everything_and_a_bound_of_a_pair_is_its_links() -> None:
    verdict = judged(over_nvlink, gpus=4)
    for id_ in ALL_IDS:
        assert criterion(verdict, id_).verdict == "pass", (id_, criterion(verdict, id_).reason)
    found = criterion(verdict, "tr.p2p").judgements[0]
    assert found.bound is not None
    assert (found.bound.ceiling, found.bound.floor) == (50, pytest.approx(37))
    assert "P2P over 2 NVLinks" in found.reason
    over_pcie = criterion(judged(made.report), "tr.p2p").judgements[0]
    assert over_pcie.bound is not None
    assert over_pcie.bound.floor == pytest.approx(5)
    assert "P2P over PCIe" in over_pcie.reason


def test_a_peer_path_that_bounces_through_the_host_is_found() -> None:
    said_and_slow = judged(lambda p: over_nvlink(p, rate=7.6), gpus=4)  # the driver says P2P, the copies do not
    why = reasons(said_and_slow, "tr.p2p")
    assert len(why) == 12
    assert "below the floor of 37; P2P over 2 NVLinks, no faster than through the host" in why["gpu1, GPU 0 to GPU 1"]
    refused = judged(lambda p: over_nvlink(p, access=False), gpus=4)
    found = criterion(refused, "tr.p2p")
    assert found.verdict == "fail"
    assert "through the host: the driver gives no peer access, although 2 NVLinks join the two" in found.reason
    without = judged(lambda p: made.report(p, access=False))
    assert "through the host" in criterion(without, "tr.p2p").judgements[0].reason


def test_one_gpu_of_eight_that_is_slower_by_5_percent_is_named_and_no_other() -> None:
    def slow(cell: Any) -> float:
        hurt = cell["what"] in ("h2d", "d2h") and 5 in (cell["source"], cell["target"])
        return made.usual(cell) * (0.95 if hurt else 1)

    healthy = criterion(judged(lambda p: made.report(p, 8), gpus=8), "tr.uniform")
    assert healthy.verdict == "pass", healthy.reason
    found = criterion(judged(lambda p: made.report(p, 8, rate=slow), gpus=8), "tr.uniform")
    failed = [j.reason for j in found.judgements if j.verdict == "fail"]
    assert len(failed) == 2
    assert all("GPU 5" in why and "5.0% below the median of its peers" in why for why in failed)
    assert not any(f"GPU {n}" in why for why in failed for n in (0, 1, 2, 3, 4, 6, 7))


def test_memory_is_held_against_the_data_sheet_and_an_unknown_model_is_reported() -> None:
    def weak(cell: Any) -> float:
        return made.usual(cell) * (0.8 if cell["what"] == "local" and cell["source"] == 1 else 1)

    why = reasons(judged(lambda p: made.report(p, rate=weak)), "tr.hbm")
    assert list(why) == ["gpu1, inside GPU 1"]
    assert "below the floor of 630" in why["gpu1, inside GPU 1"]
    odd = criterion(judged(lambda p: made.report(p, [made.gpu(0, name="Tesla X1"), made.gpu(1)])), "tr.hbm")
    assert odd.judgements[0].reason_code == "no-bound"
    assert "no memory bandwidth of a Tesla X1" in odd.judgements[0].reason


def test_a_healthy_h100_reaches_what_was_published_of_its_memory() -> None:
    def published(cell: Any) -> float:
        return 2475.0 if cell["what"] == "local" else made.usual(cell)

    h100s = [made.gpu(number, name="NVIDIA H100 80GB HBM3") for number in range(2)]
    found = criterion(judged(lambda p: made.report(p, h100s, rate=published)), "tr.hbm")
    assert [j.verdict for j in found.judgements] == ["pass", "pass"], found.reason


def test_pairs_that_answer_late_fail_and_remote_latency_stands_beside_them() -> None:
    verdict = judged(lambda p: made.report(p, wait=lambda w: 45 if w["what"] == "peer" else made.latency(w)))
    assert criterion(verdict, "tr.p2plat").reason_code == "above-maximum"
    remote = criterion(verdict, "tr.remotelat")
    assert (remote.verdict, remote.reason_code) == ("not-applicable", "reported")
    assert "45.04 us between GPUs of the node; between nodes nothing was measured" in remote.reason


def test_a_single_gpu_has_no_pairs_and_nobody_to_be_like() -> None:
    verdict = judged(lambda p: made.report(p, 1), gpus=1)
    for id_ in ("tr.p2p", "tr.p2plat"):
        assert criterion(verdict, id_).reason == "one GPU in this node, and so no pair"
    assert criterion(verdict, "tr.uniform").verdict == "not-applicable"
    assert criterion(verdict, "tr.h2d").verdict == "pass"


def test_nobody_is_found_alike_while_a_nodes_figures_are_lost() -> None:
    whole = hardware(("gpu1", "gpu2"), bom=topology(2).nodes[0].bom)
    plan = planned(whole)

    def uniform(gpus: int, *nodes: str, rate: Any = made.usual) -> Any:
        found = []
        for m in plan.measurements:
            if m.nodes[0] in nodes:
                asked = {**m.params, "gpus": gpus}
                said = made.document(made.report(asked, gpus, rate=rate))
                samples, facts = parse("gpu-copies", said, asked)  # type: ignore[arg-type]
                found.append(result(m, samples, facts=facts))
        return criterion(verdict_of(whole, plan, found), "tr.uniform")

    assert uniform(2, "gpu1", "gpu2").verdict == "pass"
    lost = uniform(2, "gpu1")
    assert {j.verdict for j in lost.judgements} == {"not-measured"}
    assert "but the figures of gpu2 are missing" in lost.judgements[-1].reason
    assert {j.verdict for j in uniform(1, "gpu1").judgements} == {"not-measured"}  # alike to those that are lost
    slow = uniform(2, "gpu1", rate=lambda cell: made.usual(cell) * (0.5 if cell["target"] == 1 else 1))
    assert "fail" in {j.verdict for j in slow.judgements}


def test_no_figure_of_emulated_gpus_is_judged() -> None:
    verdict = judged(lambda p: made.report(p, 2, emulated=True), whole=lab(("gpu1",), emulated_gpus=2))
    for id_ in ("tr.h2d", "tr.p2p", "tr.local", "tr.p2plat", "tr.uniform", "tr.hbm"):
        assert criterion(verdict, id_).reason_code == "virtual", id_


# --- the report


def test_the_report_has_the_first_four_tables_with_what_was_measured_beside_what_was_published(tmp_path: Path) -> None:
    whole = topology(4)
    plan = planned(whole)
    (m,) = plan.measurements
    samples, facts = parse("gpu-copies", made.document(over_nvlink(m.params)), m.params)  # type: ignore[arg-type]
    write_run(tmp_path / "run", whole, plan, [result(m, samples, facts=facts)])
    first, bandwidth, latency, by_size = gpu_figures(read_run(tmp_path / "run"))
    assert first.table is not None
    rows = {(row[0], row[1]): row for row in first.table.rows}
    assert sorted({table for table, _ in rows}) == ["1", "2", "3", "4"]
    assert rows["1", "GPU and GPU of a node"][2:4] == ("5-6 GB/s", "46.95 GB/s (46.95 to 46.95, 12)")
    assert rows["2", "inside a GPU"][2] == "about 7 us"
    assert rows["3", "GPUs of different servers, through the engine"][3] == "not measured"
    for figure in (bandwidth, latency):
        assert figure.svg is not None
        assert "P2P over 2 NVLinks" in figure.caption
        assert figure.table is not None
        assert [len(row) for row in figure.table.rows] == [6] * 5
    assert by_size.table is not None
    assert len(by_size.table.rows) == len(sizes(int(str(m.params["largest_bytes"]))))


def test_a_report_without_copies_says_why(tmp_path: Path) -> None:
    whole = topology(4)
    plan = planned(whole)
    failed = result(plan.measurements[0], status="failed", error="GPU 0000:1a:00.0 is in use by process 7 (python)")
    write_run(tmp_path / "run", whole, plan, [failed])
    (figure,) = gpu_figures(read_run(tmp_path / "run"))
    assert "Not measured: gpu1: GPU 0000:1a:00.0 is in use by process 7" in str(figure.empty)
    assert figure.table is not None
    assert figure.table.rows[0][3] == "not measured"
