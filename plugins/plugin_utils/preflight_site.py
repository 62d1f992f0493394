"""What preflight decides of a node's part in the site: head, GPUs, training image, the machine that Ansible runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import known
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.devices import ids_of
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.gpu import gpu_list
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.training_role import head_faults, torch_faults

Json = Mapping[str, Any]

#: PCI classes of accelerators without a screen: 3D controllers, other display controllers, processing accelerators.
ACCELERATORS = ("0x0302", "0x0380", "0x1200")


def site_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """What stages would find out after driver and reboot: no head, no GPU, no way to an image."""
    site = wanted.get("site") or {}
    if not site:
        return
    if site["need_head"] and not site["has_head"]:
        yield (
            f"the inventory has no host in its group heads, which {' and '.join(site['need_head'])} need: add one (it "
            "can be a GPU server)"
        )
    if _driven(observed, wanted) and not gpu_list(observed.get("pci") or ()):
        yield _without_gpu(observed)
    yield from _image_reasons(observed, site)


def _driven(observed: Json, wanted: Json) -> bool:
    """Whether role nvidia_driver puts kernel modules on the node."""
    driver = wanted["site"]["driver"]
    return bool(driver and wanted["gpu_server"] and not observed["in_container"] and not wanted["user_space_only"])


def _without_gpu(observed: Json) -> str:
    makers = known()["not_served"]["makers"]
    others = [
        device
        for device in observed.get("pci") or ()
        if device["vendor"] in makers and str(device["class"]).startswith(ACCELERATORS)
    ]
    if others:
        found = {vendor: ids_of([one for one in others if one["vendor"] == vendor], vendor) for vendor in makers}
        named = "; ".join(f"{makers[vendor]} {ids}" for vendor, ids in found.items() if ids)
        return (
            f"it is a GPU server with no NVIDIA GPU on its PCI bus, and its accelerators ({named}) are not NVIDIA's, "
            "which alone are served: take it out of the group gpu_servers"
        )
    return (
        "it is a GPU server with no NVIDIA GPU on its PCI bus: look at power and seating of the GPU board and at the "
        "BIOS, or take it out of the group gpu_servers"
    )


def _image_reasons(observed: Json, site: Json) -> Iterator[str]:
    """On the head that makes the training image: what role horovod would refuse in the last stage."""
    image = site["image"]
    if not image["builds"]:
        return
    system = str(observed["os"]["id"])
    faults = head_faults(system, image["registry"].get(system, []), image["base"], for_gpus=image["for_gpus"])
    faults += torch_faults(image["torch"], for_gpus=image["for_gpus"])
    yield from (f"the training image cannot be made here: {fault}" for fault in faults[:1])


def site_notes(observed: Json, wanted: Json) -> list[str]:
    """GPUs that the bill of materials has and the bus has not; a reboot that nobody can do from here."""
    site, notes = wanted.get("site") or {}, []
    if not site:
        return []
    count, gpus = int(site["gpu_count"] or 0), len(gpu_list(observed.get("pci") or ()))
    if _driven(observed, wanted) and count and gpus not in (0, count):
        notes.append(
            f"{gpus} NVIDIA GPUs on its PCI bus, {count} in its bill of materials (bom.gpu_count): look for a board "
            "that is missing or dead; validation will fail the node"
        )
    if site["controller"] and site["reboots"]:
        notes.append(
            "it is the machine that Ansible runs on, which is not rebooted from here: where the end of the run names a "
            "reboot that waits, reboot it by hand and run the same command again"
        )
    return notes
