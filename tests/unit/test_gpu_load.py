"""Host memory near a GPU and far from it, and all GPUs at once: read whole or refused, bounds from the tree.

The figures are constructed (tests/support/gpu_load_documents.py); none was measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import gpu_copies_documents as copies
from tests.support import gpu_load_documents as made
from tests.support.gpu_copies_case import topology
from tests.support.site import CRITERIA, RUN, criterion, lab, plan_of, result, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.gpu import gpu_load_probe
from validation.measures.gpu.kinds import LOAD
from validation.measures.gpu.load import GpuLoadFacts, LoadGpu
from validation.measures.gpu.load_judge import branches
from validation.model import CriterionVerdict, Measurement, Platform, Topology
from validation.plan.suites import make_plan
from validation.rules.fabric import load_fabric

PARAMS = {**LOAD, "gpus": 2}
X16 = 8 * 16 * 128 / 130 / 8
"""GB/s each way of PCI Express 3.0 x16."""


def judged(report: Any = made.report, id_: str = "tr.h2dnuma", whole: Topology | None = None) -> CriterionVerdict:
    """A criterion of one node whose probe said `report(params)`."""
    whole = whole or topology(2)
    plan = plan_of(whole, ("transport",))
    mine = tuple(m for m in plan.measurements if m.kind == "gpu-load")
    rounds = tuple(one for one in plan.rounds if set(one) & {m.id for m in mine})

    def one(m: Measurement) -> Any:
        samples, facts = parse(m.kind, made.document(report(m.params)), m.params)  # type: ignore[arg-type]
        return result(m, samples, facts=facts)

    plan = plan.model_copy(update={"measurements": mine, "rounds": rounds})
    return criterion(verdict_of(whole, plan, [one(m) for m in mine]), id_)


def behind(switch: str, number: int, uplink: tuple[float, int] = copies.PCIE3) -> dict[str, Any]:
    """A GPU behind a switch of its own root port, as validation.probes.pcie has it."""
    address = f"0000:{0x1A + number:02x}:00.0"
    link, up = (dict(zip(("gt_s", "lanes"), one, strict=True)) for one in (copies.PCIE3, uplink))
    above = [
        {"address": f"0000:{switch}:00.0", "link": up, "card": up},
        {"address": f"0000:{switch}:01.0", "link": up, "card": up},
        {"address": f"0000:{switch}:1{number}.0", "link": link, "card": link},
    ]
    card = {"what": "gpu", "address": address, "link": link, "card": link, "numa": 0, "above": above}
    return {**copies.gpu(number, card={**card, "host_bridge": "0000:00"}), "numa": 0}


# --- the near node and the far one


def test_both_nodes_are_shown_with_the_link_that_the_rate_follows_from() -> None:
    found = judged()
    assert (found.verdict, len(found.judgements)) == ("pass", 2), found.reason
    first, second = found.judgements
    assert "H to GPU 0: 12.29 GB/s from node 0, its own, 9.83 from node 1 (-20.0%)" in first.reason
    assert "GPU 1 to H: 12.89 GB/s from node 1, its own, 10.31 from node 0 (-20.0%)" in second.reason
    assert first.bound is not None
    assert any("8 GT/s x 16 lanes x 128/130 / 8 = 15.75 GB/s" in line for line in first.bound.derivation)
    assert not found.required


def test_a_gpu_that_is_faster_from_the_far_node_fails_in_whichever_direction() -> None:
    def wrong(cell: Any, own: int | None) -> float:
        odd = cell["gpu"] == 1 and cell["what"] == "d2h" and cell["node"] != own
        return made.usual(cell, own) * (1.6 if odd else 1.0)

    found = judged(lambda p: made.report(p, rate=wrong))
    assert {j.subject: j.verdict for j in found.judgements} == {"gpu1, GPU 0": "pass", "gpu1, GPU 1": "fail"}
    assert "faster from the far node by 28.0%" in found.reason


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"placed": 0.4}, "not-measured", "memory of node 0: 40% of it lies there"),
        ({"placed": None}, "not-measured", "its place is unknown"),
        ({"devices": [{**one, "numa": None} for one in made.gpus(2)]}, "not-measured", "reports no NUMA node of GPU 0"),
        ({"unusable": [1]}, "not-measured", "may not run on NUMA node 1"),
        ({"nodes": 1}, "not-applicable", "the host has one NUMA node: H to GPU 0: 12.29 GB/s from node 0, its own"),
        ({"emulated": True}, "not-measured", "the GPUs are emulated, and prove no figure"),
    ],
)
def test_what_cannot_tell_near_from_far_is_no_pass(changes: Any, verdict: str, said: str) -> None:
    found = judged(lambda p: made.report(p, **changes))
    assert (found.verdict, said in found.reason) == (verdict, True), found.reason


def test_nothing_of_a_rehearsal_is_judged() -> None:
    rehearsal = lab(("gpu1",), emulated_gpus=2)
    for id_ in ("tr.h2dnuma", "tr.h2dall"):
        assert judged(lambda p: made.report(p, emulated=True), id_, rehearsal).reason_code == "virtual"


# --- all at once


def test_slots_of_their_own_carry_the_sum_and_one_switch_carries_its_uplink() -> None:
    apart = judged(id_="tr.h2dall")
    assert (apart.verdict, len(apart.judgements)) == ("pass", 2), apart.reason
    bound = apart.judgements[0].bound
    assert bound is not None
    assert bound.ceiling == pytest.approx(2 * X16)
    shared = [behind("16", i) for i in range(4)]
    half = judged(lambda p: made.report(p, shared, together=lambda _: [3.0] * 4), "tr.h2dall", topology(4))
    bound = half.judgements[0].bound
    assert bound is not None
    assert (half.verdict, bound.ceiling) == ("pass", pytest.approx(X16)), half.reason
    assert bound.derivation[0].startswith("GPU 0, 1, 2, 3 behind one port of the host: 15.75 GB/s = 0000:16:01.0: ")
    assert "12 GB/s in all (GPU 0 3, GPU 1 3, GPU 2 3, GPU 3 3)" in half.judgements[0].reason


def test_more_than_the_tree_carries_is_an_error_and_less_than_its_share_fails() -> None:
    shared = [behind("16", i) for i in range(4)]
    fast = judged(lambda p: made.report(p, shared, together=lambda _: [12.0] * 4), "tr.h2dall", topology(4))
    assert fast.reason_code == "above-ceiling"
    slow = judged(
        lambda p: made.report(p, together=lambda what: [3.0, 3.0] if what == "h2d" else [12, 12]), "tr.h2dall"
    )
    assert {j.subject: j.verdict for j in slow.judgements} == {
        "gpu1, H to all GPUs": "fail",
        "gpu1, all GPUs to H": "pass",
    }


def test_a_narrow_uplink_a_wide_one_and_two_ports_are_added_up() -> None:
    gpus = [behind("16", 0, (8.0, 8)), behind("16", 1, (8.0, 8)), behind("3a", 2, (16.0, 16)), behind("5e", 3)]
    found = branches([LoadGpu.model_validate({k: v for k, v in g.items() if k in LoadGpu.model_fields}) for g in gpus])
    assert found is not None
    assert [branch.gpus for branch in found] == [(0, 1), (2,), (3,)]
    assert [branch.rate for branch in found] == pytest.approx([X16 / 2, X16, X16])


def test_declared_memory_that_carries_less_than_the_ports_is_the_ceiling() -> None:
    whole = topology(2)
    platform = Platform(sockets=1, memory_channels=1, memory_mts=2666)
    nodes = (whole.nodes[0].model_copy(update={"platform": platform}),)
    found = judged(
        lambda p: made.report(p, together=lambda _: [8.0, 8.0]), "tr.h2dall", whole.model_copy(update={"nodes": nodes})
    )
    bound = found.judgements[0].bound
    assert bound is not None
    assert bound.ceiling == pytest.approx(21.328)


def test_without_the_tree_there_is_no_bound_and_one_gpu_has_no_others() -> None:
    bare = [{**copies.gpu(i, card=None), "numa": 0} for i in range(2)]
    assert judged(lambda p: made.report(p, bare), "tr.h2dall").reason_code == "no-bound"
    assert judged(lambda p: made.report(p, 1), "tr.h2dall", topology(1)).verdict == "not-applicable"


def test_a_gpu_that_failed_costs_its_own_verdicts() -> None:
    def broken(params: Any) -> Any:
        found = made.report(params)
        cell = found["cells"][-1]
        found["cells"][-1] = {k: cell[k] for k in ("gpu", "node", "what", "bytes", "placed")} | {"error": "it fell off"}
        found["together"][0]["verified"] = [True, False]
        return found

    numa = judged(broken)
    assert [j.reason_code for j in numa.judgements] == ["within-bounds", "tool-failed"]
    all_ = judged(broken, "tr.h2dall")
    assert [j.reason_code for j in all_.judgements] == ["tool-failed", "within-bounds"]
    assert "the data of 1 GPU were wrong" in all_.judgements[0].reason


# --- the parser, the probe's reading of the host, the plan


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r["cells"].pop(),
        lambda r: r["cells"].append(r["cells"][0]),
        lambda r: r["cells"][0]["event_s"].__setitem__(0, 1.0),
        lambda r: r["cells"][0]["event_s"].pop(),
        lambda r: r["cells"][0].update(bytes=4),
        lambda r: r["cells"][0].update(placed=2.0),
        lambda r: r["cells"][0].update(node=7),
        lambda r: r["devices"].pop(),
        lambda r: r["devices"][1].update(uuid=r["devices"][0]["uuid"]),
        lambda r: r["together"].pop(),
        lambda r: r["together"][0]["rounds"].pop(),
        lambda r: r["together"][0]["rounds"][0]["event_s"].pop(),
        lambda r: r["together"][0].update(copies=80),
        lambda r: r["together"][0]["rounds"][0].update(clock_s=1e-4),
        lambda r: r.update(emulated=True),
    ],
)
def test_a_report_that_contradicts_itself_is_refused(spoil: Any) -> None:
    found = made.report(PARAMS)
    assert isinstance(parse("gpu-load", made.document(found), PARAMS)[1], GpuLoadFacts)  # type: ignore[arg-type]
    document = made.document(found)
    spoil(found)
    document["stdout"] = made.document(found)["stdout"]
    with pytest.raises(ParseError):
        parse("gpu-load", document, PARAMS)  # type: ignore[arg-type]


def test_nodes_of_the_host_are_read_and_the_farthest_is_chosen(tmp_path: Path) -> None:
    for number, (cpus, away) in {
        0: ("0-3", "10 12 32 80"),
        1: ("4-7", "12 10 32 80"),
        2: ("8-9,12", "32 32 10 80"),
        9: ("", "80 80 80 10"),
    }.items():
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}/cpulist").write_text(cpus + "\n")
        (tmp_path / f"node{number}/distance").write_text(away + "\n")
    nodes = gpu_load_probe.numa_nodes({0, 1, 8, 9}, tmp_path)
    assert [(n["number"], n["cpus"], n["distances"]) for n in nodes] == [
        (0, [0, 1], [10, 12, 32]), (1, [], [12, 10, 32]), (2, [8, 9], [32, 32, 10])]  # fmt: skip
    assert (gpu_load_probe.chosen(0, nodes), gpu_load_probe.chosen(2, nodes), gpu_load_probe.chosen(None, nodes)) == (
        [0, 2],
        [2, 0],
        [0, 1, 2],
    )
    devices = tmp_path / "devices"
    for address, number in (("a", "2"), ("b", "-1"), ("c", "9")):
        (devices / address).mkdir(parents=True)
        (devices / address / "numa_node").write_text(number)
    assert [gpu_load_probe.own_node(a, nodes, devices) for a in "abcd"] == [2, None, None, None]
    assert gpu_load_probe.own_node("b", nodes[:1], devices) == 0
    assert gpu_load_probe.numa_nodes({3}, tmp_path / "none") == [
        {"number": 0, "cpus": [3], "away": {}, "distances": [10]}
    ]


def test_where_memory_lies_is_read_of_its_own_mapping(tmp_path: Path) -> None:
    maps = tmp_path / "numa_maps"
    maps.write_text(
        "7f00 default anon=4 N0=4\n7f0000 default file=/dev/zero\\040(deleted) dirty=10 N0=1 N1=9 kernelpagesize_kB=4\n"
    )
    assert (gpu_load_probe.placed(0x7F0000, 1, maps), gpu_load_probe.placed(0x7F0000, 0, maps)) == (0.9, 0.1)
    assert gpu_load_probe.placed(0x7F00, 1, maps) == 0
    assert gpu_load_probe.placed(0x8000, 0, maps) is None
    assert gpu_load_probe.placed(0x8000, 0, tmp_path / "none") is None


def test_it_is_planned_after_our_copies_counted_in_time_and_left_out_where_it_is_to_be_quick() -> None:
    plan = plan_of(topology(8), ("transport",))
    m = plan.measurement("gpu-load.gpu1")
    assert (m.params, m.estimated_s) == ({**LOAD, "gpus": 8}, 56)
    kinds = [plan.measurement(one[0]).kind for one in plan.rounds]
    assert kinds[-3:] == ["gpu-copies", "gpu-load", "gpu-tools"]
    quick = make_plan(RUN, topology(8), load_fabric("tcp10"), CRITERIA, ("transport",), {"quick": 1})
    assert "gpu-load" not in {m.kind for m in quick.measurements}
    left = {id_ for one in quick.left_out for id_ in one.criteria}
    assert left >= {"tr.h2dnuma", "tr.h2dall", "tr.agree"}
