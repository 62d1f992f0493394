"""What each alert of role monitoring is held to: figures at which it fires, and some at which it is quiet."""

from __future__ import annotations

from dataclasses import dataclass, field

MANY = 300  # minutes of each series: more than twice what any alert waits


@dataclass(frozen=True)
class Case:
    """Series in promtool's notation, one value a minute: `bad` ones fire at minute `at` and not a minute before, with
    these labels (beside the rule's own) and summary; `well` ones never do. twins: labels and summaries of others that
    fire with it."""

    alert: str
    bad: dict[str, str]
    well: dict[str, str]
    at: int
    labels: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    twins: tuple[tuple[dict[str, str], str], ...] = ()


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
        1,
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
        1,
        {"node": "gpu1", "class": "v100"},
        "gpu1 has fewer than the 2 GPUs that Slurm gives out; dmesg there says why",
    ),
    Case(
        "GpuDriverSilent",
        {'elastic_ai_gpu_nvml_up{node="gpu1"}': steady(0)},
        {'elastic_ai_gpu_nvml_up{node="gpu1"}': steady(1)},
        1,
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
        1,
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
        "GpuXid",
        {'elastic_ai_gpu_xids{node="gpu1",address="0000:3b:00.0",code="79",meaning="replace"}': steady(1)},
        {'elastic_ai_gpu_xids{node="gpu1",address="0000:3b:00.0",code="13",meaning="application"}': steady(9)},
        1,
        {"node": "gpu1", "address": "0000:3b:00.0", "code": "79", "meaning": "replace"},
        "Xid 79 of 0000:3b:00.0 on gpu1 (replace): drain it; toolkit incidents does, and toolkit support packs what "
        "the vendor asks for",
    ),
    Case(
        "KernelLogUnread",
        {
            'elastic_ai_kernel_log_read{node="gpu1"}': steady(0),
            'elastic_ai_gpu_info{node="gpu1",gpu="0",emulated="false"}': steady(1),
        },
        {
            'elastic_ai_kernel_log_read{node="gpu1"}': steady(0),
            'elastic_ai_gpu_info{node="gpu1",gpu="0",emulated="true"}': steady(1),
        },
        15,
        {"node": "gpu1"},
        "The kernel's log of gpu1 cannot be read, so Xids there raise no alert",
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
        1,
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
        {'up{job="node",node="gpu1",instance="10.0.0.1:9100"}': steady(0)},
        {
            'up{job="node",node="gpu1",instance="10.0.0.1:9100"}': steady(1),
            'up{job="dcgm",node="gpu1",instance="10.0.0.1:9400"}': steady(0),
        },
        1,
        {"job": "node", "node": "gpu1", "instance": "10.0.0.1:9100"},
        "gpu1 does not answer at 10.0.0.1:9100",
    ),
    Case(
        "ExporterDown",
        {'up{job="dcgm",node="gpu1",instance="10.0.0.1:9400"}': steady(0)},
        {'up{job="node",node="gpu1",instance="10.0.0.1:9100"}': steady(0)},
        2,
        {"job": "dcgm", "node": "gpu1", "instance": "10.0.0.1:9400"},
        "dcgm of gpu1 does not answer at 10.0.0.1:9400; its figures are missing",
    ),
    Case(
        "NotificationsFail",
        {'alertmanager_notifications_failed_total{node="head",integration="email"}': f"0x9 1x{MANY}"},
        {'alertmanager_notifications_failed_total{node="head",integration="email"}': steady(7)},
        11,
        {"node": "head", "integration": "email"},
        "Alerts do not arrive by email, which is tried again and again; journalctl -u prometheus-alertmanager on head "
        "says why",
    ),
    Case(
        "AlertmanagerDown",
        {'up{job="alertmanager",node="head",instance="127.0.0.1:9093"}': steady(0)},
        {'up{job="alertmanager",node="head",instance="127.0.0.1:9093"}': steady(1)},
        1,
        {"job": "alertmanager", "node": "head", "instance": "127.0.0.1:9093"},
        "Nobody is told of alerts; systemctl status prometheus-alertmanager on head says why",
    ),
    # the clock of these tests begins at 0: a node that says 60 at minute 0 is a minute ahead
    Case(
        "ClockWrong",
        {'node_time_seconds{node="gpu1"}': f"60+60x{MANY}"},
        {'node_time_seconds{node="gpu1"}': f"4+60x{MANY}"},
        1,
        {"node": "gpu1"},
        "The clock of gpu1 is 1m 0s off the head's; chronyc tracking there",
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
