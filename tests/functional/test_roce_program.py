"""The program that brings a port to the RoCE policy: parsers on recorded output, and the whole of it against stand-ins
of dcb, mlnx_qos and ethtool, and files that stand for the driver's."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
PROGRAM = ROOT / "roles/roce/files/elastic_ai_roce.py"
STAND_IN = ROOT / "molecule/fabric/stand_ins/roce_tools.py"

roce: Any = load("roles/roce/files/elastic_ai_roce.py")

ETS = {
    "prio_tc": [0, 0, 0, 3, 0, 0, 6, 0],
    "tsa": {"0": "ets", "3": "ets", "6": "strict"},
    "bandwidth_percent": {"0": 50, "3": 50},
}
POLICY = {
    "trust": "dscp",
    "dscp_prio": {"26": 3, "48": 6},
    "pfc": [3],
    "ets": ETS,
    "pause": {"rx": False, "tx": False},
    "ecn": True,
    "cnp_dscp": 48,
    "cnp_priority": 6,
    "roce_mode": "RoCE v2",
    "tos": 106,
    "traffic_class": 106,
    "mtu": 65536,
}


def dcb(kind: str) -> dict[str, Any]:
    texts = [(DATA / f"dcb/{kind}-{part}.json").read_text() for part in ("pfc", "ets", "app")]
    found: dict[str, Any] = roce.parse_dcb(*texts)
    return found


def mlnx_qos(name: str) -> dict[str, Any]:
    found: dict[str, Any] = roce.parse_mlnx_qos((DATA / f"mlnx_qos/{name}.txt").read_text())
    return found


def test_dcb_of_a_card_as_it_came() -> None:
    found = dcb("default")
    assert (found["trust"], found["dscp_prio"], found["pfc"], found["pfc_delay"]) == ("pcp", {}, [], 7)
    assert found["ets"]["prio_tc"] == [1, 0, 2, 3, 4, 5, 6, 7]
    assert set(found["ets"]["tsa"].values()) == {"vendor"}
    assert found["ets"]["bandwidth_percent"] == {}


def test_dcb_of_a_configured_card() -> None:
    found = dcb("roce")
    assert (found["trust"], found["dscp_prio"], found["pfc"]) == ("dscp", {"26": 3, "48": 6}, [3])
    assert found["ets"]["tsa"]["6"] == "strict"
    assert "6" not in found["ets"]["bandwidth_percent"]
    assert found["ets"]["bandwidth_percent"]["3"] == 50


def test_dcb_with_the_whole_map() -> None:
    found = dcb("dscp_map")
    assert (len(found["dscp_prio"]), found["dscp_prio"]["26"], found["dscp_prio"]["63"]) == (64, 3, 7)


def test_mlnx_qos_recordings() -> None:
    plain, remapped = mlnx_qos("dscp_pfc3"), mlnx_qos("dscp_remapped")
    assert (plain["trust"], plain["pfc"], plain["pfc_delay"], plain["dscp_prio"]["26"]) == ("dscp", [3], 7, 3)
    assert plain["ets"]["prio_tc"] == [1, 0, 2, 3, 4, 5, 6, 7]
    # Nine values of one priority go over two lines, and leading zeros are decimal.
    assert (remapped["dscp_prio"]["30"], remapped["dscp_prio"]["48"], remapped["dscp_prio"]["8"]) == (6, 6, 1)
    assert (mlnx_qos("pcp_default")["trust"], mlnx_qos("pcp_default")["pfc"]) == ("pcp", [])
    assert (mlnx_qos("pcp_buffers")["dscp_prio"], mlnx_qos("pcp_buffers")["pfc"]) == ({}, [3])


def test_mlnx_qos_reads_the_policy_back() -> None:
    found = mlnx_qos("os_ets_strict")
    assert found["ets"] == ETS
    assert (found["trust"], found["pfc"]) == ("dscp", [3])


@pytest.mark.parametrize("text", ["", "Priority trust state: dscp\n", "PFC configuration:\n"])
def test_output_that_is_not_understood_is_no_reading(text: str) -> None:
    with pytest.raises(ValueError, match="mlnx_qos"):
        roce.parse_mlnx_qos(text)


def test_pause() -> None:
    text = "Pause parameters for eth0:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\toff\n"
    assert roce.parse_pause(text) == {"rx": True, "tx": False}
    with pytest.raises(ValueError, match="ethtool"):
        roce.parse_pause("Pause parameters for eth0:\n")


class Node:
    """A node of stand-ins: tools on PATH, a planted sysfs and configfs, and the loop-back interface as the port."""

    def __init__(self, folder: Path, tools: tuple[str, ...], has_dcb: bool = True) -> None:
        self.folder, self.state = folder, folder / "state.json"
        (folder / "bin").mkdir()
        for tool in tools:
            (folder / "bin" / tool).symlink_to(STAND_IN)
        self.state.write_text(json.dumps({"lo": {}} if has_dcb else {}))
        rdma, net = folder / "sys/class/infiniband/mlx5_0", folder / "sys/class/net/lo/ecn"
        for path, text in {
            rdma / "ports/1/gid_attrs/ndevs/0": "lo",
            rdma / "tc/1/traffic_class": "",
            net / "roce_np/enable/3": "0",
            net / "roce_rp/enable/3": "0",
            net / "roce_np/cnp_dscp": "0",
            net / "roce_np/cnp_802p_prio": "0",
            folder / "configfs/rdma_cm/mlx5_0/ports/1/default_roce_tos": "0",
            folder / "configfs/rdma_cm/mlx5_0/ports/1/default_roce_mode": "IB/RoCE v1",
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        (folder / "program.py").write_text(
            PROGRAM.read_text().replace("/var/lib/elastic-ai/roce", str(folder / "before"))
        )

    def run(
        self, *words: str, before: Callable[[], None] | None = None, **policy: Any
    ) -> subprocess.CompletedProcess[str]:
        roots = {"sysfs_root": f"{self.folder}/sys", "configfs_root": f"{self.folder}/configfs"}
        text = json.dumps({**POLICY, **roots, **policy})
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return subprocess.run(
            [sys.executable, str(self.folder / "program.py"), *words, "lo", "--policy", text],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": path, "ROCE_STAND_IN_STATE": str(self.state)},
            preexec_fn=before,
        )

    def report(self, **policy: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("show", "--json", **policy).stdout)["lo"]
        return found


@pytest.fixture(params=[("dcb", "ethtool"), ("dcb", "mlnx_qos", "ethtool")], ids=["dcb", "mlnx_qos"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return Node(tmp_path, request.param)


def test_a_port_is_brought_to_the_policy_and_then_left_alone(node: Node) -> None:
    assert node.run("check").returncode == 3
    assert node.report()["lossless"] is False
    first = node.run("apply")
    assert first.returncode == 0, first.stderr
    found = node.report()
    assert (found["drift"], found["lossless"], found["missing"]) == ([], True, [])
    assert {key: found["now"][key] for key in POLICY if key != "dscp_prio"} == {
        key: value for key, value in POLICY.items() if key != "dscp_prio"
    } | {"traffic_class": 106}
    assert found["now"]["dscp_prio"]["26"] == 3
    assert found["now"]["pfc_delay"] == 7  # the cable's length is kept
    assert node.run("check").returncode == 0
    assert node.run("apply").stdout == "lo: as wanted\n"


DRIFTS = (
    ("pfc", [3, 4], "pfc"),
    ("pfc", [], "pfc"),
    ("dscp", {"26": 0, "48": 6}, "dscp_prio"),
    ("dscp", {}, "trust"),
    ("pause", {"rx": True, "tx": False}, "pause"),
    ("bw", [80, 0, 0, 20, 0, 0, 100, 0], "ets"),
)


def test_drift_is_named_and_repaired(node: Node) -> None:
    node.run("apply")
    for key, value, what in DRIFTS:
        state = json.loads(node.state.read_text())
        state["lo"][key] = value
        node.state.write_text(json.dumps(state))
        checked = node.run("check", "--json")
        found = json.loads(checked.stdout)["lo"]
        assert checked.returncode == 3, key
        assert what in [item["what"] for item in found["drift"]]
        assert found["lossless"] is False, (key, value)
        assert node.run("apply").returncode == 0
        assert node.report()["drift"] == [], (key, value)


def test_ecn_off_is_drift_but_the_port_stays_lossless(node: Node) -> None:
    node.run("apply")
    (node.folder / "sys/class/net/lo/ecn/roce_rp/enable/3").write_text("0\n")
    found = node.report()
    assert [item["what"] for item in found["drift"]] == ["ecn"]
    assert found["lossless"] is True


def test_a_wrong_mtu_is_reported_and_never_written(node: Node) -> None:
    assert node.run("apply", mtu=9000).returncode == 0
    assert [d["what"] for d in node.report(mtu=9000)["drift"]] == ["mtu"]


def test_restore_puts_back_what_was_there(node: Node) -> None:
    before = node.report()["now"]
    node.run("apply")
    node.run("apply")  # a second apply must not take its own work for the original
    done = node.run("restore")
    assert done.returncode == 0, done.stderr
    assert node.report()["now"] == before
    assert node.run("restore").stdout == "lo: nothing to put back\n"


def test_what_was_there_is_kept_whole_when_the_disk_is_full(node: Node) -> None:
    before = node.report()["now"]
    limit = (100, resource.RLIM_INFINITY)
    full = node.run("apply", before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert (full.returncode, node.report()["now"]) == (1, before), full.stderr
    assert node.run("apply").returncode == 0
    done = node.run("restore")
    assert done.returncode == 0, done.stderr
    assert node.report()["now"] == before


def test_restore_keeps_a_map_that_an_operator_had(node: Node) -> None:
    state = {"lo": {"dscp": {"46": 5}, "pfc": [5]}}
    node.state.write_text(json.dumps(state))
    before = node.report()["now"]
    node.run("apply")
    node.run("restore")
    after = node.report()["now"]
    assert (after["pfc"], after["dscp_prio"]["46"]) == ([5], 5)
    if node.report()["tool"] == "dcb":
        assert after == before


def test_a_device_without_dcb_is_never_a_success(tmp_path: Path) -> None:
    node = Node(tmp_path, ("dcb", "ethtool"), has_dcb=False)
    shutil.rmtree(tmp_path / "sys/class/infiniband")
    done = node.run("apply")
    assert done.returncode == 4
    assert "no DCB" in done.stdout
    assert "Operation not supported" in done.stdout
    found = node.report()
    assert found["lossless"] is False
    assert found["now"]["pfc"] is None
    assert not (tmp_path / "before").exists()


def test_rdma_without_dcb_is_marked_restored_and_never_lossless(tmp_path: Path) -> None:
    node = Node(tmp_path, ("dcb", "ethtool"), has_dcb=False)
    defaults = tmp_path / "configfs/rdma_cm/mlx5_0/ports/1"
    assert node.run("check").returncode == 3
    done = node.run("apply")
    assert done.returncode == 0, done.stderr
    assert "only the marking applies" in done.stdout
    assert (defaults / "default_roce_mode").read_text() == "RoCE v2\n"
    assert (defaults / "default_roce_tos").read_text() == "106\n"
    assert (tmp_path / "sys/class/net/lo/ecn/roce_np/cnp_dscp").read_text() == "0\n", "no queue is touched"
    found = node.report(mtu=65536)
    assert (found["lossless"], found["drift"]) == (False, [])
    assert node.run("restore").returncode == 0
    assert (defaults / "default_roce_tos").read_text() == "0\n"


def test_the_real_dcb_says_of_such_a_device_what_the_program_looks_for() -> None:
    for part in ("pfc", "ets", "app"):
        assert (DATA / f"dcb/veth-{part}.stderr").read_text() == "Attribute read: Operation not supported\n"


def test_without_the_drivers_files_the_parts_are_missing_not_wrong(node: Node) -> None:
    for folder in ("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "sys/class/net/lo/ecn/roce_np/cnp_dscp"):
        (node.folder / folder).unlink()
    found = node.report()
    assert found["now"]["traffic_class"] is None
    assert any("traffic class" in text for text in found["missing"])
    assert "traffic_class" not in [item["what"] for item in found["drift"]]


def test_settings_that_do_not_stick_are_an_error(node: Node) -> None:
    (node.folder / "bin/ethtool").unlink()
    fake = node.folder / "bin/ethtool"
    fake.write_text("#!/bin/sh\nprintf 'RX:\\ton\\nTX:\\ton\\n'\n")
    fake.chmod(0o755)
    done = node.run("apply")
    assert done.returncode == 1
    assert "still" in done.stderr
    assert "pause" in done.stderr


def test_a_port_that_does_not_exist_is_one_clear_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "show", "nope0", "--policy", json.dumps(POLICY)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("elastic-ai-roce: nope0: ")
    assert "Traceback" not in done.stderr
