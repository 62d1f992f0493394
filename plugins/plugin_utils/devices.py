"""What preflight says of GPUs and adapters by their PCI ids: refused ones, and those that the tables do not name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import known
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.gpu import (
    gpu_list,
    has_nvlink5,
    module_flavour,
    nvswitches_unknown,
)
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.slurm import gpu_class

Json = Mapping[str, Any]

MELLANOX = "0x15b3"
NETWORK = "0x02"  # PCI class 2: network controllers
INFINIBAND = "0x0207"
TABLE = "stacks/compatibility.yml"


def _served(observed: Json, wanted: Json) -> list[dict[str, Any]]:
    """GPUs that the roles will put a driver on. A container's bus is its host's."""
    return gpu_list(observed.get("pci") or ()) if wanted["gpu_server"] and not observed["in_container"] else []


def ids_of(entries: Iterable[Json], vendor: str) -> str:
    """`10de:2399 (2), 10de:239a`: each id once, with its count."""
    every = [f"{vendor[2:]}:{str(entry['device'])[2:]}" for entry in entries]
    return ", ".join(f"{one} ({every.count(one)})" if every.count(one) > 1 else one for one in sorted(set(every)))


def _bluefields(observed: Json, wanted: Json, mode: str) -> list[str]:
    """Fabric ports of a BlueField in this mode, "" where it could not be read."""
    modes = observed.get("bluefield") or {}
    return [str(port["interface"]) for port in wanted["fabric_ports"] if modes.get(port["interface"]) == mode]


def device_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """GPUs that no role can serve, also where no stack release is asked for (whose rules say the rest)."""
    if observed["architecture"] not in wanted["architectures"]:
        return  # refused for its processor, in one sentence
    owned = _bluefields(observed, wanted, "dpu")
    if owned:
        yield (
            f"fabric port {', '.join(owned)} is of a BlueField in DPU mode: its own processors own switch, queues and "
            f"DCB of the port, which roles fabric and roce cannot set from here: make it an adapter (mstconfig -d "
            f"PCI-ADDRESS set INTERNAL_CPU_OFFLOAD_ENGINE=1, then a power cycle), or leave the port out of fabric_ports"
        )
    gpus = _served(observed, wanted)
    if not (wanted.get("site") or {}).get("guest"):
        yield from _unmanaged(observed, gpus)
    if "ofed" in (wanted.get("left_out") or ()) and any(has_nvlink5(gpu["device"]) for gpu in gpus):
        yield (
            "the NVSwitches of its GPUs with NVLink 5 are managed over InfiniBand (ib_umad), which role ofed sets up, "
            "and the inventory leaves that out: remove ofed_state: absent"
        )
    asked = str((wanted["stack"].get("nvidia_driver") or {}).get("flavour") or "auto")
    strange = [g for g in gpus if g["generation"] not in known()["generations"]]
    if strange and not wanted["user_space_only"]:
        for fault in module_flavour(strange, asked, "", has_open=True)[1]:
            yield f"{fault} (GPU {ids_of(strange, '0x10de')})"


def _unmanaged(observed: Json, gpus: list[dict[str, Any]]) -> list[str]:
    """That several GPUs have NVLink 5, and no function on the bus manages their NVSwitches."""
    boards = [str(gpu["model"]) for gpu in gpus if has_nvlink5(gpu["device"])]
    ports = [d for d in observed.get("pci") or () if d["vendor"] == MELLANOX and str(d["class"]).startswith(INFINIBAND)]
    if len(boards) < 2 or any(port.get("manages_switches", True) for port in ports):
        return []  # also where the vital product data of one could not be read
    return [
        f"{', '.join(sorted(set(boards)))} has NVLink 5, and none of the ConnectX-7 functions through which its "
        "NVSwitches are managed is on the PCI bus (SW_MNG in its vital product data): Fabric Manager and NVLSM cannot "
        "bring them up, and CUDA programs fail: look at the GPU board's power and firmware"
    ]


def device_notes(observed: Json, wanted: Json) -> list[str]:
    """Devices whose ids the tables do not have: said, and never taken for known ones."""
    gpus, notes = _served(observed, wanted), []
    unread = _bluefields(observed, wanted, "")
    if unread:
        notes.append(
            f"fabric port {', '.join(unread)} is of a BlueField, and whether that is in DPU mode, in which its own "
            f"processors own the port, could not be read (mstconfig of package mstflint)"
        )
    if (wanted.get("site") or {}).get("guest"):  # whose host may manage the NVSwitches
        notes += _unmanaged(observed, gpus)
    unnamed = [gpu for gpu in gpus if gpu["device"] not in known()["gpu_models"]]
    if unnamed:
        classes = ", ".join(sorted({gpu_class(str(gpu["model"])) for gpu in unnamed}))
        notes.append(
            f"GPU {ids_of(unnamed, '0x10de')} is not in the table of models ({TABLE}): by its number it is of "
            f"generation {', '.join(sorted({str(gpu['generation']) for gpu in unnamed}))}, and its class in "
            f"Slurm is {classes}; set slurm_gpus: {{type: ...}} for another name"
        )
    several = [gpu for gpu in gpus if " / " in str(gpu["model"])]
    if several:
        names = ", ".join(sorted({str(gpu["model"]) for gpu in several}))
        notes.append(
            f"the PCI ids of GPU {ids_of(several, '0x10de')} do not tell which of {names} it is: set slurm_gpus"
        )
    switches = nvswitches_unknown(observed.get("pci") or ()) if gpus else []
    if switches:
        notes.append(
            f"device {ids_of(switches, '0x10de')} is not in the table of NVSwitches ({TABLE}): whether its GPUs need "
            "Fabric Manager is not known, and it is not installed for it; nvidia-smi -q says whether the fabric is up"
        )
    adapters = [
        device
        for device in observed.get("pci") or ()
        if device["vendor"] == MELLANOX
        and str(device["class"]).startswith(NETWORK)
        and device["device"] not in known()["nics"]
        and device["device"] not in known()["nics_virtual"]
        and not device.get("virtual")
    ]
    if adapters and not observed["in_container"]:
        notes.append(
            f"network adapter {ids_of(adapters, MELLANOX)} is not in the table of adapters ({TABLE}): whether the "
            f"set's OFED has a driver for it is not known"
        )
    return notes
