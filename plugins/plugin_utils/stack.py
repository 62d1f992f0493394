"""Which versions fit together, and which of them fit a node's hardware, kernel and system."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError
from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import (
    STACKS,
    cuda_major,
    ending,
    generations,
    known,
    last,
    numbers,
)
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.floors import driver_floor_note
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.gpu import has_nvlink5, nvlsm_fault

Set = Mapping[str, Any]
Facts = Mapping[str, Any]

#: Files in the folder of the releases that are none.
NO_RELEASES = ("compatibility", "select")
#: Role variables of the inventory that replace a value of the set.
OVERRIDES = {
    "nvidia_driver_provider": ("nvidia_driver", "provider"),
    "nvidia_driver_version": ("nvidia_driver", "version"),
    "nvidia_driver_flavour": ("nvidia_driver", "flavour"),
    "nvidia_driver_fabric_manager_version": ("fabric_manager", "version"),
    "nvidia_driver_nvlsm_version": ("nvlsm", "version"),
    "ofed_provider": ("ofed", "provider"),
    "ofed_version": ("ofed", "version"),
    "cuda_version": ("cuda", "toolkit"),
    "cuda_cudnn_version": ("cuda", "cudnn"),
    "cuda_nccl_version": ("cuda", "nccl"),
    "nvidia_container_toolkit_version": ("container_toolkit", "version"),
    "dcgm_version": ("dcgm", "version"),
    "dcgm_cuda_majors": ("dcgm", "cuda_majors"),
    "docker_provider": ("docker", "provider"),
    "docker_version": ("docker", "version"),
    "horovod_torch": ("horovod", "torch"),
    "horovod_image": ("horovod", "image"),
    "horovod_cuda": ("horovod", "for_gpus"),
    "horovod_state": ("horovod", "state"),
}


def value(stack: Set, part: str, key: str = "version") -> str:
    """A value of the set, '' where it has none."""
    return str((stack.get(part) or {}).get(key) or "")


def nic_list(pci: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """NVIDIA (Mellanox) network adapters among PCI devices as node_preflight lists them."""
    return [
        {"address": d["address"], "device": d["device"], "model": known()["nics"][d["device"]]}
        for d in pci
        if d["vendor"] == "0x15b3" and d["device"] in known()["nics"]
    ]


def stack_effective(stack: Set, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The set as the roles will see it: with the role variables that the inventory states in place of its values."""
    effective = {k: dict(v) if isinstance(v, Mapping) else v for k, v in stack.items()}
    for name, (part, key) in OVERRIDES.items():
        stated = variables.get(name)
        if stated not in (None, ""):
            effective.setdefault(part, {})[key] = stated
    provider = variables.get("docker_provider")
    if provider and provider != (value(stack, "docker", "provider") or "distribution"):
        effective["docker"]["version"] = variables.get("docker_version") or ""  # that of the set is another provider's
    return effective


def models(entries: Iterable[Mapping[str, Any]]) -> str:
    """Names of GPUs or adapters, each once."""
    return ", ".join(sorted({str(e.get("model", e.get("generation", "?"))) for e in entries}))


def branch_of(stack: Set) -> int:
    """Branch of the driver, 0 where the set names none."""
    return (numbers(value(stack, "nvidia_driver")) or (0,))[0]


def own_branch(toolkit: str) -> int:
    """The driver branch that came with a CUDA toolkit, of a later one than all that are known the last of these."""
    first = {numbers(k): v for k, v in known()["cuda_driver"].items()}
    return max((v for k, v in first.items() if k <= numbers(toolkit)[:2]), default=0)


def cuda_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """CUDA toolkit against driver."""
    toolkit, driver = value(stack, "cuda", "toolkit"), value(stack, "nvidia_driver")
    if not toolkit or not driver:
        return
    needed = known()["cuda_major"].get(numbers(toolkit)[0], own_branch(toolkit))
    if branch_of(stack) < needed:
        yield (
            f"CUDA {toolkit} needs a driver of branch {needed} or later, and the set has {driver}: take a later "
            f"driver (nvidia_driver_version) or an earlier toolkit (cuda_version)"
        )


