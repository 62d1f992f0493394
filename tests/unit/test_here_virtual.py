"""GPUs that a container or a virtual machine was given, looked at by itself: their own rates are judged, as an
inspection; under an inventory, in a lab and of emulated GPUs nothing changes.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import gpu_copies_documents as made
from tests.support.driver import whole
from tests.support.site import CRITERIA, RUN, criterion, healthy, result
from tests.unit.test_here import one
from validation.judging.run_data import RunData
from validation.kinds import parse
from validation.measures.compute.gpu_rates import peak, seen
from validation.model import RunInfo, Topology, VerdictDoc
from validation.plan.suites import make_plan
from validation.rules.fabric import no_fabric
from validation.verdict.judge import judge

H100 = "NVIDIA H100 80GB HBM3"
PCIE5 = (32.0, 16)
KINDS = ("facts", "gpu-copies")
#: A virtual machine's port above the card may show anything, as 2.5 GT/s x1.
MADE_PORT = [{"address": f"0000:00:0{n}.0", "link": {"gt_s": 2.5, "lanes": 1}} for n in range(3)]


def h100(number: int, **changes: Any) -> dict[str, Any]:
    """A GPU whose card, and whose link under load, are PCI Express 5.0 x16."""
    known = made.gpu(number, H100, generation=5)
    return {**known, "card": made.card(known["address"], PCIE5), **changes}


def usual(cell: Any, host_gb_s: float = 54.0, local_gb_s: float = 2900.0) -> float:
    """About what an H100 does."""
    return {"h2d": host_gb_s, "d2h": host_gb_s, "both": 90.0, "local": local_gb_s, "peer": 40.0}[cell["what"]]


def judged(
    topology: Topology, gpus: int = 2, changes: Any = None, rates: Any = None, wait: Any = made.latency, **facts: Any
) -> VerdictDoc:
    """The verdict on its copies, and on what it says of itself."""
    plan = make_plan(RUN, topology, no_fabric().fabric, CRITERIA, ("preflight", "transport"))
    mine = tuple(m for m in plan.measurements if m.kind in KINDS)
    plan = plan.model_copy(update={"measurements": mine, "rounds": tuple((m.id,) for m in mine)})
    devices = [h100(n, **(changes or {})) for n in range(gpus)]
    emulated = topology.here is not None and topology.here.emulated
    shown = {"virt": "none", "lab": "", "fabric_ports": [], "pci": [], "gpu_count": gpus, "driver_loaded": "580.173.02"}
    shown |= {"nvlink": [], **whole("580.173.02"), **facts}
    results = []
    for m in mine:
        if m.kind == "facts":
            results.append(healthy(m, facts=shown))
            continue
        rate = lambda cell: usual(cell, **(rates or {}))  # noqa: E731
        report = made.report(m.params, devices, rate=rate, wait=wait, emulated=emulated)
        samples, found = parse("gpu-copies", made.document(report), m.params)
        results.append(result(m, samples, facts=found))
    info = RunInfo(
        run=RUN, created="2026-11-21T10:00:00Z", toolkit_version="0", site="new", inventory="", fabric="none",
        suites=plan.suites, command=("toolkit",), documents={},
    )  # fmt: skip
    return judge(RunData(info, topology, plan, no_fabric().fabric, CRITERIA, results))


def verdicts(found: VerdictDoc, id_: str) -> set[str]:
    return {j.verdict for j in criterion(found, id_).judgements}


@pytest.mark.parametrize("virt", ["docker", "podman", "container-other", "wsl", "kvm", "qemu", "vmware", "vm-other"])
def test_a_gpu_that_was_passed_through_is_judged_by_what_it_does_itself_and_never_accepted(virt: str) -> None:
    found = judged(one(2), virt=virt)
    assert found.sign_off == "INSPECTION"
    assert verdicts(found, "tr.h2d") == verdicts(found, "tr.hbm") == verdicts(found, "tr.local") == {"pass"}
    bound = criterion(found, "tr.hbm").judgements[0].bound
    assert bound is not None
    assert bound.ceiling == 3350  # its data sheet's
    assert any("GPUs of its own" in note for note in found.notes)
    assert not any("rehearsal" in note for note in found.notes)
    assert found.owed == ()


@pytest.mark.parametrize("virt", ["docker", "kvm"])
def test_what_is_wrong_with_such_a_gpu_fails(virt: str) -> None:
    slow = judged(one(2), virt=virt, rates={"host_gb_s": 12.0})
    assert (verdicts(slow, "tr.h2d"), slow.sign_off, slow.exit_code) == ({"fail"}, "INSPECTION", 1)
    assert verdicts(judged(one(2), virt=virt, rates={"local_gb_s": 900.0}), "tr.hbm") == {"fail"}


def test_ways_between_gpus_are_a_containers_own_and_a_hypervisors_making() -> None:
    held = judged(one(2), virt="docker")
    assert "virtual" not in {j.reason_code for j in criterion(held, "tr.p2p").judgements}
    guest = judged(one(2), virt="kvm")
    for id_ in ("tr.p2p", "tr.p2plat"):
        for j in criterion(guest, id_).judgements:
            if j.verdict != "not-applicable":
                assert (j.verdict, j.reason_code) == ("not-measured", "virtual")
                assert "the ways between its GPUs are what its hypervisor makes them" in j.reason
    alike = {str(j.subject): j for j in criterion(guest, "tr.uniform").judgements}
    assert {j.verdict for name, j in alike.items() if "pairs" not in name} == {"pass"}
    assert {j.reason_code for name, j in alike.items() if "pairs" in name} == {"virtual"}


def test_the_ports_that_a_hypervisor_made_bound_no_copy() -> None:
    def card(address: str) -> dict[str, Any]:
        return {**made.card(address, PCIE5), "above": MADE_PORT}

    changes = {"card": card("0000:1a:00.0")}
    found = judged(one(1), 1, virt="kvm", changes=changes)
    assert verdicts(found, "tr.h2d") == {"pass"}
    bare = judged(one(1), 1, virt="none", changes=changes)  # there such a port is a port
    assert verdicts(bare, "tr.h2d") == {"not-measured"}


@pytest.mark.parametrize("virt", ["docker", "kvm"])
def test_what_is_no_gpu_of_its_own_is_a_rehearsal_as_ever(virt: str) -> None:
    emulated = judged(one(2, emulated=True), virt=virt)
    assert (verdicts(emulated, "tr.h2d"), emulated.sign_off) == ({"not-measured"}, "REHEARSAL")
    assert "the GPUs are emulated, and prove no figure" in criterion(emulated, "tr.h2d").reason
    for facts in ({"lab": "fab"}, {"stand_ins": ["nvidia-driver"]}):
        found = judged(one(2), virt=virt, **facts)
        assert (verdicts(found, "tr.h2d"), found.sign_off) == ({"not-measured"}, "REHEARSAL")


def test_on_hardware_nothing_changes() -> None:
    found = judged(one(2))
    assert (found.sign_off, verdicts(found, "tr.h2d"), verdicts(found, "tr.hbm")) == ("INSPECTION", {"pass"}, {"pass"})


@pytest.mark.parametrize(
    "name",
    ["NVIDIA A100-SXM4-80GB MIG 1g.10gb", "GRID V100-16Q", "NVIDIA A40-48Q", "NVIDIA H100 80GB HBM3 MIG 3g.40gb"],
)
def test_a_part_of_a_gpu_is_held_against_no_whole_one(name: str) -> None:
    """What a pod or a guest is given is often a MIG instance or a virtual GPU."""
    found = judged(one(1), 1, virt="docker", changes={"name": name}, rates={"local_gb_s": 200.0, "host_gb_s": 6.0})
    for id_ in ("tr.hbm", "tr.h2d"):
        judgements = criterion(found, id_).judgements
        assert {(j.verdict, j.reason_code) for j in judgements} == {("not-measured", "no-bound")}
        assert all("a MIG instance" in j.reason or "a virtual GPU" in j.reason for j in judgements)
    assert all(
        peak(name, precision) is None and seen(name, precision) is None for precision in ("fp32", "bf16", "fp16")
    )
