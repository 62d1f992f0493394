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

Set = Mapping[str, Any]
Facts = Mapping[str, Any]

#: The stack releases, one file each.
STACKS = Path(__file__).parents[2] / "stacks"

#: Role variables of the inventory that replace a value of the set.
OVERRIDES = {
    "nvidia_driver_provider": ("nvidia_driver", "provider"),
    "nvidia_driver_version": ("nvidia_driver", "version"),
    "nvidia_driver_flavour": ("nvidia_driver", "flavour"),
    "nvidia_driver_fabric_manager_version": ("fabric_manager", "version"),
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
}

#: Oldest driver branch of each CUDA toolkit. Source: CUDA Toolkit release notes, table of toolkit driver versions;
#: minor-version compatibility with older branches exists within a major release, but not for everything.
CUDA_DRIVER = {
    "9.0": 384, "9.1": 387, "9.2": 396, "10.0": 410, "10.1": 418, "10.2": 440,
    "11.0": 450, "11.1": 455, "11.2": 460, "11.3": 465, "11.4": 470, "11.5": 495, "11.6": 510, "11.7": 515,
    "11.8": 520, "12.0": 525, "12.1": 530, "12.2": 535, "12.3": 545, "12.4": 550, "12.5": 555, "12.6": 560,
    "12.8": 570, "12.9": 575, "13.0": 580, "13.1": 590,
}  # fmt: skip
#: CUDA major of each driver's API, newest first. Source: the same release notes.
DRIVER_CUDA_MAJOR = ((580, 13), (525, 12), (450, 11))

#: Source: NVIDIA data centre driver branches; 580 is the last with Maxwell, Pascal and Volta.
OLD_GENERATIONS = ("maxwell", "pascal", "volta")
OLD_GENERATIONS_LAST_BRANCH = 580
#: Source: NVIDIA driver release notes; the first data centre branch that knows the generation.
FIRST_BRANCH = {"volta": 384, "turing": 410, "ampere": 450, "hopper": 525, "ada": 525, "blackwell": 570}
#: Source: guide of R620, "Proprietary Kernel Modules Removed".
OPEN_ONLY_FROM_BRANCH = 620

#: Source: the public PCI id list, vendor 15b3. Virtual functions are left out: their host's driver is not ours.
NICS = {
    "0x1003": "ConnectX-3", "0x1007": "ConnectX-3 Pro", "0x1011": "Connect-IB", "0x1013": "ConnectX-4",
    "0x1015": "ConnectX-4 Lx", "0x1017": "ConnectX-5", "0x1019": "ConnectX-5 Ex", "0x101b": "ConnectX-6",
    "0x101d": "ConnectX-6 Dx", "0x101f": "ConnectX-6 Lx", "0x1021": "ConnectX-7", "0x1023": "ConnectX-8",
    "0xa2d6": "BlueField-2", "0xa2dc": "BlueField-3",
}  # fmt: skip
#: Source: DOCA release notes; the FDR generation is not in DOCA at all, and 2.9 is the last line with ConnectX-4.
INBOX_ONLY_NICS = ("ConnectX-3", "ConnectX-3 Pro", "Connect-IB")
DOCA_LAST_LINE = {"ConnectX-4": (2, 9), "ConnectX-4 Lx": (2, 9)}
#: Kernels whose interface DOCA-OFED does not build against. Source: stackhpc ansible-slurm-appliance pull request 994
#: (EL 9.8), and azhpc-images, which carries a patch for the same kernel.
DOCA_BROKEN_KERNELS = (r"5\.14\.0-687\.",)

#: Source: Docker's CDI support needs specifications as nvidia-container-toolkit writes them since 1.17.
CONTAINER_TOOLKIT_MIN = (1, 17)
#: Source: DCGM 4 package names end in the CUDA major; DCGM 3 knows none above 12.
DCGM_MIN_FOR_CUDA_13 = 4
#: Source: cuDNN support matrix; 9.10 is the last line with Maxwell, Pascal and Volta.
CUDNN_LAST_FOR_OLD = (9, 10)