def fabric_manager_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """Fabric Manager against driver, where there is NVSwitch. Source: NVIDIA Fabric Manager guide."""
    driver, manager = value(stack, "nvidia_driver"), value(stack, "fabric_manager")
    if facts.get("nvswitches") and driver and manager != driver:
        yield (
            f"this node has NVSwitch, whose Fabric Manager must be of the driver's version {driver} exactly, and the "
            f"set has {manager or 'none'}: set nvidia_driver_fabric_manager_version to {driver}"
        )


def nvlsm_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """NVLSM, where the NVSwitches of boards with NVLink 5 are managed from this node."""
    found = [g for g in facts.get("gpus") or () if has_nvlink5(str(g.get("device") or "0x0"))]
    if found and facts.get("nvswitches"):
        provided = value(stack, "nvidia_driver", "provider") in ("", "cuda")
        fault = nvlsm_fault(models(found), provided, value(stack, "nvlsm"), value(stack, "nvidia_driver"))
        if fault:
            yield fault


def gpu_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """GPU generations against driver, its modules, CUDA and cuDNN."""
    gpus, branch = list(facts.get("gpus") or ()), branch_of(stack)
    driver, flavour = value(stack, "nvidia_driver"), value(stack, "nvidia_driver", "flavour")
    toolkit, cudnn = value(stack, "cuda", "toolkit"), value(stack, "cuda", "cudnn")
    old = [g for g in gpus if g["generation"] in ending()]
    new = [g for g in gpus if g["generation"] not in ending()]
    names = {g["generation"] for g in old}
    last_proprietary = known()["last_branch_with_proprietary_modules"]
    advice = "choose stack_release: reference-2019"
    if old and branch > last(names, "last_branch"):
        yield (
            f"driver {driver} does not know {models(old)}; branch {last(names, 'last_branch')} is the last that "
            f"does: {advice}, or set nvidia_driver_version to one of it"
        )
    if old and numbers(toolkit)[:2] > numbers(last(names, "cuda")):
        yield (
            f"CUDA {toolkit} has no code for {models(old)}, {last(names, 'cuda')} is the last that has: {advice}, or "
            f"set cuda_version"
        )
    if old and numbers(cudnn)[:2] > numbers(last(names, "cudnn")):
        yield f"cuDNN {cudnn} does not support {models(old)}, {last(names, 'cudnn')} is the last that does: {advice}"
    if old and flavour == "open":
        yield f"there are no open kernel modules for {models(old)}: leave nvidia_driver_flavour on auto"
    if old and branch > last_proprietary and flavour != "open":
        yield f"driver {driver} has open kernel modules alone, and {models(old)} needs proprietary ones"
    if flavour == "proprietary" and branch > last_proprietary and not old:
        yield f"driver {driver} has no proprietary kernel modules: leave nvidia_driver_flavour on auto"
    if flavour == "proprietary" and any(g["generation"] in generations(modules=["open"]) for g in new):
        yield f"there are no proprietary kernel modules for {models(new)}: leave nvidia_driver_flavour on auto"
    for generation in sorted({g["generation"] for g in gpus}):
        first = known()["generations"].get(generation, {}).get("first_branch", 0)
        if 0 < branch < first:
            there = [g for g in gpus if g["generation"] == generation]
            yield f"driver {driver} is too old for {models(there)}: branch {first} is the first"


def provider_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """Provider of the driver against the system."""
    provider, system = value(stack, "nvidia_driver", "provider"), str(facts.get("os_key", ""))
    served = {name: system.startswith(tuple(systems)) for name, systems in known()["driver_providers"].items()}
    if provider and not served.get(provider):
        offered = [name for name, there in served.items() if there]
        yield (
            f"there is no driver provider '{provider}' for {system}; there is {', '.join(offered) or 'none'}: set "
            f"nvidia_driver_provider"
        )


