"""What NVIDIA's bandwidth tools print, constructed from the printf formats in their sources; nothing of it measured.

nvbandwidth: output.cpp, inline_common.h and json_output.cpp of NVIDIA/nvbandwidth v0.8. p2pBandwidthLatencyTest: of
NVIDIA/cuda-samples. The files of tests/data/gpu-tools were written by this module: `python -m
tests.support.gpu_tools_documents`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.tool_documents import doc
from validation.measures.gpu.gpu_tools_probe import NVBANDWIDTH, P2P, TESTS

DATA = Path(__file__).parents[1] / "data/gpu-tools"
NAME = "Tesla V100-SXM2-16GB"
Matrix = Sequence[Sequence["float | None"]]
USUAL: dict[str, Matrix] = {
    TESTS[0]: [[12.3, 12.29]],
    TESTS[1]: [[12.9, 12.91]],
    TESTS[2]: [[None, 10.2], [10.21, None]],
    TESTS[3]: [[390.2, 389.8]],
}
"""About what tests/support/gpu_copies_documents.py has; inside a GPU nvbandwidth counts each byte once."""
ARROWS = dict(
    zip(TESTS, ("CPU(row) -> GPU(column)", "CPU(row) <- GPU(column)", "GPU(row) <- GPU(column)", ""), strict=True)
)


def place(number: int) -> str:
    """As nvbandwidth prints a GPU's place, of those that gpu_copies_documents has."""
    return f"(00000000:{0x1A + number:02x}:00)"


def description(test: str) -> str:
    """The heading of a matrix."""
    return f"memcpy CE {ARROWS[test]} bandwidth (GB/s)" if ARROWS[test] else "memcpy local GPU(column) bandwidth (GB/s)"


def nvbandwidth_text(matrices: Mapping[str, Matrix | str] = USUAL, gpus: int = 2, version: str = "v0.8") -> str:
    """A status in place of a matrix is printed as it is."""
    lines = [f"nvbandwidth Version: {version}", f"Built from Git version: {version}", "", "CUDA Runtime Version: 12080",
             "CUDA Driver Version: 12080", "Driver Version: 550.54.15", "", "node"]  # fmt: skip
    lines += [f"Device {i}: {NAME} {place(i)}" for i in range(gpus)] + [""]
    for test, matrix in matrices.items():
        if isinstance(matrix, str):
            lines.append(f"{matrix}: ")
            continue
        total = sum(cell or 0.0 for row in matrix for cell in row)
        lines += [f"Running {test}.", description(test), "  " + "".join(f"{i:10d}" for i in range(len(matrix[0])))]
        lines += [f"{number:2d}" + "".join("       N/A" if c is None else f"{c:10.2f}" for c in row)
                  for number, row in enumerate(matrix)]  # fmt: skip
        lines += ["", f"SUM {test} {total:.2f}", ""]
    lines += ["NOTE: The reported results may not reflect the full capabilities of the platform.",
              "Performance can vary with software drivers, hardware clocks, and system topology.", ""]  # fmt: skip
    return "\n".join(lines) + "\n"


def nvbandwidth_json(matrices: Mapping[str, Matrix | str] = USUAL, gpus: int = 2, **changes: Any) -> str:
    """A status in place of a matrix is the test's."""
    cases = [
        {"name": test, "status": matrix}
        if isinstance(matrix, str)
        else {
            "bandwidth_description": description(test) + " ",
            "bandwidth_matrix": [["N/A" if c is None else f"{c:g}" for c in row] for row in matrix],
            "name": test,
            "status": "Passed",
            "sum": sum(c or 0.0 for row in matrix for c in row),
        }
        for test, matrix in matrices.items()
    ]
    report: dict[str, Any] = {
        "CUDA Runtime Version": 12080, "Driver Version": "550.54.15", "git_version": "v0.8", "version": "v0.8",
        "GPU Device list": [f"{i}: {NAME} {place(i)}: (node)" for i in range(gpus)], "testcases": cases,
    }  # fmt: skip
    return json.dumps({"nvbandwidth": {**report, **changes}}, indent="\t", sort_keys=True) + "\n"


def p2p_text(
    on: float = 10.2,
    off: float = 7.5,
    inside: float = 780.0,
    gpus: int = 2,
    access: bool = True,
    end: int | None = None,
) -> str:
    """p2pBandwidthLatencyTest; the matrices of latencies and of both directions at once are of no interest."""
    numbers = range(gpus)
    lines = ["[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]"]
    lines += [f"Device: {i}, {NAME}, pciBusID: {0x1A + i:x}, pciDeviceID: 0, pciDomainID:0" for i in numbers]
    can = "CAN" if access else "CANNOT"
    lines += [f"Device={a} {can} Access Peer Device={b}" for a in numbers for b in numbers if a != b]
    lines += ["", "***NOTE: In case a device doesn't have P2P access to other one, it falls back to normal memcopy "
              "procedure.", "So you can see lesser Bandwidth (GB/s) and unstable Latency (us) in those cases.", "",
              "P2P Connectivity Matrix", "     D\\D" + "".join(f"{i:6d}" for i in numbers)]  # fmt: skip
    lines += [f"{a:6d}\t" + "".join(f"{int(a == b or access):6d}" for b in numbers) for a in numbers]
    for title, rate, times in (("Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)", off, 1),
                               ("Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)", on, 1),
                               ("Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)", off, 2),
                               ("Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)", on, 2)):  # fmt: skip
        lines += [title, "   D\\D" + "".join(f"{i:6d} " for i in numbers)]
        lines += [
            f"{a:6d} " + "".join(f"{inside if a == b else times * rate:6.02f} " for b in numbers) for a in numbers
        ]
    lines += ["", "NOTE: The CUDA Samples are not meant for performance measurements. Results may vary when GPU Boost "
              "is enabled.", ""]  # fmt: skip
    return "\n".join(lines[:end]) + "\n"


def tool(name: str, stdout: str | None, returncode: int = 0, stderr: str = "") -> dict[str, Any]:
    """What the probe says of a tool; None: it is not installed."""
    path = "" if stdout is None else f"/usr/local/bin/{name}"
    ended = 127 if stdout is None else returncode
    return {"name": name, "path": path, "returncode": ended, "stdout": stdout or "", "stderr": stderr}


def document(
    nvbandwidth: Any = None, p2p: Any = None, emulated: bool = False, why: str = "", **changes: Any
) -> dict[str, Any]:
    """The probe's document: text, or tool(), of each tool; neither: none is installed."""
    tools = [
        said if isinstance(said, dict) else tool(name, said) for name, said in ((NVBANDWIDTH, nvbandwidth), (P2P, p2p))
    ]
    report = {"tools": [] if why else tools, "why": why}
    facts = {"driver": "550.54.15", "emulated": emulated}
    found: dict[str, Any] = doc("gpu-tools", json.dumps(report), facts, tool="NVIDIA's tools", **changes)
    return found


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    (DATA / "constructed-nvbandwidth-0.8.txt").write_text(nvbandwidth_text())
    (DATA / "constructed-nvbandwidth-0.8.json").write_text(nvbandwidth_json())
    (DATA / "constructed-p2pBandwidthLatencyTest.txt").write_text(p2p_text())
