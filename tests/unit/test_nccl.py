"""What NCCL and UCX are told, from declared ports and a tree of sysfs that the module itself reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load, load_filters

FILTERS = load_filters("nccl")
RAILS = [{"interface": name, "address": f"10.80.{n}.31/24"} for n, name in enumerate(("ens31np0", "ens32np0"))]
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
