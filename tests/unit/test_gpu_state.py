"""What GPUs need around them, judged: faults are planted in what constructed servers say of themselves."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.driver import FOLDER, libraries
from tests.support.tree_case import judged, read
from tests.support.trees import IN_RACK, REGISTERED, SERVERS, space
from validation.probes import acs, gpudirect, gpulibs

SWITCHED = [name for name, server in SERVERS.items() if server.nvswitches]


def changed(gpus: list[dict[str, Any]], number: int, **fabric: Any) -> list[dict[str, Any]]:
    """What NVML says, where the GPU of that number says this of its fabric."""
    return [{**gpu, "fabric": {**REGISTERED, **fabric}} if i == number else gpu for i, gpu in enumerate(gpus)]


@pytest.mark.parametrize("name", SERVERS)
def test_the_fabric_is_judged_where_there_are_nvswitches(name: str, tmp_path: Path) -> None:
    found = judged("pf.fabric", SERVERS[name], tmp_path)
    assert found.verdict == ("pass" if name in SWITCHED else "not-applicable"), found.reason


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"fabric_manager_state": "failed"}, "Fabric Manager is failed"),
        (
            {"fabric_manager": "nvidia-fabricmanager 590.10.1-1"},
            "Fabric Manager is 590.10.1, the driver 580.126.20",
        ),
        # a driver that was upgraded beneath the one that is loaded is not the one in use
        ({"driver_loaded": "570.1.2"}, "Fabric Manager is 580.126.20, the driver 570.1.2"),
    ],
)
def test_a_fabric_manager_that_is_dead_or_of_another_release_fails(said: Any, reason: str, tmp_path: Path) -> None:
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path, **said)
    assert (found.verdict, found.reason) == ("fail", reason)


@pytest.mark.parametrize(
    ("fabric", "words"),
    [
        ({"state": "in progress"}, "fabric state in progress"),
        ({"status": 23}, "fabric status Insufficient Resources"),
        ({"status": 77}, "fabric status NVML error 77"),
        ({"unhealthy": ["degraded bandwidth"]}, "fabric health: degraded bandwidth"),
    ],
)
def test_a_gpu_that_is_not_registered_is_named(fabric: dict[str, Any], words: str, tmp_path: Path) -> None:
    there = read(SERVERS["XE9680"], tmp_path / "read")["nvlink"]
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path, nvlink=changed(there, 3, **fabric))
    assert (found.verdict, found.reason) == ("fail", f"GPU {there[3]['address']}: {words}")


def test_what_nobody_can_judge_of_a_fabric_is_said_and_is_no_pass(tmp_path: Path) -> None:
    there = read(SERVERS["XE9680"], tmp_path / "read")["nvlink"]
    odd = changed(there, 3, unjudged=["bits without a name here: 0x10000"])
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path, nvlink=odd)
    assert found.verdict == "not-measured"
    assert f"GPU {there[3]['address']}: fabric health: bits without a name here: 0x10000" in found.reason


def test_a_slow_nvlink_is_named(tmp_path: Path) -> None:
    there = read(SERVERS["XE9680"], tmp_path / "read")["nvlink"]
    there[2]["links"][7]["rate_mb_s"] = 19_921
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path, nvlink=there)
    assert found.reason == f"GPU {there[2]['address']}: NVLinks below 25000 MB/s: 7 at 19921"
    assert judged("pf.nvlink", SERVERS["XE9680"], tmp_path / "2", nvlink=there).verdict == "pass"


def test_nvlinks_that_leave_the_server_need_a_clique_and_a_cluster(tmp_path: Path) -> None:
    """Fabric Manager runs on the switches then, not here."""
    model = {"gpu_model": "NVIDIA GB200", "nvswitches": [], "fabric_manager_state": "inactive"}
    there = read(SERVERS["XE9680"], tmp_path / "read")["nvlink"]
    there = [{**gpu, "links": [{**link, "rate_mb_s": 53_125} for link in gpu["links"]]} for gpu in there]
    in_rack = [{**gpu, "fabric": IN_RACK} for gpu in there]
    assert judged("pf.fabric", SERVERS["XE9680"], tmp_path / "1", nvlink=in_rack, **model).verdict == "pass"
    found = judged(
        "pf.fabric", SERVERS["XE9680"], tmp_path / "2", nvlink=changed(in_rack, 1, **{**IN_RACK, "clique": 0}), **model
    )
    assert found.verdict == "fail"
    assert f"GPU {there[1]['address']}: clique 0, cluster {IN_RACK['cluster']}: no NVLink leaves" in found.reason


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"nvlink": None, "nvlink_unread": "nvmlInit_v2: NVML error 9"},
            "the GPUs' fabric cannot be read: nvmlInit_v2: NVML error 9",
        ),
        ({"fabric_manager_state": None}, "nobody asked for Fabric Manager"),
        ({"fabric_manager": ""}, "no version is known of Fabric Manager"),
        ({"nvlink": None, "nvswitches": None}, "NVSwitches cannot be read"),
    ],
)
def test_what_nobody_tells_of_the_fabric_is_no_pass(said: Any, words: str, tmp_path: Path) -> None:
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path, **said)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert words in found.reason


def test_a_gpu_without_state_or_rates_is_no_pass(tmp_path: Path) -> None:
    there = read(SERVERS["XE9680"], tmp_path / "read")["nvlink"]
    mute = [{**gpu, "fabric": None} for gpu in there]
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path / "1", nvlink=mute)
    assert (found.verdict, found.reason.count("reports no fabric state")) == ("not-measured", 8)
    mute = [{**gpu, "links": [{**link, "rate_mb_s": None} for link in gpu["links"]]} for gpu in there]
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path / "2", nvlink=mute)
    assert (found.verdict, found.reason.count("no rate is reported")) == ("not-measured", 8)
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path / "3", nvlink=there[:7])
    assert (found.verdict, found.reason) == ("not-measured", "NVML shows 7 of 8 GPUs")
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path / "4", nvlink=[{**gpu, "emulated": True} for gpu in there])
    assert (found.verdict, found.reason) == ("not-measured", "the GPUs are emulated")


# --- Access Control Services ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVERS)
def test_ports_without_access_control_pass_and_the_iommu_is_stated(name: str, tmp_path: Path) -> None:
    found = judged("pf.acs", SERVERS[name], tmp_path)
    assert found.verdict == "pass", found.reason
    assert str(found.text).endswith("; IOMMU none")
    assert ": off" in str(found.text)


def test_a_port_with_access_control_is_named_with_the_cards_below_it(tmp_path: Path) -> None:
    """A switch's lower port and the host's."""
    server = SERVERS["XE9680"]
    there = read(server, tmp_path, acs={"0000:17:04.0": 0x1D, "0000:38:00.0": 0x1})["pci"]
    found = judged("pf.acs", server, tmp_path / "2", pci=there)
    assert (found.verdict, found.reason_code) == ("fail", "not-equal")
    lower, host = found.reason.split("; ")
    assert lower == "0000:17:04.0: SrcValid, ReqRedir, CmpltRedir, UpstreamFwd on (above rail0 (0000:19:00.0))"
    assert host.startswith("0000:38:00.0: SrcValid on (above rail2 (")
    assert host.count("GPU ") == 2


def test_what_only_root_is_shown_is_not_known_to_others(tmp_path: Path) -> None:
    there = read(SERVERS["C4140-K"], tmp_path, acs={"0000:17:04.0": 0x1D}, root=False)["pci"]
    found = judged("pf.acs", SERVERS["C4140-K"], tmp_path / "2", pci=there)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert "only root is shown the configuration space of 0000:5d:00.0" in found.reason


def test_a_gpu_that_is_not_seen_may_be_below_such_a_port(tmp_path: Path) -> None:
    there = read(SERVERS["C4140-K"], tmp_path)["pci"]
    found = judged("pf.acs", SERVERS["C4140-K"], tmp_path / "2", pci=there[:-1])
    assert (found.verdict, found.reason) == ("not-measured", "it shows 3 of 4 GPUs")


def test_a_hypervisor_keeps_its_access_control(tmp_path: Path) -> None:
    there = read(SERVERS["C4140-K"], tmp_path, acs={"0000:17:04.0": 0x1D})["pci"]
    found = judged("pf.acs", SERVERS["C4140-K"], tmp_path / "2", pci=there, virt="vmware")
    assert found.verdict == "not-applicable"


def test_configuration_spaces(tmp_path: Path) -> None:
    assert acs.control(space(0x1D)) == {"capable": True, "control": 0x1D}
    assert acs.control(space(None)) == acs.control(b"\xff" * 4096) == {"capable": False, "control": 0}
    assert acs.control(space(0x1D)[:256]) is None
    looped = bytearray(space(None))
    looped[0x100:0x104] = (0x0001 | 0x100 << 20).to_bytes(4, "little")  # its next is itself
    assert acs.control(bytes(looped)) == {"capable": False, "control": 0}
    assert acs.of_port(tmp_path) is None
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups/type").write_text("identity\n")
    (tmp_path / "iommu_group").symlink_to(tmp_path / "groups")
    assert acs.iommu(tmp_path) == "identity"


# --- the driver's libraries -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["C4140-K", "XE9680"])
def test_a_driver_that_is_whole_passes(name: str, tmp_path: Path) -> None:
    found = judged("pf.gpulib", SERVERS[name], tmp_path)
    assert found.verdict == "pass"
    assert found.reason.startswith("5 libraries, libcuda.so.1, libnvidia-ml.so.1, ")
    assert found.reason.endswith(" loaded, all of 580.126.20")


def spoilt(part: str, place: int, **said: Any) -> dict[str, Any]:
    """The libraries, of which one is otherwise."""
    there = libraries("580.126.20")
    there[part][place].update(said)
    return {"driver_libraries": there}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            spoilt("loaded", 0, fault="libcuda.so.1: file too short"),
            "libcuda.so.1 cannot be loaded: libcuda.so.1: file",
        ),
        (spoilt("files", 4, bytes=0), f"{FOLDER}/libnvidia-opencl.so.580.126.20 is empty"),
        (spoilt("files", 4, bytes=None), f"{FOLDER}/libnvidia-opencl.so.580.126.20 is not there"),
        (
            spoilt("files", 1, version="570.9.1", path=f"{FOLDER}/libnvidia-ml.so.570.9.1"),
            f"{FOLDER}/libnvidia-ml.so.570.9.1 is of 570.9.1, the loaded kernel module of 580.126.20",
        ),
        ({**spoilt("files", 4, version="570.9.1"), "driver_module": None}, "libraries of several releases"),
        # nvidia-smi then lists no GPU, and nobody declared any: the bus shows them
        ({**spoilt("loaded", 1, fault="wrong ELF class"), "gpu_count": 0}, "libnvidia-ml.so.1 cannot be loaded: wrong"),
    ],
)
def test_a_library_that_is_broken_or_of_another_release_is_named(said: Any, words: str, tmp_path: Path) -> None:
    found = judged("pf.gpulib", SERVERS["C4140-K"], tmp_path, **said)
    assert found.verdict == "fail"
    assert words in found.reason


def with_compat(version: str, loads: bool = True, folder: str = "/usr/local/cuda-13.5/compat") -> dict[str, Any]:
    """The driver of 580.126.20, and CUDA's forward compatibility beside it, as in an image newer than the driver."""
    there = libraries("580.126.20")
    names = ("libcuda", "libnvidia-ptxjitcompiler")
    there["files"] += [{"path": f"{folder}/{n}.so.{version}", "bytes": 1 << 20, "version": version} for n in names]
    for one in there["loaded"]:
        stem = one["name"].partition(".so")[0]
        if loads and stem in names:
            one.update(path=f"{folder}/{stem}.so.{version}", version=version)
    return {"driver_libraries": there}


