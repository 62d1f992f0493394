"""What GPUs need around them, judged: faults are planted in what constructed servers say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tree_case import judged, read
from tests.support.trees import REGISTERED, SERVERS

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
    joined = {"clique": 32766, "cluster": "6f1f1a52-6f3c-5b6e-9d53-5e1a57e1a1a1"}
    in_rack = [{**gpu, "fabric": {**REGISTERED, **joined}} for gpu in there]
    assert judged("pf.fabric", SERVERS["XE9680"], tmp_path / "1", nvlink=in_rack, **model).verdict == "pass"
    found = judged(
        "pf.fabric", SERVERS["XE9680"], tmp_path / "2", nvlink=changed(in_rack, 1, **{**joined, "clique": 0}), **model
    )
    assert found.verdict == "fail"
    assert f"GPU {there[1]['address']}: clique 0, cluster {joined['cluster']}: no NVLink leaves" in found.reason


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"nvlink": None, "nvlink_unread": "nvmlInit_v2: NVML error 9"}, "the GPUs' fabric: nvmlInit_v2: NVML error 9"),
        ({"fabric_manager_state": None}, "nobody asked for Fabric Manager"),
        ({"fabric_manager": ""}, "no version is known of Fabric Manager"),
        ({"nvlink": None, "nvswitches": None}, "nothing tells of NVSwitches"),
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
    assert (found.verdict, found.reason.count("tells no fabric state")) == ("not-measured", 8)
    mute = [{**gpu, "links": [{**link, "rate_mb_s": None} for link in gpu["links"]]} for gpu in there]
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path / "2", nvlink=mute)
    assert (found.verdict, found.reason.count("no rate is told")) == ("not-measured", 8)
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path / "3", nvlink=there[:7])
    assert (found.verdict, found.reason) == ("not-measured", "NVML shows 7 of 8 GPUs")
    found = judged("pf.fabric", SERVERS["XE9680"], tmp_path / "4", nvlink=[{**gpu, "emulated": True} for gpu in there])
    assert (found.verdict, found.reason) == ("not-measured", "the GPUs are emulated")
