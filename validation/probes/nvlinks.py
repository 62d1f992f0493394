"""NVLinks of this node's GPUs and their place in the NVLink fabric, by NVML.

A program of its own, which prints JSON: a driver that hangs hangs it alone, and a broken library ends it alone.

Every driver since R450 has NVML's functions of NVLinks, and every one since R535 those of the fabric.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # python -I leaves out where the probes are
from validation.nvml import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    LIBRARY,
    NOT_SUPPORTED,
    OK,
    Gpu,
    Nvml,
    NvmlError,
    address,
)

LINKS = 36  # more than a GPU of any generation has; NVML refuses the first number that there is none of
SPEED = 164  # NVML_FI_DEV_NVLINK_GET_SPEED, of the link in scopeId, in 10^6 byte/s
UNSIGNED_INT = 1  # nvmlValueType_t
STATE_BITS = 0xFF  # one byte of the driver's; the binding reads four, of which it leaves three as they are
FABRIC_STATES = ("not supported", "not started", "in progress", "completed")  # nvmlGpuFabricState_t
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
PARAMS = Path("/proc/driver/nvidia/params")
PEERS = {0: "gpu", 1: "cpu", 2: "switch"}  # nvmlIntNvLinkDeviceType_t


def links(gpu: Gpu) -> list[dict[str, Any]]:
    """NVLinks of a GPU as NvLink; none of a GPU that has no NVLink."""
    found = []
    for number in range(LINKS):
        code, state = gpu.asked("NvLinkState", number)
        if code == INVALID_ARGUMENT:
            break
        if code == NOT_SUPPORTED:
            continue
        if code != OK:
            raise NvmlError(f"NVML error {code} at NVLink {number}")
        _, kind = gpu.asked("NvLinkRemoteDeviceType", number)  # younger than R450
        found.append(
            {
                "number": number,
                "up": state == 1,
                "peer": PEERS.get(kind, ""),
                "address": address(gpu.asked("NvLinkRemotePciInfo", number)[1]),
                "rate_mb_s": rate(gpu, number) if state == 1 else None,
            }
        )
    return found


def rate(gpu: Gpu, link: int) -> int | None:
    """Rate of a link, one way, in 10^6 byte/s; None where the driver does not say."""
    code, fields = gpu.asked("FieldValues", [(SPEED, link)])
    if code != OK or fields[0].nvmlReturn != OK:
        return None
    value = fields[0].value
    return int(value.uiVal if fields[0].valueType == UNSIGNED_INT else value.ullVal) or None


def fabric(gpu: Gpu) -> dict[str, Any] | None:
    """A GPU's place in the NVLink fabric as NvFabric; None where the driver does not say."""
    known = gpu.nvml.binding
    info = known.c_nvmlGpuFabricInfo_v2_t()
    code, _ = gpu.asked("GpuFabricInfoV", ctypes.byref(info))
    if code == FUNCTION_NOT_FOUND:  # an older driver has only the other, which tells nothing of health
        info = known.c_nvmlGpuFabricInfo_t()
        code, _ = gpu.asked("GpuFabricInfo", ctypes.byref(info))
    if code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
        return None
    if code != OK:
        raise NvmlError(f"NVML error {code} at the NVLink fabric")
    health, state = getattr(info, "healthMask", 0), info.state & STATE_BITS
    wrong, unjudged = (
        [words for shift, bits, fine, words in rows if health >> shift & ((1 << bits) - 1) not in fine]
        for rows in (HEALTH, OPEN)
    )
    if later := health >> KNOWN_BITS << KNOWN_BITS:
        unjudged.append(f"bits without a name here: {later:#x}")
    return {
        "state": FABRIC_STATES[state] if state < len(FABRIC_STATES) else f"unknown ({state})",
        "status": info.status,
        "clique": info.cliqueId,
        "cluster": str(uuid.UUID(bytes=bytes(info.clusterUuid))),
        "unhealthy": wrong,
        "unjudged": unjudged,
    }


def disabled(params: Path = PARAMS) -> bool:
    """Whether the driver was loaded with NVreg_NvLinkDisable: it then says of every NVLink that there is none."""
    try:
        return "NvLinkDisable: 1" in params.read_text(errors="replace").splitlines()
    except OSError:  # another operating system's driver, or a container without it
        return False


def collect(name: str = LIBRARY) -> dict[str, Any]:
    """`gpus` of this node as NvGpu, whether NVLink is `disabled`, and `driver`; NvmlError where NVML cannot say."""
    with Nvml(name) as nvml:
        if not hasattr(nvml.library, "nvmlDeviceGetNvLinkState"):
            raise NvmlError(f"{name} knows no NVLink")
        return {"gpus": [_gpu(gpu) for gpu in nvml.gpus()], "disabled": disabled(), "driver": nvml.driver()}


def _gpu(gpu: Gpu) -> dict[str, Any]:
    found = links(gpu)
    if gpu.emulated and not found:
        raise NvmlError("the emulated devices are described without NVLinks")
    return {"address": gpu.address, "links": found, "fabric": fabric(gpu), "emulated": gpu.emulated}


def main() -> None:
    """What was found, or why nothing was, as JSON."""
    try:
        said = collect(*sys.argv[1:2])
    except (NvmlError, AttributeError) as fault:  # a binding without one of the structures
        said = {"unanswered": str(fault)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
