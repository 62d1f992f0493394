"""What preflight says of GPUs and adapters by their PCI ids: refused ones, and those that the tables do not name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import known
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.gpu import (
    gpu_list,
    has_nvlink5,
    module_flavour,
    nvlink5_refusal,
    nvswitches_unknown,
)
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.slurm import gpu_class

Json = Mapping[str, Any]

MELLANOX = "0x15b3"
NETWORK = "0x02"  # PCI class 2: network controllers
TABLE = "stacks/compatibility.yml"


def _served(observed: Json, wanted: Json) -> list[dict[str, Any]]:
    """GPUs that the roles will put a driver on. A container's bus is its host's."""
    return gpu_list(observed.get("pci") or ()) if wanted["gpu_server"] and not observed["in_container"] else []


def _ids(entries: Iterable[Json], vendor: str) -> str:
    """`10de:2399 (2), 10de:239a`: each id once, with its count."""
    every = [f"{vendor[2:]}:{str(entry['device'])[2:]}" for entry in entries]
    return ", ".join(f"{one} ({every.count(one)})" if every.count(one) > 1 else one for one in sorted(set(every)))


def device_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """GPUs that no role can serve, also where no stack release is asked for (whose rules say the rest)."""
    gpus = _served(observed, wanted)
    boards = sorted({str(gpu["model"]) for gpu in gpus if has_nvlink5(gpu["device"])})
    if boards and not wanted["release"]:
        yield nvlink5_refusal(", ".join(boards))
    asked = str((wanted["stack"].get("nvidia_driver") or {}).get("flavour") or "auto")
    strange = [g for g in gpus if g["generation"] not in known()["generations"] and not has_nvlink5(g["device"])]
    if strange and not wanted["user_space_only"]:
        for fault in module_flavour(strange, asked, "", has_open=True)[1]:
            yield f"{fault} (GPU {_ids(strange, '0x10de')})"


def device_notes(observed: Json, wanted: Json) -> list[str]:
    """Devices whose ids the tables do not have: said, and never taken for known ones."""
    gpus, notes = _served(observed, wanted), []
    unnamed = [gpu for gpu in gpus if gpu["device"] not in known()["gpu_models"] and not has_nvlink5(gpu["device"])]
    if unnamed:
        classes = ", ".join(sorted({gpu_class(str(gpu["model"])) for gpu in unnamed}))
        notes.append(
            f"GPU {_ids(unnamed, '0x10de')} is not in the table of models ({TABLE}): by its number it is of generation "
            f"{', '.join(sorted({str(gpu['generation']) for gpu in unnamed}))}, and its class in Slurm is {classes}; "
            f"set slurm_gpus: {{type: ...}} for another name"
        )
    several = [gpu for gpu in gpus if " / " in str(gpu["model"])]
    if several:
        names = ", ".join(sorted({str(gpu["model"]) for gpu in several}))
        notes.append(f"the PCI ids of GPU {_ids(several, '0x10de')} do not tell which of {names} it is: set slurm_gpus")
    switches = nvswitches_unknown(observed.get("pci") or ()) if gpus else []
    if switches:
        notes.append(
            f"device {_ids(switches, '0x10de')} is not in the table of NVSwitches ({TABLE}): whether its GPUs need "
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
            f"network adapter {_ids(adapters, MELLANOX)} is not in the table of adapters ({TABLE}): whether the set's "
            f"OFED has a driver for it is not known"
        )
    return notes
