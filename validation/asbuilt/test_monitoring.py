"""Figures of nodes, GPUs and pool: what role monitoring promises."""

from __future__ import annotations

import re

from validation.asbuilt.site import EVERYWHERE, Host, Site, deaf, listening, not_applicable

NODE_EXPORTER_PORT = 9100
"""Registered for it: github.com/prometheus/prometheus/wiki/Default-port-allocations."""


def _watched(site: Site) -> None:
    site.only_with("monitoring")


def _exporter(site: Site) -> str:
    """The unit of node-exporter: EL's is the role's own."""
    return "elastic-ai-node-exporter" if site.system.startswith("el") else "prometheus-node-exporter"


def _off(host: Host, *units: str) -> list[str]:
    return [name for name in units if not host.service(name).is_running or not host.service(name).is_enabled]


def test_exporter_of_the_node_listens(host: Host, site: Site) -> None:
    """At the address that the inventory says."""
    _watched(site)
    off = _off(host, _exporter(site), "elastic-ai-node-metrics")
    assert not off, f"does not run, or is not enabled: {', '.join(off)}"
    wanted = str(site.wants("monitoring_listen"))
    if wanted == "management":  # else at all addresses, where the inventory's is a name or not the node's own
        wanted = str(site.get("ansible_host", ""))
        wanted = wanted if re.fullmatch(r"[0-9.]+|[0-9a-fA-F.]*:[0-9a-fA-F.:]*", wanted) else ""
    lost = deaf(host, NODE_EXPORTER_PORT, wanted or "*")
    assert not lost, f"nothing listens at {', '.join(lost)}"


def test_exporter_of_gpus_runs(host: Host, site: Site) -> None:
    """On GPU servers."""
    _watched(site)
    off = _off(host, "elastic-ai-gpu-metrics", "elastic-ai-xid-metrics")
    assert not off, f"does not run, or is not enabled: {', '.join(off)}"


def test_prometheus_listens_where_it_should_and_nowhere_else(host: Host, site: Site) -> None:
    """On the head: it answers to whoever reaches it."""
    _watched(site)
    if not site.is_head:
        not_applicable(f"the head is {site.head}")
    if site.system.startswith("el"):
        not_applicable("this system has no package of Prometheus")
    told = bool(site.wants("monitoring_mail") or site.wants("monitoring_webhooks"))
    notifies = ["prometheus-alertmanager"] if told else []
    off = _off(host, "prometheus", "elastic-ai-pool-metrics", "elastic-ai-keys-metrics", *notifies)
    assert not off, f"does not run, or is not enabled: {', '.join(off)}"
    wanted = str(site.wants("monitoring_prometheus_listen"))
    address, _, port = wanted.rpartition(":")
    found = listening(host, port)
    right = bool(found) and found <= EVERYWHERE if address in ("", *EVERYWHERE) else found == {address}
    assert right, f"prometheus listens at {', '.join(sorted(found)) or 'no address'} (port {port}), wanted {wanted}"


def test_rules_of_alerts_are_valid(host: Host, site: Site) -> None:
    """As Prometheus itself reads them."""
    _watched(site)
    if not site.is_head:
        not_applicable(f"the head is {site.head}")
    if site.system.startswith("el"):
        not_applicable("this system has no package of Prometheus")
    said = host.run("promtool check config /etc/prometheus/prometheus.yml")
    assert said.rc == 0, said.stderr.strip() or said.stdout.strip()


def test_validations_come_by_themselves(host: Host, site: Site) -> None:
    """On the head, where the inventory wants the site validated again and again."""
    _watched(site)
    if not site.is_head:
        not_applicable(f"the head is {site.head}")
    if not site.wants("monitoring_revalidate"):
        not_applicable("monitoring_revalidate is empty")
    off = _off(host, "elastic-ai-revalidate.timer")
    assert not off, "elastic-ai-revalidate.timer does not run, or is not enabled"
    toolkit = str(site.wants("monitoring_revalidate_toolkit"))
    assert host.file(toolkit).exists, f"{toolkit}, which the timer starts, is not there"
