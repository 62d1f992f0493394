"""The rules of role monitoring by Prometheus's own promtool: each alert fires when it says, and else is quiet."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

RULES = Path(__file__).parents[2] / "roles/monitoring/files/rules.yml"
PROMTOOL = shutil.which("promtool")
MANY = 300  # minutes of each series: more than twice what any alert waits

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: Debian's package prometheus")


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROMTOOL), *map(str, words)], capture_output=True, text=True, check=False)


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


@dataclass(frozen=True)
class Case:
    """Series in promtool's notation, one value a minute: `bad` ones fire at minute `at` and not a minute before, with
    these labels (beside the rule's own) and summary; `well` ones never do."""

    alert: str
    bad: dict[str, str]
    well: dict[str, str]
    at: int
    labels: dict[str, str] = field(default_factory=dict)
    summary: str = ""


GPU = '{node="gpu1",gpu="3"}'
OF_GPU = {"node": "gpu1", "gpu": "3"}
SITE = '{node="head",site="rack",fabric="roce40",rehearsal="false"}'
OF_SITE = {"node": "head", "site": "rack", "fabric": "roce40", "rehearsal": "false"}
HEAD = '{node="head"}'
DRIFT = {"criterion": "tr.tcpbw", "subject": "gpu1/fab0>gpu2/fab0", "kind": "step"}


def inside(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def of_gpu(alert: str, metric: str, bad: str, well: str, at: int, summary: str) -> Case:
    """An alert on one figure of one GPU."""
    return Case(alert, {metric + GPU: bad}, {metric + GPU: well}, at, OF_GPU, summary)


def steady(value: float) -> str:
    return f"{value:g}x{MANY}"


CASES = [
    Case(
        "PoolControllerDown",
        {"elastic_ai_pool_up": steady(0)},
        {"elastic_ai_pool_up": steady(1)},
        2,
        {},
        "Slurm's controller does not answer: no lease can be had. systemctl status slurmctld on the head",
    ),
    Case(
        "GpuServerOutOfService",
        {'elastic_ai_pool_node_up{node="gpu1"}': steady(0)},
        {'elastic_ai_pool_node_up{node="gpu1"}': steady(1)},
        5,
        {"node": "gpu1"},
        "gpu1 takes no leases; sinfo -R says why",
    ),
    Case(
        "GpuMissing",
        {
            'elastic_ai_pool_gpus{node="gpu1",class="v100"}': steady(2),
            'elastic_ai_gpu_info{node="gpu1",gpu="0"}': steady(1),
        },
        {
            'elastic_ai_pool_gpus{node="gpu1",class="v100"}': steady(2),
            'elastic_ai_gpu_info{node="gpu1",gpu="0"}': steady(1),
            'elastic_ai_gpu_info{node="gpu1",gpu="1"}': steady(1),
            # seven MIG instances of one GPU are no missing GPUs
            'elastic_ai_pool_gpus{node="gpu2",class="nvidia_a100_1g.5gb"}': steady(7),
            'elastic_ai_gpu_info{node="gpu2",gpu="0"}': steady(1),
        },
        5,
        {"node": "gpu1", "class": "v100"},
        "gpu1 has fewer than the 2 GPUs that Slurm gives out; dmesg there says why",
    ),
    Case(
        "GpuDriverSilent",
        {'elastic_ai_gpu_nvml_up{node="gpu1"}': steady(0)},
        {'elastic_ai_gpu_nvml_up{node="gpu1"}': steady(1)},
        5,
        {"node": "gpu1"},
        "NVML does not answer on gpu1; nvidia-smi there says why",
    ),
    of_gpu(
        "GpuHot",
        "elastic_ai_gpu_temperature_celsius",
        steady(86),
        steady(85),
        10,
        "GPU 3 of gpu1 has 86 degrees Celsius",
    ),
    of_gpu(
        "GpuMemoryError",
        "elastic_ai_gpu_uncorrectable_errors",
        steady(2),
        steady(0),
        1,
        "GPU 3 of gpu1 has 2 uncorrectable memory errors since its driver was loaded; drain the node and reset the "
        "GPU, replace it if they come back",
    ),
    of_gpu(
        "GpuRepairPending",
        "elastic_ai_gpu_repair_pending",
        steady(1),
        steady(0),
        5,
        "GPU 3 of gpu1 wants a reset, by which its memory is repaired",
    ),
    of_gpu(
        "GpuRepairFailed",
        "elastic_ai_gpu_repair_failed",
        steady(1),
        steady(0),
        1,
        "The memory of GPU 3 of gpu1 cannot be repaired; replace it",
    ),
    Case(
        "GpuThrottled",
        {'elastic_ai_gpu_throttled{node="gpu1",gpu="3",reason="hardware, heat"}': steady(1)},
        {'elastic_ai_gpu_throttled{node="gpu1",gpu="3",reason="hardware, heat"}': steady(0)},
        5,
        {**OF_GPU, "reason": "hardware, heat"},
        "GPU 3 of gpu1 lowers its clock (hardware, heat); look at air flow, heat sink and power supplies",
    ),
    of_gpu(
        "GpuLinkNarrow",
        "elastic_ai_gpu_pcie_lanes_ratio",
        steady(0.5),
        steady(1),
        5,
        "The PCIe link of GPU 3 of gpu1 has 50% of its lanes; reseat the card or its riser",
    ),
    # promtool's rate of the first minutes is less than the true one: its window is not full yet
    of_gpu(
        "GpuLinkReplays",
        "elastic_ai_gpu_pcie_replays",
        f"0+10x{MANY}",
        f"0+7x{MANY}",
        19,
        "GPU 3 of gpu1 sends 10 PCIe packets a minute again (more than 8, NVIDIA DCGM's limit); reseat the card or its "
        "riser",
    ),
    Case(
        "LeasedGpusIdle",
        {
            'elastic_ai_pool_leased_gpus{node="gpu1",class="v100"}': steady(4),
            'elastic_ai_pool_gpus{node="gpu1",class="v100"}': steady(4),
            'elastic_ai_gpu_utilization_ratio{node="gpu1",gpu="0"}': steady(0.04),
        },
        {
            'elastic_ai_pool_leased_gpus{node="gpu1",class="v100"}': steady(4),
            'elastic_ai_pool_gpus{node="gpu1",class="v100"}': steady(4),
            'elastic_ai_gpu_utilization_ratio{node="gpu1",gpu="0"}': steady(0.5),
            'elastic_ai_pool_leased_gpus{node="gpu2",class="v100"}': steady(3.5),
            'elastic_ai_pool_gpus{node="gpu2",class="v100"}': steady(4),
            'elastic_ai_gpu_utilization_ratio{node="gpu2",gpu="0"}': steady(0),
        },
        60,
        {"node": "gpu1", "class": "v100"},
        "All GPUs of gpu1 are leased and hardly used for hours; toolkit gpus says by whom",
    ),
    Case(
        "LongWait",
        {"elastic_ai_pool_longest_wait_seconds": steady(14460)},
        {"elastic_ai_pool_longest_wait_seconds": steady(14400)},
        5,
        {},
        "A lease waits since 4h 1m 0s; squeue on the head says for what",
    ),
    Case(
        "NodeDown",
        {'up{node="gpu1",instance="10.0.0.1:9100"}': steady(0)},
        {'up{node="gpu1",instance="10.0.0.1:9100"}': steady(1)},
        2,
        {"node": "gpu1", "instance": "10.0.0.1:9100"},
        "gpu1 does not answer at 10.0.0.1:9100",
    ),
    # The clock of these tests begins at 0. Written at 0 and never again: too old from the third minute on.
    Case(
        "MetricsStale",
        {'node_textfile_mtime_seconds{node="gpu1",file="/d/elastic_ai_gpu.prom"}': steady(0)},
        {
            'node_textfile_mtime_seconds{node="gpu1",file="/d/elastic_ai_gpu.prom"}': f"0+60x{MANY}",
            # what a validation found last week is meant to be a week old
            'node_textfile_mtime_seconds{node="head",file="/d/elastic_ai_site.prom"}': steady(0),
        },
        5,
        {"node": "gpu1", "file": "/d/elastic_ai_gpu.prom"},
        "/d/elastic_ai_gpu.prom of gpu1 is 5m 0s old; systemctl status 'elastic-ai-*-metrics' there says why",
    ),
    Case(
        "DiskFull",
        {
            'node_filesystem_avail_bytes{node="gpu1",mountpoint="/",fstype="ext4"}': steady(9),
            'node_filesystem_size_bytes{node="gpu1",mountpoint="/",fstype="ext4"}': steady(100),
        },
        {
            'node_filesystem_avail_bytes{node="gpu1",mountpoint="/run",fstype="tmpfs"}': steady(0),
            'node_filesystem_size_bytes{node="gpu1",mountpoint="/run",fstype="tmpfs"}': steady(100),
            'node_filesystem_avail_bytes{node="gpu1",mountpoint="/",fstype="ext4"}': steady(10),
            'node_filesystem_size_bytes{node="gpu1",mountpoint="/",fstype="ext4"}': steady(100),
        },
        15,
        {"node": "gpu1", "mountpoint": "/", "fstype": "ext4"},
        "/ of gpu1 has 9% left",
    ),
    Case(
        "ClockOff",
        {'node_timex_offset_seconds{node="gpu1"}': steady(-0.06)},
        {'node_timex_offset_seconds{node="gpu1"}': steady(0.05)},
        10,
        {"node": "gpu1"},
        "The clock of gpu1 is 0.06 s off; Slurm and munge refuse what is too far off",
    ),
    Case(
        "NetworkErrors",
        {
            'node_network_receive_errs_total{node="gpu1",device="fab0"}': f"0+90x{MANY}",
            'node_network_transmit_errs_total{node="gpu1",device="fab0"}': f"0+30x{MANY}",
        },
        {
            'node_network_receive_errs_total{node="gpu1",device="fab0"}': f"0+30x{MANY}",
            'node_network_transmit_errs_total{node="gpu1",device="fab0"}': f"0+30x{MANY}",
        },
        13,
        {"node": "gpu1", "device": "fab0"},
        "fab0 of gpu1 has 2 errors a second",
    ),
    Case(
        "SiteDidNotPass",
        {f'elastic_ai_site_passed{SITE[:-1]},outcome="failed"}}': steady(0)},
        {f'elastic_ai_site_passed{SITE[:-1]},outcome="passed"}}': steady(1)},
        5,
        {**OF_SITE, "outcome": "failed"},
        "The newest validation of rack over roce40 is failed; its report on head names the suspect",
    ),
    Case(
        "SiteDrift",
        {f"elastic_ai_site_drift_ratio{inside({**OF_SITE, **DRIFT})}": steady(-0.4)},
        {f"elastic_ai_site_passed{SITE}": steady(1)},  # where nothing drifted there is no series
        5,
        {**OF_SITE, **DRIFT},
        "tr.tcpbw of gpu1/fab0>gpu2/fab0 changed by -40% over the validations of rack (step); toolkit trend on head "
        "shows since when",
    ),
    # begun at 0, overdue from minute 60 on, and an hour more before it fires
    Case(
        "SiteNotValidated",
        {
            f"elastic_ai_site_validated_timestamp_seconds{SITE}": steady(0),
            f"elastic_ai_site_overdue_seconds{SITE}": steady(3600),
        },
        {
            f"elastic_ai_site_validated_timestamp_seconds{SITE}": f"0+60x{MANY}",
            f"elastic_ai_site_overdue_seconds{SITE}": steady(3600),
        },
        121,
        OF_SITE,
        "rack was not validated over roce40 since 2h 1m 0s; on head journalctl -u elastic-ai-revalidate says why",
    ),
    Case(
        "BackupUnreadable",
        {f"elastic_ai_backup_unreadable{HEAD}": steady(2)},
        {f"elastic_ai_backup_unreadable{HEAD}": steady(0)},
        5,
        {"node": "head"},
        "Backups that cannot be read are on head: 2; journalctl -u elastic-ai-backup there names them. Make one now: "
        "toolkit backup",
    ),
    # of minute 0, overdue from minute 60 on
    Case(
        "BackupOverdue",
        {
            f"elastic_ai_backup_timestamp_seconds{HEAD}": steady(0),
            f"elastic_ai_backup_overdue_seconds{HEAD}": steady(3600),
        },
        {
            f"elastic_ai_backup_timestamp_seconds{HEAD}": f"0+60x{MANY}",
            f"elastic_ai_backup_overdue_seconds{HEAD}": steady(3600),
        },
        71,
        {"node": "head"},
        "head has no readable backup of the last 1h 0m 0s; journalctl -u elastic-ai-backup there says why",
    ),
    Case(
        "CertificateEnds",
        {'elastic_ai_certificate_days_left{node="head",certificate="registry"}': steady(29.5)},
        {'elastic_ai_certificate_days_left{node="head",certificate="registry"}': steady(30)},
        60,
        {"node": "head", "certificate": "registry"},
        "The certificate of the registry on head ends in 29.5 days. Those of the registry: toolkit rotate registry; "
        "the page's own is made new by a deployment",
    ),
    Case(
        "MungeKeyOld",
        {f"elastic_ai_munge_key_age_days{HEAD}": steady(366)},
        {f"elastic_ai_munge_key_age_days{HEAD}": steady(365)},
        60,
        {"node": "head"},
        "The munge key of head is 366 days old; toolkit rotate munge-key makes another while jobs run",
    ),
    Case(
        "RotationOpen",
        {'elastic_ai_rotation_open{node="head",key="munge-key"}': steady(1)},
        {'elastic_ai_rotation_open{node="head",key="munge-key"}': steady(0)},
        60,
        {"node": "head", "key": "munge-key"},
        "A rotation (munge-key) on head was begun and not finished; toolkit rotate munge-key ends it",
    ),
]


def of_case(case: Case) -> list[dict[str, Any]]:
    """A case as promtool's tests."""
    labels = {**case.labels, **alerts()[case.alert]["labels"]}
    fires = {"exp_labels": labels, "exp_annotations": {"summary": case.summary}}
    asked = {"alertname": case.alert}
    looks = [
        {**asked, "eval_time": f"{case.at - 1}m", "exp_alerts": []},
        {**asked, "eval_time": f"{case.at}m", "exp_alerts": [fires]},
    ]
    quiet = [{**asked, "eval_time": f"{minute}m", "exp_alerts": []} for minute in (case.at, 2 * case.at)]
    return [
        {"interval": "1m", "input_series": series(given), "alert_rule_test": wanted}
        for given, wanted in ((case.bad, looks), (case.well, quiet))
    ]


def series(given: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in given.items()]


def hold(folder: Path, tests: list[dict[str, Any]]) -> None:
    """The rules pass promtool's tests."""
    path = folder / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid() -> None:
    done = promtool("check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert sorted(case.alert for case in CASES) == sorted(alerts())


def test_each_alert_fires_when_it_says_and_is_quiet_when_all_is_well(tmp_path: Path) -> None:
    """By Prometheus's own evaluation, with the sentence that somebody reads at night."""
    hold(tmp_path, [test for case in CASES for test in of_case(case)])


def test_the_pools_shares_are_of_all_servers(tmp_path: Path) -> None:
    """The three recorded rules, which dashboard and report read."""
    given = {
        'elastic_ai_pool_leased_gpus{node="gpu1"}': steady(1),
        'elastic_ai_pool_leased_gpus{node="gpu2"}': steady(0.5),
        'elastic_ai_pool_gpus{node="gpu1"}': steady(4),
        'elastic_ai_pool_gpus{node="gpu2"}': steady(2),
        'elastic_ai_gpu_utilization_ratio{node="gpu1",gpu="0"}': steady(0.5),
        'elastic_ai_gpu_utilization_ratio{node="gpu2",gpu="0"}': steady(0.25),
        'elastic_ai_gpu_memory_used_bytes{node="gpu1",gpu="0"}': steady(1),
        'elastic_ai_gpu_memory_total_bytes{node="gpu1",gpu="0"}': steady(16),
        'elastic_ai_gpu_memory_used_bytes{node="gpu2",gpu="0"}': steady(3),
        'elastic_ai_gpu_memory_total_bytes{node="gpu2",gpu="0"}': steady(16),
    }
    wanted = {
        "elastic_ai:pool_leased:ratio": 0.25,
        "elastic_ai:gpu_utilization:ratio": 0.375,
        "elastic_ai:gpu_memory:ratio": 0.125,
    }
    asked = [
        {"expr": name, "eval_time": "5m", "exp_samples": [{"labels": name, "value": value}]}
        for name, value in wanted.items()
    ]
    hold(tmp_path, [{"interval": "1m", "input_series": series(given), "promql_expr_test": asked}])
