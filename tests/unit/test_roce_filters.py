"""What the fabric's roles derive from readings of a node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import load_filters

FILTERS = load_filters("roce") | load_filters("fabric") | load_filters("ofed")
OPTIONS = {
    "dscp": 26,
    "priority": 3,
    "cnp_dscp": 48,
    "cnp_priority": 6,
    "bandwidth_percent": 60,
    "mtu": "9000",
    "sysfs_root": "/sys",
    "configfs_root": "/sys/kernel/config",
}


def port(**changes: Any) -> dict[str, Any]:
    base = {
        "interface": "eth0",
        "tool": "dcb",
        "tool_version": "dcb utility, iproute2-6.1.0",
        "rdma_device": "mlx5_0",
        "now": {"trust": "dscp", "pfc": [3], "tos": 106, "mtu": 9000},
        "drift": [],
        "missing": [],
        "applies": True,
        "lossless": True,
        "reason": "this end only: the switch port must agree",
    }
    return {**base, **changes}


WITHOUT_DCB = {"now": {"pfc": None}, "missing": ["the device has no DCB"], "lossless": False, "reason": "no DCB"}
NOTHING = {**WITHOUT_DCB, "applies": False}


def test_the_policy_marks_106_for_dscp_26() -> None:
    policy = FILTERS["roce_policy"](OPTIONS)
    assert (policy["tos"], policy["traffic_class"], policy["mtu"]) == (106, 106, 9000)
    assert policy["dscp_prio"] == {"26": 3, "48": 6}
    assert policy["pfc"] == [3]
    assert policy["ets"]["prio_tc"] == [0, 0, 0, 3, 0, 0, 6, 0]
    assert policy["ets"]["bandwidth_percent"] == {"0": 40, "3": 60}
    assert policy["ets"]["tsa"]["6"] == "strict"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"priority": 6}, "priority each"),
        ({"priority": 0}, "priority 0 is everything else's"),
        ({"dscp": 64}, "0 to 63"),
        ({"dscp": 48}, "DSCP"),
        ({"bandwidth_percent": 100}, "1 to 99"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(AnsibleFilterError, match=fault):
        FILTERS["roce_policy"]({**OPTIONS, **change})


def test_the_node_is_as_lossless_as_its_worst_port() -> None:
    read = FILTERS["roce_reading"]
    assert read({"eth0": port()})["lossless"] is True
    assert read({"eth0": port(), "eth1": port(lossless=None, reason="?")})["lossless"] is None
    assert read({"eth0": port(lossless=None), "eth1": port(**WITHOUT_DCB)})["lossless"] is False
    assert read({})["lossless"] is None


def test_a_device_without_dcb_is_not_applicable_and_never_set() -> None:
    drift = [{"what": "mtu", "is": 1500, "wanted": 9000}]
    found = FILTERS["roce_reading"]({"eth0": port(), "veth0": port(**NOTHING, drift=drift)})
    assert found["applicable"] == ["eth0"]
    assert found["not_applicable"] == ["lossless RoCE on veth0: the device has no DCB"]
    assert found["differences"] == []
    assert found["ports"]["veth0"]["lossless"] is False


def test_rdma_without_dcb_is_marked_and_still_not_lossless() -> None:
    drift = [{"what": "tos", "is": 0, "wanted": 106}]
    found = FILTERS["roce_reading"]({"eth0": port(**WITHOUT_DCB, drift=drift)})
    assert found["applicable"] == found["drifted"] == ["eth0"]
    assert found["not_applicable"] == ["lossless RoCE on eth0: the device has no DCB"]
    assert found["differences"] == ["eth0: tos is 0, wanted 106"]
    assert found["lossless"] is False


def test_a_wrong_mtu_is_a_difference_but_nothing_to_set() -> None:
    drift = [{"what": "mtu", "is": 1500, "wanted": 9000}]
    found = FILTERS["roce_reading"]({"eth0": port(drift=drift)})
    assert found["differences"] == ["eth0: mtu is 1500, wanted 9000"]
    assert found["drifted"] == []


def test_stand_ins_are_named() -> None:
    found = FILTERS["roce_reading"]({"eth0": port(tool_version="dcb utility, stand-in")})
    assert found["stand_ins"] == ["dcb (dcb utility, stand-in)"]


@pytest.mark.parametrize(
    ("unit", "drifted", "changed", "off"),
    [
        ({"active": True, "enabled": True}, [], False, []),
        ({"active": True, "enabled": False}, [], False, ["eth0"]),
        ({"active": False, "enabled": True}, [], False, ["eth0"]),
        ({"active": True, "enabled": True}, ["eth0"], False, ["eth0"]),
        ({"active": True, "enabled": True}, [], True, ["eth0"]),
    ],
)
def test_which_ports_are_to_be_set(unit: dict[str, bool], drifted: list[str], changed: bool, off: list[str]) -> None:
    units = {"elastic-ai-roce@eth0.service": unit}
    assert FILTERS["ports_to_set"](["eth0"], {"drifted": drifted}, units, changed) == off


def test_rdma_devices() -> None:
    root = "/sys/class/infiniband"
    contents = {
        f"{root}/mlx5_0/ports/1/link_layer": "InfiniBand\n",
        f"{root}/mlx5_0/ports/1/gids/0": "fe80:0000:0000:0000:0ac0:ebff:fe40:8df2\n",
        f"{root}/mlx5_1/ports/1/link_layer": "Ethernet\n",
        f"{root}/mlx5_1/ports/1/gids/0": "fe80:0000:0000:0000:0ac0:ebff:fe40:8df3\n",
        f"{root}/mlx5_1/ports/1/gid_attrs/ndevs/0": "ens4f0\n",
        "/sys/module/mlx5_core/version": "",
    }
    infiniband, ethernet = FILTERS["rdma_devices"](contents)
    assert infiniband["port_guid"] == "0x0ac0ebfffe408df2"
    assert (infiniband["netdev"], infiniband["port"]) == ("", 1)
    assert (ethernet["netdev"], ethernet["port_guid"]) == ("ens4f0", "")


@pytest.mark.parametrize(
    ("provider", "loaded", "loaded_build", "installed", "reasons"),
    [
        ("inbox", True, "", "", 0),
        ("inbox", True, "25.10-1.7.1", "", 1),
        ("doca", True, "25.10-1.7.1", "25.10-1.7.1", 0),
        ("doca", True, "25.10-1.7.1", "25.10-2.4.1", 1),
        ("doca", True, "24.10-1.1.4", "24.10-1.1.4.0", 0),
        ("doca", True, "24.10-1.1.4", "24.10-1.1.40", 1),
        ("doca", True, "", "25.10-2.4.1", 1),
        ("doca", False, "", "25.10-2.4.1", 0),
        ("doca", True, "25.10-1.7.1", "", 0),
    ],
)
def test_a_driver_of_another_build_in_memory_asks_for_a_reboot(
    provider: str, loaded: bool, loaded_build: str, installed: str, reasons: int
) -> None:
    seen = {"provider": provider, "loaded": loaded, "loaded_build": loaded_build, "installed_build": installed}
    assert len(FILTERS["ofed_reboot_reasons"](seen)) == reasons


def test_mtu_by_kind_of_port() -> None:
    mtu = FILTERS["port_mtu"]
    assert mtu({"interface": "eth0"}, "9000") == 9000
    assert mtu({"interface": "ib0", "link_layer": "infiniband"}, 9000) == 2044
    assert mtu({"interface": "ib0", "link_layer": "infiniband", "ipoib_mode": "connected"}, 9000) == 65520
    assert mtu({"interface": "ib0", "link_layer": "infiniband", "mtu": 4092}, 9000) == 4092


def test_infiniband_ports_are_not_roce_ports() -> None:
    ports = [{"interface": "eth0"}, {"interface": "ib0", "link_layer": "infiniband"}]
    assert FILTERS["ethernet_ports"](ports) == ["eth0"]


def test_kept_ports_are_those_with_a_kept_reading() -> None:
    root = "/var/lib/elastic-ai"
    files = [f"{root}/roce", f"{root}/roce/eth1.json", f"{root}/roce/eth0.json", f"{root}/ledger/roce.packages.json"]
    assert FILTERS["kept_ports"](dict.fromkeys(files, "")) == ["eth0", "eth1"]


def node(mtu: int, text: str = "", enabled: bool = False) -> dict[str, Any]:
    link = {"exists": True, "mtu": mtu, "txqueuelen": 1000, "operstate": "down", "addresses": []}
    return {
        "contents": {"/x": text},
        "units": {"systemd-networkd.service": {"enabled": enabled}},
        "links": {"eth0": link, "gone0": {**link, "exists": False}},
        "sysctls": {"net.ipv4.tcp_mtu_probing": {"value": "0", "settable": True}},
    }


def test_the_first_reading_of_a_port_is_kept() -> None:
    before = FILTERS["fabric_before"]
    rest = ("/x", ["net.ipv4.tcp_mtu_probing"], "systemd-networkd", [{"interface": "eth0"}])
    first = before(node(1500), *rest)
    assert first["ports"] == {"eth0": {"mtu": 1500, "txqueuelen": 1000, "up": False, "addresses": []}}
    assert first["manager_enabled"] is False
    # Our own settings are not taken for what was there before.
    assert before(node(9000, json.dumps(first), enabled=True), *rest) == first


def test_a_port_gets_back_what_it_had() -> None:
    before = {"ports": {"eth0": {"mtu": 1500, "txqueuelen": 1000, "up": True, "addresses": ["10.0.0.1/24"]}}}
    assert FILTERS["port_commands"](before, "systemd-networkd").splitlines() == [
        "address flush dev eth0 scope global",
        "link set dev eth0 mtu 1500 txqueuelen 1000 up",
        "address add 10.0.0.1/24 dev eth0",
    ]
    assert FILTERS["port_commands"](before, "NetworkManager") == "link set dev eth0 mtu 1500 txqueuelen 1000\n"


def test_no_subnet_manager_is_for_a_virtual_function() -> None:
    """The host sees those of its adapters, with ports and GUIDs like theirs."""
    contents = {
        f"/sys/class/infiniband/{device}/ports/1/{name}": text
        for device, guid in (("mlx5_0", "0001"), ("mlx5_1", "0002"))
        for name, text in (("link_layer", "InfiniBand"), ("gids/0", f"fe80:0:0:0:0:0:0:{guid}"))
    }
    contents["/sys/class/infiniband/mlx5_1/device/physfn/vendor"] = "0x15b3\n"
    found = {one["device"]: one["port_guid"] for one in FILTERS["rdma_devices"](contents)}
    assert found == {"mlx5_0": "0x0000001", "mlx5_1": ""}