def test_forward_compatibility_is_a_set_up_that_is_said(tmp_path: Path) -> None:
    found = judged("pf.gpulib", SERVERS["C4140-K"], tmp_path / "1", **with_compat("610.10.1"))
    assert (found.verdict, found.reason_code) == ("pass", "remarked")
    assert "of 580.126.20, except CUDA's forward compatibility: " in found.reason
    assert "/usr/local/cuda-13.5/compat/libcuda.so.610.10.1 (610.10.1)" in found.reason
    idle = judged("pf.gpulib", SERVERS["C4140-K"], tmp_path / "2", **with_compat("570.10.1", loads=False))
    assert (idle.verdict, idle.reason_code) == ("pass", "within-bounds")  # it is there, and nobody loads it


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            with_compat("570.9.1"),
            "is CUDA's forward compatibility of 570.9.1, and the loaded kernel module of 580.126.20",
        ),
        (with_compat("610.10.1", folder="/opt/other"), "libcuda.so.610.10.1 is of 610.10.1, the loaded kernel module"),
    ],
)
def test_what_is_not_forward_fails_all_the_same(said: Any, words: str, tmp_path: Path) -> None:
    found = judged("pf.gpulib", SERVERS["C4140-K"], tmp_path, **said)
    assert found.verdict == "fail"
    assert words in found.reason


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"driver_libraries": None}, "nobody looked"),
        ({"driver_module": None}, "no kernel module of the driver is loaded"),
        (spoilt("loaded", 0, emulated=True), "the GPUs are emulated"),
        (spoilt("loaded", 0, name="libnvidia-cfg.so.1"), "nobody tried to load libcuda.so.1"),
    ],
)
def test_libraries_that_nobody_can_judge_are_no_pass(said: Any, words: str, tmp_path: Path) -> None:
    found = judged("pf.gpulib", SERVERS["C4140-K"], tmp_path, **said)
    assert found.verdict == "not-measured"
    assert words in found.reason