def ofed_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """Network adapters and kernel against OFED."""
    provider, version = value(stack, "ofed", "provider"), value(stack, "ofed")
    if provider in ("", "inbox"):
        return
    if provider != "doca":
        yield f"OFED provider '{provider}' is not one that can be installed: inbox or doca (ofed_provider)"
        return
    nics = list(facts.get("nics") or ())
    inbox = [n for n in nics if known()["doca_last_line"].get(n["model"]) == ""]
    if inbox:
        yield f"DOCA-OFED has no driver for {models(inbox)}: set ofed_provider to inbox"
    for model, line in known()["doca_last_line"].items():
        if line and any(n["model"] == model for n in nics) and numbers(version)[:2] > numbers(line):
            yield f"DOCA {version} has no driver for {model}, the {line} line is the last that has: set ofed_version"
    kernel = str(facts.get("kernel", ""))
    for pattern, first in known()["doca_first_for_kernel"].items():
        if not facts.get("in_container") and re.match(pattern, kernel) and numbers(version) < numbers(first):
            yield (
                f"DOCA-OFED {version} is known not to build against kernel {kernel}: set ofed_version to {first} or "
                f"later, boot an earlier kernel of the series, or set ofed_provider to inbox"
            )


def kernel_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """The set's kernel series against the running kernel; a container runs its host's."""
    stated, kernel = (stack.get("kernel") or {}).get("series") or [], str(facts.get("kernel", ""))
    series = [str(one) for one in (stated if isinstance(stated, list) else [stated])]
    own = ".".join(map(str, numbers(kernel)[:2]))
    if (
        series
        and kernel
        and not facts.get("in_container")
        and not any(numbers(kernel)[: len(numbers(one))] == numbers(one) for one in series)
    ):
        yield (
            f"kernel {kernel} runs, and the set was put together for the series {', '.join(series)}: boot one of "
            f"these, or, where the combination is known to work (vendors' ISOs of Ubuntu come with HWE kernels), set "
            f"stack_overrides: {{kernel: {{series: {[*series, own]}}}}}"
        )


def dcgm_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """DCGM against the driver's CUDA major."""
    dcgm, branch = value(stack, "dcgm"), branch_of(stack)
    major = cuda_major(branch)
    if dcgm and major >= 13 and (numbers(dcgm) or (0,))[0] < known()["dcgm_for_cuda_13"]:
        yield f"DCGM {dcgm} does not know CUDA {major}, which driver {value(stack, 'nvidia_driver')} has: take DCGM 4"
    majors = [str(m) for m in (stack.get("dcgm") or {}).get("cuda_majors") or ()]
    if majors and major and str(major) not in majors:
        listed = ", ".join(majors)
        yield f"DCGM is to come for CUDA {listed}, and the driver has CUDA {major}: add it to dcgm_cuda_majors"


def container_toolkit_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """The container toolkit against CDI."""
    version = value(stack, "container_toolkit")
    if version and numbers(version)[:2] < numbers(known()["container_toolkit"]):
        yield (
            f"container toolkit {version} is too old for CDI with Docker: set nvidia_container_toolkit_version to "
            f"{known()['container_toolkit']} or later"
        )


def docker_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """Docker's own packages against CDI."""
    version = value(stack, "docker")
    if value(stack, "docker", "provider") == "docker_ce" and version and numbers(version) < numbers(known()["docker"]):
        yield (
            f"Docker {version} does not know CDI, by which containers get GPUs: set docker_version to "
            f"{known()['docker']} or later"
        )


def training_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """GPUs and driver against the CUDA of the training image that the head would build."""
    torch, cuda = value(stack, "horovod", "torch"), value(stack, "horovod", "cuda")
    told = str((stack.get("horovod") or {}).get("for_gpus", "")).lower()
    named = value(stack, "horovod", "image") or value(stack, "horovod", "state") == "absent" or told == "false"
    gpus = [g for g in facts.get("gpus") or () if "cuda" in known()["generations"].get(g["generation"], {})]
    if not torch or not cuda or named:
        return
    advice = "name a fitting one in horovod_image, or leave the training out (horovod_state: absent)"
    if gpus and numbers(cuda)[:2] > numbers(last({g["generation"] for g in gpus}, "cuda")):
        yield (
            f"the training image's torch {torch} is made with CUDA {cuda}, which has no code for {models(gpus)}: "
            f"{advice}"
        )
    needed, branch = known()["cuda_major"].get(numbers(cuda)[0], own_branch(cuda)), branch_of(stack)
    if 0 < branch < needed:
        yield (
            f"the training image's torch {torch} is made with CUDA {cuda}, which needs a driver of branch {needed} or "
            f"later, and the set has {value(stack, 'nvidia_driver')}: take a later driver (nvidia_driver_version), or "
            f"{advice}"
        )


