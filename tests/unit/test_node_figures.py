"""What role monitoring reads of units, drift, PCIe, ports and NVLinks, from recorded answers and files."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import ROOT
from tests.support.nvml_driver import NOT_SUPPORTED, Driver, drive

SHOWN = """Id=docker.service
ActiveState=inactive
UnitFileState=enabled

Id=chrony.service
ActiveState=active
UnitFileState=enabled

Id=chrony.service
ActiveState=active
UnitFileState=enabled

Id=nvidia-persistenced.service
ActiveState=inactive
UnitFileState=enabled
ConditionResult=no
ConditionTimestamp=Sat 2026-11-28 13:10:24 UTC

Id=munge.service
ActiveState=inactive
UnitFileState=enabled
ConditionResult=no
ConditionTimestamp=

Id=slurmctld.service
ActiveState=inactive
UnitFileState=disabled

Id=sssd.service
ActiveState=inactive
UnitFileState=
"""
FAILED = "elastic-ai-pool-sync.service loaded failed failed Accounting\nvar-lib-x.mount loaded failed failed X\n"
COUNTERS = """NIC statistics:
     rx_packets: 7
     rx_prio3_pause: 10
     rx_prio3_pause_duration: 2500000
     tx_prio3_pause: 4
     rx_prio4_pause: 1
     rx_prio4_pause_duration: 500000
     tx_pause_storm_warning_events: 1
     tx_pause_storm_error_events: 0
