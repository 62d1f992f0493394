"""The same of NVLinks, PCIe, flow control, units, drift and accounting."""

from __future__ import annotations

from tests.support.alert_cases import GPU, MANY, OF_GPU, Case, inside, of_gpu, steady

DEVICE = {"node": "gpu1", "address": "0000:3b:00.0"}
PORT = {"node": "gpu1", "device": "fab0"}
CARD = {"node": "gpu1", "device": "mlx5_0", "port": "1"}


def of_unit(alert: str, unit: str, other: str, summary: str) -> Case:
    """An alert on a unit that does not run, which another unit's does not raise."""
    bad, well = ({"node": "gpu1", "unit": name} for name in (unit, other))
    metric = "elastic_ai_unit_active"
    return Case(
        alert,
        {metric + inside(bad): steady(0)},
        {metric + inside(bad): steady(1), metric + inside(well): steady(0)},
        1,
        bad,
        summary,
    )


MORE = [
    of_gpu(
        "NvLinkDown",
        "elastic_ai_gpu_nvlinks_down",
        steady(2),
        steady(0),
        1,
        "GPU 3 of gpu1 has 2 NVLinks that are down; nvidia-smi nvlink -s there, then a reset of the node's GPUs",
    ),
    Case(
        "NvLinkErrors",
        {f'elastic_ai_gpu_nvlink_errors{GPU[:-1]},kind="recovery"}}': f"0x9 1x{MANY}"},
        {
            f'elastic_ai_gpu_nvlink_errors{GPU[:-1]},kind="recovery"}}': steady(4),
            f'elastic_ai_gpu_nvlink_errors{GPU[:-1]},kind="replay"}}': f"0+30x{MANY}",
        },
        11,
        {**OF_GPU, "kind": "recovery"},
        "NVLinks of GPU 3 of gpu1 have errors (recovery); nvidia-smi nvlink -e there names the link",
    ),
    of_gpu(
        "GpuFabricNotReady",
        "elastic_ai_gpu_fabric_ready",
        steady(0),
        steady(1),
        2,
        "GPU 3 of gpu1 is not ready in its NVLink fabric; nvidia-smi -q there says in which state, and the log of "
        "Fabric Manager why",
    ),
    of_unit(
        "FabricManagerDown",
        "nvidia-fabricmanager",
        "docker",
        "Fabric Manager does not run on gpu1: no CUDA program starts there; systemctl status nvidia-fabricmanager says "
        "why",
    ),
    of_gpu(
        "GpuRowsRemapped",
        "elastic_ai_gpu_rows_remapped",
        f"2x9 3x{MANY}",
        steady(3),
        11,
        "GPU 3 of gpu1 replaced rows of its memory after uncorrectable errors in the last day; drain the node and "
        "reset the GPU",
    ),
    Case(
        "AccountingBehind",
        {"elastic_ai_pool_accounting_queue": steady(101)},
        {"elastic_ai_pool_accounting_queue": steady(100)},
        5,
        {},
        "101 messages wait for the accounting's database; systemctl status slurmdbd on the head",
    ),
    Case(
        "LeaversHeld",
        {'elastic_ai_pool_leavers{node="head",state="held"}': steady(2)},
        {
            'elastic_ai_pool_leavers{node="head",state="held"}': steady(0),
            'elastic_ai_pool_leavers{node="head",state="unsure"}': steady(1),
        },
        120,
        {"node": "head", "state": "held"},
        "2 users who left a class have jobs since more than two hours; squeue on head",
    ),
    Case(
        "LeaversUnsure",
        {'elastic_ai_pool_leavers{node="head",state="unsure"}': steady(2)},
        {
            'elastic_ai_pool_leavers{node="head",state="unsure"}': steady(0),
            'elastic_ai_pool_leavers{node="head",state="held"}': steady(1),
        },
        120,
        {"node": "head", "state": "unsure"},
        "2 users look as if they had left, and the directory does not say so for certain; journalctl -u "
        "elastic-ai-pool-sync on head",
    ),
    of_unit(
        "DatabaseDown",
        "slurmdbd",
        "docker",
        "slurmdbd does not run on gpu1: accounting stops, and a controller that starts anew has no users; systemctl "
        "status slurmdbd",
    ),
    of_unit("ServiceDown", "docker", "mariadb", "docker does not run on gpu1; systemctl status docker there"),
    Case(
        "UnitFailed",
        {'elastic_ai_unit_failed{node="gpu1",unit="elastic-ai-pool-sync"}': steady(1)},
        {'elastic_ai_units_failed{node="gpu1"}': steady(0)},
        1,
        {"node": "gpu1", "unit": "elastic-ai-pool-sync"},
        "elastic-ai-pool-sync of gpu1 has failed; journalctl -u elastic-ai-pool-sync there says why",
    ),
    Case(
        "NodeDrift",
        {'elastic_ai_drift{node="gpu1",what="files"}': steady(2)},
        {'elastic_ai_drift{node="gpu1",what="files"}': f"0x9 3x20 0x{MANY}"},  # a deployment
        30,
        {"node": "gpu1", "what": "files"},
        "2 files of gpu1 are others than as deployed; toolkit status --details names them",
    ),
    Case(
        "RebootWaits",
        {'elastic_ai_reboot_waits{node="gpu1"}': steady(1)},
        {'elastic_ai_reboot_waits{node="gpu1"}': steady(0)},
        120,
        {"node": "gpu1"},
        "A reboot of gpu1 waits since hours; toolkit status --details says for what",
    ),
    Case(
        "RdmaRetransmissions",
        {f"elastic_ai_rdma_resent{inside(CARD)}": f"0+1200x{MANY}"},
        {f"elastic_ai_rdma_resent{inside(CARD)}": f"0+600x{MANY}"},
        8,
        CARD,
        "Port 1 of mlx5_0 on gpu1 loses or sends again 20 RDMA packets a second; look at flow control (PFC, ECN) of "
        "node and switch",
    ),
    Case(
        "PortPaused",
        {f"elastic_ai_port_paused_seconds{inside(PORT)}": f"0+15x{MANY}"},
        {f"elastic_ai_port_paused_seconds{inside(PORT)}": f"0+6x{MANY}"},
        8,
        PORT,
        "fab0 of gpu1 is told to wait for 25% of the time (PFC); look for the receiver that is too slow, and at ECN of "
        "the switches",
    ),
    Case(
        "PauseStorm",
        {f"elastic_ai_port_pause_storms{inside(PORT)}": f"0x9 1x{MANY}"},
        {f"elastic_ai_port_pause_storms{inside(PORT)}": steady(2)},
        11,
        PORT,
        "fab0 of gpu1 has sent a storm of pauses, which stops a lossless fabric; the node's memory or PCIe was too "
        "slow for it",
    ),
    Case(
        "PcieErrors",
        {f"elastic_ai_pcie_errors{inside({**DEVICE, 'severity': 'fatal'})}": f"0x9 1x{MANY}"},
        {
            f"elastic_ai_pcie_errors{inside({**DEVICE, 'severity': 'fatal'})}": steady(1),
            f"elastic_ai_pcie_errors{inside({**DEVICE, 'severity': 'correctable'})}": f"0x9 9x{MANY}",
        },
        11,
        {**DEVICE, "severity": "fatal"},
        "0000:3b:00.0 of gpu1 has fatal PCIe errors; lspci -s 0000:3b:00.0 names it, dmesg there the error",
    ),
    Case(
        "PcieCorrected",
        {f"elastic_ai_pcie_errors{inside({**DEVICE, 'severity': 'correctable'})}": f"0x59 600x{MANY}"},
        {f"elastic_ai_pcie_errors{inside({**DEVICE, 'severity': 'correctable'})}": f"0x59 50x{MANY}"},
        61,
        {**DEVICE, "severity": "correctable"},
        "0000:3b:00.0 of gpu1 has corrected 600 PCIe errors in an hour; reseat the card or its riser",
    ),
]
