"""What nvidia-smi lists, line by line: GPUs alone, no MIG instances and none of its remarks."""

from __future__ import annotations

import re

from validation.probes.tool import run_tool

TIMEOUT_S = 10.0
#: In place of a name: [GPU is lost], [GPU requires reset], [Unknown Error].
_NO_NAME = re.compile(r"\[[^\]]*\]|ERR!")


def listed(text: str) -> list[str]:
    """The lines of GPUs in what `nvidia-smi -L` printed; lines of MIG instances stand indented below theirs."""
    return [line for line in text.splitlines() if re.match(r"GPU \d+:", line)]


def names(text: str) -> list[str]:
    """Of `nvidia-smi --query-gpu=index,name --format=csv,noheader`: each GPU's name, without whatever else it prints
    among them (a corrupted infoROM, why it has no driver), and without GPUs that do not answer."""
    found = [re.fullmatch(r"\d+, *(\S.*?)\s*", line) for line in text.splitlines()]
    return [one[1] for one in found if one and not _NO_NAME.fullmatch(one[1])]


def answering() -> list[str]:
    """Names of the GPUs that answer, [] without nvidia-smi. Where one of several is lost it lists the others and ends
    with another exit status than 0."""
    ran = run_tool(["nvidia-smi", "--query-gpu=index,name", "--format=csv,noheader"], timeout_s=TIMEOUT_S)
    return names(ran.stdout) if ran.returncode >= 0 else []
