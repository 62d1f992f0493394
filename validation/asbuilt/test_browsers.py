"""Services for browsers, where a site has them: the page of the pool and JupyterHub, with their certificates: one that
has expired is noticed by users first, whose browsers refuse it."""

from __future__ import annotations

import json

from validation.asbuilt.site import Host, Site, not_applicable

PAGE, HUB = "/etc/elastic-ai/page/page.json", "/etc/elastic-ai/jupyterhub/settings.json"
PROXY = "/etc/systemd/system/elastic-ai-jupyterhub-proxy.service"
DAYS = 7
"""So long a certificate has to last still. A deployment renews the toolkit's own 30 days before the end."""


def _wanted(host: Host, site: Site, variable: str, node: str, file: str) -> None:
    """Leave out a node that has none and is to have none."""
    if not host.file(file).exists and (site.name != node or not site.get(variable, False)):
        not_applicable(f"{variable} is not set in the inventory, or for another node, and nothing of it is here")


def _off(host: Host, *units: str) -> list[str]:
    wrong = [f"{name} does not run" for name in units if not host.service(name).is_running]
    return wrong + [f"{name} is not enabled" for name in units if not host.service(name).is_enabled]


def _ends(host: Host, certificate: str) -> list[str]:
    """What is wrong with a certificate."""
    asked = host.run(f"openssl x509 -noout -checkend {DAYS * 86400} -in {certificate}")
    if asked.rc == 0:
        return []
    return [f"the certificate {certificate} has expired, expires within {DAYS} days, or cannot be read"]


def test_the_page_runs_with_a_certificate_that_lasts(host: Host, site: Site) -> None:
    """On the head."""
    _wanted(host, site, "pool_page", site.head, PAGE)
    wrong = _off(host, "elastic-ai-page.socket", "elastic-ai-page.service", "elastic-ai-login.socket")
    wrong += _ends(host, str(json.loads(host.file(PAGE).content_string)["certificate"])) if not wrong else []
    assert not wrong, "; ".join(wrong)


def test_the_hub_runs_with_a_certificate_that_lasts(host: Host, site: Site) -> None:
    """On the machine that jupyterhub_host names."""
    _wanted(host, site, "jupyterhub", str(site.get("jupyterhub_host", site.head)), HUB)
    wrong = _off(host, "elastic-ai-jupyterhub-proxy", "elastic-ai-jupyterhub", "elastic-ai-login.socket")
    credential = "LoadCredential=certificate:"
    lines = host.file(PROXY).content_string.splitlines() if not wrong else []
    for line in lines:
        wrong += _ends(host, line.removeprefix(credential)) if line.startswith(credential) else []
    assert not wrong, "; ".join(wrong)