RULES: tuple[Callable[[Set, Facts], Iterator[str]], ...] = (
    kernel_faults,
    provider_faults,
    cuda_faults,
    fabric_manager_faults,
    nvlsm_faults,
    gpu_faults,
    ofed_faults,
    dcgm_faults,
    container_toolkit_faults,
    docker_faults,
    training_faults,
)


def stack_faults(stack: Set, facts: Facts) -> list[str]:
    """Every reason why a set does not hold together or does not fit a node, each with what to do.

    stack: the effective set (stack_effective). facts: os_key, kernel, in_container, gpus (model, generation),
    nvswitches, nics (nic_list), release and release_sets (for the message), gpu_server (bool, default true: whether
    the GPU part of the set will be installed here).
    """
    release, system = facts.get("release", "?"), facts.get("os_key", "?")
    installable = [name for name in facts.get("release_sets") or () if name]
    if not any(isinstance(part, Mapping) for part in stack.values()):
        there = ", ".join(installable) or "none"
        return [f"stack release {release} has no set for {system}; it has {there}: choose another stack_release"]
    if stack.get("record"):
        return [
            f"the set of stack release {release} for {system} is a record and cannot be installed: reinstall the node"
        ]
    gpu_rules = {provider_faults, cuda_faults, nvlsm_faults, dcgm_faults}
    gpu_rules |= {container_toolkit_faults, docker_faults, training_faults}
    skipped = set() if facts.get("gpu_server", True) else gpu_rules
    return [reason for rule in RULES if rule not in skipped for reason in rule(stack, facts)]


def stack_notes(stack: Set, facts: Facts) -> list[str]:
    """What a set costs on this node without making it unfit."""
    notes = []
    old = [g for g in facts.get("gpus") or () if g["generation"] in ending()]
    inbox = value(stack, "ofed", "provider") in ("", "inbox")
    # nvidia-peermem needs the peer-memory interface of DOCA's ib_core; the proprietary modules have no dma-buf.
    if old and facts.get("nics") and inbox:
        notes.append(
            f"no GPUDirect RDMA: {models(old)} needs nvidia-peermem, which needs DOCA-OFED (ofed_provider: doca)"
        )
    toolkit, driver = value(stack, "cuda", "toolkit"), value(stack, "nvidia_driver")
    if toolkit and driver and branch_of(stack) < own_branch(toolkit):
        notes.append(
            f"CUDA {toolkit} came with driver branch {own_branch(toolkit)} and runs on {driver} by minor-version "
            f"compatibility: code that it compiled to PTX alone, and what needs a newer driver, does not start there"
        )
    # The distribution's own gets fixes without a new version.
    if facts.get("gpu_server", True) and value(stack, "nvidia_driver", "provider") == "cuda":
        notes += [note for note in [driver_floor_note(driver)] if note]
    # Debian folders of DOCA's repository are on record as debian12.5 for 2.9 and 3.1 alone.
    if not inbox and str(facts.get("os_key", "")).startswith("debian") and numbers(value(stack, "ofed"))[:2] > (3, 1):
        notes.append(
            f"DOCA {value(stack, 'ofed')} for {facts['os_key']} is not on public record; 3.1.0 for Debian 12 is"
        )
    return notes


@functools.cache
def stack_data(release: str, folder: Path = STACKS) -> dict[str, Any]:
    """What stacks/RELEASE.yml says, read once in a process; a play's vars_files are read for every task and host."""
    path = folder / f"{release}.yml"
    there = ", ".join(sorted(one.stem for one in folder.glob("*.yml") if one.stem not in NO_RELEASES))
    try:
        document = yaml_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AnsibleFilterError(f"stack_release: there is no stack release {release}; there are {there}") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise AnsibleFilterError(f"stack_release: {path} cannot be read: {error}") from None
    data = document.get("stack_data") if isinstance(document, dict) else None
    if not isinstance(data, dict) or not isinstance(data.get("sets"), dict) or not data.get("release"):
        raise AnsibleFilterError(f"stack_release: {path} is no release: it needs stack_data with release and sets")
    return data
