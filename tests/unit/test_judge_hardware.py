"""PCI Express links and NUMA nodes: read from sysfs as the kernel shows it, and judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_case import LAB, LINK, PLAN, REAL, REAL_FACTS, REAL_PCI, criterion, plan_of, results_of, verdict_of

from validation.probes import pcie

PLAN_REAL = plan_of(REAL, ["preflight"])


def judged(id_, pci, odd="gpu2", topology=REAL, plan=PLAN_REAL, **facts):
    """The criterion where node `odd` has these cards, all others healthy ones."""
    results = [
        r.model_copy(update={"facts": {**r.facts, "pci": pci, **facts}}) if r.measurement == f"facts.{odd}" else r
        for r in results_of(plan, facts=REAL_FACTS if topology is REAL else None)
    ]
    return criterion(verdict_of(topology, plan, results), id_)


def test_healthy_cards_pass():
    found = judged("pf.pcie", REAL_PCI)
    assert (found.verdict, found.coverage) == ("pass", "4/4 nodes")
    found = judged("pf.numa", REAL_PCI)
    assert (found.verdict, found.coverage) == ("pass", "2/2 nodes")  # GPU servers alone
    assert "NUMA node 0" in found.judgements[0].text


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (f"nic fab0 0000:3b:00.0 {LINK.replace('width=16', 'width=8', 1)}", "fab0 (0000:3b:00.0): 8 GT/s x8, rated"),
        (f"nic fab0 0000:3b:00.0 {LINK.replace('speed=8.0', 'speed=2.5', 1)}", "2.5 GT/s x16, rated 8 GT/s x16"),
        (f"gpu - 0000:18:00.0 {LINK.replace('width=16', 'width=4', 1)}", "GPU 0000:18:00.0: 8 GT/s x4"),
    ],
)
def test_a_link_below_its_rating_is_found_and_named(card, words):
    found = judged("pf.pcie", [card])
    bad = [j for j in found.judgements if j.verdict == "fail"]
    assert [j.subject for j in bad] == ["gpu2"]
    assert words in bad[0].reason


def test_a_fast_card_in_a_slower_slot_is_at_its_rating():
    card = f"nic fab0 0000:3b:00.0 {LINK.replace('max_speed=8.0', 'max_speed=16.0')}"
    assert judged("pf.pcie", [card]).verdict == "pass"


def test_an_idle_gpu_is_not_called_slow():
    card = f"gpu - 0000:18:00.0 {LINK.replace('speed=8.0', 'speed=2.5', 1)}"
    found = judged("pf.pcie", [card])
    assert found.verdict == "not-measured"
    assert "under load" in found.reason


def test_what_no_register_shows_is_not_measured_with_the_reason():
    silent = "nic fab0 0000:00:03.0 speed= width= max_speed= max_width= slot_speed= slot_width= numa=-1"
    found = judged("pf.pcie", [silent])
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert "no PCI Express link is shown of fab0" in found.reason
    found = judged("pf.pcie", ["nic fab0 none"], topology=LAB, plan=PLAN, virt="kvm")
    assert (found.verdict, found.reason_code) == ("not-measured", "virtual")
    assert any("a virtual device has none" in j.reason for j in found.judgements)
    assert any("is a container (systemd-nspawn)" in j.reason for j in found.judgements)


def test_a_gpu_far_from_its_port_fails_and_both_are_named():
    far = [REAL_PCI[0], REAL_PCI[1].replace("numa=0", "numa=1")]
    found = judged("pf.numa", far)
    assert found.verdict == "fail"
    assert "GPU 0000:18:00.0 is on NUMA node 1, its ports elsewhere (fab0 on 0)" in found.reason


@pytest.mark.parametrize(
    ("pci", "words"),
    [
        ([REAL_PCI[0]], "no GPU in this node"),
        ([REAL_PCI[1]], "no fabric port in this node"),
        ([card.replace("numa=0", "numa=-1") for card in REAL_PCI], "assigns no NUMA node to GPU 0000:18:00.0, fab0"),
    ],
)
def test_numa_that_nobody_can_tell_is_not_measured(pci, words):
    found = judged("pf.numa", pci)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert words in found.reason


def test_cards_are_read_from_sysfs(tmp_path: Path):
    slot = tmp_path / "devices/pci0000:3a/0000:3a:00.0"
    card = slot / "0000:3b:00.0"
    gpu = tmp_path / "devices/pci0000:17/0000:18:00.0"
    virtio = tmp_path / "devices/pci0000:00/0000:00:03.0"
    contents = {
        slot / "max_link_speed": "8.0 GT/s PCIe",
        slot / "max_link_width": "16",
        card / "current_link_speed": "8.0 GT/s PCIe",
        card / "current_link_width": "8",
        card / "max_link_speed": "16.0 GT/s PCIe",
        card / "max_link_width": "16",
        card / "numa_node": "1",
        card / "vendor": "0x15b3",
        card / "class": "0x020000",
        gpu / "vendor": "0x10de",
        gpu / "class": "0x030200",
        gpu / "numa_node": "0",
        virtio / "current_link_speed": "Unknown",
        virtio / "current_link_width": "0",
        virtio / "virtio0/features": "1",
        virtio / "class": "0x020000",
    }
    for path, text in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    for interface, device in (("fab0", card), ("fab1", virtio / "virtio0"), ("fab2", None)):
        folder = tmp_path / "class/net" / interface
        folder.mkdir(parents=True)
        if device:
            (folder / "device").symlink_to(device)
    bus = tmp_path / "bus/pci/devices"
    bus.mkdir(parents=True)
    for function in (card, gpu, virtio):
        (bus / function.name).symlink_to(function)
    nothing = "speed= width= max_speed= max_width= slot_speed= slot_width="
    assert pcie.collect(["fab0", "fab1", "fab2"], tmp_path) == [
        "nic fab0 0000:3b:00.0 speed=8.0 width=8 max_speed=16.0 max_width=16 slot_speed=8.0 slot_width=16 numa=1",
        f"nic fab1 0000:00:03.0 {nothing} numa=",
        "nic fab2 none",
        f"gpu - 0000:18:00.0 {nothing} numa=0",
    ]
