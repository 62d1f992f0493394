"""The gate at the end of the GPU stage: what nvidia-smi and DCGM say of GPUs that no job ought to be given.

What passes with time (NVLinks that are being trained, persistence mode) is waited for before, by driver_health_faults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

#: Lines of `nvidia-smi -q` below a GPU: the way to the value, what it may say, what else it means. NVIDIA, GPU memory
#: error management (row remapping) and Dynamic Page Retirement; "GPU Recovery Action" is of drivers from 565 on, the
#: repairs of ECC Errors from 580 on, the health of the fabric from 555 on.
_REPAIRS = (
    (("Remapped Rows", "Pending"), "No", "a row remapping waits for a reset of the GPU"),
    (("Remapped Rows", "Remapping Failure Occurred"), "No", "a row could not be remapped: replace the GPU"),
    (("Retired Pages", "Pending Page Blacklist"), "No", "a page retirement waits for a restart of the driver"),
    (("Retired Pages", "Pending"), "No", "a page retirement waits for a restart of the driver"),
    (
        ("ECC Errors", "Aggregate", "SRAM Threshold Exceeded"),
        "No",
        "too many errors of SRAM: replace the GPU",
    ),
    (("ECC Errors", "Channel Repair Pending"), "No", "a memory channel's repair waits for a reset of the GPU"),
    (("ECC Errors", "TPC Repair Pending"), "No", "a TPC's repair waits for a reset of the GPU"),
    (("ECC Errors", "Unrepairable Memory"), "No", "memory that cannot be repaired: replace the GPU"),
    (("GPU Recovery Action",), "None", "the driver asks for a recovery action"),
    (("Fabric", "Health", "Summary"), "Healthy", "its NVLink fabric is not healthy"),
    (("Fabric", "Health", "Bandwidth"), "Full", "its NVLink fabric has less than its bandwidth"),
    (("Fabric", "Health", "Route Unhealthy"), "False", "a route of its NVLink fabric is not healthy"),
    (("Fabric", "Health", "Incorrect Configuration"), "None", "its NVLink fabric is configured in a wrong way"),
)
_UNTOLD = {"N/A", "Not Supported", "[N/A]", "[Not Supported]", "Not Applicable"}
DIAGNOSTICS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # of DCGM 4, of DCGM 3


def _lines(block: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """(headings and name, value) of each line of a GPU's block, by its indentation."""
    above: list[tuple[int, str]] = []
    for line in block.splitlines():
        name, colon, value = (part.strip() for part in line.partition(" : "))
        depth = len(line) - len(line.lstrip())
        if not name:
            continue
        above = [(far, heading) for far, heading in above if far < depth]
        if colon:
            yield (*(heading for _, heading in above), name), value
        else:
            above.append((depth, name))


def _uncorrectable(path: tuple[str, ...]) -> bool:
    """Whether a line counts memory errors since the driver was loaded that ECC could not correct."""
    if path[:2] != ("ECC Errors", "Volatile"):
        return False
    return "Uncorrectable" in path[-1] or path[2:] == ("Double Bit", "Total")  # the latter on Volta and older


