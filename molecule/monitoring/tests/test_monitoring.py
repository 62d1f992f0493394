"""What role monitoring promises: figures of nodes, GPUs and pool in a Prometheus that runs, alerts and a dashboard."""

import json
import time
import urllib.parse

import pytest

testinfra_hosts = ["ansible://head"]
DASHBOARD = "/etc/elastic-ai/monitoring/pool.json"
# Figures that GPUs give only where they support it, and what nobody in an empty pool has.
MAY_BE_EMPTY = (
    "elastic_ai_gpu_temperature_celsius",
    "elastic_ai_gpu_power_watts",
    'sum by (account) (elastic_ai_pool_user_gpus{state="pending"})',
)


def ask(host, path, **query):
    url = f"http://127.0.0.1:9090/api/v1/{path}?{urllib.parse.urlencode(query)}"
    answer = json.loads(host.check_output("curl --silent --show-error %s", url))
    assert answer["status"] == "success", answer
    return answer["data"]


def values(host, query):
    return {
        tuple(sorted((k, v) for k, v in one["metric"].items() if k in ("node", "class", "state", "account"))): float(
            one["value"][1]
        )
        for one in ask(host, "query", query=query)["result"]
    }


def until(what, limit_s=60):
    for _ in range(limit_s):
        found = what()
        if found:
            return found
        time.sleep(1)
    return what()


def test_prometheus_reads_every_node(host):
    def all_up():
        up = values(host, 'up{job="node",node!=""}')  # the package's own first minute has none
        return {dict(labels)["node"] for labels in up} == {"head", "gpu1"} and set(up.values()) == {1.0}

    assert until(all_up), ask(host, "targets")
    assert host.run("promtool check config /etc/prometheus/prometheus.yml").rc == 0


def test_the_pools_figures_follow_slurm(host):
    gpu1 = (("class", "v100"), ("node", "gpu1"))
    assert until(lambda: values(host, "elastic_ai_pool_gpus") == {gpu1: 4.0})
    assert values(host, "elastic_ai_pool_node_up") == {gpu1: 1.0}
    job = host.check_output("sbatch --parsable --output=/dev/null --gres=gpu:1 -n1 --mem=50 --wrap 'sleep 120'")
    part = host.check_output("sbatch --parsable --output=/dev/null --gres=shard:1260 -n1 --mem=50 --wrap 'sleep 120'")
    try:
        assert until(lambda: values(host, "elastic_ai_pool_leased_gpus") == {gpu1: 1.25}), values(
            host, "elastic_ai_pool_leased_gpus"
        )
        running = values(host, "elastic_ai_pool_leases")
        assert running == {(("account", "root"), ("node", "head"), ("state", "running")): 2.0}
        assert until(lambda: values(host, "elastic_ai:pool_leased:ratio") == {(): 0.3125})
        # With leases in the pool, every query of the dashboard has something to show.
        panels = json.loads(host.file(DASHBOARD).content_string)["panels"]
        emulated = values(host, "elastic_ai_gpu_nvml_up") == {(("node", "gpu1"),): 1.0}
        for query in [target["expr"] for panel in panels for target in panel["targets"]]:
            if query in MAY_BE_EMPTY or (not emulated and ("elastic_ai_gpu" in query or "elastic_ai:gpu" in query)):
                ask(host, "query", query=query)  # it is at least a query
                continue
            assert until(lambda query=query: ask(host, "query", query=query)["result"], 30), query
    finally:
        host.check_output("scancel %s %s", job, part)


def test_the_gpus_figures_say_whether_they_are_emulated(host):
    up = until(lambda: values(host, "elastic_ai_gpu_nvml_up"))
    if up == {(("node", "gpu1"),): 0.0}:
        pytest.skip("this lab has no emulated GPUs, and says so: elastic_ai_gpu_nvml_up is 0")
    info = ask(host, "query", query="elastic_ai_gpu_info")["result"]
    assert info
    assert {one["metric"]["emulated"] for one in info} == {"true"}
    assert all(one["metric"]["name"].startswith("Emulated") for one in info)


def test_an_alert_fires_when_a_node_takes_no_leases(host):
    host.check_output("scontrol update nodename=gpu1 state=drain reason=test")
    try:
        assert until(lambda: 0.0 in values(host, "elastic_ai_pool_node_up").values())
        alerts = until(lambda: ask(host, "alerts")["alerts"])
        assert "GpuServerOutOfService" in {alert["labels"]["alertname"] for alert in alerts}
    finally:
        host.check_output("scontrol update nodename=gpu1 state=resume")


def test_a_controller_that_is_gone_is_told_and_not_shown_as_an_empty_pool(host):
    host.check_output("systemctl stop slurmctld")
    try:
        assert until(lambda: values(host, "elastic_ai_pool_up") == {(("node", "head"),): 0.0}, 90)
        assert until(lambda: values(host, "elastic_ai_pool_gpus") == {}, 30)
    finally:
        host.check_output("systemctl start slurmctld")
    assert until(lambda: values(host, "elastic_ai_pool_up") == {(("node", "head"),): 1.0}, 90)


def test_old_figures_do_not_stay_when_the_program_stops(host):
    host.check_output("systemctl stop elastic-ai-pool-metrics")
    try:
        assert not host.file("/var/lib/prometheus/node-exporter/elastic_ai_pool.prom").exists
    finally:
        host.check_output("systemctl start elastic-ai-pool-metrics")
    assert until(lambda: host.file("/var/lib/prometheus/node-exporter/elastic_ai_pool.prom").exists)
