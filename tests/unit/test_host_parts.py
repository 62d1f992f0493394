"""A node's own parts, out of what firmware, kernel and tools write; what is cut or a placeholder is never a serial."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation.measures.node import facts_probe
from validation.model.parts import HostParts
from validation.probes import host_parts
from validation.probes.tool import Ran


def dimm(size: int = 0x7FFF, mib: int = 65536, serial: str = "80AD1234") -> bytes:
    """A structure of SMBIOS 3.3, type 17: set 0x10, locator, maker, serial, asset tag, part number."""
    body = bytearray(0x28)
    body[0], body[1] = 17, len(body)
    body[0x0C:0x0E] = size.to_bytes(2, "little")
    body[0x10], body[0x17], body[0x18], body[0x1A] = 1, 2, 3, 4
    body[0x1C:0x20] = mib.to_bytes(4, "little")
    return bytes(body) + b"\0".join(text.encode() for text in ("A1", "Hynix", serial, "HMCG94")) + b"\0\0"


def test_a_memory_module_has_slot_serial_and_size() -> None:
    found = host_parts.dimm(dimm())
    assert found == {
        "kind": "dimm",
        "slot": "A1",
        "model": "Hynix",
        "serial": "80AD1234",
        "part_number": "HMCG94",
        "size": 64.0,
    }
    small = host_parts.dimm(dimm(size=16384))
    assert small is not None
    assert small["size"] == 16.0


@pytest.mark.parametrize("serial", ["00000000", "Not Specified", "NO DIMM", "Unknown", " "])
def test_a_placeholder_is_no_serial_number(serial: str) -> None:
    found = host_parts.dimm(dimm(serial=serial))
    assert found is not None
    assert found["serial"] is None


def test_an_empty_slot_is_no_module_and_a_cut_structure_is_none() -> None:
    assert host_parts.dimm(dimm(size=0)) is None
    whole = dimm()
    assert [host_parts.dimm(whole[:end]) for end in range(0x28)] == [None] * 0x28


def test_gpus_of_nvidia_smi_with_serials_and_limits() -> None:
    text = (
        "00000000:18:00.0, NVIDIA H100 80GB HBM3, 1654922003519, 96.00.74.00.01, 500.00, 700.00, 100\n"
        "Unable to determine the device handle for GPU1: Unknown Error\n"
        "00000000:2A:00.0, Tesla V100, [N/A], [N/A], [N/A], [N/A], [N/A]\n"
    )
    first, second = host_parts.gpus(text)
    assert (first["serial"], first["limit_w"], first["default_limit_w"]) == ("1654922003519", 500.0, 700.0)
    assert first["use_percent"] == 100.0
    assert second["slot"] == "00000000:2a:00.0"
    assert {second[key] for key in ("serial", "firmware", "limit_w", "use_percent")} == {None}


def vpd(serial: bytes) -> bytes:
    name = b"ConnectX-6 Dx"
    fields = b"PN" + bytes([4]) + b"MCX6" + b"SN" + bytes([len(serial)]) + serial
    return bytes([0x82, len(name), 0]) + name + bytes([0x90, len(fields), 0]) + fields + b"\x78"


def test_the_serial_number_of_a_card_is_in_its_product_data() -> None:
    assert host_parts.serial_of_vpd(vpd(b"MT2043X12345")) == "MT2043X12345"
    assert host_parts.serial_of_vpd(b"\xff" * 64) is None
    for end in range(len(vpd(b"MT2043X12345")) - 12):
        assert host_parts.serial_of_vpd(vpd(b"MT2043X12345")[:end]) in (None, "")


def test_a_node_is_read_from_its_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(path: str, data: str | bytes) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data.encode() if isinstance(data, str) else data)

    put("class/dmi/id/product_serial", "EAT0001\n")
    put("class/dmi/id/bios_version", "2.7.4\n")
    put("firmware/dmi/entries/17-0/raw", dimm())
    put("firmware/dmi/entries/17-1/raw", dimm(size=0))
    put("class/net/ens1/device/vpd", vpd(b"MT1"))
    put("class/net/ens1/address", "b8:3f:d2:00:00:01\n")
    put("class/net/ens1/type", "1\n")
    put("class/net/ens1v0/device/physfn/x", "")
    put("class/net/veth0/address", "02:00:00:00:00:01\n")
    put("class/nvme/nvme0/transport", "pcie\n")
    put("class/nvme/nvme0/serial", "S5XXNA0R1 \n")
    put("class/nvme/nvme0/firmware_rev", "1.2.3\n")
    put("class/nvme/nvme1/transport", "rdma\n")
    put("block/sda/device/vpd_pg80", b"\0\x80\0\x04ABCD")
    monkeypatch.setattr(host_parts, "run_tool", lambda words, timeout_s: Ran(list(words), 127, "", ""))
    monkeypatch.setattr(host_parts.smi, "run", lambda *options: Ran(["nvidia-smi"], 127, "", ""))
    found = HostParts.model_validate(host_parts.collect(False, tmp_path))
    assert (found.serial, found.bios_version) == ("EAT0001", "2.7.4")
    assert [part.serial for part in found.dimms or ()] == ["80AD1234"]
    assert [(part.slot, part.serial, part.macs) for part in found.nics or ()] == [
        ("ens1", "MT1", ("b8:3f:d2:00:00:01",))
    ]
    assert [(part.slot, part.serial) for part in found.drives or ()] == [("nvme0", "S5XXNA0R1"), ("sda", "ABCD")]
    assert found.gpus is None
    assert [one.what for one in found.unread] == ["gpus"]
    assert len(found.parts) == 4


def test_infiniband_has_no_mac_address_and_what_a_bmc_shows_on_usb_is_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, type_, bus in (("ens1", "1", "pci"), ("ib0", "32", "pci"), ("idrac", "1", "usb"), ("odd", "1", "pci")):
        device = tmp_path / "class/net" / name / "device"
        device.mkdir(parents=True)
        (device.parent / "type").write_text(f"{type_}\n")
        (tmp_path / "bus" / bus).mkdir(parents=True, exist_ok=True)
        (device / "subsystem").symlink_to(tmp_path / "bus" / bus)
    long = "00:00:10:29:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:11:22:33"
    told = {"ens1": "B8:3F:D2:00:00:01", "ib0": long, "idrac": "d0:8e:79:00:00:01", "odd": long}
    monkeypatch.setattr(
        host_parts,
        "run_tool",
        lambda words, timeout_s: Ran(list(words), 0, f"Permanent address: {told[words[2]]}\n", ""),
    )
    found = [(one["slot"], one["macs"], one["protocol"]) for one in host_parts.nics(tmp_path)]
    assert found == [
        ("ens1", ["b8:3f:d2:00:00:01"], "Ethernet"), ("ib0", [], "InfiniBand"), ("odd", [], "Ethernet"),
    ]  # fmt: skip


def test_a_container_has_no_parts_of_its_own_and_facts_have_them_elsewhere(tmp_path: Path) -> None:
    assert host_parts.collect(True, tmp_path) is None
    assert "parts" in facts_probe.collect([])


@pytest.mark.parametrize(
    "place", ["platform/host5/session1/target5:0:0", "pci0000:00/host1/rport-1:0-0/target1:0:0", "pci0000:00/usb1/1-2"]
)
def test_disks_over_a_network_and_on_usb_are_no_parts_of_the_server(place: str, tmp_path: Path) -> None:
    """A volume that is mapped to another node, or a BMC's virtual medium, is no drive that was replaced."""
    own = "pci0000:00/ata1/host0/target0:0:0"
    (tmp_path / "block").mkdir()
    for name, at in (("sda", own), ("sdb", place)):
        disk = tmp_path / "devices" / at / "block" / name
        (disk / "device").mkdir(parents=True)
        (disk / "device/vpd_pg80").write_bytes(b"\0\x80\0\x04ABCD")
        (tmp_path / "block" / name).symlink_to(disk)
    assert [one["slot"] for one in host_parts.drives(tmp_path)] == ["sda"]
