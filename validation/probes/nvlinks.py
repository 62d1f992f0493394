"""NVLinks of this node's GPUs, by NVML. A program of its own, which prints JSON: a driver that hangs hangs it alone.

Through ctypes, for nodes have no pynvml: functions, structures and values as in NVIDIA's nvml.h (API reference,
"NvLink Methods"), which every driver since R450 has.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
EMULATED = "elasticAiEmulated"  # what the library of the lab's emulated devices exports, and none of NVIDIA's
LINKS = 36  # more than a GPU of any generation has; NVML refuses the first number that there is none of
OK, INVALID_ARGUMENT, NOT_SUPPORTED = 0, 2, 3  # nvmlReturn_t
PEERS = {0: "gpu", 1: "cpu", 2: "switch"}  # nvmlIntNvLinkDeviceType_t


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    ]

    @property
    def address(self) -> str:
        """As sysfs writes it."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"


class Unanswered(Exception):
    """NVML did not answer; in words."""


def _number(function: Any, *of: Any) -> tuple[int, int]:
    """(return code, number) of a function that writes a number."""
    value = ctypes.c_uint()
    return function(*of, ctypes.byref(value)), value.value


def _address(function: Any, *of: Any) -> str:
    """The PCI address that a function writes, "" where it has none."""
    info = PciInfo()
    return info.address if function(*of, ctypes.byref(info)) == OK else ""


def links(library: Any, device: ctypes.c_void_p) -> list[dict[str, Any]]:
    """NVLinks of a GPU as validation.facts.NvLink; none of a GPU that has no NVLink."""
    found = []
    for number in range(LINKS):
        link = ctypes.c_uint(number)
        code, state = _number(library.nvmlDeviceGetNvLinkState, device, link)
        if code == INVALID_ARGUMENT:
            break
        if code == NOT_SUPPORTED:
            continue
        if code != OK:
            raise Unanswered(f"NVML error {code} at NVLink {number}")
        code, kind = _number(library.nvmlDeviceGetNvLinkRemoteDeviceType, device, link)
        found.append(
            {
                "number": number,
                "up": state == 1,
                "peer": PEERS.get(kind, "") if code == OK else "",
                "address": _address(library.nvmlDeviceGetNvLinkRemotePciInfo_v2, device, link),
            }
        )
    return found


def collect(name: str = LIBRARY) -> list[dict[str, Any]]:
    """The GPUs of this node as validation.facts.NvGpu; Unanswered where NVML cannot say."""
    try:
        library = ctypes.CDLL(name)
    except OSError:
        raise Unanswered(f"no {name}") from None
    if not hasattr(library, "nvmlDeviceGetNvLinkState"):
        raise Unanswered(f"{name} knows no NVLink")
    code = library.nvmlInit_v2()
    if code != OK:
        raise Unanswered(f"nvmlInit_v2: NVML error {code}")
    try:
        code, count = _number(library.nvmlDeviceGetCount_v2)
        if code != OK:
            raise Unanswered(f"nvmlDeviceGetCount_v2: NVML error {code}")
        return [_gpu(library, index) for index in range(count)]
    finally:
        library.nvmlShutdown()


def _gpu(library: Any, index: int) -> dict[str, Any]:
    device = ctypes.c_void_p()
    code = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))
    if code != OK:
        raise Unanswered(f"GPU {index}: NVML error {code}")
    get = getattr(library, "nvmlDeviceGetPciInfo_v3", None) or library.nvmlDeviceGetPciInfo_v2
    return {"address": _address(get, device), "links": links(library, device), "emulated": hasattr(library, EMULATED)}


def main() -> None:
    """What was found, or why nothing was, as JSON."""
    try:
        said: dict[str, Any] = {"gpus": collect(*sys.argv[1:2])}
    except (Unanswered, AttributeError) as fault:
        said = {"unanswered": str(fault)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
