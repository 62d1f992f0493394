#!/usr/bin/env python3
"""Dashboards of role monitoring, from the panels below. That of the pool is kept by hand.

python tools/make_dashboards.py             # writes roles/monitoring/files/{fabric,gpus,servers,node,user}.json
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FILES = Path(__file__).parents[1] / "roles/monitoring/files"
SOURCE = {"type": "prometheus", "uid": "elastic-ai"}
VIRTUAL = "lo|veth.*|docker.*|br-.*|virbr.*|tap.*|tun.*"  # as the rules of alerts have it
PORTS = f'device!~"{VIRTUAL}"'
WIDTH, HEIGHT, ROW = 12, 8, 24


@dataclass(frozen=True)
class Panel:
    """A panel: queries with their legends."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: Literal["timeseries", "stat", "table"] = "timeseries"


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. chosen: the label that somebody chooses a value of, and the query that lists its values."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    chosen: tuple[str, str] | None = None


def per_gpu(title: str, metric: str, unit: str = "short") -> Panel:
    """One figure of each GPU."""
    return Panel(title, ((metric, "{{node}} GPU {{gpu}}"),), unit)


def per_port(title: str, expression: str, unit: str = "short") -> Panel:
    """One figure of each port."""
    return Panel(title, ((expression, "{{node}} {{device}}"),), unit)


FABRIC = (
    Panel("Ports without a link", ((f"count(node_network_carrier{{{PORTS}}} == 0) or vector(0)", ""),), kind="stat"),
    Panel("RDMA ports that are not active", (("count(node_infiniband_state_id != 4) or vector(0)", ""),), kind="stat"),
    per_port("Received", f"rate(node_network_receive_bytes_total{{{PORTS}}}[5m]) * 8", "bps"),
    per_port("Sent", f"rate(node_network_transmit_bytes_total{{{PORTS}}}[5m]) * 8", "bps"),
    per_port(
        "Errors and drops",
        f"rate(node_network_receive_errs_total{{{PORTS}}}[5m]) + rate(node_network_transmit_errs_total{{{PORTS}}}[5m])"
        f" + rate(node_network_receive_drop_total{{{PORTS}}}[5m])",
        "pps",
    ),
    per_port("Links lost in the last hour", f"increase(node_network_carrier_down_changes_total{{{PORTS}}}[1h])"),
    per_port("RDMA received", "rate(node_infiniband_port_data_received_bytes_total[5m]) * 8", "bps"),
    per_port("RDMA packets lost or sent again", "rate(elastic_ai_rdma_resent[5m])", "pps"),
    Panel(
        "Pause frames",
        (("rate(elastic_ai_port_pause_frames[5m])", "{{node}} {{device}} {{direction}}"),),
        "pps",
    ),
    per_port("Share of time that a port was told to wait", "rate(elastic_ai_port_paused_seconds[5m])", "percentunit"),
    Panel(
        "TCP segments sent again",
        (("rate(node_netstat_Tcp_RetransSegs[5m]) / rate(node_netstat_Tcp_OutSegs[5m])", "{{node}}"),),
        "percentunit",
    ),
    Panel(
        "PCIe errors in the last hour",
        (("sum by (node, severity) (increase(elastic_ai_pcie_errors[1h]))", "{{node}} {{severity}}"),),
    ),
)

