"""How servers are put together: read from constructed sysfs trees, judged, and what is planted in each is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.tree_case import judged, read
from tests.support.trees import SERVERS, Gpu, Nic, Root, Server, Switch, with_gpu, without_link, write
from validation.model import Judgement
from validation.model.node_facts import NodeFacts
from validation.model.pci import PciCard
from validation.probes import pcie, processors


def cards(server: Server, folder: Path) -> dict[str, PciCard]:
    """The cards by their names: gpu0, gpu1 ... and interfaces."""
    found = [PciCard.model_validate(card) for card in read(server, folder)["pci"]]
    gpus = (card for card in found if card.what == "gpu")
    return {card.interface: card for card in found if card.interface} | {f"gpu{i}": c for i, c in enumerate(gpus)}


@pytest.mark.parametrize("name", SERVERS)
def test_a_healthy_server_has_every_link_at_its_rating(name: str, tmp_path: Path) -> None:
    found = judged("pf.pcie", SERVERS[name], tmp_path)
    assert found.verdict == "pass", found.reason
    assert str(found.text).count("GPU ") == SERVERS[name].gpus


@pytest.mark.parametrize("name", SERVERS)
def test_a_gpu_of_eight_lanes_is_named(name: str, tmp_path: Path) -> None:
    last = SERVERS[name].gpus - 1
    planted = with_gpu(SERVERS[name], last, lambda gpu: replace(gpu, lanes=8))
    found = judged("pf.pcie", planted, tmp_path)
    address = cards(planted, tmp_path / "again")[f"gpu{last}"].address
    assert (found.verdict, found.reason_code) == ("fail", "not-equal")
    gt_s = SERVERS[name].gt_s
    assert found.reason == f"GPU {address}: {gt_s:g} GT/s x8, rated {gt_s:g} GT/s x16"


@pytest.mark.parametrize("name", ["C4130-G", "C4130-K", "C4140-K", "C4140-B", "C4140-G", "XE9680", "XE9680-H200"])
def test_a_switch_that_lost_lanes_to_the_host_is_named_with_the_cards_below_it(name: str, tmp_path: Path) -> None:
    """Every card itself is trained as it should be."""
    first, *rest = SERVERS[name].roots
    assert isinstance(first.below, Switch)
    planted = replace(SERVERS[name], roots=(replace(first, below=replace(first.below, lanes=8)), *rest))
    found = judged("pf.pcie", planted, tmp_path)
    assert found.verdict == "fail"
    gt_s = f"{SERVERS[name].gt_s:g} GT/s"
    assert f"switch 0000:{first.bus + 1:02x}:00.0: {gt_s} x8, rated {gt_s} x16 (above " in found.reason
    assert found.reason.count("GPU ") == sum(isinstance(card, Gpu) for card in first.below.below)


NEAR = {"C4130-K", "C4140-K", "C4140-B", "XE9680", "XE9680-H200", "XE9712"}
"""Servers of which each GPU has a fabric port on its NUMA node."""


@pytest.mark.parametrize("name", sorted(NEAR))
def test_a_gpu_on_the_other_socket_is_named_with_its_distance(name: str, tmp_path: Path) -> None:
    assert judged("pf.numa", SERVERS[name], tmp_path).verdict == "pass"
    # all adapters of the second socket are gone, and a GPU has come there
    here = tuple(root for root in SERVERS[name].roots if root.numa == 0)
    found = judged("pf.numa", replace(SERVERS[name], roots=(*here, Root(0xD7, 1, Gpu()))), tmp_path / "planted")
    assert (found.verdict, found.reason_code) == ("fail", "not-equal")
    assert found.reason.startswith("GPU 0000:d8:00.0 is on NUMA node 1, its ports elsewhere (")
    assert found.reason.endswith(": another socket, distance 21")
    assert found.reason.count("is on NUMA node") == 1


def test_a_numa_node_of_the_same_socket_is_told_from_another_socket(tmp_path: Path) -> None:
    """With four NUMA nodes in each socket no GPU of an XE8545 has the one adapter on its own."""
    reasons = judged("pf.numa", SERVERS["XE8545"], tmp_path).reason.split("; ")
    assert [reason.rpartition(": ")[2] for reason in reasons] == [
        "the same socket, distance 12",
        "the same socket, distance 12",
        "another socket, distance 32",
        "another socket, distance 32",
    ]


@pytest.mark.parametrize(
    ("name", "one", "other", "distance"),
    [
        ("XE9680", "gpu0", "rail0", "PIX"),
        ("XE9680", "gpu0", "rail2", "NODE"),
        ("XE9680", "gpu0", "rail4", "SYS"),
        ("C4140-K", "gpu0", "gpu3", "PIX"),
        ("C4140-K", "gpu0", "ib0", "NODE"),  # why NCCL takes no GPUDirect RDMA there by itself
        ("C4140-M", "gpu0", "gpu1", "NODE"),
        ("C4140-M", "gpu2", "ib0", "SYS"),
        ("C4130-G", "gpu1", "gpu2", "SYS"),
    ],
)
def test_distances_in_the_words_of_the_vendor(name: str, one: str, other: str, distance: str, tmp_path: Path) -> None:
    found = cards(SERVERS[name], tmp_path)
    assert found[one].distance(found[other]) == distance
    assert found[other].distance(found[one]) == distance


def test_switches_below_a_switch_and_two_ports_of_one_bridge(tmp_path: Path) -> None:
    nested = Root(0x16, 0, Switch((Switch((Gpu(), Gpu())), Switch((Gpu(), Nic("ib0"))))))
    found = cards(Server("", "", 8.0, (nested,)), tmp_path)
    assert [found["gpu0"].distance(found[name]) for name in ("gpu1", "gpu2", "ib0")] == ["PIX", "PXB", "PXB"]
    assert found["gpu0"].name == "GPU 0000:1b:00.0"
    assert [link.end.address for link in found["gpu0"].uplinks] == ["0000:17:00.0", "0000:19:00.0"]
    bridge = {"what": "gpu", "host_bridge": "0000:16", "numa": 0}
    one, other = (
        PciCard.model_validate({**bridge, "address": f"0000:{n}:00.0", "above": [{"address": f"0000:16:0{n}.0"}]})
        for n in (1, 2)
    )
    assert one.distance(other) == "PHB"
    assert one.distance(PciCard(what="nic", interface="fab0")) is None


def test_what_sysfs_does_not_tell_is_left_open(tmp_path: Path) -> None:
    virtio = tmp_path / "devices/pci0000:00/0000:00:03.0"
    (virtio / "virtio0").mkdir(parents=True)
    for name, text in {"current_link_speed": "Unknown", "current_link_width": "0", "numa_node": "-1"}.items():
        (virtio / name).write_text(f"{text}\n")
    (tmp_path / "class/net/fab1").mkdir(parents=True)
    (tmp_path / "class/net/fab1/device").symlink_to(virtio / "virtio0")
    unknown = {"gt_s": None, "lanes": None}
    told = {"link": unknown, "card": unknown, "numa": None, "above": [], "host_bridge": "0000:00", "iommu": "none"}
    told |= {"board": "", "firmware": "", "link_layer": "", "read_request_bytes": None}
    assert pcie.collect(["fab1", "fab2"], tmp_path) == [
        {"what": "nic", "interface": "fab1", "address": "0000:00:03.0", **told},
        {"what": "nic", "interface": "fab2"},
    ]
    assert processors.numa_nodes(tmp_path) == []


def test_numa_nodes_are_read_in_their_order(tmp_path: Path) -> None:
    found = processors.numa_nodes(write(SERVERS["R7525"], tmp_path))
    assert [each["socket"] for each in found] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found[1] == {"number": 1, "socket": 0, "cpus": "8-15", "distances": [12, 10, 12, 12, 32, 32, 32, 32]}
    assert "numa_nodes" in NodeFacts.model_fields


# --- NVLink -----------------------------------------------------------------------------------------------------------

JOINED = [name for name, server in SERVERS.items() if server.nvlinks]


@pytest.mark.parametrize("name", SERVERS)
def test_nvlinks_are_judged_where_there_are_any(name: str, tmp_path: Path) -> None:
    found = judged("pf.nvlink", SERVERS[name], tmp_path)
    assert found.verdict == ("pass" if name in JOINED else "not-applicable"), found.reason


@pytest.mark.parametrize("name", JOINED)
def test_a_missing_nvlink_is_named_with_both_its_ends(name: str, tmp_path: Path) -> None:
    there = read(SERVERS[name], tmp_path / "read")["nvlink"]
    found = judged("pf.nvlink", SERVERS[name], tmp_path, nvlink=without_link(there, 1, 2))
    wanted = len(there[0]["links"])
    assert (found.verdict, found.reason_code) == ("fail", "not-equal"), found.reason
    one, other = there[1]["address"], there[2]["address"]
    for address in (one, other):
        assert f"GPU {address}: {wanted - 1} of {wanted} NVLinks up (down: " in found.reason
    assert found.reason.count("NVLinks up") == 2
    if not SERVERS[name].nvswitches:
        assert f"between {one} and {other}" in found.reason


def said_of(tmp_path: Path, name: str, **said: Any) -> Judgement:
    """pf.nvlink of a server with these facts in place of its own."""
    return judged("pf.nvlink", SERVERS[name], tmp_path, **said)


def test_what_nvml_does_not_show_is_no_pass(tmp_path: Path) -> None:
    there = read(SERVERS["C4140-K"], tmp_path / "read")["nvlink"]
    found = said_of(tmp_path / "1", "C4140-K", nvlink=None, nvlink_unread="no libnvidia-ml.so.1")
    assert (found.verdict, found.reason) == ("not-measured", "NVLinks cannot be read: no libnvidia-ml.so.1")
    found = said_of(tmp_path / "2", "C4140-K", nvlink=there[:3])
    assert (found.verdict, found.reason) == ("not-measured", "NVML shows 3 of 4 GPUs")
    found = said_of(tmp_path / "3", "C4140-K", nvlink=[{**gpu, "emulated": True} for gpu in there])
    assert (found.verdict, found.reason) == ("not-measured", "the GPUs are emulated")


@pytest.mark.parametrize(("model", "wired"), [("NVIDIA H200", 18), ("NVIDIA H20", 18), ("NVIDIA H800", 8)])
def test_links_that_all_gpus_lack_alike_are_missing_all_the_same(model: str, wired: int, tmp_path: Path) -> None:
    """As after a Fabric Manager that does not run: the neighbours are no better."""
    there = read(SERVERS["XE9680"], tmp_path / "read")["nvlink"]
    dark = [{**gpu, "links": [{**link, "up": False} for link in gpu["links"]]} for gpu in there]
    found = said_of(tmp_path, "XE9680", nvlink=dark, gpu_model=model)
    assert found.verdict == "fail"
    assert found.reason.count(f"0 of {wired} NVLinks up") == 8


def test_cards_in_slots_owe_no_bridges(tmp_path: Path) -> None:
    """Which of them were ordered a bridge nobody tells: what is there is named and not judged."""
    there = read(SERVERS["R7525"], tmp_path / "read")["nvlink"]
    links = [{"number": n, "up": False} for n in range(12)]
    without = [{**gpu, "links": links} for gpu in there]
    assert said_of(tmp_path / "1", "R7525", nvlink=without).verdict == "not-applicable"
    up = [{**link, "up": True, "peer": "gpu"} for link in links]
    bridged = [{**gpu, "links": up} for gpu in there[:2]]
    found = said_of(tmp_path / "2", "R7525", nvlink=[*bridged, without[2]])
    assert (found.verdict, found.reason_code) == ("not-measured", "no-bound")
    assert "GPU 0000:e1:00.0: 0 NVLinks up, down: 0, 1" in found.reason
