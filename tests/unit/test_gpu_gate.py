"""The gate at the end of the GPU stage, on what nvidia-smi and dcgmi print in public records; constructed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.node_modules import load

gate: Any = load("plugins/plugin_utils/gpu_gate.py")
SWITCHED, ALONE = {"fabric_manager": True}, {"fabric_manager": False}
AMPERE = """    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU Recovery Action                   : None
    ECC Errors
        Volatile
            SRAM Correctable              : 3
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 177
            DRAM Uncorrectable            : 0
        Aggregate
            SRAM Correctable              : 3
            DRAM Uncorrectable            : 4
            SRAM Threshold Exceeded       : No
    Retired Pages
        Single Bit ECC                    : N/A
        Double Bit ECC                    : N/A
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 1
        Uncorrectable Error               : 2
        Pending                           : No
        Remapping Failure Occurred        : No
        Bank Remap Availability Histogram
            Max                           : 639 bank(s)
    Temperature
        GPU Current Temp                  : 30 C
"""
VOLTA = """    ECC Errors
        Volatile
            Single Bit
                Device Memory             : 5
                Total                     : 5
            Double Bit
                Device Memory             : 0
                L2 Cache                  : 0
                Total                     : 0
        Aggregate
            Double Bit
                Total                     : 7
    Retired Pages
        Single Bit ECC                    : 0
        Double Bit ECC                    : 1
        Pending Page Blacklist            : No
    Remapped Rows                         : N/A
"""


def smi(*blocks: str) -> dict[str, Any]:
    """`nvidia-smi -q` of these GPUs."""
    text = "".join(f"GPU 00000000:{10 * number:02X}:00.0\n{block}" for number, block in enumerate(blocks, 1))
    return {"rc": 0, "stdout": f"\nAttached GPUs                             : {len(blocks)}\n{text}"}


def links(*gpus: str, rate: str = "26.562 GB/s") -> dict[str, Any]:
    """`nvidia-smi nvlink --status`: of each GPU its links, `+` up and `-` down."""
    text = ""
    for number, states in enumerate(gpus):
        text += f"GPU {number}: NVIDIA H100 80GB HBM3 (UUID: GPU-0-{number})\n"
        text += "".join(f"\t Link {n}: {rate if up == '+' else '<inactive>'}\n" for n, up in enumerate(states))
    return {"rc": 0, "stdout": text}


def faults(said: Any, there: Any = None, active: bool = True, plan: Any = SWITCHED) -> list[str]:
    return gate.driver_gate_faults(said, there or links("+" * 18, "+" * 18), active, plan)  # type: ignore[no-any-return]


def test_gpus_that_are_well_pass_though_they_were_repaired_once() -> None:
    assert faults(smi(AMPERE, AMPERE)) == []
    assert faults(smi(VOLTA), {"rc": 1, "stdout": "Unable to retrieve"}, plan=ALONE) == []
    assert faults(smi(AMPERE), links("-" * 12), plan=ALONE) == []  # cards without a bridge
    assert faults(smi(AMPERE), active=False, plan=ALONE) == []


@pytest.mark.parametrize(
    ("block", "old", "new", "words"),
    [
        (AMPERE, "DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 2",
         "2 uncorrectable memory errors (DRAM Uncorrectable)"),
        (AMPERE, "SEC-DED    : 0", "SEC-DED    : 1", "1 uncorrectable memory errors (SRAM Uncorrectable SEC-DED)"),
        (VOLTA, "L2 Cache                  : 0\n                Total                     : 0",
         "L2 Cache                  : 1\n                Total                     : 1",
         "1 uncorrectable memory errors (Double Bit Total)"),
        (AMPERE, "Pending                           : No", "Pending                           : Yes",
         "a row remapping waits for a reset of the GPU (Pending: Yes)"),
        (AMPERE, "Occurred        : No", "Occurred        : Yes", "a row could not be remapped: replace the GPU"),
        (VOLTA, "Blacklist            : No", "Blacklist            : Yes", "a page retirement waits for a restart"),
        (AMPERE, "Exceeded       : No", "Exceeded       : Yes", "too many errors of SRAM: replace the GPU"),
        (AMPERE, "Action                   : None", "Action                   : Reset",
         "the driver asks for a recovery action (GPU Recovery Action: Reset)"),
    ],
)  # fmt: skip
def test_a_gpu_that_is_not_well_is_named(block: str, old: str, new: str, words: str) -> None:
    assert old in block
    found = faults(smi(AMPERE, block.replace(old, new, 1)))
    assert len(found) == 1
    assert found[0].startswith(f"GPU 00000000:14:00.0: {words}"), found


BLACKWELL = """    GPU Recovery Action                   : None
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            DRAM Uncorrectable            : 0
        Aggregate
            DRAM Uncorrectable            : 0
            SRAM Threshold Exceeded       : No
        Aggregate Uncorrectable SRAM Sources
            SRAM L2                       : 0
        Channel Repair Pending            : No
        TPC Repair Pending                : No
        Unrepairable Memory               : No
    Retired Pages
        Pending Page Blacklist            : N/A
    Remapped Rows
        Pending                           : No
        Remapping Failure Occurred        : No
    Fabric
        State                             : Completed
        Status                            : Success
        Health
            Summary                       : Healthy
            Bandwidth                     : Full
            Route Recovery in progress    : False
            Route Unhealthy               : False
            Access Timeout Recovery       : False
            Incorrect Configuration       : None
