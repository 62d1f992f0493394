"""What nvidia-smi lists, line by line: GPUs alone, no MIG instances and none of its remarks."""

from __future__ import annotations

import re

_NO_NAME = re.compile(r"WARNING\b|Unable to|No devices were found|Failed to|NVIDIA-SMI has failed|name$", re.IGNORECASE)


def listed(text: str) -> list[str]:
    """The lines of GPUs in what `nvidia-smi -L` printed; lines of MIG instances stand indented below theirs."""
    return [line for line in text.splitlines() if re.match(r"GPU \d+:", line)]


def names(text: str) -> list[str]:
    """Of `nvidia-smi --query-gpu=name --format=csv,noheader`: each GPU's name, without remarks, as of an infoROM that
    is corrupted, which it prints among them."""
    return [line.strip() for line in text.splitlines() if line.strip() and not _NO_NAME.match(line.strip())]