#: Systems on which each provider of the driver exists.
DRIVER_PROVIDERS = {
    "cuda": ("debian", "ubuntu", "el"),
    "canonical": ("ubuntu",),
    "distribution": ("debian", "ubuntu"),
}


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparison: '580.126.20' -> (580, 126, 20)."""
    match = re.match(r"\d+(\.\d+)*", str(version))
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def value(stack: Set, part: str, key: str = "version") -> str:
    """A value of the set, '' where it has none."""
    return str((stack.get(part) or {}).get(key) or "")


def nic_list(pci: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """NVIDIA (Mellanox) network adapters among PCI devices as node_preflight lists them."""
    return [
        {"address": d["address"], "device": d["device"], "model": NICS[d["device"]]}
        for d in pci
        if d["vendor"] == "0x15b3" and d["device"] in NICS
    ]


def stack_effective(stack: Set, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The set as the roles will see it: with the role variables that the inventory states in place of its values."""
    effective = {k: dict(v) if isinstance(v, Mapping) else v for k, v in stack.items()}
    for name, (part, key) in OVERRIDES.items():
        stated = variables.get(name)
        if stated not in (None, ""):
            effective.setdefault(part, {})[key] = stated
    return effective


def stack_variables(_: Any = None) -> list[str]:
    """Names of the role variables that stack_effective heeds."""
    return sorted(OVERRIDES)


def models(entries: Iterable[Mapping[str, Any]]) -> str:
    """Names of GPUs or adapters, each once."""
    return ", ".join(sorted({str(e.get("model", e.get("generation", "?"))) for e in entries}))


def branch_of(stack: Set) -> int:
    """Branch of the driver, 0 where the set names none."""
    return (numbers(value(stack, "nvidia_driver")) or (0,))[0]


def cuda_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """CUDA toolkit against driver."""
    toolkit, driver = value(stack, "cuda", "toolkit"), value(stack, "nvidia_driver")
    if not toolkit or not driver:
        return
    line = ".".join(toolkit.split(".")[:2])
    known = {numbers(k): v for k, v in CUDA_DRIVER.items()}
    needed = CUDA_DRIVER.get(line) or max((v for k, v in known.items() if k <= numbers(line)), default=0)
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


def gpu_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """GPU generations against driver, its modules, CUDA and cuDNN."""
    gpus, branch = list(facts.get("gpus") or ()), branch_of(stack)
    driver, flavour = value(stack, "nvidia_driver"), value(stack, "nvidia_driver", "flavour")
    toolkit, cudnn = value(stack, "cuda", "toolkit"), value(stack, "cuda", "cudnn")
    old = [g for g in gpus if g["generation"] in OLD_GENERATIONS]
    new = [g for g in gpus if g["generation"] not in OLD_GENERATIONS]
    advice = "choose stack_release: reference-2019"
    if old and branch > OLD_GENERATIONS_LAST_BRANCH:
        yield (
            f"driver {driver} does not know {models(old)}; branch {OLD_GENERATIONS_LAST_BRANCH} is the last that "
            f"does: {advice}, or set nvidia_driver_version to one of it"
        )
    if old and (numbers(toolkit) or (0,))[0] >= 13:
        yield f"CUDA {toolkit} has no code for {models(old)}, 12.9 is the last that has: {advice}, or set cuda_version"
    if old and numbers(cudnn)[:2] > CUDNN_LAST_FOR_OLD:
        yield f"cuDNN {cudnn} does not support {models(old)}, 9.10 is the last that does: {advice}"
    if old and flavour == "open":
        yield f"there are no open kernel modules for {models(old)}: leave nvidia_driver_flavour on auto"
    if old and branch >= OPEN_ONLY_FROM_BRANCH and flavour != "open":
        yield f"driver {driver} has open kernel modules alone, and {models(old)} needs proprietary ones"
    if flavour == "proprietary" and branch >= OPEN_ONLY_FROM_BRANCH and not old:
        yield f"driver {driver} has no proprietary kernel modules: leave nvidia_driver_flavour on auto"
    if flavour == "proprietary" and any(g["generation"] == "blackwell" for g in new):
        yield f"there are no proprietary kernel modules for {models(new)}: leave nvidia_driver_flavour on auto"
    for generation in sorted({g["generation"] for g in gpus}):
        if 0 < branch < FIRST_BRANCH.get(generation, 0):
            there = [g for g in gpus if g["generation"] == generation]
            yield f"driver {driver} is too old for {models(there)}: branch {FIRST_BRANCH[generation]} is the first"


