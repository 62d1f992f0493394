"""Small inputs of people and firmware that mean nothing, and must not pass for something."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_switch_check import inventory
from toolkit.cables import from_csv
from toolkit.errors import UsageFault
from toolkit.switches import wanted
from toolkit.switches.check import check
from toolkit.switches.read import read_text
from validation.probes.host_parts import serial

HEAD = "node,port,switch,switch_port"


def test_empty_rows_of_a_spreadsheet_are_no_cables(tmp_path: Path) -> None:
    file = tmp_path / "drawing.csv"
    file.write_text(f"{HEAD}\ngpu1,eth1,leaf1,Eth1/1\n,,,\n , ,,\n")
    assert [str(one) for one in from_csv(file)] == ["gpu1 eth1"]
    file.write_text(f"{HEAD}\n,,,\n")
    with pytest.raises(UsageFault, match="only a first line, and no cable"):
        from_csv(file)


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "drawing.csv"
    file.write_text(f"node,{HEAD}\ngpu1,gpu2,eth1,leaf1,Eth1/1\n")
    with pytest.raises(UsageFault, match="column node is there twice"):
        from_csv(file)


def test_a_switch_whose_ports_are_all_shut_down_is_not_in_agreement(tmp_path: Path) -> None:
    port = [{"interface": "eth1", "address": "192.0.2.1/24"}]
    site = wanted.read(inventory(tmp_path, "sonic", cables=None, fabric_ports=port))
    found = check(site, [read_text("interface Eth1/1\n shutdown\n!\n", "leaf1.txt", "leaf1")])
    assert found.ports == 0
    assert "leaf1.txt: every port is shut down, and nothing of it was compared" in found.unchecked


@pytest.mark.parametrize(
    "text", ["11111111", "12345678", "Array1_SerNumber", "[Unknown]", "Default", "TBD by OEM", "OEM", "Unspecified"]
)
def test_what_firmware_writes_in_place_of_a_serial_number_is_none(text: str) -> None:
    assert serial(text) is None


@pytest.mark.parametrize("text", ["1234567", "1111112", "0000000012345", "123456780", "OEM1234"])
def test_a_number_that_is_like_a_placeholder_is_kept(text: str) -> None:
    assert serial(text) == text
