"""A real Prometheus whose past is what a lab's exporters said, for dashboards and what draws them.

tests/data/monitoring: what node-exporter said on head and gpu1 of a lab (node-exporter 1.5, emulated GPUs), cut to what
dashboards ask for. What a lab of containers has not (RDMA, PCIe errors, pauses, leases), and what its
BMCs say (as emulated ones do: test_bmc_metrics.py), is constructed here.
"""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.alerting import free_port, until

DATA = Path(__file__).parents[1] / "data/monitoring"
STEP_S, READINGS = 15, 80
CONSTRUCTED = """
elastic_ai_bmc_fan_ratio{fan="Fan1"} 0.45
elastic_ai_bmc_fan_rpm{fan="Fan1"} 9000
elastic_ai_bmc_healthy 1
elastic_ai_bmc_part_healthy{kind="psu",slot="PSU.Slot.1"} 1
elastic_ai_bmc_power_watts 900
elastic_ai_bmc_redundant 1
elastic_ai_bmc_temperature_celsius{sensor="Inlet"} 23
elastic_ai_bmc_temperature_critical_celsius{sensor="Inlet"} 47
elastic_ai_bmc_up 1
elastic_ai_gpu_nvlink_errors{gpu="0",kind="replay"} 3
elastic_ai_gpu_power_watts{gpu="0"} 250
elastic_ai_gpu_rows_remapped{gpu="0"} 1
elastic_ai_gpu_xids{address="0000:3b:00.0",code="79",meaning="replace"} 1
elastic_ai_pcie_errors{address="0000:3b:00.0",severity="correctable"} 4
elastic_ai_pool_leases{account="ml",state="running"} 1
elastic_ai_pool_user_gpus{account="ml",user="ann",state="running"} 2
elastic_ai_pool_user_gpus{account="ml",user="ann",state="pending"} 1
elastic_ai_port_pause_frames{device="fab0",direction="rx"} 10
elastic_ai_port_paused_seconds{device="fab0"} 0.5
elastic_ai_rdma_resent{device="mlx5_0",port="1"} 7
node_infiniband_port_data_received_bytes_total{device="mlx5_0",port="1"} 1000
node_infiniband_state_id{device="mlx5_0",port="1"} 4
""".strip()


def samples(ends: int) -> str:
    """All of it as OpenMetrics, read again and again until then (seconds since the epoch)."""
    lines, began = [], ends - STEP_S * (READINGS - 1)
    for node in ("head", "gpu1"):
        said = [*(DATA / f"{node}.prom").read_text("utf-8").splitlines(), 'up{instance="x"} 1']
        for line in said + (CONSTRUCTED.splitlines() if node == "gpu1" else []):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            mine = [] if 'node="' in (labels or "") else [f'node="{node}"']
            inside = ",".join([*([labels] if labels else []), *mine, 'job="node"'])
            lines += [f"{name}{{{inside}}} {value} {began + STEP_S * at}" for at in range(READINGS)]
    return "\n".join([*lines, "# EOF", ""])


@contextmanager
def recorded(folder: Path, ends: int) -> Iterator[str]:
    """Its address. It reads nothing more."""
    (folder / "past").write_text(samples(ends), encoding="utf-8")
    (folder / "prometheus.yml").write_text("global: {}\n")
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "past", folder / "data"]
    subprocess.run(made, check=True, capture_output=True)
    base = f"http://127.0.0.1:{free_port()}"
    words = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address={base[7:]}", "--storage.tsdb.retention.time=100y"]  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        try:
            assert until(lambda: ready(base)), (folder / "log").read_text()
            yield base
        finally:
            process.terminate()


def asked(url: str) -> bytes:
    """What an address of this machine answers."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as answer:
        return bytes(answer.read())


def ready(base: str) -> bool:
    """Whether it answers."""
    try:
        return bool(asked(f"{base}/-/ready"))
    except OSError:
        return False
