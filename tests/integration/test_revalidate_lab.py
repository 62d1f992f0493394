"""A site that validates itself: the timer on the head, figures in its Prometheus, a planted drift and its alerts."""

from __future__ import annotations

import json
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Lab, Provisioned, toolkit

from tests.support import toolkit_there
from toolkit.lab import lab as labs

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.rest]
SITE, SERVICE = "/srv/site", "elastic-ai-revalidate.service"
VALIDATE = ["--inventory", SITE, "--fabric", "tcp10", "--suite", "preflight", "--suite", "transport"]
VALIDATE += ["--without", "pf.converged"]
RUNS = "/var/lib/elastic-ai-revalidate/runs"
FOR_S = 300  # of the two alerts: roles/monitoring/files/rules/elastic-ai-rules-site.yml


def until(what: Callable[[], Any], limit_s: float) -> Any:
    """What it says as soon as that is something, or at last."""
    end = time.monotonic() + limit_s
    while not (found := what()) and time.monotonic() < end:
        time.sleep(2)
    return found


def ask(lab: Lab, path: str, **query: str) -> Any:
    url = f"http://127.0.0.1:9090/api/v1/{path}?{urllib.parse.urlencode(query)}"
    return json.loads(lab.ssh("head", f"curl -sS '{url}'"))["data"]


def series(lab: Lab, name: str) -> list[dict[str, str]]:
    """Labels of a metric's series as Prometheus has them now, and `value`."""
    found = ask(lab, "query", query=name)["result"]
    return [{**one["metric"], "value": one["value"][1]} for one in found]


def alerts(lab: Lab) -> dict[str, set[str]]:
    """Names of alerts -> their states."""
    found: dict[str, set[str]] = {}
    for one in ask(lab, "alerts")["alerts"]:
        found.setdefault(one["labels"]["alertname"], set()).add(one["state"])
    return found


def revalidated(lab: Lab) -> dict[str, Any]:
    """Start the service as the timer does, wait for its end; the verdict of the run that it made."""
    lab.ssh("head", f"systemctl start {SERVICE}")
    return dict(json.loads(lab.ssh("head", f"cat $(ls -d {RUNS}/*-tcp10 | tail -n 1)/verdict.json")))


@pytest.fixture(scope="module")
def watching(provisioned: Provisioned) -> Iterator[Lab]:
    """The lab, whose head has toolkit, inventory and keys, and a timer that comes once, in a minute."""
    lab, spec = provisioned.lab, labs.load(provisioned.lab.name)
    head = labs.ssh_words(spec, spec.node("head"))
    version = lab.ssh("head", "python3 -c 'import sys; print(*sys.version_info[:2])'").split()
    if version != [str(part) for part in sys.version_info[:2]]:
        pytest.skip(f"this machine's Python is not the node's {'.'.join(version)}: its environment cannot be copied")
    toolkit_there.install(head)
    toolkit_there.bring(head, lab.inventory, SITE)
    soon = lab.ssh("head", "date -d '+100 seconds' '+%F %T'").strip()
    wanted = {"monitoring_revalidate": VALIDATE, "monitoring_revalidate_at": soon, "monitoring_interval_s": 5}
    done = lab.playbook("-e", json.dumps(wanted), name="playbooks/monitoring.yml")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    yield lab
    done = lab.playbook(name="playbooks/monitoring.yml")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    found = lab.ssh("head", "ls /etc/systemd/system /var/lib/prometheus/node-exporter")
    lab.ssh("head", f"rm -rf {toolkit_there.HOME} {SITE} /var/lib/elastic-ai-revalidate")
    assert "revalidate" not in found
    assert "elastic_ai_site" not in found


def test_a_drift_on_a_site_that_validates_itself_fires_alerts_and_its_end_ends_them(watching: Lab) -> None:
    lab = watching
    # the timer's own start; its validation and its trend
    assert until(lambda: series(lab, "elastic_ai_site_passed"), 600), lab.ssh("head", f"journalctl -u {SERVICE}")
    for _ in range(2):
        revalidated(lab)
    toolkit("lab", "fault", "set", "--name", lab.name, "gpu2", "slow-link")
    try:
        verdict = revalidated(lab)
        assert verdict["outcome"] == "failed"
        assert until(lambda: [one["value"] for one in series(lab, "elastic_ai_site_passed")] == ["0"], 60)
        drifts = series(lab, "elastic_ai_site_drift_ratio")
        assert drifts
        assert all("gpu2/" in one["subject"] and one["node"] == "head" for one in drifts), drifts
        assert {"tr.tcpbw"} <= {one["criterion"] for one in drifts}
        fire = {"SiteDidNotPass": {"firing"}, "SiteDrift": {"firing"}}
        assert until(lambda: fire.items() <= alerts(lab).items(), FOR_S + 60), alerts(lab)
    finally:
        toolkit("lab", "fault", "clear", "--name", lab.name, "gpu2")
    revalidated(lab)
    assert until(lambda: not {"SiteDidNotPass", "SiteDrift"} & set(alerts(lab)), 60), alerts(lab)
