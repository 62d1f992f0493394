"""Dashboards of role monitoring: made from their panels, and each query answered by a real Prometheus on lab data.

tests/data/monitoring: what node-exporter said on head and gpu1 of a lab (node-exporter 1.5, emulated GPUs), cut to what
dashboards ask for. What a lab of containers has not (RDMA, PCIe errors, pauses, leases) is constructed here.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.alerting import ROLE, free_port, until
from tools.make_dashboards import DASHBOARDS, text

DATA = Path(__file__).parents[1] / "data/monitoring"
NAMES = ["pool", *(one.name for one in DASHBOARDS)]
BEGAN, STEP_S, READINGS = 1795870000, 15, 80
CONSTRUCTED = """
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


def panels(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROLE / f"files/{name}.json").read_text("utf-8"))["panels"]
    return found


def expressions(name: str) -> list[tuple[str, str]]:
    """(title, query) with a node and a user chosen, and with the rules' own text for what they record."""
    rules = yaml.safe_load((ROLE / "files/rules.yml").read_text("utf-8"))["groups"]
    recorded = {rule["record"]: rule["expr"] for group in rules for rule in group["rules"] if "record" in rule}
    found = []
    for panel in panels(name):
        for target in panel["targets"]:
            query = target["expr"].replace("$node", "gpu1").replace("$user", "ann")
            for name_of, expression in recorded.items():
                query = query.replace(name_of, f"({expression})")
            found.append((panel["title"], query))
    return found


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_the_files_are_what_their_panels_say(one: Any) -> None:
    assert (ROLE / f"files/{one.name}.json").read_text("utf-8") == text(one), (
        "renew it: python tools/make_dashboards.py"
    )


def test_the_role_brings_them_all() -> None:
    assert f"src: [{', '.join(f'{name}.json' for name in NAMES)}]" in (ROLE / "vars/main.yml").read_text("utf-8")


def samples() -> str:
    """All of it as OpenMetrics, read again and again."""
    lines = []
    for node in ("head", "gpu1"):
        said = [*(DATA / f"{node}.prom").read_text("utf-8").splitlines(), 'up{instance="x"} 1']
        for line in said + (CONSTRUCTED.splitlines() if node == "gpu1" else []):
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            mine = [] if 'node="' in (labels or "") else [f'node="{node}"']
            inside = ",".join([*([labels] if labels else []), *mine, 'job="node"'])
            lines += [f"{name}{{{inside}}} {value} {BEGAN + STEP_S * at}" for at in range(READINGS)]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address; with the lab's figures as its past."""
    if shutil.which("prometheus") is None:
        pytest.skip("no Prometheus here: Debian's package prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "past").write_text(samples(), encoding="utf-8")
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
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as answer:
        return bytes(answer.read())


def ready(base: str) -> bool:
    try:
        return bool(asked(f"{base}/-/ready"))
    except OSError:
        return False


@pytest.mark.parametrize("name", NAMES)
def test_no_panel_is_empty(prometheus: str, name: str) -> None:
    empty = []
    for title, query in expressions(name):
        words = urllib.parse.urlencode({"query": query, "time": BEGAN + STEP_S * (READINGS - 1)})
        if not json.loads(asked(f"{prometheus}/api/v1/query?{words}"))["data"]["result"]:
            empty.append(f"{title}: {query}")
    assert empty == []