def driver_gate_faults(
    said: Mapping[str, Any], links: Mapping[str, Any], manager_active: bool, plan: Mapping[str, Any]
) -> list[str]:
    """What is wrong with GPUs for good, each with the GPU, or with Fabric Manager where `plan` wants it.

    said: a run of `nvidia-smi -q`; links: one of `nvidia-smi nvlink --status`, which fails where no GPU has NVLinks.
    """
    faults = [] if manager_active or not plan["fabric_manager"] else ["nvidia-fabricmanager does not run"]
    unlinked = []
    for block in re.split(r"^GPU (?=[0-9A-Fa-f]{8}:)", str(said.get("stdout", "")), flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        there = dict(_lines(rest))
        unlinked.append(there.get(("MIG Mode", "Current")) == "Enabled")  # Fabric Manager turns its links off then
        for path, value in there.items():
            if _uncorrectable(path) and value not in {"0", *_UNTOLD}:
                faults.append(f"GPU {name}: {value} uncorrectable memory errors ({' '.join(path[2:])})")
        for path, good, words in _REPAIRS:
            value = there.get(path, good)
            if value not in {good, *_UNTOLD}:
                faults.append(f"GPU {name}: {words} ({path[-1]}: {value})")
    return [*faults, *_links_down(links, bool(plan["fabric_manager"]), unlinked)]


def _links_down(said: Mapping[str, Any], switched: bool, unlinked: list[bool]) -> list[str]:
    """NVLinks that are down while others of the GPU are up; behind NVSwitches also where all are.

    unlinked: of each GPU, whether it is to have none.
    """
    if said.get("rc", 1) != 0:  # without NVSwitches also what a driver without any NVLink ends with
        words = " ".join(f"{said.get('stdout', '')} {said.get('stderr', '')}".split())[-300:]
        wanted = switched and not all(unlinked)
        return [f"nvidia-smi nvlink --status failed: {words or 'no output'}"] if wanted else []
    faults = []
    for block in re.split(r"^GPU (?=\d+: )", str(said.get("stdout", "")), flags=re.MULTILINE)[1:]:
        number = int(block.split(":")[0])
        if number < len(unlinked) and unlinked[number]:
            continue
        states = dict(re.findall(r"^\s+Link (\d+): (.+?)\s*$", block, re.MULTILINE))
        if switched and not states:  # "Unable to retrieve NVLink information as all links are inActive"
            words = " ".join(block.partition("\n")[2].split()) or "nothing is said of them"
            faults.append(f"GPU {number}: no NVLink is up ({words[:200]})")
        down = [link for link, state in states.items() if "inactive" in state.lower()]
        if down and (switched or len(down) < len(states)):
            faults.append(f"GPU {number}: {len(down)} of {len(states)} NVLinks are down ({', '.join(down)})")
    return faults


def _report(said: Mapping[str, Any]) -> dict[str, Any] | None:
    """DCGM's report, the first; it writes warnings of its own before it. None where there is none."""
    text = str(said.get("stdout", ""))
    begin = re.search(r"^\s*\{", text, re.MULTILINE)
    try:
        document = json.JSONDecoder().raw_decode(text, begin.end() - 1)[0] if begin else None
    except ValueError:
        return None
    found = (
        next((document[key] for key in DIAGNOSTICS if key in document), None) if isinstance(document, dict) else None
    )
    return found if isinstance(found, dict) and found.get("test_categories") else None


def dcgm_reported(said: Mapping[str, Any]) -> bool:
    """Whether a run of `dcgmi diag -j` gave a report: its service takes a moment to answer."""
    return _report(said) is not None


def dcgm_gate_faults(said: Mapping[str, Any]) -> list[str]:
    """Tests of `dcgmi diag -j` that failed, each with the GPU and DCGM's words; that it gave no report is one too.

    Warnings and what DCGM leaves out stop nothing.
    """
    report = _report(said)
    if report is None:
        words = f"{said.get('stdout', '')} {said.get('stderr', '')} {said.get('msg', '')}".split()
        return [f"DCGM gave no report: {' '.join(words)[-300:] or 'exit status ' + str(said.get('rc', 'unknown'))}"]
    faults = []
    for category in report["test_categories"]:
        for test in category.get("tests") or []:
            results = [*((test or {}).get("results") or []), (test or {}).get("test_summary") or {}]
            bad = [one for one in results if str(one.get("status", "")).lower() == "fail"]
            # the summary of a test repeats what its results say
            for one in [one for one in bad if one.get("gpu_ids") or "entity_id" in one] or bad:
                faults.append(
                    f"{_of(one)}{test.get('name') or 'a test without a name'}: {'; '.join(_words(one)) or 'failed'}"
                )
    return faults


def _of(result: Mapping[str, Any]) -> str:
    if "entity_id" in result:
        return f"{result.get('entity_group', 'GPU')} {result['entity_id']}: "
    return f"GPU {result['gpu_ids']}: " if result.get("gpu_ids") else ""


def _words(result: Mapping[str, Any]) -> list[str]:
    """What DCGM says of it: text, a list of it, or of objects that have it."""
    said = result.get("warnings") or result.get("errors") or []
    each = said if isinstance(said, list) else [said]
    return [" ".join(str(one.get("warning", one) if isinstance(one, Mapping) else one).split())[:300] for one in each]
