"""Copies of GPUs: taken on emulated devices, read whole or refused, and judged by each GPU's own link."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import gpu_copies_documents as made
from tests.support.engine_run import MIB, ROOT, built, describe, local
from tests.support.site import CRITERIA, criterion, hardware, lab, plan_of, result, verdict_of, write_run
from toolkit.engine import build
from toolkit.lab.gpufaults import described
from validation.fabric import load_fabric
from validation.facts import GpuCopyFacts
from validation.gpus import pcie_rate
from validation.kinds import parse
from validation.kinds.gpu import FULL, QUICK
from validation.model import Found, Measurement, Plan, Topology, VerdictDoc
from validation.parsers import ParseError
from validation.probes.gpu_copies import busy, sizes
from validation.report.documents import read_run
from validation.report.gpus import gpu_figures
from validation.suites import make_plan

compiles = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
ASKED = {"largest_bytes": MIB, "repeat": 6, "latency_count": 20, "warm_s": 0.02}
PARAMS = {**FULL, "gpus": 2}


def probed(tmp_path: Path, devices: dict[str, str], **asked: Any) -> dict[str, Any]:
    """What the probe prints on emulated devices."""
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(built() / "devices"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "validation.probes", "gpu-copies", json.dumps({**ASKED, **asked})]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@compiles
def test_it_copies_on_emulated_devices_leaves_nothing_and_is_read_whole(tmp_path: Path) -> None:
    devices = describe(tmp_path)
    doc = probed(tmp_path, devices, gpus=2)
    assert doc["error"] is None
    samples, facts = parse("gpu-copies", doc, {**ASKED, "gpus": 2})  # type: ignore[arg-type, typeddict-item]
    assert isinstance(facts, GpuCopyFacts)
    assert facts.emulated
    assert facts.holes == []
    assert facts.path(0, 1).access  # type: ignore[union-attr]
    assert all(len(copy.gb_s) == ASKED["repeat"] for copy in facts.copies)
    assert {s.metric for s in samples} >= {"gpu_h2d_gb_s", "gpu_d2h_gb_s", "gpu_local_us", "gpu_peer_us", "holes"}
    inside = next(c for c in json.loads(doc["stdout"])["cells"] if c["what"] == "local" and c["bytes"] == MIB)
    assert inside["counted"] == 2 * MIB
    assert local(tmp_path, devices).run("start(); said(info())")[0] == [256 * MIB, 256 * MIB]


@compiles
def test_faults_that_are_planted_in_a_lab_are_found(tmp_path: Path) -> None:
    devices = describe(tmp_path, pcie_generation=3, pcie_width=16)
    described_at = tmp_path / "gpus.json"
    whole = json.loads(described_at.read_text())["gpus"]
    rehearsal = lab(("gpu1",), emulated_gpus=2)
    plan = planned(rehearsal)
    (m,) = plan.measurements
    found = {}
    for kind in (None, "gpu-missing", "pcie-x8"):
        described_at.write_text(json.dumps({"gpus": described(whole, kind)}))
        doc = probed(tmp_path, devices, **m.params)
        samples, facts = parse("gpu-copies", doc, m.params)  # type: ignore[arg-type]
        assert isinstance(facts, GpuCopyFacts)
        judged_ = criterion(verdict_of(rehearsal, plan, [result(m, samples, facts=facts)]), "tr.matrix")
        found[kind] = judged_.verdict, judged_.reason, [gpu.lanes for gpu in facts.gpus]
    assert found[None][0] == "pass"
    assert found["gpu-missing"][:2] == ("fail", "1 of 2 GPUs are there")
    assert (found["pcie-x8"][0], found["pcie-x8"][2]) == ("pass", [16, 8])


@compiles
def test_a_gpu_that_somebody_works_on_is_named_and_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    devices = describe(tmp_path)
    holder = local(tmp_path, devices).start("start(1); alloc(8 << 20); said(os.getpid()); sys.stdin.read()")
    pid = holder.stdout.readline().strip()  # type: ignore[union-attr]
    try:
        doc = probed(tmp_path, devices)
        assert f"GPU 0000:11:00.0 is in use by process {pid} (python" in doc["error"]
        assert doc["stdout"] == ""
        assert "0000:10:00.0" not in doc["error"]
        assert probed(tmp_path, devices, anyway=True)["error"] is None
    finally:
        holder.communicate()


@compiles
def test_without_memory_or_driver_it_says_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "low").mkdir()
    devices = describe(tmp_path / "low", 16 * MIB)
    client = local(tmp_path, devices)
    holder = client.start("start(); alloc(16 << 20); said(1); sys.stdin.read()")
    holder.stdout.readline()  # type: ignore[union-attr]
    try:
        doc = probed(tmp_path, devices, anyway=True)
    finally:
        holder.communicate()
    assert "CUDA_ERROR_OUT_OF_MEMORY (2); the memory is taken" in doc["error"]
    assert "\n" not in doc["error"]
    hidden = probed(tmp_path, {**devices, "CUDA_VISIBLE_DEVICES": ""})
    assert "the driver shows this user no GPU" in hidden["error"]


def test_no_driver_is_an_error_where_gpus_are_declared_and_a_finding_where_they_are_not(tmp_path: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    code = (
        "import json; from validation.probes import nvml; nvml.LIBRARY='libnone.so'; "
        "nvml.Nvml.__init__.__defaults__ = ('libnone.so',); from validation.probes.gpu_copies import *; "
        "print(json.dumps([probe(Asked(4096, 2, 2, 0.0, gpus=n)) for n in (4, 0)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    declared, open_ = json.loads(done.stdout)
    assert "the GPU driver is not installed" in declared["error"]
    assert open_["error"] is None
    samples, facts = parse("gpu-copies", open_, {"gpus": 0})
    assert (samples, facts.gpus) == ([], ())  # type: ignore[union-attr]
    with pytest.raises(ParseError, match="nothing was measured of 4 GPUs"):
        parse("gpu-copies", {**open_}, {"gpus": 4})


def test_memory_that_is_held_without_a_process_is_work_too() -> None:
    assert busy("0000:1a:00.0", {}, (16 << 30, 300 << 20)) == ""
    assert "5120 of 16384 MiB of its memory are held" in busy("0000:1a:00.0", {}, (16 << 30, 5 << 30))
    assert sizes(1 << 20) == [4, 64, 1024, 16384, 262144, 1 << 20]
    assert sizes(1 << 30)[-1] == 4 * 16**7


# --- what does not add up


def changed(change: Any) -> dict[str, Any]:
    report = made.report(PARAMS)
    change(report)
    return made.document(report)


def test_two_ordinals_of_one_gpu_are_named() -> None:
    twice = [made.gpu(0), made.gpu(1), made.gpu(2, uuid=made.gpu(0)["uuid"])]
    with pytest.raises(ParseError, match="ordinals 0 and 2 are one GPU, GPU-0000"):
        parse("gpu-copies", made.document(made.report(PARAMS, twice)), PARAMS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.update(devices=[]),  # exit 0 with nothing measured
        lambda r: r.update(cells=[]),
        lambda r: r["devices"][1].update(uuid=r["devices"][0]["uuid"]),  # two ordinals of one GPU
        lambda r: r["cells"].pop(),
        lambda r: r["cells"].append(r["cells"][0]),
        lambda r: r["latencies"].pop(),
        lambda r: r["peers"].pop(),
        lambda r: r["cells"][0]["event_s"].pop(),
        lambda r: r["cells"][0]["clock_s"].__setitem__(0, 0),
        lambda r: r["cells"][-1]["event_s"].__setitem__(0, 1e9),  # longer than the clock saw
        lambda r: r["cells"][-1].update(counted=3 * r["cells"][-1]["counted"]),
        lambda r: r.update(largest_bytes=2 * r["largest_bytes"]),
        lambda r: r["devices"][0]["state"].update(sm_mhz=-1),
        lambda r: r["latencies"][0]["us"].__setitem__(0, 0),
    ],
)
def test_what_does_not_add_up_is_refused(change: Any) -> None:
    assert parse("gpu-copies", made.document(made.report(PARAMS)), PARAMS)  # type: ignore[arg-type]
    with pytest.raises(ParseError):
        parse("gpu-copies", changed(change), PARAMS)  # type: ignore[arg-type]


def test_nvml_and_cuda_of_different_drivers_are_refused() -> None:
    doc = made.document(made.report(PARAMS), facts={"driver": "", "emulated": True, "gpus": 2})
    with pytest.raises(ParseError, match="not of one driver"):
        parse("gpu-copies", doc, PARAMS)  # type: ignore[arg-type]


# --- verdicts


def topology(gpus: int = 2) -> Topology:
    whole = hardware(("gpu1",))
    node = whole.nodes[0]
    return whole.model_copy(
        update={"nodes": (node.model_copy(update={"bom": node.bom.model_copy(update={"gpu_count": gpus})}),)}
    )


def planned(whole: Topology) -> Plan:
    """Suite transport without its other kinds."""
    plan = plan_of(whole, ("transport",))
    mine = tuple(m for m in plan.measurements if m.kind == "gpu-copies")
    rounds = tuple(one for one in plan.rounds if set(one) & {m.id for m in mine})
    return plan.model_copy(update={"measurements": mine, "rounds": rounds})


def judged(report: Any, gpus: int = 2, whole: Topology | None = None) -> VerdictDoc:
    """The verdict on one node whose probe said `report(params)`."""
    whole = whole or topology(gpus)
    plan = planned(whole)

    def one(m: Measurement) -> Any:
        samples, facts = parse("gpu-copies", made.document(report(m.params)), m.params)  # type: ignore[arg-type]
        return result(m, samples, facts=facts)

    return verdict_of(whole, plan, [one(m) for m in plan.measurements])


def reasons(verdict: VerdictDoc, id_: str) -> dict[str, str]:
    """Subject -> why, of those that did not pass."""
    return {j.subject: j.reason for j in criterion(verdict, id_).judgements if j.verdict != "pass"}


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
    assert "GPU 1 ran at 345 of 1530 MHz under load (applications_clocks_setting)" in why["gpu1, inside GPU 1"]


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


def joined(count: int, links: int) -> list[dict[str, Any]]:
    """NVLinks between all pairs of GPUs, so many between two of them."""
    addresses = [made.gpu(i)["address"] for i in range(count)]
    return [
        {
            "address": mine,
            "links": [
                {"number": n, "up": True, "peer": "gpu", "address": other}
                for n, other in enumerate(o for o in addresses if o != mine for _ in range(links))
            ],
        }
        for mine in addresses
    ]


def over_nvlink(params: Any, rate: float = 47.0, **changes: Any) -> dict[str, Any]:
    """Four V100 SXM2, two NVLinks between any two of them."""

    def of(cell: Any) -> float:
        return rate if cell["what"] == "peer" and cell["access"] else made.usual(cell)

    return made.report(params, 4, rate=of, nvlink=joined(4, 2), nvlink_unread="", **changes)


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
    assert "below the floor of 720" in why["gpu1, inside GPU 1"]
    odd = criterion(judged(lambda p: made.report(p, [made.gpu(0, name="Tesla X1"), made.gpu(1)])), "tr.hbm")
    assert odd.judgements[0].reason_code == "no-bound"
    assert "no memory bandwidth of a Tesla X1" in odd.judgements[0].reason


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
