"""What NCCL and UCX are told, from declared ports and a tree of sysfs that the module itself reads."""

from __future__ import annotations

import getpass
import grp
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load, load_filters, run

FILTERS = load_filters("nccl")
RAILS = [{"interface": name, "address": f"10.80.{n}.31/24"} for n, name in enumerate(("ens31np0", "ens32np0"))]
NAMES = {"nccl.conf": "nccl", "ucx/ucx.conf": "ucx"}
POLICY = '{"traffic_class": 106, "dscp_prio": {"26": 3}}'


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Two rails, a bond of two ports (RoCE LAG has one device for both), a VLAN on it, and an adapter for storage."""
    for name, device in (
        ("ens31np0", "mlx5_1"),
        ("ens32np0", "mlx5_10"),
        ("ens9f0", "mlx5_bond_0"),
        ("ens1", "mlx5_0"),
    ):
        (tmp_path / f"class/net/{name}/device/infiniband/{device}").mkdir(parents=True)
    (tmp_path / "class/net/ens9f1/device").mkdir(parents=True)
    for upper, lower in (("bond0", "ens9f0"), ("bond0", "ens9f1"), ("bond0.80", "bond0")):
        (tmp_path / f"class/net/{upper}").mkdir(exist_ok=True)
        (tmp_path / f"class/net/{upper}/lower_{lower}").symlink_to(tmp_path / f"class/net/{lower}")
    return tmp_path


def told(sysfs: Path, ports: list[dict[str, Any]], policy: str = "") -> dict[str, dict[str, str]]:
    module: Any = load("plugins/modules/node_state.py")
    found = module.read_files(FILTERS["nccl_reads"](ports, str(sysfs)))
    answer: dict[str, dict[str, str]] = FILTERS["fabric_libraries"](ports, found, policy)
    return answer


def test_the_fabrics_adapters_are_named_exactly_and_those_of_storage_are_not(sysfs: Path) -> None:
    found = told(sysfs, RAILS, POLICY)
    assert found["nccl"] == {
        "NCCL_SOCKET_IFNAME": "=ens31np0",
        "NCCL_IB_HCA": "=mlx5_1,mlx5_10",
        "NCCL_IB_TC": "106",
    }
    assert found["ucx"] == {"UCX_NET_DEVICES": "mlx5_1:1,mlx5_10:1", "UCX_IB_TRAFFIC_CLASS": "106"}
    assert "NCCL_IB_TC" not in told(sysfs, RAILS)["nccl"]


@pytest.mark.parametrize("interface", ["bond0", "bond0.80"])
def test_the_device_of_a_bond_and_of_a_vlan_is_found(sysfs: Path, interface: str) -> None:
    assert told(sysfs, [{"interface": interface, "address": "10.80.0.31/24"}])["nccl"]["NCCL_IB_HCA"] == "=mlx5_bond_0"


def test_without_rdma_all_fabric_ports_carry_the_data(sysfs: Path) -> None:
    tcp = [{**port, "rdma": False} for port in RAILS]
    assert told(sysfs, tcp, POLICY) == {"nccl": {"NCCL_SOCKET_IFNAME": "=ens31np0,ens32np0"}, "ucx": {}}
    assert told(sysfs, [], POLICY) == {"nccl": {}, "ucx": {}}


PACKAGED = "[Some processor]\nCPU model=X\nUCX_NET_DEVICES=all\n"


def test_what_others_wrote_stays_and_what_is_set_by_hand_wins() -> None:
    entry = FILTERS["library_file"]
    derived = {"UCX_NET_DEVICES": "mlx5_1:1", "UCX_IB_TRAFFIC_CLASS": "106"}
    first = entry("/x", PACKAGED, derived, {})["content"]
    assert first.splitlines()[1:3] == ["UCX_IB_TRAFFIC_CLASS=106", "UCX_NET_DEVICES=mlx5_1:1"]
    assert first.endswith(PACKAGED), "sections of the package stay, and what one of them sets is not set for all"
    assert entry("/x", first, derived, {})["content"] == first, "a second run changes nothing"
    by_hand = entry("/x", first, derived, {"UCX_NET_DEVICES": "mlx5_9:1", "UCX_IB_TRAFFIC_CLASS": ""})["content"]
    assert "UCX_NET_DEVICES=mlx5_9:1\n" in by_hand
    assert "UCX_IB_TRAFFIC_CLASS" not in by_hand
    assert "mlx5_1" not in entry("/x", "UCX_NET_DEVICES = mlx5_0:1\n", derived, {})["content"], (
        "a line of the site wins"
    )


def test_without_settings_a_file_of_others_is_left_alone_and_ours_goes() -> None:
    entry = FILTERS["library_file"]
    assert entry("/x", PACKAGED, {}, {}) == {"path": "/x", "state": "absent", "when": False}
    ours = entry("/x", "", {"NCCL_IB_TC": "106"}, {})["content"]
    assert entry("/x", ours, {}, {}) == {"path": "/x", "state": "absent", "when": True}
    assert entry("/x", "", {}, {"NCCL_IB_TC": None})["when"] is False


def test_the_role_writes_both_files_and_a_teardown_puts_them_back(sysfs: Path, tmp_path: Path) -> None:
    """By the module that writes them on nodes: UCX's file has its package's text again, NCCL's is gone."""
    etc, state = tmp_path / "etc", tmp_path / "state"
    (etc / "ucx").mkdir(parents=True)
    (etc / "ucx/ucx.conf").write_text(PACKAGED, encoding="utf-8")
    found = told(sysfs, RAILS, POLICY)
    user = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name}

    def applied() -> dict[str, Any]:
        texts = {name: path.read_text() if (path := etc / name).is_file() else "" for name in NAMES}
        files = [
            {**FILTERS["library_file"](str(etc / name), texts[name], found[library], {}), **user}
            for name, library in NAMES.items()
        ]
        return run("managed_files", {"owner_role": "cuda", "state_dir": str(state), "files": files})

    assert applied()["changed"] is True
    assert "NCCL_IB_HCA==mlx5_1,mlx5_10\n" in (etc / "nccl.conf").read_text(encoding="utf-8")
    assert "UCX_NET_DEVICES=mlx5_1:1,mlx5_10:1\n" in (etc / "ucx/ucx.conf").read_text(encoding="utf-8")
    assert applied()["changed"] is False
    run("managed_files", {"owner_role": "cuda", "state_dir": str(state), "remove_owned": True})
    assert {path.name for path in etc.rglob("*")} == {"ucx", "ucx.conf"}
    assert (etc / "ucx/ucx.conf").read_text(encoding="utf-8") == PACKAGED


@pytest.mark.skipif(shutil.which("ucx_info") is None, reason="ucx_info is not on this machine (package ucx-utils)")
def test_ucx_itself_takes_the_settings(sysfs: Path, tmp_path: Path) -> None:
    packaged = PACKAGED.replace("UCX_NET_DEVICES=all", "UCX_REG_NONBLOCK_MEM_TYPES=host")  # 1.13 takes every section
    text = FILTERS["library_file"]("/x", packaged, told(sysfs, RAILS, POLICY)["ucx"], {})["content"]
    (tmp_path / "ucx.conf").write_text(text, encoding="utf-8")
    environment = {**os.environ, "UCX_CONFIG_DIR": str(tmp_path)}
    said = subprocess.run(["ucx_info", "-cf"], env=environment, check=True, capture_output=True, text=True).stdout
    assert "UCX_NET_DEVICES=mlx5_1:1,mlx5_10:1" in said.splitlines()
