"""A fabric port whose card's own processors own it is refused at the start; the settings are those of its firmware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load
from tests.support.preflight_case import NODE, WANTED, preflight, reasons

bluefield: Any = load("plugins/module_utils/bluefield.py")
#: The form of `mstconfig -d 0000:81:00.0 -e query`: default, current, next boot.
HEAD = """
Device #1:
----------
Device type:        BlueField3
Name:               900-9D3B6-00CV-A_Ax
Device:             0000:81:00.0

Configurations:                                          Default             Current             Next Boot
        MEMIC_BAR_SIZE                                  0                   0                   0
"""


def settings(model: str, engine: str = "", after: str = "") -> str:
    """What the program prints of a card with these current values; after: the engine's value of the next boot."""
    lines = [f"        INTERNAL_CPU_MODEL                              EMBEDDED_CPU(1)     {model}     {model}"]
    if engine:
        lines.append(
            f"*       INTERNAL_CPU_OFFLOAD_ENGINE                     ENABLED(0)     {engine}     {after or engine}"
        )
    return HEAD + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (settings("EMBEDDED_CPU(1)", "ENABLED(0)"), "dpu"),
        (settings("EMBEDDED_CPU(1)", "DISABLED(1)"), "nic"),
        (settings("EMBEDDED_CPU(1)", "ENABLED(0)", "DISABLED(1)"), "dpu"),  # until it is switched off and on
        (settings("SEPARATED_HOST(0)"), "nic"),
        (settings("EMBEDDED_CPU(1)"), "dpu"),
        (HEAD, ""),
        ("-E- Failed to open the device", ""),
    ],
)
def test_the_mode_is_that_of_the_values_in_use(text: str, mode: str) -> None:
    assert bluefield.mode_of(text) == mode


def card(sysfs: Path, interface: str, address: str, device: str) -> None:
    folder = sysfs / "devices" / address
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "device").write_text(f"{device}\n", encoding="ascii")
    (sysfs / "class/net" / interface).mkdir(parents=True)
    (sysfs / "class/net" / interface / "device").symlink_to(folder)


def test_each_card_is_asked_once_and_other_adapters_are_not(tmp_path: Path) -> None:
    card(tmp_path, "ens1f0np0", "0000:81:00.0", "0xa2dc")
    card(tmp_path, "ens2np0", "0000:82:00.0", "0x1021")
    (tmp_path / "class/net/lo").mkdir()
    asked: list[list[str]] = []

    def run(command: list[str]) -> tuple[int, str, str]:
        asked.append(command)
        return 0, settings("EMBEDDED_CPU(1)", "ENABLED(0)"), ""

    assert bluefield.read_bluefields(run, {"mstconfig": 1}.get, tmp_path) == {"ens1f0np0": "dpu"}
    assert asked == [["mstconfig", "-d", "0000:81:00.0", "-e", "query"]]
    assert bluefield.read_bluefields(run, {}.get, tmp_path) == {"ens1f0np0": ""}, "no program"
    assert bluefield.read_bluefields(lambda _: (3, "", "-E-"), {"mlxconfig": 1}.get, tmp_path) == {"ens1f0np0": ""}


@pytest.mark.parametrize(
    ("modes", "refused", "noted"),
    [
        ({"ens2f0": "dpu"}, True, False),
        ({"ens2f0": "nic"}, False, False),
        ({"ens2f0": ""}, False, True),
        ({"ens9f0": "dpu"}, False, False),  # no port of the fabric
        ({}, False, False),
    ],
)
def test_preflight_refuses_a_fabric_port_in_dpu_mode(modes: dict[str, str], refused: bool, noted: bool) -> None:
    found = [reason for reason in reasons({"bluefield": modes}) if "DPU mode" in reason]
    assert len(found) == refused
    assert not refused or "set INTERNAL_CPU_OFFLOAD_ENGINE=1" in found[0]
    notes = [note for note in preflight.preflight_notes({**NODE, "bluefield": modes}, WANTED) if "BlueField" in note]
    assert len(notes) == noted
