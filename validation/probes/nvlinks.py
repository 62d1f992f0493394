"""NVLinks of this node's GPUs and their place in the NVLink fabric, by NVML.

A program of its own, which prints JSON: a driver that hangs hangs it alone.

Through ctypes, for nodes have no pynvml: functions, structures and values as in NVIDIA's nvml.h (API reference,
"NvLink Methods"), which every driver since R450 has; of the fabric since R535, of which an older one says nothing.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
EMULATED = "elasticAiEmulated"  # what the library of the lab's emulated devices exports, and none of NVIDIA's
LINKS = 36  # more than a GPU of any generation has; NVML refuses the first number that there is none of
OK, INVALID_ARGUMENT, NOT_SUPPORTED = 0, 2, 3  # nvmlReturn_t
SPEED = 164  # NVML_FI_DEV_NVLINK_GET_SPEED, of the link in scopeId, in 10^6 byte/s
UNSIGNED_INT = 1  # nvmlValueType_t
FABRIC_STATES = ("not supported", "not started", "in progress", "completed")  # nvmlGpuFabricState_t
FABRIC_V2 = 0x02000024  # nvmlGpuFabricInfo_v2: its size, and 2
#: NVML_GPU_FABRIC_HEALTH_MASK_*: shift, width in bits, values that tell of nothing wrong, what else it means
HEALTH = (
    (0, 2, (0, 2), "degraded bandwidth"),
    (2, 2, (0, 2), "route recovery in progress"),
    (4, 2, (0, 2), "route unhealthy"),
    (6, 2, (0, 2), "access timeout recovery"),
    (8, 4, (0, 1), "incorrect configuration"),
)
#: The same of what may well be meant so; CUDA 13.5 has no further bits. Said, and judged by nobody.
OPEN = (
    (12, 2, (0, 1), "no partition is assigned"),
    (14, 2, (0, 1), "the global Fabric Manager is disconnected"),
)
KNOWN_BITS = 16
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


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t; of its union only whole numbers."""

    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("type", ctypes.c_uint),
        ("code", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    ]


class FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t. What stands before `health` is, without the version, nvmlGpuFabricInfo_t."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("cluster", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("clique", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
        ("health", ctypes.c_uint),
    ]


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
        kind_of = getattr(library, "nvmlDeviceGetNvLinkRemoteDeviceType", None)  # younger than R450
        code, kind = _number(kind_of, device, link) if kind_of is not None else (NOT_SUPPORTED, 0)
        found.append(
            {
                "number": number,
                "up": state == 1,
                "peer": PEERS.get(kind, "") if code == OK else "",
                "address": _address(library.nvmlDeviceGetNvLinkRemotePciInfo_v2, device, link),
                "rate_mb_s": rate(library, device, number) if state == 1 else None,
            }
        )
    return found


def rate(library: Any, device: ctypes.c_void_p, link: int) -> int | None:
    """Rate of a link, one way, in 10^6 byte/s; None where the driver does not say."""
    asked = FieldValue(field=SPEED, scope=link)
    get = getattr(library, "nvmlDeviceGetFieldValues", None)
    if get is None or get(device, ctypes.c_int(1), ctypes.byref(asked)) != OK or asked.code != OK:
        return None
    return (int(asked.value) & 0xFFFFFFFF if asked.type == UNSIGNED_INT else int(asked.value)) or None


def fabric(library: Any, device: ctypes.c_void_p) -> dict[str, Any] | None:
    """A GPU's place in the NVLink fabric as validation.facts.NvFabric; None where the driver does not say."""
    info = FabricInfo(version=FABRIC_V2)
    code = NOT_SUPPORTED
    if newer := getattr(library, "nvmlDeviceGetGpuFabricInfoV", None):
        code = newer(device, ctypes.byref(info))
    elif older := getattr(library, "nvmlDeviceGetGpuFabricInfo", None):
        code = older(device, ctypes.byref(info, FabricInfo.cluster.offset))
    if code == NOT_SUPPORTED:
        return None
    if code != OK:
        raise Unanswered(f"NVML error {code} at the NVLink fabric")
    wrong, unjudged = (
        [words for shift, bits, fine, words in rows if info.health >> shift & ((1 << bits) - 1) not in fine]
        for rows in (HEALTH, OPEN)
    )
    if later := info.health >> KNOWN_BITS << KNOWN_BITS:
        unjudged.append(f"bits without a name here: {later:#x}")
    return {
        "state": FABRIC_STATES[info.state] if info.state < len(FABRIC_STATES) else f"unknown ({info.state})",
        "status": info.status,
        "clique": info.clique,
        "cluster": str(uuid.UUID(bytes=bytes(info.cluster))),
        "unhealthy": wrong,
        "unjudged": unjudged,
    }


def driver(library: Any) -> str:
    """Version of the driver that is loaded, "" where it does not say."""
    text = ctypes.create_string_buffer(80)  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
    get = getattr(library, "nvmlSystemGetDriverVersion", None)
    return text.value.decode(errors="replace") if get is not None and get(text, ctypes.c_uint(80)) == OK else ""


def collect(name: str = LIBRARY) -> dict[str, Any]:
    """`gpus` of this node as validation.facts.NvGpu, and `driver`; Unanswered where NVML cannot say."""
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
        return {"gpus": [_gpu(library, index) for index in range(count)], "driver": driver(library)}
    finally:
        library.nvmlShutdown()


def _gpu(library: Any, index: int) -> dict[str, Any]:
    device = ctypes.c_void_p()
    code = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))
    if code != OK:
        raise Unanswered(f"GPU {index}: NVML error {code}")
    get = getattr(library, "nvmlDeviceGetPciInfo_v3", None) or library.nvmlDeviceGetPciInfo_v2
    emulated, found = hasattr(library, EMULATED), links(library, device)
    if emulated and not found:
        raise Unanswered("the emulated devices are described without NVLinks")
    return {
        "address": _address(get, device),
        "links": found,
        "fabric": fabric(library, device),
        "emulated": emulated,
    }


def main() -> None:
    """What was found, or why nothing was, as JSON."""
    try:
        said = collect(*sys.argv[1:2])
    except (Unanswered, AttributeError) as fault:
        said = {"unanswered": str(fault)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