"""
"""Of drivers from 580 on."""


@pytest.mark.parametrize(
    ("line", "value", "words"),
    [
        ("Channel Repair Pending", "Yes", "a memory channel's repair waits for a reset of the GPU"),
        ("TPC Repair Pending", "Yes", "a TPC's repair waits for a reset of the GPU"),
        ("Unrepairable Memory", "Yes", "memory that cannot be repaired: replace the GPU"),
        ("Unrepairable Memory", "[Unknown Error]", "memory that cannot be repaired: replace the GPU"),
        ("DRAM Uncorrectable", "[Unknown Error]", "[Unknown Error] uncorrectable memory errors"),
        ("Summary", "Unhealthy", "its NVLink fabric is not healthy"),
        ("Summary", "Limited Capacity", "its NVLink fabric is not healthy"),
        ("Bandwidth", "Degraded", "its NVLink fabric has less than its bandwidth"),
        ("Route Unhealthy", "True", "a route of its NVLink fabric is not healthy"),
        ("Incorrect Configuration", "Incorrect SysGUID", "its NVLink fabric is configured in a wrong way"),
        ("GPU Recovery Action", "Drain and Reset", "the driver asks for a recovery action"),
    ],
)
def test_what_newer_drivers_say_of_a_gpu_is_named(line: str, value: str, words: str) -> None:
    assert faults(smi(BLACKWELL)) == []
    found = faults(smi(BLACKWELL, re.sub(rf"({line} +: )\S+", rf"\g<1>{value}", BLACKWELL, count=1)))
    assert len(found) == 1, found
    assert found[0].startswith(f"GPU 00000000:14:00.0: {words}"), found


@pytest.mark.parametrize("untold", ["N/A", "[N/A]", "Not Supported", "[Not Supported]"])
def test_what_a_gpu_does_not_say_is_no_fault_and_hides_none(untold: str) -> None:
    silent = re.sub(r": (?:\S+)$", f": {untold}", BLACKWELL, flags=re.MULTILINE)
    assert faults(smi(silent, BLACKWELL)) == []
    lines = BLACKWELL.splitlines(keepends=True)
    well, ill = "Unrepairable Memory               : No", "Unrepairable Memory               : Yes"
    for number, gone in enumerate(lines):  # each line that is not there leaves what the others say
        told = faults(smi("".join(lines[:number] + lines[number + 1 :]).replace(well, ill)))
        assert len(told) == (0 if "Unrepairable" in gone or gone.startswith("    ECC") else 1)


def test_links_of_which_nothing_is_said_behind_switches_are_down() -> None:
    said = {
        "rc": 0,
        "stdout": "GPU 0: NVIDIA H100 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\nGPU 1: NVIDIA H100 (UUID: GPU-1)\n"
        "NVML: Unable to retrieve NVLink information as all links are inActive\n",
    }
    [found] = faults(smi(AMPERE, AMPERE), said)
    assert found.startswith("GPU 1: no NVLink is up (NVML: Unable to retrieve"), found
    assert faults(smi(AMPERE, AMPERE), said, plan=ALONE) == []


def test_nvlinks_that_are_down_are_named() -> None:
    assert faults(smi(AMPERE, AMPERE), links("+" * 18, "+" * 16 + "-+")) == ["GPU 1: 1 of 18 NVLinks are down (16)"]
    assert faults(smi(VOLTA), links("++++-+"), plan=ALONE) == ["GPU 0: 1 of 6 NVLinks are down (4)"]
    assert faults(smi(AMPERE), links("---")) == ["GPU 0: 3 of 3 NVLinks are down (0, 1, 2)"]
    said = {"rc": 255, "stdout": "", "stderr": "Unable to retrieve NVLink information"}
    assert faults(smi(AMPERE), said) == ["nvidia-smi nvlink --status failed: Unable to retrieve NVLink information"]
    sliced = AMPERE.replace(
        "Current                           : Disabled", "Current                           : Enabled"
    )
    assert faults(smi(AMPERE, sliced), links("+++", "---")) == []


def test_a_fabric_manager_that_ended_is_named() -> None:
    assert faults(smi(AMPERE), active=False) == ["nvidia-fabricmanager does not run"]


def report(*results: dict[str, Any], root: str = "DCGM Diagnostic", **summary: Any) -> dict[str, Any]:
    test = {"name": "software", "results": list(results), **({"test_summary": summary} if summary else {})}
    document = {root: {"test_categories": [{"category": "Deployment", "tests": [None, test]}]}}
    return {"rc": 0, "stdout": "WARNING: no such thing\n" + json.dumps(document)}


WARNING = [{"warning": "Persistence mode for GPU 1\n is disabled.", "error_id": 29}]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (report({"entity_group": "GPU", "entity_id": 0, "status": "Pass"}, status="Pass"), []),
        (report({"entity_group": "GPU", "entity_id": 1, "status": "Warn", "warnings": WARNING}, status="Warn"), []),
        (report({"entity_group": "GPU", "entity_id": 1, "status": "Skip"}, status="Skip"), []),
        (report({"entity_group": "GPU", "entity_id": 1, "status": "Fail", "warnings": WARNING}, status="Fail"),
         ["GPU 1: software: Persistence mode for GPU 1 is disabled."]),
        (report({"gpu_ids": "0,1", "status": "FAIL", "warnings": "inforom is damaged"}, root="DCGM GPU Diagnostic"),
         ["GPU 0,1: software: inforom is damaged"]),
        (report({"entity_group": "GPU", "entity_id": 0, "status": "Pass"}, status="Fail"), ["software: failed"]),
        ({"rc": 1, "stdout": "Error: unable to establish a connection", "stderr": ""},
         ["DCGM gave no report: Error: unable to establish a connection"]),
        ({"rc": 124, "stdout": ""}, ["DCGM gave no report: exit status 124"]),
        ({"rc": 0, "stdout": "[]"}, ["DCGM gave no report: []"]),
        ({"rc": 0, "stdout": '{"DCGM Diagnostic": {"test_categories": []}}'},
         ['DCGM gave no report: {"DCGM Diagnostic": {"test_categories": []}}']),
    ],
)  # fmt: skip
def test_what_dcgm_says(said: dict[str, Any], found: list[str]) -> None:
    assert gate.dcgm_gate_faults(said) == found
    assert gate.dcgm_reported(said) == (not any("no report" in words for words in found))
