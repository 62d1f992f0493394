"""What role horovod decides before it builds an image: why it cannot, what goes in, and by what names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any


def training_user(accounts: Mapping[str, Mapping[str, Any]], name: str, number: int) -> dict[str, Any]:
    """Who has a number of a user, and which number its name has, by the node's `accounts` (module node_state).

    Where the node lacks one it is as asked for. `owner`, `number`.
    """
    owner, actual = accounts.get(str(number)) or {}, accounts.get(name) or {}
    return {"owner": owner.get("name", name), "number": actual.get("uid", number)}


def training_faults(wanted: Mapping[str, Any], *, user: Mapping[str, Any], head: bool, docker: bool) -> list[str]:
    """Why a node cannot have the training image, each a sentence with what to do.

    wanted: name and uid of the user; builds (no image is named), for_gpus, tensorflow (whether it is to be in),
    tensorflow_version, torch, base, distribution, registry (packages of the registry), require_hashes, unlocked (no
    list of checksums for `wheels`), wheels, version and sdist_sha256 of Horovod. user: of filter training_user.
    docker: whether the engine runs.
    """
    faults = []
    name, uid = wanted["name"], wanted["uid"]
    if user["owner"] != name or user["number"] != uid:
        faults.append(
            f"user number {uid} has to be {name}'s, but here it is {user['owner']}'s, and {name} is number "
            f"{user['number']}; set horovod_uid"
        )
    if wanted["builds"]:
        faults += _build_faults(wanted, head)
    if not docker:
        faults.append("docker does not run; run playbooks/containers.yml first")
    return faults


#: Distributions that a head can bootstrap an image on: with torch of the package index, and with Debian's own.
BOOTSTRAPS = {"gpus": ["Debian", "Ubuntu"], "cpus": ["Debian"]}
LEAVE = "or leave the training out: horovod_state: absent"


def head_faults(distribution: str, registry: Sequence[str], base: str, *, for_gpus: bool) -> list[str]:
    """Why a head cannot make the image, by its system. registry: packages of one there; base: where it begins."""
    faults = []
    if not registry:
        faults.append(
            f"{distribution} has no docker-registry; push an image to a registry of your own and name it in "
            f"horovod_image, {LEAVE}"
        )
    fit = BOOTSTRAPS["gpus" if for_gpus else "cpus"]
    if base == "bootstrap" and distribution.lower() not in map(str.lower, fit):
        faults.append(
            f"only a {' or '.join(fit)} node can bootstrap the image; set horovod_base to the reference of one, {LEAVE}"
        )
    return faults


def torch_faults(torch: str, *, for_gpus: bool) -> list[str]:
    """That the release names no torch for an image for GPUs."""
    if torch or not for_gpus:
        return []
    return [
        "this stack release names no torch for these GPUs, so no image can be built for them; name a ready one in "
        "horovod_image, set horovod_torch, or build one for processors alone: horovod_cuda: false"
    ]


def _build_faults(wanted: Mapping[str, Any], head: bool) -> list[str]:
    for_gpus, faults = wanted["for_gpus"], []
    if head:
        faults += head_faults(wanted["distribution"], wanted["registry"], wanted["base"], for_gpus=for_gpus)
    faults += torch_faults(wanted["torch"], for_gpus=for_gpus)
    if wanted["tensorflow"] and wanted["for_gpus"]:
        faults.append(
            "TensorFlow goes into an image for processors alone, for its CUDA is another than that of torch; leave "
            "horovod_with_tensorflow out, or name an image of your own with it in horovod_image"
        )
    if wanted["tensorflow"] and not wanted["tensorflow_version"]:
        faults.append("this stack release names no TensorFlow; set horovod_tensorflow")
    if head and wanted["require_hashes"] and wanted["unlocked"]:
        faults.append(
            f"no list of checksums is there for {' '.join(wanted['wheels'])}; make one "
            "(docs/how-to/training-image.md) and name it in horovod_lock and horovod_lock_build, or take what the "
            "index has: horovod_require_hashes: false"
        )
    if head and wanted["require_hashes"] and not wanted["sdist_sha256"]:
        faults.append(
            f"no checksum is known of horovod {wanted['version']}; set horovod_sdist_sha256, or "
            "horovod_require_hashes: false"
        )
    return faults


def training_wheels(versions: Mapping[str, str]) -> list[str]:
    """Requirements of the packages that have a version: `torch==2.14.1`."""
    return [f"{name}=={version}" for name, version in versions.items() if version]


def training_wheel_key(built_on: Mapping[str, Any], version: str, made_with: Sequence[str]) -> str:
    """Folder of a wheel of Horovod in the cache: a wheel fits where all of this is the same.

    built_on: what files/versions.py printed in the packages' image; made_with: what else the wheel depends on.
    """
    abi = built_on["abi"]
    torch = abi[1] or f"{built_on['torch']}+cuda{built_on['cuda']}"
    parts = ["horovod", version, *built_on["os"].split(), built_on["machine"], abi[0], torch, abi[2], *made_with]
    return re.sub(r"[^A-Za-z0-9_.-]", "-", "_".join(str(part) for part in parts))


def training_pushed(digests: Sequence[str] | None, repository: str) -> str:
    """The first of an image's digests that is of this repository, "" where it was never pushed there."""
    return next((digest for digest in digests or [] if digest.startswith(f"{repository}@")), "")


def training_principals(name: str, address: str, ports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names that a node's ssh certificate is for: its own, its address, and each fabric port's address and name."""
    own = [name, address]
    return own + [port["address"].split("/")[0] for port in ports] + [f"{name}-{port['interface']}" for port in ports]
