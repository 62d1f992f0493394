"""One list of a server's parts: each part once, whoever names it how; what was not read is named, a placeholder too."""

from __future__ import annotations

import pytest

from tests.support.hardware_case import Rack
from tests.support.serial_case import bmc_of, facts_of, part, server, servers
from tests.support.site import GPU
from toolkit.lab.bmc.constructed import CHASSIS, SYSTEM
from validation.analysis.part_changes import part_changes
from validation.measures.hardware.listed import listed
from validation.model.listed_parts import KINDS, ServerParts, doubled
from validation.probes.host_parts import serial
from validation.report.serial_lines import parts_list, serial_line
from validation.report.words import front_words


def counts(one: ServerParts) -> dict[str, int]:
    return {kind: len(one.of(kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", ["14G", "16G", "17G"])
def test_bmc_and_node_give_one_list_with_slots_of_both_and_firmware(kind: str) -> None:
    (one,) = servers(Rack(kind, ("gpu1",)))
    alone = servers(Rack(kind, ("gpu1",)), node=False)[0]
    assert counts(one) == counts(alone)
    assert one.service_tag == "EAT0001"
    assert all(found.serial for found in one.parts)
    drive = one.of("drive")[0]
    assert (drive.slot, drive.serial, drive.firmware) == ("Disk.Bay.0", "S0001000", "1.2.3")
    assert drive.node_slot is not None
    assert drive.by == ("bmc", "node")
    assert {one.reading(kind).by for kind in ("gpu", "nic", "drive", "dimm")} == {("bmc", "node")}
    assert one.reading("psu").by == ("bmc",)


def test_a_part_that_both_name_otherwise_is_one_part() -> None:
    rack = Rack()
    assert rack.hosts["gpu1"] is not None
    for number, gpu in enumerate(rack.hosts["gpu1"]["gpus"]):
        gpu["slot"] = f"00000000:{number:02x}:00.0"
        gpu["serial"] = gpu["serial"].lower()  # the same number in another case
    one = servers(rack)[0]
    assert counts(one)["gpu"] == 8
    assert (one.of("gpu")[0].slot, one.of("gpu")[0].node_slot) == ("Video.Slot.1-1", "00000000:00:00.0")


def test_a_card_is_known_by_its_ports_addresses_where_its_serial_number_is_not() -> None:
    rack = Rack()
    assert rack.hosts["gpu1"] is not None
    for port in rack.hosts["gpu1"]["nics"]:
        port["serial"] = None
    assert counts(servers(rack)[0])["nic"] == 2
    assert all(one.serial for one in servers(rack)[0].of("nic"))
    for port in rack.hosts["gpu1"]["nics"]:
        port["macs"], port["protocol"] = [], "InfiniBand"
    assert counts(servers(rack)[0])["nic"] == 2


@pytest.mark.parametrize(
    "text",
    ["", " ", "N/A", "n/a", "Not Specified", "0000", "0", "FFFFFFFF", "None", "Unknown", "Default string", "[N/A]",
     "To Be Filled By O.E.M.", "System Serial Number", "A1_SerNum0", "0123456789", "xxxxxxxx", "-", "....", "NO DIMM",
     "empty", "\x00", "Not Available", "\t\n"],
)  # fmt: skip
def test_a_placeholder_is_no_serial_number(text: str) -> None:
    assert serial(text.replace("\x00", "")) is None
    rack = Rack(names=("gpu1",))
    rack.docs["gpu1"][f"{SYSTEM}/Memory/DIMM.Socket.A3"]["SerialNumber"] = text
    rack.hosts["gpu1"] = None
    (one,) = servers(rack)
    dimm = next(found for found in one.of("dimm") if found.slot == "DIMM.Socket.A3")
    if text != "\x00":
        assert dimm.serial is None
    assert len(one.of("dimm")) == 32


@pytest.mark.parametrize("text", ["0012345", "1e5", "12345678901234567890123", "007", "S/N-1", "Größe", "A B"])
def test_a_serial_number_is_kept_as_it_is_written(text: str) -> None:
    assert serial(text) == text


def test_a_serial_number_that_is_a_number_of_json_is_not_read_and_named() -> None:
    """A number has lost the zeros before it: which serial number it was is not known."""
    rack = Rack(names=("gpu1",))
    rack.docs["gpu1"][f"{CHASSIS}/NetworkAdapters/NIC.Slot.1"]["SerialNumber"] = 12345
    (one,) = servers(rack, node=False)
    assert counts(one)["nic"] == 1
    assert one.reading("nic").by == ()
    assert "network card NIC.Slot.1: SerialNumber is '12345', no text" in one.reading("nic").why[0]


def test_odd_characters_are_written_out_and_two_that_look_alike_stay_two() -> None:
    rack = Rack(names=("gpu1",))
    evil = "<img src=x>\x1b[31m\u202eAB"
    rack.docs["gpu1"][f"{CHASSIS}/NetworkAdapters/NIC.Slot.1"]["SerialNumber"] = evil
    rack.docs["gpu1"][f"{CHASSIS}/NetworkAdapters/NIC.Slot.2"]["SerialNumber"] = "AB"
    (one,) = servers(rack, node=False)
    assert [found.serial for found in one.of("nic")] == ["<img src=x>\\u001b[31m\\u202eAB", "AB"]


def test_what_was_not_read_is_named_for_every_kind() -> None:
    bare = listed("gpu1", None, None)
    assert bare.service_tag is None
    assert {reading.by for reading in bare.read} == {()}
    assert {reading.why for reading in bare.read} == {("no BMC was read", "the node was not looked at")}
    rack = Rack(names=("gpu1",))
    rack.read["gpu1"] = {"missing": [{"what": "Memory", "why": "its answer is no JSON"}]}
    assert rack.hosts["gpu1"] is not None
    rack.hosts["gpu1"] |= {"dimms": None, "unread": [{"what": "dimms", "why": "root alone can read DMI"}]}
    (one,) = servers(rack)
    assert one.reading("dimm").by == ()
    assert one.reading("dimm").why == ("Memory: its answer is no JSON", "by the node: root alone can read DMI")
    failed = listed("gpu1", bmc_of(rack, "gpu1").model_copy(update={"error": "refused"}), facts_of(None))
    assert failed.reading("psu").why[0] == "the BMC: refused"


def test_parts_of_another_servers_bmc_are_not_listed_as_this_ones() -> None:
    rack = Rack()
    one = listed("gpu1", bmc_of(rack, "gpu2"), facts_of(rack.hosts["gpu1"], gpu_count=8))
    assert one.service_tag == "EAT0001"
    assert {found.by for found in one.parts} == {("node",)}
    assert one.reading("psu").why[0] == "the BMC is of server EAT0002, another one"


def test_a_raid_controllers_disk_is_no_part_and_its_drives_are_not_read_by_the_node() -> None:
    rack = Rack(names=("gpu1",))
    assert rack.hosts["gpu1"] is not None
    rack.hosts["gpu1"]["drives"] = [{"kind": "drive", "slot": "sda", "model": "DELLBOSS VD", "serial": "V1"}]
    (one,) = servers(rack, bmc=False)
    assert (one.of("drive"), one.reading("drive").by) == ((), ())
    assert "a controller hides its drives" in " ".join(one.reading("drive").why)


def test_one_serial_number_of_two_parts_is_named_with_both_places() -> None:
    two = (server("gpu1", part("dimm", "ab12", "A1"), part("nic", "AB12", "N1")), server("gpu2", part("dimm", "AB12")))
    supplies = (server("gpu1", part("psu", "P"), part("psu", "P", "2")),)
    assert str(doubled(supplies)[0]) == "2 power supplies have serial number P: gpu1 1, gpu1 2"
    (found,) = doubled(two)
    assert str(found) == "2 memory modules have serial number ab12: gpu1 A1, gpu2 1"


def test_the_short_line_counts_known_and_unknown_and_names_what_was_not_read() -> None:
    two = (
        server("gpu1", part("gpu", "G1"), part("gpu", None, "2"), part("dimm", "D1"), unread={"psu": "no BMC"}),
        server("gpu2", part("gpu", "G3"), part("dimm", "D2")).model_copy(update={"service_tag": None}),
    )
    line = serial_line(two, front_words("en"))
    assert line.tags == "service tags: TAG-gpu1 (not read on 1 machine)"
    assert line.parts == "known: 2 of 3 GPUs, 2 of 2 memory modules, power supplies not read"
    german = serial_line(two, front_words("de"))
    assert "2 von 3 GPUs" in german.parts
    assert "Netzteile nicht gelesen" in german.parts
    nothing = serial_line((listed("gpu1", None, None),), front_words("en"))
    assert (nothing.tags, nothing.parts) == ("service tags: not read", "parts not read")


def test_a_list_too_long_for_its_medium_counts_the_rest() -> None:
    fleet = tuple(server(f"n{n}", *(part("dimm", f"{n}-{m}", str(m)) for m in range(32))) for n in range(100))
    shown = parts_list(fleet, printed=True)
    assert len(shown.servers) == 46
    assert shown.rest == "Not shown: 54 servers; report.html has all."
    assert parts_list(fleet).rest == ""


@pytest.mark.parametrize("text", ["", "N/A", "Not Specified", "0000", "System Serial Number", "0123456789"])
def test_a_placeholder_that_a_former_probe_kept_is_no_serial_number(text: str) -> None:
    """Results of an earlier release have what firmware wrote."""
    rack = Rack(names=("gpu1",))
    assert rack.hosts["gpu1"] is not None
    rack.hosts["gpu1"]["gpus"][0]["serial"] = rack.hosts["gpu1"]["serial"] = text
    (one,) = servers(rack, bmc=False)
    assert (one.service_tag, one.of("gpu")[0].serial) == (None, None)
    assert len(one.of("gpu")) == 8


def test_odd_characters_of_slot_and_model_are_written_out_too() -> None:
    rack = Rack(names=("gpu1",))
    rack.docs["gpu1"][f"{CHASSIS}/NetworkAdapters/NIC.Slot.1"] |= {"Id": "N\x1b1", "Model": "M\u202e2"}
    nic = servers(rack, node=False)[0].of("nic")[0]
    assert (nic.slot, nic.model) == ("N\\u001b1", "M\\u202e2")


def test_the_ports_of_one_card_are_one_card() -> None:
    rack = Rack(names=("gpu1",))
    assert rack.hosts["gpu1"] is not None
    ports = rack.hosts["gpu1"]["nics"]
    ports[1]["serial"] = ports[0]["serial"]
    (nic,) = servers(rack, bmc=False)[0].of("nic")
    assert nic.node_slot == f"{ports[0]['slot']}, {ports[1]['slot']}"
    assert nic.macs == (*ports[0]["macs"], *ports[1]["macs"])


def test_serial_numbers_that_the_node_alone_gives_are_kept() -> None:
    rack = Rack(names=("gpu1",))
    for path, doc in rack.docs["gpu1"].items():
        if "/Processors/Video.Slot." in path:
            doc.pop("SerialNumber", None)
    gpus = servers(rack)[0].of("gpu")
    assert [gpu.serial for gpu in gpus] == [f"G0001{n:03d}" for n in range(1, 9)]


def test_a_kind_that_some_servers_did_not_list_is_counted_with_them() -> None:
    two = (server("gpu1", part("psu", "P1")), server("gpu2", unread={"psu": "no BMC was read"}))
    assert serial_line(two, front_words("en")).parts == "known: 1 of 1 power supplies (not read on 1 machine)"


def test_a_storage_controller_that_was_not_read_leaves_its_drives_unread() -> None:
    rack = Rack(names=("gpu1",))
    rack.read["gpu1"] = {"missing": [{"what": "storage controller RAID.SL.3-1", "why": "no answer in time"}]}
    (one,) = servers(rack, node=False)
    assert (one.reading("drive").by, one.reading("drive").why[0]) == (
        (),
        "storage controller RAID.SL.3-1: no answer in time",
    )


@pytest.mark.parametrize("kind", ["14G", "16G"])
def test_the_empty_place_of_a_power_supply_is_no_part(kind: str) -> None:
    rack = Rack(kind, ("gpu1",))
    for doc in rack.docs["gpu1"].values():
        for one in [doc, *doc.get("PowerSupplies", ())] if isinstance(doc.get("PowerSupplies", ()), list) else [doc]:
            if "PSU.Slot.2" in (one.get("MemberId"), one.get("Id")):
                one["Status"] = {"State": "Absent"}
                one.pop("SerialNumber")
    (now,) = servers(rack, node=False)
    assert [found.slot for found in now.of("psu")] == ["PSU.Slot.1"]
    assert [one.what for one in part_changes(servers(Rack(kind, ("gpu1",)), node=False), (now,))] == ["gone"]


def test_a_server_that_is_off_may_have_parts_that_its_bmc_does_not_list() -> None:
    rack = Rack(names=("gpu1",))
    rack.docs["gpu1"][SYSTEM]["PowerState"] = "Off"
    rack.docs["gpu1"][f"{SYSTEM}/Storage/CPU.1"]["Drives"].clear()
    (now,) = servers(rack, node=False)
    assert (now.reading("drive").by, now.reading("psu").by) == ((), ("bmc",))
    assert now.reading("drive").why[0] == "the BMC reports the server's power as Off"
    changes = part_changes(servers(Rack(names=("gpu1",)), node=False), (now,))
    assert [(one.kind, one.what) for one in changes] == [("drive", "unconfirmed")]


def test_the_service_tag_is_the_same_by_bmc_and_by_node_whoever_made_the_server() -> None:
    """Dell's SKU is the service tag; HPE's is the product's number, the same of all servers of a model."""
    rack = Rack()
    for name in rack.names:
        host = rack.hosts[name]
        assert host is not None
        system = rack.docs[name][SYSTEM]
        system |= {"Manufacturer": "HPE", "SKU": "P12345-B21", "SerialNumber": host["serial"]}
    assert [one.service_tag for one in servers(rack, node=False)] == [one.service_tag for one in servers(rack)]
    assert part_changes(servers(rack), servers(rack, node=False)) == ()


def test_two_ports_without_serial_numbers_are_the_one_card_of_the_bmc() -> None:
    rack = Rack(names=("gpu1",))
    path = f"{SYSTEM}/EthernetInterfaces"
    second = {**rack.docs["gpu1"][f"{path}/NIC.Slot.1-1-1"], "Id": "NIC.Slot.1-2-1"}
    second |= {"@odata.id": f"{path}/NIC.Slot.1-2-1", "PermanentMACAddress": "02:ea:00:00:01:99"}
    rack.docs["gpu1"][f"{path}/NIC.Slot.1-2-1"] = second
    rack.docs["gpu1"][path]["Members"].append({"@odata.id": f"{path}/NIC.Slot.1-2-1"})
    host = rack.hosts["gpu1"]
    assert host is not None
    host["nics"].append({**host["nics"][0], "slot": "nic99", "macs": ("02:ea:00:00:01:99",)})
    for port in host["nics"]:
        port["serial"] = None
    cards = servers(rack)[0].of("nic")
    assert [card.slot for card in cards] == ["NIC.Slot.1", "NIC.Slot.2"]
    assert cards[0].node_slot == f"{host['nics'][0]['slot']}, nic99"


def test_one_serial_number_of_a_whole_site_is_one_short_line() -> None:
    site = tuple(server(f"gpu{n}", part("dimm", "SAME", "A1")) for n in range(200))
    (found,) = doubled(site)
    assert len(found.where) == 200
    assert str(found).endswith("gpu6 A1, gpu7 A1, and 192 more")


@pytest.mark.parametrize("answering", [None, 7])
def test_a_gpu_on_its_bus_that_the_driver_does_not_list_is_not_gone(answering: int | None) -> None:
    """A driver that is not loaded, or a GPU that hangs: it is in its slot all the same."""
    host = dict(Rack().hosts["gpu1"] or {})
    bus = [{**GPU, "address": f"0000:{n:02x}:00.0"} for n in range(1, 9)]
    before = listed("gpu1", None, facts_of(host, gpu_count=8, pci=bus))
    assert before.reading("gpu").by == ("node",)
    host["gpus"] = host["gpus"][:answering] if answering else None
    now = listed("gpu1", None, facts_of(host, gpu_count=answering or 0, pci=bus))
    assert [(one.kind, one.what) for one in part_changes((before,), (now,))] == [("gpu", "unconfirmed")]
    pulled = listed("gpu1", None, facts_of(host, gpu_count=answering or 0, pci=bus[: answering or 0]))
    assert "gone" in {one.what for one in part_changes((before,), (pulled,))}
