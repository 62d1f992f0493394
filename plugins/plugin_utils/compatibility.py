"""What stacks/compatibility.yml says of GPUs, drivers, CUDA and network adapters."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

#: The stack releases, one file each, and beside them what goes together.
STACKS = Path(__file__).parents[2] / "stacks"


@functools.cache
def known() -> Mapping[str, Any]:
    """The whole file, read once in a process."""
    data: Mapping[str, Any] = yaml_load((STACKS / "compatibility.yml").read_text(encoding="utf-8"))
    return data


def generations(**properties: Any) -> list[str]:
    """GPU generations, oldest first, that have these properties, such as modules=["open"]."""
    return [name for name, one in known()["generations"].items() if properties.items() <= one.items()]


def ending() -> list[str]:
    """Generations that no driver branch after some one serves any more: Volta and older."""
    return [name for name, one in known()["generations"].items() if "last_branch" in one]


def last(names: Iterable[str], part: str) -> Any:
    """Last branch, CUDA or cuDNN line (part: last_branch, cuda, cudnn) that serves all of these generations."""
    return min((known()["generations"][name][part] for name in names), key=numbers)


def branch_of(version: str) -> int:
    """580 of '580.126.20' or '580'; 0 of ''. ValueError with words for what is no version, as '580-server'."""
    if not version:
        return 0
    found = re.match(r"(\d+)(?:\.|$)", version)
    if found is None:
        words = "is no version of NVIDIA's driver: write a branch, as 580, or a release, as 580.126.20"
        raise ValueError(f"{version!r} {words} (nvidia_driver_version)")
    return int(found[1])


def cuda_major(branch: int) -> int:
    """Major release of the CUDA interface of a driver branch, 0 of a branch that is older than all known."""
    return max((int(major) for major, first in known()["cuda_major"].items() if branch >= first), default=0)


def numbers(version: Any) -> tuple[int, ...]:
    """The leading numbers of a version, for comparison: '580.126.20' -> (580, 126, 20)."""
    match = re.match(r"\d+(\.\d+)*", str(version))
    return tuple(int(part) for part in match.group().split(".")) if match else ()
