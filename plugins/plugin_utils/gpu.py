"""NVIDIA GPUs as the PCI bus shows them, and what each of them wants of driver and toolkit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import (
    branch_of,
    cuda_major,
    ending,
    generations,
    known,
    last,
    numbers,
)

NVIDIA = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers; audio and USB functions of a card have others
BRIDGE_CLASS = "0x0680"


def _gpus(count: int) -> str:
    """1 GPU, 2 GPUs."""
    return f"{count} GPU{'' if count == 1 else 's'}"


def gpu_generation(device: str) -> str:
    """Generation of a PCI device id such as '0x1db5'; 'unknown' for one that is newer than the table."""
    number = int(device, 16)
    return [str(name) for start, name in known()["gpu_ids"] if int(start, 16) <= number][-1]


def gpu_model(device: str, subsystem: str = "") -> str:
    """Name of a GPU by its PCI ids; `NVIDIA 0x2330` of one that the table lacks. Some models share one device id."""
    named = known()["gpu_boards"].get(f"{device} {subsystem}") or known()["gpu_models"].get(device)
    return str(named or f"NVIDIA {device}")


def has_nvlink5(device: str) -> bool:
    """Whether this GPU comes on a board with NVLink 5, whose switches need NVLSM beside Fabric Manager."""
    return any(int(first, 16) <= int(device, 16) <= int(final, 16) for first, final in known()["nvlink5"]["ids"])


def nvlsm_fault(boards: str, provided: bool, version: str, driver: str) -> str:
    """Why the NVSwitches of boards with NVLink 5 would not come up, and what to do; "" where they do.

    provided: whether the driver's provider has NVLSM. version: that of NVLSM; driver: a release or a branch.
    """
    what = f"{boards} has NVLink 5, whose NVSwitches need NVLSM beside Fabric Manager"
    if not provided:
        return f"{what}, which NVIDIA's repository alone has: set nvidia_driver_provider to cuda"
    if not version:
        return (
            f"{what}, and the set has none for this system: set nvidia_driver_nvlsm_version to one that NVIDIA's "
            "repository for it has, or leave the node out (--limit)"
        )
    branch = branch_of(driver)
    floors = [floor for first, floor in known()["nvlink5"]["nvlsm"].items() if not branch or branch >= first]
    if floors and numbers(version) < numbers(floors[-1]):
        return (
            f"{what}, and NVLSM {version} is older than {floors[-1]}, which driver {driver} asks for: set "
            "nvidia_driver_nvlsm_version"
        )
    return ""


def gpu_list(pci: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The NVIDIA GPUs among PCI devices as node_state lists them."""
    return [
        {
            "address": d["address"],
            "device": d["device"],
            "model": gpu_model(d["device"], d.get("subsystem", "")),
            "generation": gpu_generation(d["device"]),
            "numa_node": d["numa_node"],
        }
        for d in pci
        if d["vendor"] == NVIDIA and d["class"].startswith(DISPLAY_CLASSES) and not d.get("virtual")  # of vGPU hosts
    ]


def nvswitch_list(pci: Iterable[Mapping[str, Any]]) -> list[str]:
    """PCI addresses of the NVSwitches; of boards with NVLink 5, whose NVSwitches are on no bus, those of the functions
    through which they are managed."""
    return [
        d["address"]
        for d in pci
        if d.get("manages_switches")
        or (d["vendor"] == NVIDIA and d["class"].startswith(BRIDGE_CLASS) and d["device"] in known()["nvswitches"])
    ]


