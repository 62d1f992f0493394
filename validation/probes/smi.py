"""What nvidia-smi lists, line by line: GPUs alone, no MIG instances and none of its remarks.

The driver's own is asked, of this machine's GPUs: where a lease's GPUs or a lab's emulated ones are shown by another
nvidia-smi before it, that one steps aside for OWN_ALONE (engine/nvml/smi.c).
"""

from __future__ import annotations

import os
import re

from validation.probes.tool import Ran, run_tool

TIMEOUT_S = 10.0
OWN_ALONE = {"ELASTIC_AI_NVIDIA_SMI": "driver"}
#: In place of a name: [GPU is lost], [GPU requires reset], [Unknown Error].
_NO_NAME = re.compile(r"\[[^\]]*\]|ERR!")


def run(*options: str) -> Ran:
    """A run of the driver's nvidia-smi."""
    return run_tool(["nvidia-smi", *options], timeout_s=TIMEOUT_S, env={**os.environ, **OWN_ALONE})


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
    ran = run("--query-gpu=index,name", "--format=csv,noheader")
    return names(ran.stdout) if ran.returncode >= 0 else []
