"""Who is told of alerts: role monitoring's configuration in a real Alertmanager, with a webhook that hears it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.alert_rules import ALERTS
from tests.support.alerting import Alertmanager, Receiver, alertmanager, free_port, rendered, until
from tests.support.monitoring_head import role

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus-alertmanager") is None, reason="no Alertmanager: Debian's package prometheus-alertmanager"
)
MAIL = {"to": ["ops@example.net", "night@example.net"], "from": "head@example.net", "server": "mail.example.net:25"}


def configuration(port: int, **variables: Any) -> str:
    """As the role writes it, with a second in place of five."""
    hook = {"url": f"http://127.0.0.1:{port}/", "token": 'a "quoted" token'}
    text = rendered("alertmanager.yml.j2", monitoring_webhooks=[hook], **variables)
    assert "group_wait: 5s" in text
    assert "group_interval: 30s" in text
    return text.replace("group_wait: 5s", "group_wait: 1s").replace("group_interval: 30s", "group_interval: 10s")


@pytest.fixture
def heard() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def manager(tmp_path: Path, heard: Receiver) -> Iterator[Alertmanager]:
    with alertmanager(tmp_path / "am", configuration(heard.port)) as made:
        yield made


@pytest.mark.parametrize(
    "variables",
    [
        {"monitoring_mail": MAIL},
        {"monitoring_mail": {**MAIL, "user": "head", "password": '{{ it\'s "odd": # }}', "tls": False}},
        {"monitoring_webhooks": [{"url": "https://example.net/a?b=c"}]},
        {"monitoring_mail": MAIL, "monitoring_webhooks": [{"url": "https://example.net/", "token": "x"}]},
        {"monitoring_webhooks": [{"url": "https://example.net/"}], "monitoring_notify": ["info"]},
    ],
)
def test_alertmanager_takes_what_the_role_writes(tmp_path: Path, variables: dict[str, Any]) -> None:
    file = tmp_path / "alertmanager.yml"
    file.write_text(rendered("alertmanager.yml.j2", **variables), encoding="utf-8")
    done = subprocess.run(["amtool", "check-config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    mail = variables.get("monitoring_mail", {})
    assert yaml.safe_load(file.read_text("utf-8"))["global"].get("smtp_auth_password") == mail.get("password")


def test_what_is_silenced_and_grouped_are_alerts_that_there_are() -> None:
    made = yaml.safe_load(rendered("alertmanager.yml.j2"))
    matchers = [m for one in made["inhibit_rules"] for m in (*one["source_matchers"], *one["target_matchers"])]
    matchers += [m for one in made["route"]["routes"][0]["routes"] for m in one["matchers"]]
    named = {name for m in matchers if m.startswith("alertname") for name in m.split('"')[1].split("|")}
    assert named - {".+"} <= set(ALERTS)


def test_a_node_that_is_down_is_one_notification(manager: Alertmanager, heard: Receiver) -> None:
    """What follows on the same node is not told; what another node has is."""
    manager.fire({"alertname": "NodeDown", "node": "gpu1"})
    assert until(lambda: heard.firing)
    manager.fire(
        {"alertname": "NodeDown", "node": "gpu1"},
        {"alertname": "LinkDown", "node": "gpu1", "device": "fab0"},
        {"alertname": "MountSilent", "node": "gpu1", "device": "head:/home"},
        {"alertname": "ExporterDown", "node": "gpu1", "severity": "warning"},
        {"alertname": "GpuServerOutOfService", "node": "gpu1", "severity": "warning"},
        {"alertname": "GpuHot", "node": "gpu2", "severity": "warning"},
    )
    assert until(lambda: len(heard.firing) > 1)
    assert heard.firing == [["NodeDown of gpu1"], ["GpuHot of gpu2"]]
    assert set(heard.headers) == {'Bearer a "quoted" token'}


def test_a_gpu_that_is_lost_silences_what_follows_from_it(manager: Alertmanager, heard: Receiver) -> None:
    """Its other Xids, and that it is missing; another GPU of the node is told in the same notification."""
    xid = {"alertname": "GpuXid", "node": "gpu1", "address": "0000:3b:00.0"}
    manager.fire(
        {**xid, "code": "79"},
        {**xid, "code": "119"},
        {**xid, "code": "119", "address": "0000:5e:00.0"},
        {"alertname": "GpuMissing", "node": "gpu1"},
        {"alertname": "GpuServerOutOfService", "node": "gpu1", "severity": "warning"},
    )
    assert until(lambda: heard.firing)
    assert heard.firing == [["GpuXid of gpu1", "GpuXid of gpu1"]]
    assert sorted(one["labels"]["code"] for one in heard.told[0]["alerts"]) == ["119", "79"]


def test_a_burn_in_that_failed_once_silences_no_later_validation(manager: Alertmanager, heard: Receiver) -> None:
    """It stays until that node is burnt in again, for weeks or for ever, and the newest run may be of anything."""
    site = {"node": "head", "site": "rack", "fabric": "roce40", "severity": "warning"}
    manager.fire(
        {**site, "alertname": "SoakFailed", "subject": "gpu3", "severity": "critical"},
        {**site, "alertname": "SoakBrokenOff", "subject": "gpu4"},
        {**site, "alertname": "SiteDidNotPass", "outcome": "failed"},
    )
    assert until(lambda: heard.firing)
    assert heard.firing == [["SiteDidNotPass of head", "SoakBrokenOff of head", "SoakFailed of head"]]


def test_one_server_of_files_that_hangs_is_one_notification_for_all_nodes(
    manager: Alertmanager, heard: Receiver
) -> None:
    mount = {"alertname": "MountSilent", "device": "head:/home"}
    info = {"alertname": "NodeRebooted", "node": "gpu1", "severity": "info"}
    manager.fire(info, *({**mount, "node": f"gpu{at}"} for at in (1, 2, 3)))
    assert until(lambda: heard.firing)
    assert heard.firing == [["MountSilent of gpu1", "MountSilent of gpu2", "MountSilent of gpu3"]]


def test_a_receiver_that_was_away_is_told_when_it_is_back(tmp_path: Path) -> None:
    """It is tried again, and the figure that the alert NotificationsFail looks at says so meanwhile."""
    port = free_port()
    with alertmanager(tmp_path / "am", configuration(port)) as manager:
        manager.fire({"alertname": "NodeDown", "node": "gpu1"})
        assert until(lambda: manager.figure("alertmanager_notifications_failed_total"))
        back = Receiver(port)
        try:
            assert until(lambda: back.firing)
            assert back.firing[0] == ["NodeDown of gpu1"]
        finally:
            back.close()


FILE = "/etc/prometheus/elastic-ai-alertmanager.yml"
ADDRESSES = "/etc/elastic-ai/monitoring.json"


def test_the_role_brings_alertmanager_where_a_receiver_is_named_and_prints_no_password(tmp_path: Path) -> None:
    """At its most talkative, too."""
    password = "a-password-of-nobody"
    files, _, said = role(
        tmp_path,
        monitoring_mail={**MAIL, "user": "head", "password": password},
        monitoring_prometheus_listen="127.0.0.1:9099",
    )
    entry = files[FILE]
    assert (entry["group"], entry["mode"], entry["secret"]) == ("prometheus", "0640", True)
    assert yaml.safe_load(entry["content"])["global"]["smtp_auth_password"] == password
    prometheus = yaml.safe_load(files["/etc/prometheus/prometheus.yml"]["content"])
    assert prometheus["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]
    assert [job["job_name"] for job in prometheus["scrape_configs"]] == ["prometheus", "alertmanager", "node"]
    assert "--cluster.listen-address= " in files["/etc/default/prometheus-alertmanager"]["content"]
    assert json.loads(files[ADDRESSES]["content"]) == {
        "prometheus": "127.0.0.1:9099", "alertmanager": "127.0.0.1:9093", "receivers": 1, "site": [],
    }  # fmt: skip
    assert "Configure who is told" in said
    assert password not in said


def test_without_a_receiver_there_is_no_alertmanager_and_status_knows(tmp_path: Path) -> None:
    files, _, _ = role(tmp_path, monitoring_alertmanagers=["am.example.net:9093"])
    assert not [path for path in files if "alertmanager" in path]
    assert json.loads(files[ADDRESSES]["content"])["site"] == ["am.example.net:9093"]
    prometheus = yaml.safe_load(files["/etc/prometheus/prometheus.yml"]["content"])
    assert prometheus["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["am.example.net:9093"]}]}]


@pytest.mark.parametrize("mail", [{"to": ["a@example.net"]}, {**MAIL, "user": "a"}, {"user": "a", "password": "b"}])
def test_mail_that_lacks_something_is_refused_at_once(tmp_path: Path, mail: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="found in monitoring_mail"):
        role(tmp_path, monitoring_mail=mail)


def test_a_head_of_el_says_that_it_can_tell_nobody(tmp_path: Path) -> None:
    files, _, said = role(tmp_path, "el9", monitoring_webhooks=[{"url": "https://example.net/"}])
    assert not [path for path in files if "alertmanager" in path]
    assert "no package of Alertmanager; nobody is told of alerts by this head" in " ".join(said.split())