def provider_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """Provider of the driver against the system."""
    provider, system = value(stack, "nvidia_driver", "provider"), str(facts.get("os_key", ""))
    if provider and not system.startswith(DRIVER_PROVIDERS.get(provider, ())):
        offered = [name for name, systems in DRIVER_PROVIDERS.items() if system.startswith(systems)]
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
    inbox = [n for n in nics if n["model"] in INBOX_ONLY_NICS]
    if inbox:
        yield f"DOCA-OFED has no driver for {models(inbox)}: set ofed_provider to inbox"
    for model, line in DOCA_LAST_LINE.items():
        if any(n["model"] == model for n in nics) and numbers(version)[:2] > line:
            last = ".".join(map(str, line))
            yield f"DOCA {version} has no driver for {model}, the {last} line is the last that has: set ofed_version"
    kernel = str(facts.get("kernel", ""))
    if not facts.get("in_container") and any(re.match(p, kernel) for p in DOCA_BROKEN_KERNELS):
        yield (
            f"DOCA-OFED is known not to build against kernel {kernel}: boot an earlier kernel of the series, or set "
            f"ofed_provider to inbox"
        )


def kernel_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """The set's kernel series against the running kernel; a container runs its host's."""
    series, kernel = value(stack, "kernel", "series"), str(facts.get("kernel", ""))
    if (
        series
        and kernel
        and not facts.get("in_container")
        and numbers(kernel)[: len(numbers(series))] != numbers(series)
    ):
        yield (
            f"kernel {kernel} runs, and the set was put together for the series {series}: boot one of that series, "
            f"or, where the combination is known to work, set stack_overrides: {{kernel: {{series: ...}}}}"
        )


def dcgm_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """DCGM against the driver's CUDA major."""
    dcgm, branch = value(stack, "dcgm"), branch_of(stack)
    major = next((m for first, m in DRIVER_CUDA_MAJOR if branch >= first), 0)
    if dcgm and major >= 13 and (numbers(dcgm) or (0,))[0] < DCGM_MIN_FOR_CUDA_13:
        yield f"DCGM {dcgm} does not know CUDA {major}, which driver {value(stack, 'nvidia_driver')} has: take DCGM 4"
    majors = [str(m) for m in (stack.get("dcgm") or {}).get("cuda_majors") or ()]
    if majors and major and str(major) not in majors:
        listed = ", ".join(majors)
        yield f"DCGM is to come for CUDA {listed}, and the driver has CUDA {major}: add it to dcgm_cuda_majors"


def container_toolkit_faults(stack: Set, facts: Facts) -> Iterator[str]:
    """The container toolkit against CDI."""
    version = value(stack, "container_toolkit")
    if version and numbers(version)[:2] < CONTAINER_TOOLKIT_MIN:
        yield (
            f"container toolkit {version} is too old for CDI with Docker: set nvidia_container_toolkit_version to 1.17 "
            f"or later"
        )


RULES: tuple[Callable[[Set, Facts], Iterator[str]], ...] = (
    kernel_faults,
    provider_faults,
    cuda_faults,
    fabric_manager_faults,
    gpu_faults,
    ofed_faults,
    dcgm_faults,
    container_toolkit_faults,
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
    gpu_rules = {provider_faults, cuda_faults, dcgm_faults, container_toolkit_faults}
    skipped = set() if facts.get("gpu_server", True) else gpu_rules
    return [reason for rule in RULES if rule not in skipped for reason in rule(stack, facts)]


def stack_notes(stack: Set, facts: Facts) -> list[str]:
    """What a set costs on this node without making it unfit."""
    notes = []
    old = [g for g in facts.get("gpus") or () if g["generation"] in OLD_GENERATIONS]
    inbox = value(stack, "ofed", "provider") in ("", "inbox")
    # nvidia-peermem needs the peer-memory interface of DOCA's ib_core; the proprietary modules have no dma-buf.
    if old and facts.get("nics") and inbox:
        notes.append(
            f"no GPUDirect RDMA: {models(old)} needs nvidia-peermem, which needs DOCA-OFED (ofed_provider: doca)"
        )
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
    there = ", ".join(sorted(known.stem for known in folder.glob("*.yml") if known.stem != "select"))
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