GPUS = (
    Panel("GPUs that answer", (("count(elastic_ai_gpu_info)", ""),), kind="stat"),
    Panel("GPUs with a fault", (("count(elastic_ai_gpu_uncorrectable_errors > 0) or vector(0)", ""),), kind="stat"),
    per_gpu("Utilisation", "elastic_ai_gpu_utilization_ratio", "percentunit"),
    per_gpu("Memory taken", "elastic_ai_gpu_memory_used_bytes / elastic_ai_gpu_memory_total_bytes", "percentunit"),
    per_gpu("Temperature", "elastic_ai_gpu_temperature_celsius", "celsius"),
    per_gpu("Power", "elastic_ai_gpu_power_watts", "watt"),
    Panel("Clock lowered", (("elastic_ai_gpu_throttled", "{{node}} GPU {{gpu}}, {{reason}}"),)),
    per_gpu("Uncorrectable memory errors", "elastic_ai_gpu_uncorrectable_errors"),
    per_gpu("Rows of memory replaced", "elastic_ai_gpu_rows_remapped"),
    per_gpu("PCIe lanes in use", "elastic_ai_gpu_pcie_lanes_ratio", "percentunit"),
    per_gpu("NVLinks that are down", "elastic_ai_gpu_nvlinks_down"),
    Panel(
        "NVLink errors in the last hour",
        (("increase(elastic_ai_gpu_nvlink_errors[1h])", "{{node}} GPU {{gpu}}, {{kind}}"),),
    ),
    Panel("Xids since the node's start", (("elastic_ai_gpu_xids", "{{node}} {{address}} Xid {{code}}"),)),
    Panel("GPUs", (("elastic_ai_gpu_info", ""),), kind="table"),
)


def per_server(title: str, metric: str, legend: str = "", unit: str = "short") -> Panel:
    """One figure of each server's BMC, or of each of its parts."""
    return Panel(title, ((metric, f"{{{{node}}}} {legend}".strip()),), unit)


SERVERS = (
    Panel("BMCs that do not answer", (("count(elastic_ai_bmc_up == 0) or vector(0)", ""),), kind="stat"),
    Panel("Servers that are not well", (("count(elastic_ai_bmc_healthy == 0) or vector(0)", ""),), kind="stat"),
    Panel("Power of all servers", (("sum(elastic_ai_bmc_power_watts)", "all"),), "watt"),
    per_server("Power", "elastic_ai_bmc_power_watts", unit="watt"),
    per_server("Temperature", "elastic_ai_bmc_temperature_celsius", "{{sensor}}", "celsius"),
    per_server(
        "Degrees below what the maker calls critical",
        "elastic_ai_bmc_temperature_critical_celsius - elastic_ai_bmc_temperature_celsius",
        "{{sensor}}",
        "celsius",
    ),
    per_server("Fans, turns a minute", "elastic_ai_bmc_fan_rpm", "{{fan}}"),
    per_server("Fans, of what they can", "elastic_ai_bmc_fan_ratio", "{{fan}}", "percentunit"),
    per_server("Power supplies are redundant", "elastic_ai_bmc_redundant"),
    per_server("Health", "elastic_ai_bmc_healthy"),
    per_server("Power supplies and fans that are well", "elastic_ai_bmc_part_healthy", "{{kind}} {{slot}}"),
)

_NODE = 'node="$node"'
NODE = (
    Panel("Alerts", ((f'count(ALERTS{{{_NODE},alertstate="firing"}}) or vector(0)', ""),), kind="stat"),
    Panel("Up since", ((f"time() - node_boot_time_seconds{{{_NODE}}}", ""),), "s", "stat"),
    Panel("Failed units", ((f"elastic_ai_units_failed{{{_NODE}}}", ""),), kind="stat"),
    Panel("Drift since the deployment", ((f"elastic_ai_drift{{{_NODE}}}", "{{what}}"),), kind="stat"),
    Panel(
        "Processors",
        ((f'1 - avg(rate(node_cpu_seconds_total{{{_NODE},mode="idle"}}[5m]))', "busy"),),
        "percentunit",
    ),
    Panel("Load", ((f"node_load1{{{_NODE}}}", "1 minute"),)),
    Panel("Memory", ((f"node_memory_MemAvailable_bytes{{{_NODE}}}", "available"),), "bytes"),
    Panel(
        "Disks",
        (
            (
                f'node_filesystem_avail_bytes{{{_NODE},fstype!~"tmpfs|overlay|squashfs"}} / node_filesystem_size_bytes',
                "{{mountpoint}} free",
            ),
        ),
        "percentunit",
    ),
    Panel(
        "Network",
        (
            (f"rate(node_network_receive_bytes_total{{{_NODE},{PORTS}}}[5m]) * 8", "{{device}} received"),
            (f"-rate(node_network_transmit_bytes_total{{{_NODE},{PORTS}}}[5m]) * 8", "{{device}} sent"),
        ),
        "bps",
    ),
    Panel("GPUs", ((f"elastic_ai_gpu_utilization_ratio{{{_NODE}}}", "GPU {{gpu}}"),), "percentunit"),
    Panel("Leased GPUs", ((f"elastic_ai_pool_leased_gpus{{{_NODE}}}", "leased"),)),
    Panel("Services", ((f"elastic_ai_unit_active{{{_NODE}}}", "{{unit}}"),)),
)

