"""Parts, firmware, BIOS, power, events and the BMC itself: a planted fault is found at its node alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.hardware_case import Rack
from tests.support.site import hardware, plan_of, results_of, verdict_of
from toolkit.lab.bmc.constructed import CHASSIS, MANAGER, SYSTEM, UPDATES
from validation.model import Bom

HARDWARE = ("pf.parts", "pf.firmware", "pf.bios", "pf.power", "pf.sel", "pf.bmc")


@pytest.mark.parametrize("kind", ["14G", "16G", "17G"])
def test_servers_whose_bmcs_and_systems_agree_pass_everything(kind: str) -> None:
    rack = Rack(kind, ("gpu1", "gpu2", "gpu3"))
    verdict = rack.verdict()
    for id_ in HARDWARE:
        found = next(c for c in verdict.criteria if c.id == id_)
        assert found.verdict == "pass", (id_, [j.reason for j in found.judgements])
        assert len(found.judgements) == 3
        assert "emulated BMC" in found.judgements[0].reason


def test_without_a_bmc_they_are_not_measured_and_say_why() -> None:
    topology = hardware()
    plan = plan_of(topology, ("preflight",))
    verdict = verdict_of(topology, plan, results_of(plan))
    for id_ in HARDWARE:
        found = next(c for c in verdict.criteria if c.id == id_)
        assert found.verdict == "not-measured"
        assert "no BMC is declared for any node (host variable bmc)" in found.reason


def _dimm(rack: Rack) -> None:
    rack.docs["gpu2"][f"{SYSTEM}/Memory/DIMM.Socket.A3"]["SerialNumber"] = "OTHER"


def _gpu(rack: Rack) -> None:
    assert rack.hosts["gpu2"] is not None
    del rack.hosts["gpu2"]["gpus"][3]


def _swapped(rack: Rack) -> None:
    assert rack.hosts["gpu2"] is not None
    rack.hosts["gpu2"]["serial"] = "EAT0009"


def _idle(rack: Rack) -> None:
    assert rack.hosts["gpu2"] is not None
    rack.hosts["gpu2"]["gpus"][0]["use_percent"] = 100.0


def _card(rack: Rack) -> None:
    rack.docs["gpu2"][f"{SYSTEM}/EthernetInterfaces/NIC.Slot.2-1-1"]["PermanentMACAddress"] = "02:EA:00:00:09:09"


def _sick(rack: Rack) -> None:
    rack.docs["gpu2"][f"{SYSTEM}/Memory/DIMM.Socket.A3"]["Status"] = {"State": "Enabled", "Health": "Warning"}


def _drive(rack: Rack) -> None:
    assert rack.hosts["gpu2"] is not None
    del rack.hosts["gpu2"]["drives"][1]


def _version(rack: Rack) -> None:
    for name in rack.names:
        rack.docs[name][f"{UPDATES}/Installed-0-2.7.4"]["Version"] = "2.6.3" if name == "gpu2" else "2.7.4"


def _drive_firmware(rack: Rack) -> None:
    assert rack.hosts["gpu2"] is not None
    rack.hosts["gpu2"]["drives"][0]["firmware"] = "9.9"


def _bios(name: str, value: str) -> Callable[[Rack], None]:
    def change(rack: Rack) -> None:
        rack.docs["gpu2"][f"{SYSTEM}/Bios"]["Attributes"][name] = value

    return change


def _supply(rack: Rack) -> None:
    rack.docs["gpu2"][f"{CHASSIS}/PowerSubsystem/PowerSupplies/PSU.Slot.2"]["Status"] = {"State": "UnavailableOffline"}


def _redundancy(rack: Rack) -> None:
    rack.docs["gpu2"][f"{CHASSIS}/PowerSubsystem"]["PowerSupplyRedundancy"][0]["Status"] = {"Health": "Critical"}


def _limit(rack: Rack) -> None:
    rack.docs["gpu2"][f"{CHASSIS}/EnvironmentMetrics"]["PowerLimitWatts"] = {
        "ControlMode": "Automatic",
        "SetPoint": 5000,
    }


def _capped(rack: Rack) -> None:
    assert rack.hosts["gpu2"] is not None
    rack.hosts["gpu2"]["gpus"][1]["limit_w"] = 150.0


def _event(rack: Rack) -> None:
    path = f"{MANAGER}/LogServices/Sel/Entries"
    event = {"Severity": "Critical", "Created": "2026-11-27T10:00:00Z", "Message": "Uncorrectable memory error"}
    rack.after["gpu2"][f"{path}/2"] = {"@odata.id": f"{path}/2", "Id": "2", **event}
    rack.after["gpu2"][path]["Members"].append({"@odata.id": f"{path}/2"})


def _cleared(rack: Rack) -> None:
    rack.after["gpu2"][f"{MANAGER}/LogServices/Sel/Entries"]["Members"] = []


def _ipmi(rack: Rack) -> None:
    rack.docs["gpu2"][f"{MANAGER}/NetworkProtocol"]["IPMI"]["ProtocolEnabled"] = True


def _shared(rack: Rack) -> None:
    attributes = rack.docs["gpu2"][f"{MANAGER}/Oem/Dell/DellAttributes/iDRAC.Embedded.1"]["Attributes"]
    attributes["CurrentNIC.1.Selection"] = "LOM1"


def _default(rack: Rack) -> None:
    rack.read["gpu2"]["default_password"] = True


def _in_fabric(rack: Rack) -> None:
    rack.read["gpu2"]["address"] = rack.topology.nodes[0].ports[0].address


FAULTS: dict[str, tuple[str, Callable[[Rack], Any], str]] = {
    "dimm": ("pf.parts", _dimm, "memory module DIMM.Socket.A3, serial OTHER: the node does not have it"),
    "gpu": ("pf.parts", _gpu, "GPU Video.Slot.4-1, serial G0002004: the node does not have it"),
    "another-machine": ("pf.parts", _swapped, "the BMC is of server EAT0002, the node is EAT0009"),
    "idle-gpu": ("pf.parts", _idle, "is used 0 % by the BMC, 100 % by NVML"),
    "card": ("pf.parts", _card, "02:ea:00:00:02:02: the BMC does not list it"),
    "sick-part": ("pf.parts", _sick, "its health is Warning"),
    "drive": ("pf.parts", _drive, "drive Disk.Bay.1, serial S0002001: the node does not have it"),
    "drive-firmware": ("pf.firmware", _drive_firmware, "firmware of drive Disk.Bay.0 is 1.2.3 by the BMC, 9.9"),
    "version": ("pf.firmware", _version, "firmware of BIOS is 2.6.3, gpu1, gpu3 have 2.7.4"),
    "profile": ("pf.bios", _bios("SysProfile", "PerfPerWattOptimizedDapc"), "wanted is PerfOptimized or Custom"),
    "alike": ("pf.bios", _bios("LogicalProc", "Disabled"), "BIOS LogicalProc is Disabled, gpu1, gpu3 have Enabled"),
    "supply": ("pf.power", _supply, "power supply PSU.Slot.2: UnavailableOffline"),
    "redundancy": ("pf.power", _redundancy, "power supplies are not redundant: Critical"),
    "limit": ("pf.power", _limit, "the server's power is limited to 5000 W"),
    "capped-gpu": ("pf.power", _capped, "GPU gpu3 is limited to 150 of 700 W"),
    "event": ("pf.sel", _event, "event during the run: 2026-11-27T10:00:00Z Critical: Uncorrectable memory error"),
    "cleared-log": ("pf.sel", _cleared, "the log was cleared during the run"),
    "ipmi": ("pf.bmc", _ipmi, "IPMI over LAN is on"),
    "shared-port": ("pf.bmc", _shared, "it shares network port LOM1 with the server"),
    "default-password": ("pf.bmc", _default, "one that BMCs are delivered with"),
    "in-the-fabric": ("pf.bmc", _in_fabric, "is in a network of the fabric"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_at_its_node_and_no_other_is_named(fault: str) -> None:
    id_, spoil, words = FAULTS[fault]
    rack = Rack("16G", ("gpu1", "gpu2", "gpu3"))
    spoil(rack)
    verdict = rack.verdict()
    for c in verdict.criteria:
        if c.id not in HARDWARE:
            continue
        for j in c.judgements:
            expected = "fail" if (c.id, str(j.subject)) == (id_, "gpu2") else "pass"
            assert j.verdict == expected, (c.id, str(j.subject), j.reason)
    assert words in rack.said(id_)["gpu2"][1]


def test_a_value_that_is_missing_is_no_finding_and_no_silent_pass() -> None:
    rack = Rack()
    del rack.docs["gpu2"][f"{SYSTEM}/Processors/Video.Slot.2-1"]["SerialNumber"]
    del rack.docs["gpu2"][f"{MANAGER}/NetworkProtocol"]["IPMI"]
    verdict, reason = rack.said("pf.parts")["gpu2"]
    assert verdict == "pass"
    assert "1 GPUs have no serial number on one side: gpu Video.Slot.2-1" in reason
    assert rack.said("pf.bmc")["gpu2"] == (
        "not-measured", "the BMC does not say whether IPMI over LAN is on (an emulated BMC)"
    )  # fmt: skip


def test_what_could_not_be_read_is_not_measured_with_its_place() -> None:
    rack = Rack()
    rack.read["gpu2"] = {"missing": [{"what": "Memory", "why": "its answer is no JSON"}], "events": None, "bios": None}
    assert rack.said("pf.parts")["gpu2"][0] == "not-measured"
    assert "Memory: its answer is no JSON" in rack.said("pf.parts")["gpu2"][1]
    assert rack.said("pf.sel")["gpu2"][0] == "not-measured"
    assert rack.said("pf.bios")["gpu2"][0] == "not-measured"
    assert rack.said("pf.bios")["gpu1"][0] == "pass"


def test_a_bmc_that_could_not_be_read_costs_its_own_node_alone() -> None:
    rack = Rack()
    rack.read["gpu2"]["error"] = "it does not answer on port 443: Connection refused"
    for id_ in HARDWARE:
        said = rack.said(id_)
        assert said["gpu1"][0] == "pass", said
        assert said["gpu2"][0] == "not-measured"
        assert "does not answer on port 443" in said["gpu2"][1]


def test_a_bios_change_that_waits_is_never_taken_for_the_value_in_force() -> None:
    """iDRAC shows pending values among the attributes before their job has run."""
    rack = Rack()
    rack.docs["gpu2"][f"{SYSTEM}/Bios/Settings"]["Attributes"] = {"SysProfile": "Custom"}
    path = f"{MANAGER}/Oem/Dell/Jobs"
    rack.docs["gpu1"][f"{path}/JID_1"] = {"@odata.id": f"{path}/JID_1", "Id": "JID_1", "JobType": "BIOSConfiguration",
                                          "JobState": "Scheduled"}  # fmt: skip
    rack.docs["gpu1"][path]["Members"] = [{"@odata.id": f"{path}/JID_1"}]
    said = rack.said("pf.bios")
    assert {one[0] for one in said.values()} == {"not-measured"}
    assert "SysProfile to Custom" in said["gpu2"][1]
    assert "job JID_1" in said["gpu1"][1]


def test_attributes_that_the_order_wants_are_held_against_the_bios() -> None:
    rack = Rack()
    rack.bios = {"LogicalProc": "Disabled", "NoSuchOne": "1"}
    verdict, reason = rack.said("pf.bios")["gpu1"]
    assert verdict == "fail"
    assert "BIOS LogicalProc is Enabled, wanted is Disabled" in reason
    assert "BIOS has no attribute NoSuchOne, which the inventory wants" in reason


def test_parts_are_counted_against_the_order() -> None:
    rack = Rack()
    rack.bom = Bom(gpu_count=4, cpu_sockets=2, model="PowerEdge R760")
    reason = rack.said("pf.parts")["gpu1"][1]
    assert "the BMC lists 8 of 4 GPUs of the order" in reason
    assert "the BMC is of a PowerEdge XE9680, ordered is a PowerEdge R760" in reason


def test_firmware_older_than_the_public_list_is_remarked() -> None:
    rack = Rack()
    for name in rack.names:
        rack.docs[name][SYSTEM]["BiosVersion"] = "2.6.0"
    verdict, reason = rack.said("pf.firmware")["gpu1"]
    assert (verdict, "BIOS is 2.6.0, older than 2.7.4" in reason) == ("pass", True)


def test_a_container_shows_no_parts_of_its_own() -> None:
    rack = Rack()
    rack.hosts["gpu2"] = None
    verdict, reason = rack.said("pf.parts")["gpu2"]
    assert verdict == "not-measured"
    assert "in a container, whose parts are its host's" in reason


def test_drives_behind_a_controller_are_not_compared_and_it_is_said() -> None:
    """BOSS-N1 shows one NVMe to the system and its two drives to the BMC."""
    rack = Rack()
    storage = f"{SYSTEM}/Storage"
    docs = rack.docs["gpu2"]
    links = []
    for bay in ("0", "1"):
        path = f"{storage}/BOSS.SL.14-1/Drives/Disk.Direct.{bay}"
        docs[path] = {"@odata.id": path, "Id": f"Disk.Direct.{bay}", "SerialNumber": f"B{bay}", "Protocol": "NVMe"}
        links.append({"@odata.id": path})
    docs[f"{storage}/BOSS.SL.14-1"] = {"@odata.id": f"{storage}/BOSS.SL.14-1", "Id": "BOSS.SL.14-1", "Drives": links}
    docs[storage]["Members"].append({"@odata.id": f"{storage}/BOSS.SL.14-1"})
    assert rack.hosts["gpu2"] is not None
    rack.hosts["gpu2"]["drives"].append(
        {"kind": "drive", "slot": "nvme9", "model": "Dell BOSS-N1", "serial": "V1", "protocol": "NVMe"}
    )
    verdict, reason = rack.said("pf.parts")["gpu2"]
    assert verdict == "pass", reason
    assert "2 NVMe drives not compared: Disk.Direct.0 behind BOSS.SL.14-1, Disk.Direct.1 behind BOSS.SL.14-1" in reason


def test_a_card_may_be_that_of_a_port_that_is_not_ethernet_and_no_more_of_them() -> None:
    rack = Rack()
    host = rack.hosts["gpu2"]
    assert host is not None
    host["nics"][0] |= {"macs": (), "protocol": "InfiniBand", "slot": "ib0"}
    verdict, reason = rack.said("pf.parts")["gpu2"]
    assert (verdict, "1 port not compared, not Ethernet: ib0" in reason) == ("pass", True), reason
    host["nics"][1]["macs"] = ()
    verdict, reason = rack.said("pf.parts")["gpu2"]
    assert (verdict, "the node does not have it" in reason) == ("fail", True), reason


def test_a_reading_that_cannot_be_used_costs_its_own_node_alone() -> None:
    rack = Rack()
    rack.read["gpu2"]["server"] = {"model": "x\ud800"}
    assert rack.said("pf.parts")["gpu1"][0] == "pass"
    verdict, reason = rack.said("pf.parts")["gpu2"]
    assert (verdict, "what was read of it cannot be used" in reason) == ("not-measured", True), reason


def test_a_bmc_whose_network_is_not_known_does_not_pass() -> None:
    rack = Rack("16G", ("gpu1", "gpu2", "gpu3"))
    rack.read["gpu2"]["address"] = "idrac-gpu2.example.org"
    verdict, words = rack.said("pf.bmc")["gpu2"]
    assert verdict == "not-measured"
    assert "its address idrac-gpu2.example.org is a name" in words


def test_a_bmc_whose_port_is_not_known_does_not_pass() -> None:
    rack = Rack()
    attributes = rack.docs["gpu2"][f"{MANAGER}/Oem/Dell/DellAttributes/iDRAC.Embedded.1"]["Attributes"]
    del attributes["CurrentNIC.1.Selection"]
    assert rack.said("pf.bmc") == {
        "gpu1": ("pass", rack.said("pf.bmc")["gpu1"][1]),
        "gpu2": (
            "not-measured", "the BMC does not say whether its network port is its own (an emulated BMC)"
        ),
    }  # fmt: skip


def test_of_two_servers_the_one_with_the_wished_value_is_not_blamed() -> None:
    rack = Rack()
    rack.docs["gpu2"][f"{SYSTEM}/Bios"]["Attributes"]["SysProfile"] = "PerfPerWattOptimizedDapc"
    said = rack.said("pf.bios")
    assert (said["gpu1"][0], said["gpu2"][0]) == ("pass", "fail"), said


def _drives_of(rack: Rack, protocol: str) -> None:
    """One drive with a serial number that both servers list."""
    for name in rack.names:
        docs, parts = rack.docs[name], rack.hosts[name]
        assert parts is not None
        path = next(
            one for one, doc in docs.items() if doc.get("SerialNumber", "").startswith("S000") and "Drives" in one
        )
        old = docs[path]["SerialNumber"]
        docs[path] |= {"SerialNumber": "SHARED1", "Protocol": protocol}
        for drive in parts["drives"]:
            if drive["serial"] == old:
                drive |= {"serial": "SHARED1", "protocol": protocol}


def test_a_serial_number_that_two_servers_have_fails_both_and_nobody_else() -> None:
    rack = Rack("16G", ("gpu1", "gpu2", "gpu3"))
    for name in ("gpu1", "gpu2"):
        rack.docs[name][f"{SYSTEM}/Memory/DIMM.Socket.A3"]["SerialNumber"] = "TWIN1"
        parts = rack.hosts[name]
        assert parts is not None
        parts["dimms"][2]["serial"] = "twin1"
    found = rack.said("pf.parts")
    assert {name: verdict for name, (verdict, _) in found.items()} == {"gpu1": "fail", "gpu2": "fail", "gpu3": "pass"}
    assert "memory module DIMM.Socket.A3, serial TWIN1: gpu2 lists the same" in found["gpu1"][1]
    assert "memory module DIMM.Socket.A3, serial TWIN1: gpu1 lists the same" in found["gpu2"][1]


@pytest.mark.parametrize(("protocol", "verdict"), [("NVMe", "fail"), ("SATA", "fail"), ("SAS", "pass")])
def test_a_sas_drive_of_an_enclosure_may_be_seen_by_two_servers_and_no_other(protocol: str, verdict: str) -> None:
    rack = Rack("16G")
    _drives_of(rack, protocol)
    assert {name: one for name, (one, _) in rack.said("pf.parts").items()} == {"gpu1": verdict, "gpu2": verdict}


def test_a_placeholder_that_every_server_has_is_no_serial_number() -> None:
    rack = Rack("16G")
    for name in rack.names:
        rack.docs[name][f"{SYSTEM}/Memory/DIMM.Socket.A3"]["SerialNumber"] = "To Be Filled By O.E.M."
        parts = rack.hosts[name]
        assert parts is not None
        parts["dimms"][2]["serial"] = "To Be Filled By O.E.M."
    assert {name: one for name, (one, _) in rack.said("pf.parts").items()} == {"gpu1": "pass", "gpu2": "pass"}


def test_two_nodes_with_one_servers_bmc_are_both_named() -> None:
    rack = Rack("16G")
    rack.docs["gpu2"][SYSTEM]["SKU"] = rack.docs["gpu1"][SYSTEM]["SKU"]
    found = rack.said("pf.parts")
    assert "gpu2 has the same service tag" in found["gpu1"][1]
    assert "gpu1 has the same service tag" in found["gpu2"][1]