def nvswitches_unknown(pci: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Bridges of NVIDIA's that stand where NVSwitches do, and whose ids the table lacks."""
    ours = (d for d in pci if d["vendor"] == NVIDIA and d["class"].startswith(BRIDGE_CLASS) and not d.get("virtual"))
    return [d for d in ours if d["device"] not in known()["nvswitches"]]


def upstream_version(version: str) -> str:
    """A package's version without epoch and packaging suffix: '1:4.6.0-1' is 4.6.0, '' stays ''."""
    return re.sub(r"^\d+:", "", version).split("-")[0].split("+")[0].split("~")[0]


def is_exact(version: str) -> bool:
    """Whether a version names one release ('580.126.20') and not a branch ('580')."""
    return "." in version


def module_flavour(
    gpus: Iterable[Mapping[str, Any]], asked: str, version: str, has_open: bool
) -> tuple[str, list[str]]:
    """open or proprietary kernel modules for these GPUs, and the reasons why none fits."""
    gpus = list(gpus)
    found = {str(g["generation"]) for g in gpus}
    branch = branch_of(version)
    faults = [
        f"GPUs of generation '{g}' are not known to this toolkit; set nvidia_driver_flavour"
        if g == "unknown"
        else f"GPUs of generation '{g}' need a driver older than any that this role installs"
        for g in sorted(found - set(generations()))
        if g != "unknown" or asked == "auto"
    ]
    old = sorted(found.intersection(generations(modules=["proprietary"])))
    new = sorted(found.intersection(generations(modules=["open"])))
    if old and new:
        faults.append(f"no driver serves {', '.join(old)} and {', '.join(new)} in one node")
    if old and branch > last(old, "last_branch"):
        faults.append(f"branch {last(old, 'last_branch')} is the last for {', '.join(old)}; asked for {version}")
    flavour = asked if asked != "auto" else "proprietary" if old or (not has_open and not new) else "open"
    if flavour == "open" and old:
        faults.append(f"there are no open kernel modules for {', '.join(old)}")
    if flavour == "proprietary" and new:
        faults.append(f"there are no proprietary kernel modules for {', '.join(new)}")
    if flavour == "proprietary" and branch > known()["last_branch_with_proprietary_modules"]:
        faults.append(f"branch {branch} has no proprietary kernel modules")
    if flavour == "open" and not has_open:
        faults.append("this provider has no open kernel modules that equal its user space on this system")
    return flavour, faults


def names_of(table: Mapping[str, Any], key: str, version: str, kernel: str) -> list[str]:
    """The package names below a key of a provider's table, for a driver version and a kernel.

    A list serves all branches; a mapping has the names up to a branch under that number, and all later under 'later'.
    """
    entry = table.get(key) or []
    if isinstance(entry, Mapping):
        branch = branch_of(version)
        limits = sorted(int(k) for k in entry if k != "later")
        # Without a version the repository's newest is meant.
        found = [k for k in limits if branch and branch <= k]
        entry = entry[found[0]] if found else entry["later"]
    words = {"version": version, "branch": branch_of(version) or "", "kernel": kernel}
    return [str(name).format(**words) for name in entry if version or "{version}" not in name]


PACKAGE_KEYS = ("pin", "user_space", "mps", "open", "proprietary", "headers", "fabric_manager", "nscq", "nvlsm")


def driver_candidates(table: Mapping[str, Any], version: str, kernel: str) -> list[str]:
    """Every package name that the driver of this version may consist of, so that one read can ask for all."""
    return sorted({name for key in PACKAGE_KEYS for name in names_of(table, key, version, kernel)})


def driver_plan(
    table: Mapping[str, Any],
    version: str,
    pci: Iterable[Mapping[str, Any]],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """What the driver of a node is to consist of.

    options: flavour (auto|open|proprietary), user_space_only, mps, kernel, in_container, fabric_manager_version,
    nvlsm_version and revision ('' takes the table's). Returns gpus, nvswitches, flavour, packages (name: version to pin
    or ''), before (likewise, to be installed first), pin (what apt's preferences have to say of every part of the
    driver, '' where the newest is wanted), unwanted (installed together with those they would break the driver),
    fabric_manager and faults.
    """
    pci = list(pci)
    gpus, switches = gpu_list(pci), nvswitch_list(pci)
    kernel = str(options["kernel"])
    flavour, faults = "", []
    keys = ["user_space"] + (["mps"] if options["mps"] else [])
    pinning = names_of(table, "pin", version, kernel)
    before: list[str] = []
    if not options["user_space_only"]:
        has_open = bool(names_of(table, "open", version, kernel))
        flavour, faults = module_flavour(gpus, str(options["flavour"]), version, has_open)
        keys.append(flavour)
        # In a container the running kernel is the host's: it has no headers here, and nothing is built against it.
        before = [] if options["in_container"] else names_of(table, "headers", version, kernel)
    boards = ", ".join(sorted({str(g["model"]) for g in gpus if has_nvlink5(g["device"])}))
    fabric_manager = bool(switches) and not options["user_space_only"]
    if fabric_manager:
        manager_version = str(options["fabric_manager_version"] or version)
        if manager_version != version:
            faults.append(f"Fabric Manager {manager_version} must equal the driver {version}")
        if not names_of(table, "fabric_manager", version, kernel):
            faults.append("this provider has no Fabric Manager, which the NVSwitches of this node need")
        keys += ["fabric_manager"] if boards else ["fabric_manager", "nscq"]
    packages = dict.fromkeys(pinning, "")
    for key in keys:
        form = "fabric_manager" if key == "nscq" else key  # packaged as one
        suffix = _suffix(table, form, version, str(options.get("revision") or ""))
        pinned = is_exact(version) and suffix is not None
        epoch = "" if form == "fabric_manager" else table.get("epoch", "")  # its rpm has none, the driver's have
        for name in names_of(table, key, version, kernel):
            packages[name] = f"{epoch}{version}{suffix}" if pinned else ""
    if fabric_manager and boards:
        nvlsm, names = str(options["nvlsm_version"]), names_of(table, "nvlsm", version, kernel)
        fault = nvlsm_fault(boards, bool(names), nvlsm, version)
        faults += [fault] if fault else []
        packages |= dict.fromkeys(names, f"{nvlsm}-1" if is_exact(nvlsm) else "")
    other = {"open": "proprietary", "proprietary": "open"}.get(flavour)
    return {
        "gpus": gpus,
        "nvswitches": switches,
        "flavour": flavour,
        "packages": packages,
        "before": dict.fromkeys(before, ""),
        "pin": f"version {version}{'-' if is_exact(version) else '.'}*" if pinning else "",
        "unwanted": [n for n in names_of(table, other, version, kernel) if n not in packages] if other else [],
        "fabric_manager": fabric_manager,
        "faults": faults,
    }


def _suffix(table: Mapping[str, Any], key: str, version: str, asked: str) -> str | None:
    """The packaging suffix of a version; None where the table knows none, and the version can't be pinned exactly."""
    revisions = table.get("revision")
    if asked and key != "fabric_manager":
        return asked
    if isinstance(revisions, Mapping):
        form = revisions.get(version, revisions.get("default"))
        if isinstance(form, Mapping):
            form = form.get(key, form.get("default"))
        return None if form is None else str(form)
    return None if revisions is None else str(revisions)


def driver_verdict(state: Mapping[str, Any], plan: Mapping[str, Any], host_kernel_is_ours: bool) -> dict[str, Any]:
    """Versions installed and loaded, and why a reboot is needed; from a reading of node_state."""
    packages = {name: state["packages"].get(name, "") for name in plan["packages"]}
    installed = sorted({upstream_version(v) for n, v in packages.items() if v and _carries_driver_version(n)})
    driver = installed[0] if len(installed) == 1 else ""
    manager = next((upstream_version(v) for n, v in packages.items() if v and "fabric" in n), "")
    nvlsm = {"nvlsm": upstream_version(packages["nvlsm"])} if "nvlsm" in packages else {}
    loaded = state["modules"]["nvidia"]
    reasons = []
    if host_kernel_is_ours and plan["flavour"]:
        if state["modules"]["nouveau"]["loaded"]:
            reasons.append("kernel module nouveau holds the GPUs; the NVIDIA module takes them over at boot")
        if loaded["loaded"] and driver and loaded["version"] != driver:
            reasons.append(f"NVIDIA kernel module {loaded['version']} is loaded, driver {driver} is installed")
    return {
        "versions": {
            "driver": driver,
            "kernel_module": loaded["version"] if loaded["loaded"] and host_kernel_is_ours else "",
            "fabric_manager": manager,
            **nvlsm,
        },
        "packages": packages,
        "reboot_required": reasons,
        "mixed": installed if len(installed) > 1 else [],
        "manager_differs": bool(manager and driver and manager != driver),
    }


#: Lines of `nvidia-smi -q` with the values of a usable GPU. Without NVSwitches its fabric is N/A.
_HEALTHY = {
    "Persistence Mode": ("persistence mode", {"Enabled"}),
    "State": ("NVLink fabric", {"Completed", "N/A"}),
    "Status": ("NVLink fabric", {"Success", "N/A"}),
    # below Health, which drivers from 550 on have; earlier words of the first: Degraded Bandwidth : False
    "Bandwidth": ("NVLink fabric's bandwidth", {"Full", "Not Supported", "N/A"}),
    "Degraded Bandwidth": ("NVLink fabric's bandwidth", {"False", "N/A"}),
    "Route Unhealthy": ("NVLink fabric's route", {"False", "Not Supported", "N/A"}),
    "Summary": ("NVLink fabric's health", {"Healthy", "Not Supported", "N/A"}),
    "Incorrect Configuration": ("NVLink fabric's configuration", {"None", "Not Supported", "N/A"}),
}


def driver_health_faults(said: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """Why GPUs of a node are not usable, from a run of `nvidia-smi -q`: each GPU with what is not as it has to be."""
    if said.get("rc", 0) != 0:
        words = f"{said.get('stdout', '')} {said.get('stderr', '')} {said.get('msg', '')}".split()
        return [f"nvidia-smi fails: {' '.join(words)[-300:]}"]
    blocks = re.split(r"^GPU (?=[0-9A-Fa-f]{8}:)", str(said.get("stdout", "")), flags=re.MULTILINE)[1:]
    faults = []
    if len(blocks) != len(plan["gpus"]):
        faults.append(f"nvidia-smi sees {len(blocks)} of the {_gpus(len(plan['gpus']))} on the PCI bus")
    for block in blocks:
        fabric = re.search(r"^ {4}Fabric\n((?: {8}.*\n?)+)", block, re.MULTILINE)
        mode = re.search(r"^ {4}Persistence Mode .*$", block, re.MULTILINE)
        for line in [mode[0] if mode else "", *(fabric[1].splitlines() if fabric else [])]:
            key, _, value = (part.strip() for part in line.partition(":"))
            what, good = _HEALTHY.get(key, ("", {value}))
            if value not in good:
                worse = {"Degraded Bandwidth": "degraded", "Route Unhealthy": "unhealthy"}
                faults.append(f"GPU {block.split()[0]}: {what} is {worse.get(key, value)}")
    return faults


def _carries_driver_version(name: str) -> bool:
    """Whether a package's version is the driver's: persistenced and modprobe of a distribution go their own way."""
    return not re.match(
        r"(linux-|kernel-|nvidia-persistenced|nvidia-modprobe|nvidia-driver-pinning|nvlsm|.*fabric)", name
    )


def cuda_generation_faults(pci: Iterable[Mapping[str, Any]], toolkit: str) -> list[str]:
    """Why this CUDA toolkit has no code for GPUs of this node."""
    old = sorted({g["generation"] for g in gpu_list(pci)}.intersection(ending()))
    if old and numbers(toolkit)[:2] > numbers(last(old, "cuda")):
        return [f"CUDA {toolkit} has no code for {', '.join(old)}; {last(old, 'cuda')} is the last toolkit that has"]
    return []


def cuda_packages(
    table: Mapping[str, Any],
    versions: Mapping[str, str],
    nccl_built_for: Mapping[str, str],
    parts: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, str]:
    """Packages of toolkit, cuDNN and NCCL with the versions to pin; an empty version of cuDNN or NCCL leaves it out.

    nccl_built_for: CUDA release in the name of each NCCL build, by 'nccl/major of CUDA'. parts: of each release of the
    toolkit the versions of its parts, by the beginning of their packages' names.
    """
    toolkit, cudnn, nccl = (str(versions.get(k) or "") for k in ("toolkit", "cudnn", "nccl"))
    if not toolkit:
        # Without a CUDA release there is no telling which cuDNN and NCCL build fit.
        return dict.fromkeys([*table["toolkit_any"], *table["nccl"]], "")
    major, minor = toolkit.split(".")[:2]
    words = {"major": major, "minor": minor}
    exact = toolkit.count(".") > 1
    wanted = {n.format(**words): f"{toolkit}-1" if exact else "" for n in table["toolkit"]}
    if cudnn:
        built = str(table.get("cudnn8_built_for", {}).get(cudnn, f"{major}.{minor}"))
        old = cudnn.split(".")[0] == "8"
        names = list(table.get("cudnn8" if old else "cudnn", []))
        if numbers(cudnn) >= numbers(str(table.get("cudnn_headers_from", cudnn))) and not old:
            names += table.get("cudnn_headers", [])
        for name in names:
            wanted[name.format(**words)] = f"{cudnn}-1+cuda{built}" if old else f"{cudnn}-1"
    if nccl:
        built = str(nccl_built_for.get(f"{nccl}/{major}", f"{major}.{minor}"))
        for name in table["nccl"]:
            wanted[name.format(**words)] = f"{nccl}-1+cuda{built}"
    for name, version in (parts or {}).get(toolkit, {}).items():
        wanted[f"{name.format(dev=table['dev'])}-{major}-{minor}"] = f"{version}-1"
    return wanted


def peer_memory(flavour: str, branch: int, kernel: str, ofed_peer_memory: bool) -> dict[str, str]:
    """How GPU memory reaches the network adapters: {'way': dma-buf|nvidia-peermem|none, 'why': …}."""
    numbers = [int(n) for n in re.findall(r"\d+", kernel)[:2]]
    if flavour == "open" and numbers >= [5, 12] and (branch >= 515 or not branch):
        return {
            "way": "dma-buf",
            "why": f"open kernel modules and kernel {'.'.join(map(str, numbers))} (5.12 or later)",
        }
    if ofed_peer_memory:
        return {"way": "nvidia-peermem", "why": "the OFED installed has the peer-memory interface in ib_core"}
    missing = (
        "the proprietary kernel modules have no dma-buf"
        if flavour == "proprietary"
        else (
            "dma-buf needs the open kernel modules and kernel 5.12 or later" if flavour else "no NVIDIA kernel modules"
        )
    )
    return {"way": "none", "why": f"{missing}, and nvidia-peermem needs the ib_core of DOCA-OFED or MLNX_OFED"}


def dcgm_cuda_majors_of(driver_version: str, pci: Iterable[Mapping[str, Any]]) -> list[str]:
    """CUDA releases that DCGM has to be installed for: the driver's, and on Volta and older 12 beside 13."""
    branch = branch_of(driver_version)
    majors = sorted(known()["cuda_major"])
    major = (cuda_major(branch) or majors[0]) if branch else majors[-1]
    old = {g["generation"] for g in gpu_list(pci)}.intersection(ending())
    return ["12", "13"] if major == 13 and old else [str(major)]


def dcgm_packages(names: Iterable[str], version: str, majors: Iterable[str]) -> dict[str, str]:
    """Packages of DCGM for these CUDA releases with the version to pin; their epoch is 1."""
    pin = f"1:{version}-1" if version else ""
    return {name.format(major=major): pin for major in majors for name in names}


def daemon_gpu_faults(text: str, knows_cdi: bool = True) -> list[str]:
    """What docker's daemon.json lacks for giving GPUs to containers; engines before release 25 know no CDI."""
    if not text.strip():
        return ["the file is missing"]
    try:
        config = json.loads(text)
    except ValueError as error:
        return [f"not valid JSON ({error})"]
    if not isinstance(config, dict):
        return ["no JSON object"]
    faults = []
    if knows_cdi and not (config.get("features") or {}).get("cdi"):
        faults.append("features.cdi is not true")
    nvidia = (config.get("runtimes") or {}).get("nvidia") or {}
    if str(nvidia.get("path") or "").rpartition("/")[2] != "nvidia-container-runtime":
        faults.append("runtimes.nvidia does not name nvidia-container-runtime")
    return faults