_USER = 'user="$user"'
USER = (
    Panel("GPUs held", ((f'sum(elastic_ai_pool_user_gpus{{{_USER},state="running"}}) or vector(0)', ""),), kind="stat"),
    Panel("Waits for", ((f'sum(elastic_ai_pool_user_gpus{{{_USER},state="pending"}}) or vector(0)', ""),), kind="stat"),
    Panel("GPUs by class of users", ((f"elastic_ai_pool_user_gpus{{{_USER}}}", "{{account}} {{state}}"),)),
    Panel(
        "Share of the pool",
        ((f'sum(elastic_ai_pool_user_gpus{{{_USER},state="running"}}) / scalar(sum(elastic_ai_pool_gpus))', ""),),
        "percentunit",
    ),
    Panel(
        "GPU hours of the last day",
        ((f'sum(sum_over_time(elastic_ai_pool_user_gpus{{{_USER},state="running"}}[1d:5m])) / 12', ""),),
        "h",
        "stat",
    ),
    Panel("How long the oldest lease waits", (("elastic_ai_pool_longest_wait_seconds", "of all users"),), "s"),
)

DASHBOARDS = (
    Dashboard("fabric", "Elastic AI: fabric", FABRIC),
    Dashboard("gpus", "Elastic AI: GPUs", GPUS),
    Dashboard("servers", "Elastic AI: servers by their BMCs", SERVERS),
    Dashboard("node", "Elastic AI: a node", NODE, ("node", "label_values(up, node)")),
    Dashboard("user", "Elastic AI: a user", USER, ("user", "label_values(elastic_ai_pool_user_gpus, user)")),
)


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expression, "legendFormat": legend,
         **({"format": "table", "instant": True} if panel.kind == "table" else {})}
        for at, (expression, legend) in enumerate(panel.queries)
    ]  # fmt: skip
    place = {"x": number * WIDTH % ROW, "y": number * WIDTH // ROW * HEIGHT, "w": WIDTH, "h": HEIGHT}
    return {"id": number + 1, "type": panel.kind, "title": panel.title, "datasource": SOURCE, "gridPos": place,
            "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []}, "targets": targets}  # fmt: skip


def document(one: Dashboard) -> dict[str, Any]:
    """A dashboard as Grafana reads it."""
    chosen = []
    if one.chosen:
        label, query = one.chosen
        chosen.append({"name": label, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2, "sort": 1})
    return {"uid": f"elastic-ai-{one.name}", "title": one.title, "tags": ["elastic-ai"], "timezone": "browser",
            "schemaVersion": 38, "version": 1, "editable": False, "refresh": "30s",
            "time": {"from": "now-1d", "to": "now"}, "templating": {"list": chosen},
            "panels": [_panel(number, panel) for number, panel in enumerate(one.panels)]}  # fmt: skip


def text(one: Dashboard) -> str:
    """The same as a file."""
    return json.dumps(document(one), indent=1) + "\n"


def main() -> None:
    """Write the files."""
    for one in DASHBOARDS:
        (FILES / f"{one.name}.json").write_text(text(one), encoding="utf-8")
        print(f"roles/monitoring/files/{one.name}.json: {len(one.panels)} panels")


if __name__ == "__main__":
    main()
