"""NVLinks as the probe reads them of a library with NVML's functions and structures: a stand-in, compiled here.

No GPU was at hand: that NVIDIA's own library answers so is read in nvml.h and not measured.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import describe, local
from toolkit.engine import build
from validation.measures.node import facts_probe
from validation.model.nvlink import NvGpu
from validation.probes import nvlinks

COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
#: GPU 0: link 0 up to GPU 1, link 1 down, which has no peer; link 2 is not for use. GPU 1: link 0 up to a switch.
STAND_IN = r"""
#include <string.h>
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct gpu { unsigned bus; } *nvmlDevice_t;
static struct gpu gpus[2] = {{0x1a}, {0x1c}};
static int users;
int nvmlInit_v2(void) { users++; return FAIL_INIT; }
int nvmlShutdown(void) { users--; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return users == 1 ? 0 : 1; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) { *device = &gpus[index]; return 0; }
static int at(nvmlPciInfo_t *to, unsigned bus, unsigned device) {
    memset(to, 0x5a, sizeof *to);
    to->domain = 0; to->bus = bus; to->device = device;
    return 0;
}
int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *to) { return at(to, device->bus, 0); }
int nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *up) {
    if (device == &gpus[0] && link == 2) return 3;
    if (link > (device == &gpus[0] ? 3 : 0)) return 2;
    *up = link == 0;
    return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *type) {
    if (link) return 999;
    *type = device == &gpus[0] ? 0 : 2;
    return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *to) {
    if (link) return 999;
    return device == &gpus[0] ? at(to, 0x1c, 0) : at(to, 5, 1);
}
int nvmlSystemGetDriverVersion(char *to, unsigned size) { strncpy(to, "580.126.20", size); return 0; }
typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType, nvmlReturn;
    union { double d; unsigned u; unsigned long long ull; } value;
} nvmlFieldValue_t;
int nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *to) {
    if (count != 1 || to->fieldId != 164) return 2;
    to->value.ull = ~0ull; /* what is not written of the union means nothing */
    to->valueType = 1; to->value.u = 26562;
    to->nvmlReturn = device == &gpus[0] ? 0 : 3;
    return 0;
}
#ifdef FABRIC
typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    int status;
    unsigned cliqueId;
    unsigned char state;
    unsigned healthMask;
} nvmlGpuFabricInfo_v2_t;
int nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *to) {
    if (to->version != 0x02000024 || device == &gpus[1]) return device == &gpus[1] ? 3 : 25;
    memset(&to->clusterUuid, 0, sizeof *to - 4);
    to->state = 3; to->status = 23; to->cliqueId = 7; to->clusterUuid[15] = 1;
    to->healthMask = 1 | 2 << 2 | 5 << 8 | 2 << 12 | 1 << 20;
    return 0;
}
#endif
"""


ASKED_OF_EMULATED = """
from validation.probes import nvlinks
try: said(nvlinks.collect())
except nvlinks.NvmlError as e: said(str(e))
"""


def compiled(folder: Path, text: str = STAND_IN, fail_init: int = 0, fabric: bool = False) -> Path:
    """The stand-in as a shared library."""
    library = folder / "libnvidia-ml.so.1"
    assert COMPILER is not None
    command = [
        COMPILER,
        "-shared",
        "-fPIC",
        "-xc",
        f"-DFAIL_INIT={fail_init}",
        *["-DFABRIC"] * fabric,
        "-o",
        str(library),
        "-",
    ]
    subprocess.run(command, input=text, text=True, check=True)
    return library


def said(library: Path) -> Any:
    """What the program prints that the probe starts."""
    command = [sys.executable, "-I", nvlinks.__file__, str(library)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_state_peer_and_address_of_each_link(tmp_path: Path) -> None:
    found = [NvGpu.model_validate(gpu) for gpu in said(compiled(tmp_path))["gpus"]]
    assert [(gpu.address, gpu.up, gpu.down, gpu.emulated) for gpu in found] == [
        ("0000:1a:00.0", 1, (1, 3), False),
        ("0000:1c:00.0", 1, (), False),
    ]
    assert [(link.number, link.peer, link.address) for link in found[0].links] == [
        (0, "gpu", "0000:1c:00.0"),
        (1, "", ""),
        (3, "", ""),
    ]
    assert found[1].peers == {"switch": 1}


def test_the_rate_of_links_that_are_up_and_the_driver(tmp_path: Path) -> None:
    found = said(compiled(tmp_path))
    assert found["driver"] == "580.126.20"
    rates = [[link["rate_mb_s"] for link in gpu["links"]] for gpu in found["gpus"]]
    assert rates == [[26562, None, None], [None]]
    assert [gpu["fabric"] for gpu in found["gpus"]] == [None, None]  # an older driver has no such function


def test_registration_with_the_fabric(tmp_path: Path) -> None:
    one, other = (NvGpu.model_validate(gpu) for gpu in said(compiled(tmp_path, fabric=True))["gpus"])
    assert other.fabric is None
    assert one.fabric is not None
    assert (one.fabric.state, one.fabric.status, one.fabric.clique) == ("completed", 23, 7)
    assert one.fabric.cluster == "00000000-0000-0000-0000-000000000001"
    assert one.fabric.addressed
    assert one.fabric.faults == (
        "fabric status Insufficient Resources",
        "fabric health: degraded bandwidth",
        "fabric health: incorrect configuration",
    )
    assert one.fabric.unjudged == ("no partition is assigned", "bits without a name here: 0x100000")


@pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
def test_emulated_devices_say_what_is_described(tmp_path: Path) -> None:
    script = ASKED_OF_EMULATED
    link = {"nvlinks": 4, "nvlinks_up": 3, "nvlink_mb_s": 26562}
    planted = describe(tmp_path, **link, fabric_state=3, fabric_status=23, fabric_clique=9)
    found = local(tmp_path, planted).run(script)[0]
    gpu = NvGpu.model_validate(found["gpus"][1])
    assert (gpu.up, gpu.down, gpu.peers, gpu.emulated) == (3, (3,), {"switch": 3}, True)
    assert [one.rate_mb_s for one in gpu.links] == [26562, 26562, 26562, None]
    assert gpu.fabric is not None
    assert (gpu.fabric.faults, gpu.fabric.addressed) == (("fabric status Insufficient Resources",), True)
    found = local(tmp_path, describe(tmp_path, **link)).run(script)[0]
    assert found["gpus"][0]["fabric"] is None
    assert local(tmp_path, describe(tmp_path)).run(script)[0] == "the emulated devices are described without NVLinks"


@pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
def test_links_between_emulated_devices_are_up_where_both_ends_are(tmp_path: Path) -> None:
    script = "from validation.probes import nvlinks; said(nvlinks.collect()['gpus'])"
    planted = describe(tmp_path, nvlinks_each=3, nvlink_mb_s=25000)
    found = [NvGpu.model_validate(gpu) for gpu in local(tmp_path, planted).run(script)[0]]
    assert [gpu.peers for gpu in found] == [{"0000:11:00.0": 3}, {"0000:10:00.0": 3}]
    assert {link.peer for gpu in found for link in gpu.links} == {"gpu"}
    file = tmp_path / "gpus.json"
    gpus = json.loads(file.read_text())["gpus"]
    file.write_text(json.dumps({"gpus": [gpus[0], {**gpus[1], "nvlinks_up": 2}]}))
    found = [NvGpu.model_validate(gpu) for gpu in local(tmp_path, planted).run(script)[0]]
    assert [gpu.down for gpu in found] == [(2,), (2,)]
    file.write_text(json.dumps({"gpus": [gpus[0], {**gpus[1], "peer_group": 1}]}))
    assert "without NVLinks" in local(tmp_path, planted).run(ASKED_OF_EMULATED)[0]


def test_a_driver_that_tells_no_kind_of_peer_tells_the_links_all_the_same(tmp_path: Path) -> None:
    older = STAND_IN.replace("int nvmlDeviceGetNvLinkRemoteDeviceType", "static int unknown")
    first = NvGpu.model_validate(said(compiled(tmp_path, older))["gpus"][0])
    assert [(link.number, link.up, link.peer, link.address) for link in first.links][:2] == [
        (0, True, "", "0000:1c:00.0"),
        (1, False, "", ""),
    ]


def test_a_library_that_cannot_say_is_told_with_its_reason(tmp_path: Path) -> None:
    words = "nvmlInit_v2: NVML error 9; the kernel module of the driver is not loaded: modprobe nvidia"
    assert said(compiled(tmp_path, fail_init=9)) == {"unanswered": words}
    library = f"{tmp_path}/libnvidia-ml.so.1"
    assert said(compiled(tmp_path, "int nothing;")) == {"unanswered": f"{library} is not NVML"}
    older = STAND_IN.replace("int nvmlDeviceGetNvLinkState", "static int unknown")
    assert said(compiled(tmp_path, older)) == {"unanswered": f"{library} knows no NVLink"}
    assert said(tmp_path / "none.so") == {"unanswered": f"no {tmp_path}/none.so: the GPU driver is not installed"}


def test_the_state_of_a_fabric_is_one_byte_of_the_drivers(tmp_path: Path) -> None:
    """nvml.h has an unsigned char there and the binding a number of four bytes: what is between is nobody's."""
    filled = STAND_IN.replace("memset(&to->clusterUuid, 0, sizeof *to - 4);", "memset(&to->clusterUuid, 0x5a, 32);")
    assert filled != STAND_IN
    [one, _] = said(compiled(tmp_path, filled, fabric=True))["gpus"]
    assert (one["fabric"]["state"], one["fabric"]["status"], one["fabric"]["clique"]) == ("completed", 23, 7)


