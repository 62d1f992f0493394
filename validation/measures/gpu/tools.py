"""Facts of kind gpu-tools: what NVIDIA's own bandwidth tools measured between host memory and the GPUs of a node."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, flag, json_object, json_report, short
from validation.measures.gpu.copies_facts import GpuCell
from validation.measures.gpu.gpu_tools_probe import NVBANDWIDTH, P2P, TESTS
from validation.model import Sample, Scalar
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive
from validation.probes import ProbeDoc


class ToolCell(GpuCell):
    """A rate that a tool printed, as our copies count it: inside a GPU bytes read and written."""

    gb_s: Positive


class GpuTool(Model):
    """A tool. `path` "": not on the node. `trouble`: why it has no figures, "" where it has some.

    `addresses`: PCI addresses of its GPUs in its order, empty where it prints none: then its order is CUDA's, as ours.
    `gaps`: what it left out or could not measure, in words.
    """

    name: Name
    path: str
    version: str = ""
    trouble: str = ""
    addresses: tuple[str, ...] = ()
    cells: tuple[ToolCell, ...] = ()
    gaps: tuple[str, ...] = ()

    def place(self, gpu: Count, address: str) -> int | None:
        """Its number of our GPU; None where it has it not."""
        if not self.addresses:
            return gpu
        return self.addresses.index(address) if address in self.addresses else None


class GpuToolsFacts(Facts):
    """What the tools said. `why`: why none was run, "" where they were looked for."""

    type: Literal["gpu-tools"] = "gpu-tools"
    emulated: bool
    driver: str
    why: str = ""
    tools: tuple[GpuTool, ...] = ()


# ----------------------------------------------------------------------------------------------------------------------
# What nvbandwidth (text of all versions, JSON of 0.5 and later) and p2pBandwidthLatencyTest print, as rates. Both
# count 10^9 bytes/s. What their matrices mean is told by their sources, not by the arrows of their headings, which
# nvbandwidth 0.8 has the wrong way round for writes: NVIDIA/nvbandwidth v0.8 `testcases_ce.cpp` (a write goes from
# row to column; a local copy counts its bytes once) and NVIDIA/cuda-samples `p2pBandwidthLatencyTest.cu` (from row to
# column; on the diagonal read and write are counted; with "P2P=Enabled" a pair without access goes through the host
# all the same).


_WHAT = "gpu tools"
WHAT_OF = dict(zip(TESTS, ("h2d", "d2h", "peer", "local"), strict=True))
VERSIONS = ("version", "nvbandwidth Version", "git_version")
"""In which key of its JSON the release stands: the first of later ones, which leave git_version empty."""
MOST_GB_S = 1e5  # no GPU's memory has a tenth of it
OLD_FORM = re.compile(r"^Device (\d+): (.*)$", re.MULTILINE)
PCI = re.compile(r"\(([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?\)")
SAMPLES_GPU = re.compile(
    r"^Device: (\d+), .*pciBusID: ([0-9a-f]+), pciDeviceID: ([0-9a-f]+), pciDomainID: ?([0-9a-f]+)", re.M
)
Matrix = list[list["float | None"]]


class Unusable(Exception):
    """A tool's output has no figure; its words say why. Costs that tool alone."""


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`tool_figures`: how many rates the tools printed; these in the facts."""
    report: Any = json_object(doc["stdout"], f"{_WHAT}: the report")
    tools = [_tool(one) for one in report["tools"]]
    if [one["name"] for one in tools] != ([NVBANDWIDTH, P2P] if tools else []) or bool(tools) is bool(report["why"]):
        raise ParseError(f"{_WHAT}: {len(tools)} tools were tried, and the reason for none is {report['why']!r}")
    facts = doc["facts"]
    raw = {"emulated": flag(facts["emulated"], f"{_WHAT}: emulated"), "driver": facts["driver"], "why": report["why"]}
    found = as_facts(GpuToolsFacts, {**raw, "tools": tools}, _WHAT)
    figures = sum(len(tool.cells) for tool in found.tools)
    return [Sample(metric="tool_figures", value=figures, unit="count")], found


def _tool(said: Mapping[str, Any]) -> dict[str, Any]:
    name, path, ended = said["name"], said["path"], said["returncode"]
    mine: dict[str, Any] = {"name": name, "path": path}
    if not path:
        return {**mine, "trouble": f"{name} is not installed on this node"}
    read = _nvbandwidth if name == NVBANDWIDTH else _p2p
    try:
        if ended != 0:  # what it printed before is not asked: a part of it may be there
            raise Unusable(f"ended with {f'signal {-ended}' if ended < 0 else f'exit status {ended}'}")
        found = read(said["stdout"])
        if not found["cells"]:
            raise Unusable("ended with 0 and measured nothing")
    except Unusable as fault:
        last = next((line for line in reversed(f"{said['stdout']}\n{said['stderr']}".splitlines()) if line.strip()), "")
        last = short(last.strip()) if last.strip() not in ("}", "]") else ""
        return {**mine, "trouble": f"{name}: {fault}" + (f" ({last})" if last else "")}
    return {**mine, **found}


def _rate(word: str) -> float | None:
    """GB/s; None for a cell without one: N/A, and 0.00 as old versions write it."""
    try:
        value = float(word)
    except ValueError:
        if word == "N/A":
            return None
        raise Unusable(f"{short(word)!r} stands where a rate should") from None
    if not math.isfinite(value) or not 0 <= value < MOST_GB_S:
        raise Unusable(f"{word} GB/s is no rate")
    return value or None


def _matrix(lines: Sequence[str]) -> Matrix:
    """The matrix that begins with a line of column numbers and ends with the first line that is no row of it."""
    head = lines[0].split() if lines else []
    columns = [word for word in head if word.isdigit()]
    if columns != [str(i) for i in range(len(columns))] or not columns:
        raise Unusable("a matrix without its line of GPUs")
    found: Matrix = []
    for line in lines[1:]:
        words = line.split()
        if len(words) < 2 or words[0] != str(len(found)):
            break
        if len(words) != len(columns) + 1:
            raise Unusable(f"row {words[0]} of a matrix has {len(words) - 1} of {number_of(len(columns), 'cell')}")
        found.append([_rate(word) for word in words[1:]])
    return found


def _cell(what: str, source: int | None, target: int | None, rate: float, access: bool = False) -> dict[str, Any]:
    gb_s = float(f"{rate * (2 if what == 'local' else 1):.6g}")
    return {"what": what, "source": source, "target": target, "access": access, "gb_s": gb_s}


def _nvbandwidth(text: str) -> dict[str, Any]:
    start = re.search(r"^\s*\{", text, re.MULTILINE)
    if start:
        try:
            report: Any = json_report(text[start.start() :], "the report")["nvbandwidth"]
            version, matrices, gaps, names = _of_json(report)
        except (ParseError, KeyError, TypeError, AttributeError) as fault:
            raise Unusable(f"its JSON cannot be read: {short(str(fault))}") from None
    else:
        version, matrices, gaps, names = _of_text(text)
    cells = []
    for test, matrix in matrices.items():
        square = test == "device_to_device_memcpy_write_ce"
        if (square and any(len(row) != len(matrix) for row in matrix)) or (not square and len(matrix) != 1):
            raise Unusable(f"{test}: a matrix of {number_of(len(matrix), 'row')}")
        for row, rates in enumerate(matrix):
            for column, rate in enumerate(rates):
                if rate is None:
                    if not square or row != column:
                        gaps.append(f"{test}: no figure of {f'GPU {row} to ' if square else ''}GPU {column}")
                elif square:
                    cells.append(_cell("peer", row, column, rate, access=True))
                else:
                    what = WHAT_OF[test]
                    cells.append(
                        _cell(what, None if what == "h2d" else column, None if what == "d2h" else column, rate)
                    )
    if any(cell["source"] == cell["target"] and cell["what"] == "peer" for cell in cells):
        raise Unusable("device_to_device_memcpy_write_ce: a copy from a GPU to itself")
    addresses = [_address(*found.groups()) for name in names if (found := PCI.search(name))]
    return {
        "version": version,
        "cells": cells,
        "gaps": gaps,
        "addresses": addresses if len(names) == len(addresses) else [],
    }


def _address(domain: str, bus: str, device: str) -> str:
    """As the kernel has it: `0000:1a:00.0`."""
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.0"


def _of_json(report: Mapping[str, Any]) -> tuple[str, dict[str, Matrix], list[str], list[str]]:
    matrices: dict[str, Matrix] = {}
    gaps = [f"error: {short(str(report['error']))}"] if report.get("error") else []
    for case in report.get("testcases") or []:
        name, status = case.get("name"), case.get("status") or "without a status"
        if name not in TESTS:
            continue
        if name in matrices:
            raise Unusable(f"{name} stands twice in its report")
        if status == "Passed" and "bandwidth_matrix" not in case:
            gaps.append(f"{name}: no matrix in its report")
        elif status == "Passed":
            matrices[name] = [[_rate(str(cell)) for cell in row] for row in case["bandwidth_matrix"]]
        else:
            gaps.append(f"{name}: {status}")
    version = next((str(report[key]) for key in VERSIONS if report.get(key)), "")
    return version, matrices, gaps, [str(one) for one in report.get("GPU Device list") or []]


def _of_text(text: str) -> tuple[str, dict[str, Matrix], list[str], list[str]]:
    lines, matrices, gaps, at = text.splitlines(), {}, [], ""
    for number, line in enumerate(lines):
        if found := re.match(r"Running (\w+)\.\s*$", line):
            at = found[1]
        elif re.match(r"(Waived|ERROR|Error|NOT FOUND|Not Found)\b", line):
            gaps.append(f"{at or 'the first test'}, or what follows it: {short(line.strip(' :'))}")
        elif "bandwidth (GB/s)" in line and at in TESTS and at not in matrices:
            matrices[at] = _matrix(lines[number + 1 :])
    version = re.search(r"^nvbandwidth Version: (\S+)", text, re.MULTILINE)
    return version[1] if version else "", matrices, gaps, [name for _, name in OLD_FORM.findall(text)]


def _p2p(text: str) -> dict[str, Any]:
    """Both matrices of one direction. With P2P enabled only pairs that have access: the others go through the host."""
    lines, found = text.splitlines(), {}
    for number, line in enumerate(lines):
        for key, title in (("can", "P2P Connectivity Matrix"), ("off", "Unidirectional P2P=Disabled Bandwidth"),
                           ("on", "Unidirectional P2P=Enabled Bandwidth")):  # fmt: skip
            if line.strip().startswith(title) and key not in found:
                found[key] = _matrix(lines[number + 1 :])
    if set(found) != {"can", "off", "on"}:
        raise Unusable("it has not printed all of its matrices")
    size = len(found["can"])
    if not size or any(len(m) != size or any(len(row) != size for row in m) for m in found.values()):
        raise Unusable("its matrices are of different GPUs")
    cells, gaps = [], []
    for a in range(size):
        for b in range(size):
            off, on = found["off"][a][b], found["on"][a][b]
            if off is None or on is None:
                gaps.append(f"no figure of GPU {a} to GPU {b}")
            elif a == b:
                cells.append(_cell("local", a, a, off / 2))  # it counts both, as _cell does
            else:
                cells.append(_cell("peer", a, b, off))
                if found["can"][a][b]:
                    cells.append(_cell("peer", a, b, on, access=True))
                else:
                    gaps.append(f"GPU {a} has no access to GPU {b}: what it calls P2P went through the host")
    listed = SAMPLES_GPU.findall(text)
    addresses = [_address(domain, bus, device) for _, bus, device, domain in listed]
    return {"cells": cells, "gaps": gaps, "addresses": addresses if len(addresses) == size else []}
