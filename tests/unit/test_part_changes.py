"""Two readings by serial number: replaced, moved, gone, new; what one of them did not read is never gone or new."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.support.hardware_case import Rack
from tests.support.serial_case import part, server, servers
from toolkit.lab.bmc.constructed import CHASSIS, SYSTEM
from validation.analysis.part_changes import DIFFERENT, part_changes
from validation.model.listed_parts import KINDS, KindRead, ListedPart, ServerParts

BEFORE = "in the report signed on 2026-11-27"


def said(old: Sequence[ServerParts], new: Sequence[ServerParts]) -> list[str]:
    return [one.said(BEFORE) for one in part_changes(old, new)]


def whats(old: Sequence[ServerParts], new: Sequence[ServerParts]) -> list[str]:
    return [one.what for one in part_changes(old, new)]


def test_the_same_servers_have_no_difference() -> None:
    for kind in ("14G", "16G", "17G"):
        assert part_changes(servers(Rack(kind)), servers(Rack(kind))) == ()


def test_another_part_in_the_place_is_named_with_both_serial_numbers_and_the_day() -> None:
    rack = Rack()
    rack.docs["gpu2"][f"{CHASSIS}/NetworkAdapters/NIC.Slot.2"]["SerialNumber"] = "X777"
    rack.hosts["gpu2"] = None
    assert said(servers(Rack(), node=False), servers(rack, node=False)) == [
        f"gpu2 slot NIC.Slot.2: network card serial X777, was N0002002 {BEFORE}"
    ]


def test_a_part_that_moved_between_slots_and_nodes_moved() -> None:
    old = (server("gpu1", part("nic", "A", "4"), part("nic", "B", "5")), server("gpu2", part("nic", "C", "4")))
    swapped = (server("gpu1", part("nic", "B", "4"), part("nic", "A", "5")), old[1])
    assert said(old, swapped) == [
        f"gpu1 slot 4: network card serial B moved, was in gpu1 slot 5 {BEFORE}",
        f"gpu1 slot 5: network card serial A moved, was in gpu1 slot 4 {BEFORE}",
    ]
    across = (server("gpu1", part("nic", "B", "5")), server("gpu2", part("nic", "A", "4")))
    assert said(old, across) == [
        f"gpu2 slot 4: network card serial A moved, was in gpu1 slot 4 {BEFORE}",
        f"gpu2 slot 4: network card serial C {BEFORE} is gone; in its place is serial A, which moved there",
    ]


def test_a_part_that_is_gone_and_a_new_one() -> None:
    old = (server("gpu1", part("dimm", "D1", "A1"), part("dimm", "D2", "A2")),)
    assert said(old, (server("gpu1", part("dimm", "D1", "A1")),)) == [
        f"gpu1 slot A2: memory module serial D2 {BEFORE} is gone"
    ]
    assert said((server("gpu1", part("dimm", "D1", "A1")),), old) == [
        f"gpu1 slot A2: memory module serial D2 is new, was not {BEFORE}"
    ]


def test_a_new_part_where_one_was_that_moved_names_it() -> None:
    old = (server("gpu1", part("gpu", "G1", "1")), server("gpu2"))
    new = (server("gpu1", part("gpu", "G9", "1")), server("gpu2", part("gpu", "G1", "1")))
    assert said(old, new) == [
        f"gpu1 slot 1: GPU serial G9 is new, was not {BEFORE}; serial G1, which was there, is in gpu2 slot 1",
        f"gpu2 slot 1: GPU serial G1 moved, was in gpu1 slot 1 {BEFORE}",
    ]


def test_a_renamed_node_keeps_its_parts() -> None:
    old = (server("node-a", part("gpu", "G1"), tag="T1"), server("node-b", part("gpu", "G2"), tag="T2"))
    new = (server("gpu1", part("gpu", "G1"), tag="t1"), server("gpu2", part("gpu", "G2"), tag="T2"))
    assert said(old, new) == [
        f"gpu1: service tag t1, was named node-a {BEFORE}",
        f"gpu2: service tag T2, was named node-b {BEFORE}",
    ]
    swapped = (server("node-b", part("gpu", "G1"), tag="T1"), server("node-a", part("gpu", "G2"), tag="T2"))
    assert whats(old, swapped) == ["renamed", "renamed"]


def test_another_server_under_the_same_name_is_one_line_and_what_it_took_along_moved() -> None:
    old = (server("gpu1", part("gpu", "G1"), *(part("dimm", f"D{n}", str(n)) for n in range(8)), tag="T1"),)
    new = (server("gpu1", part("gpu", "G1"), *(part("dimm", f"E{n}", str(n)) for n in range(8)), tag="T9"),)
    assert said(old, new) == [f"gpu1: service tag T9, was T1 {BEFORE}; another server, with 8 other parts"]


def test_servers_of_one_reading_alone_are_named_and_are_no_difference() -> None:
    two = (server("gpu1", part("gpu", "G1")), server("gpu2", part("gpu", "G2")))
    assert [(one.what, one.what in DIFFERENT) for one in part_changes(two, two[:1])] == [("server-gone", False)]
    assert [(one.what, one.what in DIFFERENT) for one in part_changes(two[:1], two)] == [("server-new", False)]
    assert said(two, two[:1])[0].startswith("gpu2: the server with its 1 part is not among those that were read now")


def test_what_was_not_read_is_not_confirmed_and_never_gone() -> None:
    old = (server("gpu1", part("dimm", "D1", "A1"), part("dimm", "D2", "A2"), part("psu", "P1")),)
    new = (server("gpu1", part("dimm", "D1", "A1"), unread={"dimm": "Memory: no JSON", "psu": "no BMC was read"}),)
    assert said(old, new) == [
        "gpu1: memory module serial numbers of 1 are not confirmed: not read now (Memory: no JSON)",
        "gpu1: power supply serial numbers of 1 are not confirmed: not read now (no BMC was read)",
    ]
    assert said(new, old) == [
        "gpu1: memory module serial numbers of 1 cannot be compared: not read before (Memory: no JSON)",
        "gpu1: power supply serial numbers of 1 cannot be compared: not read before (no BMC was read)",
    ]


def test_parts_that_the_node_alone_listed_are_not_gone_for_a_bmc_that_lists_no_such() -> None:
    usb = ListedPart(kind="drive", node_slot="sda", serial="S9", by=("node",))
    old = (server("gpu1", usb, part("drive", "S1")),)
    assert whats(old, (server("gpu1", part("drive", "S1")),)) == ["unconfirmed"]


def test_a_part_that_gives_no_serial_number_now_is_not_confirmed_in_its_place() -> None:
    old = (server("gpu1", part("dimm", "D1", "A1"), part("dimm", "D2", "A2")),)
    new = (server("gpu1", part("dimm", "D1", "A1"), part("dimm", None, "A2")),)
    assert whats(old, new) == ["unconfirmed"]
    assert whats(new, old) == ["first-read"]
    elsewhere = (server("gpu1", part("dimm", "D1", "A1"), part("dimm", None, "A7")),)
    assert whats(old, elsewhere) == ["gone"]


def test_two_parts_with_one_serial_number_are_told_apart_by_their_places() -> None:
    old = (server("gpu1", part("dimm", "D", "A1"), part("dimm", "D", "A2")),)
    assert part_changes(old, old) == ()
    assert part_changes(old, (server("gpu1", part("dimm", "D", "A2"), part("dimm", "D", "A1")),)) == ()
    assert said(old, (server("gpu1", part("dimm", "D", "A2")),)) == [
        f"gpu1 slot A1: memory module serial D {BEFORE} is gone"
    ]
    copied = (*old, server("gpu2", part("nic", "N", "1")))
    assert whats(copied, (*old, server("gpu2", part("nic", "N", "1"), part("nic", "N", "2")))) == ["new"]


def test_a_slot_that_bmc_and_node_name_otherwise_is_no_move() -> None:
    """Once by the BMC, once by the node alone: its slot has another name, and may be the same."""
    rack = Rack()
    changes = part_changes(servers(rack), servers(rack, bmc=False))
    assert {one.what for one in changes} == {"unconfirmed"}
    assert {one.kind for one in changes} == {"psu"}


def test_a_kernels_other_order_of_drives_is_no_move() -> None:
    def drives(*names: str) -> tuple[ServerParts, ...]:
        found = [
            ListedPart(kind="drive", node_slot=name, serial=f"S{at}", by=("node",)) for at, name in enumerate(names)
        ]
        return (server("gpu1", *found),)

    assert part_changes(drives("nvme0", "nvme1"), drives("nvme1", "nvme0")) == ()


def test_a_card_without_a_serial_number_is_known_again_by_its_address() -> None:
    mac = ("02:00:00:00:00:01",)
    old = (server("gpu1", part("nic", "N1", "4", macs=mac)),)
    assert part_changes(old, (server("gpu1", part("nic", None, "4", macs=mac)),)) == ()
    other = (server("gpu1", part("nic", "N2", "4", macs=mac)),)
    assert whats(old, other) == ["replaced"]


def test_the_ports_of_a_card_are_that_card_where_a_user_cannot_read_its_serial_number() -> None:
    """Root reads one card with two addresses; another user reads two ports with one address each."""
    macs = ("02:00:00:00:00:01", "02:00:00:00:00:02")

    def port(name: str, serial: str | None, *mine: str) -> ListedPart:
        return ListedPart(kind="nic", node_slot=name, serial=serial, macs=mine, by=("node",))

    def site(*parts: ListedPart) -> tuple[ServerParts, ...]:
        read = tuple(KindRead(kind=kind, by=("node",)) for kind in KINDS)
        return (ServerParts(node="gpu1", service_tag="T", parts=parts, read=read),)

    card = site(port("eth0, eth1", "N1", *macs))
    ports = site(port("eth0", None, macs[0]), port("eth1", None, macs[1]))
    assert part_changes(card, ports) == part_changes(ports, card) == ()
    assert whats(ports, site(port("eth0", None, macs[0]))) == ["gone"]
    assert whats(card, site(*ports[0].parts, port("eth2", None, "02:00:00:00:00:03"))) == ["new"]


def test_the_same_serial_number_in_another_case_is_the_same() -> None:
    old, new = (server("gpu1", part("dimm", "ab12")),), (server("gpu1", part("dimm", "AB12")),)
    assert part_changes(old, new) == ()
    assert whats((server("gpu1", part("dimm", "012")),), (server("gpu1", part("dimm", "12")),)) == ["replaced"]


def test_a_memory_module_of_a_rack_that_was_swapped_is_found() -> None:
    rack = Rack("16G", ("gpu1", "gpu2", "gpu3"))
    docs = rack.docs
    path = f"{SYSTEM}/Memory/DIMM.Socket.A3"
    docs["gpu1"][path]["SerialNumber"], docs["gpu3"][path]["SerialNumber"] = "D0003003", "D0001003"
    old = servers(Rack("16G", ("gpu1", "gpu2", "gpu3")), node=False)
    assert sorted(whats(old, servers(rack, node=False))) == ["moved", "moved"]


def test_differences_come_before_what_is_only_not_read() -> None:
    old = (server("gpu1", part("psu", "P1")), server("gpu2", part("gpu", "G1")))
    new = (server("gpu1", unread={"psu": "no BMC was read"}), server("gpu2", part("gpu", "G2")))
    assert whats(old, new) == ["replaced", "unconfirmed"]


SERIALS = st.one_of(st.none(), st.sampled_from(["A", "B", "C", "a", "0"]))
PARTS = st.lists(st.tuples(st.sampled_from(["gpu", "dimm", "nic"]), SERIALS, st.sampled_from("1234")), max_size=8)


@given(st.lists(PARTS, max_size=3), st.lists(PARTS, max_size=3))
def test_every_serial_number_that_was_there_stayed_or_is_named(
    old: list[list[tuple[str, str | None, str]]], new: list[list[tuple[str, str | None, str]]]
) -> None:
    def made(lists: list[list[tuple[str, str | None, str]]]) -> tuple[ServerParts, ...]:
        return tuple(
            server(f"n{at}", *(part(kind, serial, slot) for kind, serial, slot in parts))  # type: ignore[arg-type]
            for at, parts in enumerate(lists)
        )

    before, after = made(old), made(new)
    assert part_changes(before, before) == ()
    changes = part_changes(before, after)
    gone = sum(one.what in ("gone", "replaced") for one in changes)
    fresh = sum(one.what in ("new", "replaced") for one in changes)
    number = [sum(p.serial is not None for s in side for p in s.parts) for side in (before, after)]
    if not any(p.serial is None for side in (before, after) for s in side for p in s.parts) and len(old) == len(new):
        assert number[1] - number[0] == fresh - gone