def test_the_kernel_module_says_its_version_and_whether_it_is_open() -> None:
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.126.20  Tue Oct  7 2026\nGCC version:  gcc 12.2.0\n"
    assert gpulibs.module(text) == {"version": "580.126.20", "open": False}
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@a)\n"
    assert gpulibs.module(text) == {"version": "570.86.15", "open": True}
    assert gpulibs.module("") is None


# --- GPUDirect RDMA ---------------------------------------------------------------------------------------------------

PROPRIETARY = {"driver_module": {"version": "580.126.20", "open": False}}
NONE = {"peermem": "", "p2pdma": True, "move_notify": True}


@pytest.mark.parametrize("fabric", ["roce400", "ib-ndr"])
def test_a_server_whose_gpus_reach_its_rdma_ports_passes(fabric: str, tmp_path: Path) -> None:
    found = judged("pf.dmabuf", SERVERS["XE9680"], tmp_path, fabric)
    assert found.verdict == "pass", found.reason
    assert found.reason.startswith("dma-buf: open kernel modules 580.126.20, kernel ")
    assert found.reason.endswith("move notify on")


def test_where_no_rdma_is_there_is_nothing_to_be_reached(tmp_path: Path) -> None:
    server = SERVERS["C4140-M"]
    alone = replace(server, roots=server.roots[:-1])
    assert judged("pf.dmabuf", server, tmp_path / "1", "roce40", **PROPRIETARY).verdict == "fail"
    found = judged("pf.dmabuf", alone, tmp_path / "2", "roce40", **PROPRIETARY)
    assert (found.verdict, found.reason) == ("not-applicable", "no RDMA port in this node")


