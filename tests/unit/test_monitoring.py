"""What role monitoring reads, writes, alerts about and shows, without a node."""

from __future__ import annotations

import datetime
import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.alert_rules import ALERTS, FILES, RULES
from tests.support.node_modules import ROOT, load_filters, run
from tests.support.nvml_driver import NOT_SUPPORTED, Driver, drive, number
from tests.support.package_indices import unrecorded
from toolkit.backup.on_head import HELP as BACKUP_METRICS
from tools.make_dashboards import DASHBOARDS
from validation.trend.metrics import HELP as SITE_METRICS

ROLE = ROOT / "roles/monitoring"
DASHBOARD = json.loads((ROLE / "files/pool.json").read_text("utf-8"))


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The programs as modules; they find textfile.py beside them, as on a node."""
    monkeypatch.syspath_prepend(str(ROLE / "files"))
    monkeypatch.syspath_prepend(str(ROOT / "toolkit/status"))  # there.py, which is beside them on a node
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = ("textfile", "gpu_metrics", "pool_metrics", "keys_metrics", "xid_metrics", "node_metrics", "bmc_metrics")
    modules = {name: importlib.import_module(name) for name in names}
    yield modules
    for name in (*modules, "there"):
        sys.modules.pop(name)


NODES = [
    "NodeName=gpu1 Arch=x86_64 CoresPerSocket=2 CPUAlloc=1 Gres=gpu:v100:4,shard:v100:560 NodeAddr=a "
    "State=MIXED ThreadsPerCore=1 Partitions=all,v100 CfgTRES=cpu=2,mem=1G,billing=560,gres/gpu=4,gres/shard=560 "
    "AllocTRES=cpu=2,mem=1M,gres/gpu=1,gres/gpu:v100=1,gres/shard=35 CapWatts=n/a",
    "NodeName=gpu2 Gres=gpu:h100:8,shard:h100:1120 State=IDLE+DRAIN Partitions=all,h100 CfgTRES=cpu=2 AllocTRES= X=y",
    "NodeName=cpu1 Gres=(null) State=IDLE AllocTRES=",
]


def job(state: str, user: str, account: str, submitted: str, tres: str) -> str:
    return f"{state:<20}{user:<40}{submitted:<25}{tres:<300}{account:<40.40}"


def test_wholes_and_parts_of_gpus_add_up(programs: Any) -> None:
    pool = programs["pool_metrics"]
    assert pool.shards_of(NODES) == 140
    samples = {(name, labels["node"]): value for name, labels, value in pool.nodes(NODES, 140)}
    assert samples["elastic_ai_pool_leased_gpus", "gpu1"] == 1.25
    assert samples["elastic_ai_pool_gpus", "gpu1"] == 4
    assert (samples["elastic_ai_pool_node_up", "gpu1"], samples["elastic_ai_pool_node_up", "gpu2"]) == (1, 0)
    assert not any(node == "cpu1" for _, node in samples)
    assert pool.shards_of(["NodeName=a Gres=gpu:4 AllocTRES="]) == 0


def test_who_has_gpus_and_who_waits(programs: Any) -> None:
    now = datetime.datetime(2026, 11, 21, 12, 0)
    lines = [
        job("RUNNING", "anna", "research", "2026-11-21T10:00:00", "cpu=1,mem=1G,node=1,billing=140,gres/gpu=1"),
        job("RUNNING", "anna", "research", "2026-11-21T10:00:00", "cpu=1,node=1,billing=70,gres/shard=70"),
        job("PENDING", "ben", "teaching", "2026-11-21T11:00:00", "cpu=1,gres/shard=20"),
        job("RUNNING", "carl", "teaching", "2026-11-21T11:00:00", "cpu=8,node=1"),
    ]
    samples = programs["pool_metrics"].jobs(lines, 140, now)
    assert samples[0] == (
        "elastic_ai_pool_user_gpus",
        {"account": "research", "user": "anna", "state": "running"},
        1.5,
    )
    assert ("elastic_ai_pool_leases", {"account": "research", "state": "running"}, 2) in samples
    assert ("elastic_ai_pool_leases", {"account": "teaching", "state": "pending"}, 1) in samples
    assert samples[-1] == ("elastic_ai_pool_longest_wait_seconds", {}, 3600.0)
    # Where Slurm takes any account, a user may write line ends into his.
    spoof = f"x\n{'PENDING':<20}anna"
    lines[2] = job("PENDING", "ben", spoof, "2026-11-21T11:00:00", "cpu=1,gres/shard=20")
    spoofed = programs["pool_metrics"].jobs([part for line in lines for part in line.splitlines()], 140, now)
    assert [value for _, _, value in spoofed] == [value for _, _, value in samples]
    assert [labels.get("user") for _, labels, _ in spoofed] == [labels.get("user") for _, labels, _ in samples]


def test_the_file_is_what_prometheus_reads(programs: Any, tmp_path: Path) -> None:
    textfile = programs["textfile"]
    text = textfile.exposition({"a": "words", "b": "none"}, [("a", {"name": 'x"y\\z'}, 3), ("a", {}, 256 * 2**20)])
    assert text == '# HELP a words\n# TYPE a gauge\na{name="x\\"y\\\\z"} 3.0\na 268435456.0\n'
    with pytest.raises(KeyError, match="other"):
        textfile.exposition({"a": "words"}, [("other", {}, 1)])
    textfile.write(tmp_path / "a.prom", text)
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]


class Some(Driver):
    """Two functions of NVML that work and one that the device does not support; the others this driver has not."""

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used = 1000, 0
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: Any, load: Any) -> int:
        load._obj.gpu = 0
        return 0

    def nvmlDeviceGetTemperature(self, handle: Any, kind: int, degrees: Any) -> int:
        return NOT_SUPPORTED


def test_a_gpu_says_what_it_supports_and_nothing_else(programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drive(monkeypatch, Some())
    samples, fault = programs["gpu_metrics"].reading()
    assert fault is None
    values = {metric: value for metric, labels, value in samples}
    # 0 is a reading; what is not supported is none
    assert values == {
        "elastic_ai_gpu_info": 1,
        "elastic_ai_gpu_nvml_up": 1,
        "elastic_ai_gpu_memory_total_bytes": 1000,
        "elastic_ai_gpu_memory_used_bytes": 0,
        "elastic_ai_gpu_utilization_ratio": 0,
    }
    assert all(labels["emulated"] == "false" for _, labels, _ in samples if labels)


class Losing(Some):
    """Three GPUs: the second has fallen off the bus, the third wants repairs that drivers from 580 on tell."""

    gpus, lost = 3, (1,)

    def nvmlDeviceGetRepairStatus(self, handle: Any, status: Any) -> int:
        assert status._obj.version == 0x100000C
        status._obj.bChannelRepairPending, status._obj.bTpcRepairPending = 0, int(number(handle) == 2)
        return 0

    def nvmlDeviceGetUnrepairableMemoryFlag_v1(self, handle: Any, status: Any) -> int:
        status._obj.version = int(number(handle) == 2)  # of nvml.h the structure is this one number
        return 0


def test_a_gpu_that_is_lost_costs_no_other_its_figures(programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drive(monkeypatch, Losing())
    samples, fault = programs["gpu_metrics"].reading()
    assert fault == "GPU 1: NVML error 15, it has fallen off the bus"
    assert samples[-1] == ("elastic_ai_gpu_nvml_up", {}, 1)
    assert [labels["gpu"] for name, labels, _ in samples if name == "elastic_ai_gpu_info"] == [0, 2]
    repairs = {(name, labels["gpu"]): value for name, labels, value in samples if "repair" in name}
    assert repairs == {("elastic_ai_gpu_repair_pending", 2): 1, ("elastic_ai_gpu_repair_failed", 2): 1}


class Repairing(Some):
    """A GPU from Ampere on: rows are remapped, and the two later functions are not there."""

    def nvmlDeviceGetRemappedRows(self, handle: Any, right: Any, wrong: Any, pending: Any, failed: Any) -> int:
        pending._obj.value, failed._obj.value = 1, 0
        return 0

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: Any, pending: Any) -> int:
        return NOT_SUPPORTED


def test_rows_that_wait_for_a_reset_are_a_repair_that_is_pending(
    programs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(monkeypatch, Repairing())
    samples, _ = programs["gpu_metrics"].reading()
    repairs = {name: value for name, _, value in samples if "repair" in name}
    assert repairs == {"elastic_ai_gpu_repair_pending": 1, "elastic_ai_gpu_repair_failed": 0}


def test_a_node_without_the_drivers_library_says_so(programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validation.nvml.Nvml.__init__.__defaults__", ("libnvidia-ml-of-nobody.so.1",))
    samples, fault = programs["gpu_metrics"].reading()
    assert samples == [("elastic_ai_gpu_nvml_up", {}, 0)]
    assert "libnvidia-ml-of-nobody" in fault


def test_xids_are_counted_by_what_they_mean(programs: Any, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    messages = ["NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
                "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, Graphics Exception", "NVRM: Xid (PCI:0000:3b:00): 13, pid=2, x",
                "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44", "eth0: link up"]  # fmt: skip
    log.write_text("".join(f"4,{at},{at}000,-;{text}\n" for at, text in enumerate(messages, 1)))
    samples, fault = programs["xid_metrics"].reading(str(log))
    assert fault is None
    assert {tuple(labels.values()): value for _, labels, value in samples} == {
        ("0000:3b:00.0", "13", "application"): 2,
        ("0000:3b:00.0", "79", "replace"): 1,
        ("0000:c1:00.0", "SXid 24007", "reset"): 1,
        (): 1,
    }
    samples, fault = programs["xid_metrics"].reading(str(tmp_path / "none"))
    assert samples == [("elastic_ai_kernel_log_read", {}, 0)]
    assert "none" in fault


def expressions() -> list[str]:
    made = [query for one in DASHBOARDS for panel in one.panels for query, _ in panel.queries]
    pool = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [rule["expr"] for rule in RULES] + pool + made


def test_alerts_and_dashboard_ask_for_what_there_is(programs: Any) -> None:
    known = set(programs["gpu_metrics"].HELP) | set(programs["pool_metrics"].HELP)
    known |= set(programs["xid_metrics"].HELP) | set(programs["node_metrics"].HELP)
    known |= set(programs["bmc_metrics"].HELP)
    known |= set(programs["keys_metrics"].HELP) | set(SITE_METRICS) | set(BACKUP_METRICS)
    known |= {rule["record"] for rule in RULES if "record" in rule}
    asked = {name for text in expressions() for name in re.findall(r"elastic_ai[\w:]+", text)} - {"elastic_ai_"}
    assert asked <= known
    assert known - asked == set(), "figures nobody looks at"


def test_every_file_of_rules_is_read() -> None:
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text("utf-8"))
    assert sorted(variables["__monitoring_rules"]) == [file.name for file in FILES]
    assert all(len(file.read_text("utf-8").splitlines()) < 400 for file in FILES)


def test_every_alert_says_what_to_do() -> None:
    assert len(ALERTS) >= 10
    for alert in ALERTS.values():
        assert alert["for"]
        assert alert["labels"]["severity"] in ("info", "warning", "critical")
        assert len(alert["annotations"]["summary"]) > 30


def test_panels_have_places_of_their_own() -> None:
    taken = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("system", ["debian12", "debian13", "ubuntu2204", "ubuntu2404"])
def test_every_package_name_is_one_that_the_system_has(system: str) -> None:
    assert unrecorded("distribution", system, ["prometheus", "prometheus-node-exporter"]) == []
    assert unrecorded("cuda", system, ["datacenter-gpu-manager-exporter"]) == []


FILTERS = load_filters("monitoring")


def test_the_exporter_answers_at_the_management_address_where_that_is_the_nodes_own() -> None:
    listen, address = FILTERS["exporter_listen"], FILTERS["management_address"]
    own = run("node_state", {"own_addresses": ["127.0.0.1", "192.0.2.7", "node1"]})["own_addresses"]
    assert own == {"127.0.0.1": True, "192.0.2.7": False, "node1": False}
    assert listen("management", {"127.0.0.1": True}) == "127.0.0.1"
    assert listen("management", {"192.0.2.7": False}) == "", "behind a translation of addresses a service cannot start"
    assert listen("management", {"fd00::1": True}) == "[fd00::1]"
    assert (listen("", {"127.0.0.1": True}), listen("10.0.0.1", {"127.0.0.1": True})) == ("", "10.0.0.1")
    assert address({"ansible_host": "192.0.2.7"}) == ["192.0.2.7"]
    assert address({"ansible_host": "node1.example.net"}) == address({}) == []


def test_prometheus_asks_where_the_exporter_answers() -> None:
    target = FILTERS["exporter_target"]
    assert target("gpu1", {"ansible_host": "192.0.2.7", "monitoring_listen": "management"}, 9100) == "192.0.2.7:9100"
    assert target("gpu1", {"ansible_host": "192.0.2.7", "monitoring_listen": "10.0.0.1"}, 9100) == "10.0.0.1:9100"
    assert target("gpu1", {"ansible_host": "fd00::1", "monitoring_listen": "0.0.0.0"}, 9100) == "[fd00::1]:9100"
    assert target("gpu1", {}, 9100) == "gpu1:9100"


def test_days_left_of_certificates_and_the_age_of_the_munge_key(programs: Any, tmp_path: Path) -> None:
    """Real certificates; a bundle counts by its first, and one that nobody reads is said and hides no other."""
    registry, slurm = tmp_path / "etc/elastic-ai/registry", tmp_path / "etc/elastic-ai/slurm"
    registry.mkdir(parents=True)
    slurm.mkdir()
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for name, days in (("server", "20"), ("ca", "100")):
        where = ["-keyout", "/dev/null", "-out", str(registry / f"{name}.crt"), "-subj", "/CN=x", "-days", days]
        subprocess.run([*made, *where], check=True, capture_output=True)
    with (registry / "ca.crt").open("ab") as both:
        both.write((registry / "server.crt").read_bytes())
    (registry / "client.crt").write_text("nothing")
    (slurm / "munge.key").write_text("key")
    old = time.time() - 400 * 86400
    os.utime(slurm / "munge.key", (old, old))
    (slurm / "rotation").mkdir()
    (slurm / "rotation/rotation.json").write_text("{}")
    samples, fault = programs["keys_metrics"].read(tmp_path)
    found = {(name, *labels.values()): round(value) for name, labels, value in samples}
    assert found == {
        ("elastic_ai_certificate_days_left", "registry"): 20,
        ("elastic_ai_certificate_days_left", "registry authority"): 100,
        ("elastic_ai_munge_key_age_days",): 400,
        ("elastic_ai_rotation_open", "munge-key"): 1,
        ("elastic_ai_rotation_open", "registry"): 0,
        ("elastic_ai_pool_leavers", "held"): 0,
        ("elastic_ai_pool_leavers", "unsure"): 0,
    }
    assert "client.crt is no certificate" in fault
    assert programs["keys_metrics"].read(tmp_path / "none") == ([], None)