"""


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The programs as modules, with what is beside them on a node."""
    for folder in ("roles/monitoring/files", "toolkit/status"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = ("textfile", "there", "node_metrics", "gpu_metrics", "keys_metrics", "pool_metrics")
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
        sys.modules.pop(name)


def answering(**said: str | None) -> Callable[[list[str]], str | None]:
    """What commands print, by a word of theirs."""
    return lambda words: next((text for word, text in said.items() if word in words), None)


def by_name(samples: list[tuple[str, dict[str, Any], float]]) -> dict[tuple[str, ...], float]:
    return {(name.removeprefix("elastic_ai_"), *map(str, labels.values())): value for name, labels, value in samples}


def test_units_that_are_enabled_and_units_that_have_failed(programs: dict[str, Any]) -> None:
    """Each once, by whatever name it was asked; what is not enabled is meant not to run."""
    found = by_name(programs["node_metrics"].units(answering(show=SHOWN, **{"list-units": FAILED})))
    assert found == {
        ("unit_active", "docker"): 0,
        ("unit_active", "chrony"): 1,
        ("unit_active", "munge"): 0,
        ("units_failed",): 2,
        ("unit_failed", "elastic-ai-pool-sync"): 1,
        ("unit_failed", "var-lib-x.mount"): 1,
    }
    assert programs["node_metrics"].units(answering()) == [], "no systemd here"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's /sys, and what its roles have written."""
    device, plain = (tmp_path / "sys/bus/pci/devices" / name for name in ("0000:3b:00.0", "0000:00:00.0"))
    for path, text in (
        (device / "aer_dev_correctable", "RxErr 3\nBadTLP 4\nTOTAL_ERR_COR 7\n"),
        (device / "aer_dev_nonfatal", "Undefined 0\nTOTAL_ERR_NONFATAL 0\n"),
        (device / "aer_dev_fatal", "Undefined 1\nTOTAL_ERR_FATAL 1\n"),
        (plain / "class", "0x060000"),
        (tmp_path / "sys/class/net/fab0/device/vendor", "0x15b3"),
        (tmp_path / "sys/class/net/lo/type", "772"),
        (tmp_path / "sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err", "5\n"),
        (tmp_path / "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "6\n"),
        (tmp_path / "sys/class/infiniband/none/ports/1/state", "4: ACTIVE"),
        (tmp_path / "etc/kept.conf", "by hand"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_pcie_errors_pauses_and_what_rdma_sends_again(programs: dict[str, Any], node: Path) -> None:
    """Of devices and ports that count them, and of no others."""
    module = programs["node_metrics"]
    assert by_name(module.pcie(node)) == {
        ("pcie_errors", "0000:3b:00.0", "correctable"): 7,
        ("pcie_errors", "0000:3b:00.0", "nonfatal"): 0,
        ("pcie_errors", "0000:3b:00.0", "fatal"): 1,
    }
    assert by_name(module.pauses(node, answering(fab0=COUNTERS, lo=COUNTERS))) == {
        ("port_pause_frames", "fab0", "rx"): 11,
        ("port_pause_frames", "fab0", "tx"): 4,
        ("port_paused_seconds", "fab0"): 3.0,
        ("port_pause_storms", "fab0"): 1,
    }
    assert module.pauses(node, answering()) == [], "no ethtool here"
    assert by_name(module.resent(node)) == {("rdma_resent", "mlx5_0", "1"): 11}


LINKS = [
    {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "scope": "host"}]},
    {
        "ifname": "fab0",
        "addr_info": [{"local": "10.9.0.1", "scope": "global"}, {"local": "10.9.0.2", "scope": "global"}],
    },
    {
        "ifname": "eno1",
        "addr_info": [{"local": "169.254.1.7", "scope": "global"}, {"local": "10.0.0.7", "scope": "link"}],
    },
    {"ifname": "docker0", "addr_info": [{"local": "172.17.0.1", "scope": "global"}]},
    {"ifname": "vmbr0", "addr_info": [{"local": "10.8.0.1", "scope": "global"}]},
    {"ifname": "ib0"},
]


def test_addresses_are_those_by_which_others_reach_a_node(programs: dict[str, Any], node: Path) -> None:
    """No bridge's, which is the same on all nodes, and none that is of one link alone."""
    (node / "sys/class/net/vmbr0/bridge").mkdir(parents=True)
    module = programs["node_metrics"]
    assert by_name(module.addresses(node, answering(addr=json.dumps(LINKS)))) == {
        ("address", "fab0", "10.9.0.1"): 1,
        ("address", "fab0", "10.9.0.2"): 1,
    }
    assert module.addresses(node, answering()) == module.addresses(node, answering(addr="no JSON")) == []


def test_one_name_server_that_answers_is_enough(programs: dict[str, Any], node: Path) -> None:
    module = programs["node_metrics"]
    assert module.names(node, lambda server, limit_s: True) == [], "a node without any"
    (node / "etc/resolv.conf").write_text("# by hand\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n")
    for well, answer in (("192.0.2.2", 1), ("none", 0)):
        found = module.names(node, lambda server, limit_s, well=well: server == well)
        assert by_name(found) == {("name_server_answers",): answer}


def test_libraries_of_the_driver_that_are_empty(programs: dict[str, Any], node: Path) -> None:
    module = programs["node_metrics"]
    assert module.libraries(node) == [], "no GPU driver here"
    folder, system = node / "opt/driver/lib", node / "usr/lib64"
    for path in (folder, system, node / "etc/ld.so.conf.d"):
        path.mkdir(parents=True)
    (node / "etc/ld.so.conf.d/driver.conf").write_text("# of the driver\n/opt/driver/lib\n/opt/gone\n")
    (system / "libcuda.so.580").write_text("ELF")
    (system / "libcuda.so.1").symlink_to("libcuda.so.580")
    (system / "libother.so").touch()
    assert by_name(module.libraries(node)) == {("libraries_empty",): 0}
    (folder / "libnvidia-opencl.so.1").touch()
    assert by_name(module.libraries(node)) == {("libraries_empty",): 1}


class Set(Driver):
    """ECC is on, persistence off, and several processes may use the GPU."""

    def nvmlDeviceGetEccMode(self, handle: Any, now: Any, later: Any) -> int:
        now._obj.value, later._obj.value = 1, 1
        return 0

    def nvmlDeviceGetPersistenceMode(self, handle: Any, mode: Any) -> int:
        mode._obj.value = 0
        return 0

    def nvmlDeviceGetComputeMode(self, handle: Any, mode: Any) -> int:
        mode._obj.value = 0
        return 0


@pytest.mark.parametrize(
    ("driver", "found"), [(Set(), {"ecc": 1, "persistence": 0, "shared": 1}), (Driver(), {})], ids=["all", "none"]
)
def test_modes_of_a_gpu_as_far_as_it_says_them(
    programs: dict[str, Any], monkeypatch: pytest.MonkeyPatch, driver: Driver, found: dict[str, int]
) -> None:
    drive(monkeypatch, driver)
    samples, fault = programs["gpu_metrics"].reading()
    assert fault is None
    assert {labels["mode"]: value for name, labels, value in samples if name.endswith("gpu_mode")} == found


def test_drift_is_what_status_finds_and_is_looked_for_now_and_then(programs: dict[str, Any], node: Path) -> None:
    there, clock = programs["there"], [0.0]
    reading = programs["node_metrics"].Reading(node, answering(dpkg="no"), lambda: clock[0])
    assert not [name for name, _, _ in reading()[0] if "drift" in name], "never deployed"
    ledger = {"files": {"/etc/kept.conf": {"sha256": hashlib.sha256(b"as written").hexdigest()}}}
    for path, document in ((there.RECORD, {"release": "current"}), (f"{there.LEDGERS}/x.files.json", ledger)):
        (node / path).parent.mkdir(parents=True, exist_ok=True)
        (node / path).write_text(json.dumps(document))
    assert ("drift", "files") not in by_name(reading()[0]), "not yet looked for again"
    clock[0] += programs["node_metrics"].DRIFT_S
    assert by_name(reading()[0])["drift", "files"] == 1
    (node / there.WAITS).mkdir(parents=True)
    (node / there.WAITS / "kernel").touch()
    assert by_name(reading()[0])["reboot_waits",] == 1


class Linked(Driver):
    """Two NVLinks, of which the second is down; its errors by the older function."""

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: Any, state: Any) -> int:
        if int(getattr(link, "value", link)) > 1:
            return 2  # INVALID_ARGUMENT: there is no such link
        state._obj.value = int(int(getattr(link, "value", link)) == 0)
        return 0

    def nvmlDeviceGetNvLinkErrorCounter(self, handle: Any, link: Any, counter: Any, count: Any) -> int:
        count._obj.value = 10 + int(getattr(counter, "value", counter))
        return 0

    def nvmlDeviceGetFieldValues(self, handle: Any, count: Any, fields: Any) -> int:
        return NOT_SUPPORTED

    def nvmlDeviceGetRemappedRows(self, handle: Any, right: Any, wrong: Any, pending: Any, failed: Any) -> int:
        right._obj.value, wrong._obj.value, pending._obj.value, failed._obj.value = 1, 2, 0, 0
        return 0


def test_nvlinks_their_errors_and_rows_that_were_replaced(
    programs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(monkeypatch, Linked())
    samples, fault = programs["gpu_metrics"].reading()
    assert fault is None
    found = {(name.removeprefix("elastic_ai_gpu_"), labels.get("kind", "")): value for name, labels, value in samples}
    assert found["nvlinks_down", ""] == 1
    assert {kind: found["nvlink_errors", kind] for kind in ("replay", "recovery", "crc")} == {
        "replay": 10, "recovery": 11, "crc": 12,
    }  # fmt: skip
    assert found["rows_remapped", ""] == 2
    assert ("fabric_ready", "") not in found, "a GPU without a fabric"


def test_leavers_and_the_accountings_queue(programs: dict[str, Any], tmp_path: Path) -> None:
    kept = tmp_path / "slurm/leavers.json"
    leavers = programs["keys_metrics"].leavers
    assert leavers(kept) == [], "no pool here"
    kept.parent.mkdir()
    assert by_name(leavers(kept)) == {("pool_leavers", "held"): 0, ("pool_leavers", "unsure"): 0}
    kept.write_text(json.dumps({"held": ["ann/ml"], "since": {"ben/ml": 1.0, "eve/ml": 2.0}, "ended": [], "at": 1.0}))
    assert by_name(leavers(kept)) == {("pool_leavers", "held"): 1, ("pool_leavers", "unsure"): 2}
    kept.write_text("{}")
    assert "leavers.json" in (programs["keys_metrics"].read(tmp_path / "none")[1] or "leavers.json")
    accounting = programs["pool_metrics"].accounting
    assert by_name(accounting(["Server thread count: 3", "DBD Agent queue size: 12"])) == {
        ("pool_accounting_queue",): 12
    }
    assert accounting(["Server thread count: 3"]) == []