def test_an_older_driver_tells_of_the_fabric_without_its_health(tmp_path: Path) -> None:
    older = STAND_IN.replace("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo").replace(
        "nvmlGpuFabricInfo_v2_t *to) {\n    if (to->version != 0x02000024 || device == &gpus[1]) "
        "return device == &gpus[1] ? 3 : 25;\n    memset(&to->clusterUuid, 0, sizeof *to - 4);",
        "void *at) {\n    nvmlGpuFabricInfo_v2_t wide, *to = &wide; if (device == &gpus[1]) return 3;\n"
        "    memset(&wide, 0, sizeof wide);",
    )
    older = older.replace("1 << 20;\n    return 0;", "1 << 20;\n    memcpy(at, wide.clusterUuid, 28); return 0;")
    assert "wide.clusterUuid" in older
    one, other = said(compiled(tmp_path, older, fabric=True))["gpus"]
    assert other["fabric"] is None
    assert (one["fabric"]["state"], one["fabric"]["clique"], one["fabric"]["unhealthy"]) == ("completed", 7, [])


def test_the_library_of_emulated_devices_is_labelled(tmp_path: Path) -> None:
    made = compiled(tmp_path, STAND_IN + "int elasticAiEmulated;")
    assert [gpu["emulated"] for gpu in said(made)["gpus"]] == [True, True]


def test_a_node_without_gpu_is_not_asked() -> None:
    assert facts_probe.nvlink(0) == {"nvlink": None, "nvlink_unread": "nvidia-smi lists no GPU"}