@pytest.mark.parametrize(
    ("said", "verdict", "words"),
    [
        (PROPRIETARY, "fail", "the proprietary kernel modules (580.126.20) have no dma-buf; and no peer-memory module"),
        ({"kernel": "5.4.0-216-generic"}, "fail", "kernel 5.4.0-216-generic is older than 5.12; and no peer-memory"),
        ({"gpudirect": {**NONE, "p2pdma": False}}, "fail", "built without CONFIG_PCI_P2PDMA; and no peer-memory"),
        ({"gpudirect": {**NONE, "p2pdma": None}}, "not-measured", "does not tell its options"),
        ({**PROPRIETARY, "gpudirect": {**NONE, "peermem": "nvidia_peermem"}}, "pass", "nvidia_peermem is loaded"),
        ({"driver_module": None}, "not-measured", "no kernel module of the NVIDIA driver is loaded"),
        ({"gpudirect": None}, "not-measured", "nobody looked"),
    ],
)
def test_how_gpu_memory_reaches_the_rdma_ports(said: Any, verdict: str, words: str, tmp_path: Path) -> None:
    found = judged("pf.dmabuf", SERVERS["XE9680"], tmp_path, "roce400", **said)
    assert found.verdict == verdict
    assert words in found.reason


def test_kernel_options_are_read_where_they_are(tmp_path: Path) -> None:
    unknown = {"peermem": "", "p2pdma": None, "move_notify": None}
    assert gpudirect.collect(tmp_path, "6.8.0") == unknown
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/config-6.8.0").write_text("CONFIG_PCI_P2PDMA=y\n# CONFIG_DMABUF_MOVE_NOTIFY is not set\n")
    assert gpudirect.collect(tmp_path, "6.8.0") == {"peermem": "", "p2pdma": True, "move_notify": False}
    assert gpudirect.collect(tmp_path, "6.9.0") == unknown  # of another kernel
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(b"CONFIG_DMABUF_MOVE_NOTIFY=y\n"))
    found = {"peermem": "nvidia_peermem", "p2pdma": False, "move_notify": True}
    assert gpudirect.collect(tmp_path, "6.8.0") == found
    (tmp_path / "proc/config.gz").write_bytes(b"cut")
    assert gpudirect.collect(tmp_path, "6.8.0")["p2pdma"] is True
