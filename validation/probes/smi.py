"""What nvidia-smi lists, line by line: GPUs alone, no MIG instances and none of its remarks."""

from __future__ import annotations

import re

from validation.probes.tool import run_tool

TIMEOUT_S = 10.0
_NO_NAME = re.compile(
    r"WARNING\b|Unable to|No devices were found|Failed to|NVIDIA-SMI has failed|NVML library version|Field \"|name$"
    r"|\[[^\]]*\]$|ERR!$",  # in place of a name: [GPU is lost], [GPU requires reset], [Unknown Error]
    re.IGNORECASE,
)


def listed(text: str) -> list[str]:
    """The lines of GPUs in what `nvidia-smi -L` printed; lines of MIG instances stand indented below theirs."""
    return [line for line in text.splitlines() if re.match(r"GPU \d+:", line)]


def names(text: str) -> list[str]:
    """Of `nvidia-smi --query-gpu=name --format=csv,noheader`: each GPU's name, without remarks, as of an infoROM that
    is corrupted, which it prints among them, and without GPUs that do not answer."""
    return [line.strip() for line in text.splitlines() if line.strip() and not _NO_NAME.match(line.strip())]


def answering() -> list[str]:
    """Names of the GPUs that answer, [] without nvidia-smi. Where one of several is lost it lists the others and ends
    with another exit status than 0; what it complains of has a colon or ends a sentence, which no name does."""
    ran = run_tool(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout_s=TIMEOUT_S)
    if ran.returncode < 0:
        return []
    return [name for name in names(ran.stdout) if ran.returncode == 0 or not re.search(r":|[.!]$", name)]
