"""Which parts that jobs use a run would change: the versions that a node was provisioned with against those wanted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import numbers

Json = Mapping[str, Any]

#: Words of a part -> the role whose record has it, its key there, and part and key of the set.
PARTS: dict[str, tuple[str, str, str, str]] = {
    "NVIDIA driver": ("nvidia_driver", "driver", "nvidia_driver", "version"),
    "provider of the NVIDIA driver": ("nvidia_driver", "provider", "nvidia_driver", "provider"),
    "kind of the NVIDIA kernel modules": ("nvidia_driver", "flavour", "nvidia_driver", "flavour"),
    "Fabric Manager": ("nvidia_driver", "fabric_manager", "fabric_manager", "version"),
    "provider of the RDMA stack": ("ofed", "provider", "ofed", "provider"),
    "DOCA-OFED": ("ofed", "doca", "ofed", "version"),
    "CUDA": ("cuda", "toolkit", "cuda", "toolkit"),
    "cuDNN": ("cuda", "cudnn", "cuda", "cudnn"),
    "NCCL": ("cuda", "nccl", "cuda", "nccl"),
    "DCGM": ("dcgm", "dcgm", "dcgm", "version"),
    "container toolkit": ("nvidia_container_toolkit", "container_toolkit", "container_toolkit", "version"),
    "Docker": ("docker", "docker", "docker", "version"),
    "provider of Docker": ("docker", "provider", "docker", "provider"),
    "Slurm": ("slurm", "slurm", "slurm", "version"),
}
#: Roles whose absence takes from jobs what they use.
USED = ("nvidia_driver", "ofed", "cuda", "nvidia_container_toolkit", "docker", "slurm", "fabric")
ANY = {"", "auto", "None"}


def _plain(version: str) -> str:
    """A version without a package's epoch and revision: 29.9.0 of 5:29.9.0-1~debian.12~bookworm."""
    return re.split(r"[-+~]", version.split(":", 1)[-1])[0]


def _same(before: str, after: str) -> bool:
    """Whether a wanted version, which may leave its last numbers open, is the one that is there."""
    before, after = _plain(before), _plain(after)
    first, second = numbers(before), numbers(after)
    if not second or not first:
        return before == after
    return first[: len(second)] == second


def _kernel(recorded: Json, stack: Json) -> Iterator[str]:
    """A series of kernels that the recorded one is not of."""
    kernel = str((recorded.get("kernel") or {}).get("kernel") or "")
    stated = (stack.get("kernel") or {}).get("series") or []
    series = [str(one) for one in (stated if isinstance(stated, list) else [stated])]
    if kernel and series and not any(_same(kernel, one) for one in series):
        yield f"kernel {kernel} to series {', '.join(series)}"


def changed_parts(observed: Json, wanted: Json) -> list[str]:
    """What would be of another version than on record, each as `PART before to after`.

    Where the record has no versions, another name of the release is all that can be told.
    """
    recorded, stack = observed.get("provisioned_versions") or {}, wanted["stack"]
    if not recorded:
        before, after = observed["provisioned_release"], wanted["release"]
        return [f"another release, and the record has no versions: {before} to {after}"] if before != after else []
    found = []
    for words, (role, key, part, name) in PARTS.items():
        before = str((recorded.get(role) or {}).get(key) or "")
        after = str((stack.get(part) or {}).get(name) or "")
        same = before == after if key in ("provider", "flavour") else _same(before, after)
        if before and after not in ANY and not same:
            found.append(f"{words} {before} to {after}")
    gone = [role for role in USED if role in recorded and role in (wanted.get("left_out") or ())]
    # A container's kernel is its host's, and stays.
    kernel = [] if observed.get("in_container") else list(_kernel(recorded, stack))
    return found + kernel + [f"{role} is left out" for role in gone]
