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
    "NVLSM": ("nvidia_driver", "nvlsm", "nvlsm", "version"),
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
#: Parts with kernel modules that are in use until the next boot.
REBOOTS = (
    "NVIDIA driver",
    "provider of the NVIDIA driver",
    "kind of the NVIDIA kernel modules",
    "provider of the RDMA stack",
    "DOCA-OFED",
    "kernel",
)


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


def _kernel(recorded: Json, stack: Json) -> Iterator[dict[str, Any]]:
    """A series of kernels that the recorded one is not of."""
    kernel = str((recorded.get("kernel") or {}).get("kernel") or "")
    stated = (stack.get("kernel") or {}).get("series") or []
    series = [str(one) for one in (stated if isinstance(stated, list) else [stated])]
    if kernel and series and not any(_same(kernel, one) for one in series):
        yield _change("kernel", kernel, f"series {', '.join(series)}")


def _change(part: str, before: str, after: str, key: tuple[str, str] | None = None, pin: str = "") -> dict[str, Any]:
    return {"part": part, "before": before, "after": after, "key": list(key or ()), "pin": pin}


def _versions(recorded: Json, stack: Json) -> Iterator[dict[str, Any]]:
    """Parts whose recorded version or provider is not the set's; `pin` is what the set has to say to keep it."""
    for words, (role, key, part, name) in PARTS.items():
        before = str((recorded.get(role) or {}).get(key) or "")
        after = str((stack.get(part) or {}).get(name) or "")
        named = key in ("provider", "flavour")
        same = before == after if named else _same(before, after)
        if before and after not in ANY and not same:
            yield _change(words, before, after, (part, name), before if named else _plain(before))


def stack_changes(observed: Json, wanted: Json) -> dict[str, Any]:
    """What a deployment would change of a node's recorded versions, part by part: what `toolkit upgrade` plans with.

    changes: part, before, after; key and pin: where in the release's set the version on record would be stated, [] and
    "" for what no set can bring back. reboot: whether the node has to be rebooted for it.
    """
    recorded, stack = observed.get("provisioned_versions") or {}, wanted["stack"]
    ours = not observed.get("in_container")  # a container's kernel and its modules are its host's
    found = [*_versions(recorded, stack), *(_kernel(recorded, stack) if ours else ())]
    return {
        "release": str(observed.get("provisioned_release") or ""),
        "to": str(wanted["release"]),
        "recorded": bool(recorded),
        "jobs": [str(job) for job in observed.get("jobs") or ()],
        "changes": [{**one, "reboot": ours and one["part"] in REBOOTS} for one in found],
    }


def changed_parts(observed: Json, wanted: Json) -> list[str]:
    """What would be of another version than on record, each as `PART before to after`.

    Where the record has no versions, another name of the release is all that can be told.
    """
    recorded = observed.get("provisioned_versions") or {}
    if not recorded:
        before, after = observed["provisioned_release"], wanted["release"]
        return [f"another release, and the record has no versions: {before} to {after}"] if before != after else []
    found = [f"{one['part']} {one['before']} to {one['after']}" for one in stack_changes(observed, wanted)["changes"]]
    gone = [role for role in USED if role in recorded and role in (wanted.get("left_out") or ())]
    return found + [f"{role} is left out" for role in gone]
