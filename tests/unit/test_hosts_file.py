"""The names that role base writes into /etc/hosts, rendered from its template."""

from __future__ import annotations

import re

import jinja2

from tests.support.node_modules import ROOT

NODES = {
    "gpu1": {
        "ansible_host": "2001:db8::11",
        "fabric_ports": [{"interface": "ens1", "address": "10.80.0.11/24", "address6": "fd00:80::11/64"}],
    },
    "gpu2": {"ansible_host": "10.0.0.12", "fabric_ports": [{"interface": "ens1", "address": "10.80.0.12/24"}]},
    "gpu3": {"ansible_host": "gpu3.site.example"},
}


def rendered(current: str, keep: bool = True, file: str = "/etc/hosts") -> str:
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)  # as Ansible's template
    environment.tests["match"] = lambda text, pattern: re.match(pattern, text) is not None
    names, block = (
        environment.from_string((ROOT / f"roles/base/templates/{name}.j2").read_text(encoding="utf-8"))
        for name in ("names", "hosts")
    )
    known = names.render(groups={"all": list(NODES)}, hostvars=NODES)
    node = {"contents": {file: current}}
    return block.render(base_hosts_file=file, base_node=node, base_manage_hosts=keep, base_names=known)


def test_addresses_of_both_kinds_have_names_and_a_name_has_none() -> None:
    first = rendered("127.0.0.1 localhost\n")
    lines = [line for line in first.splitlines() if line and not line.startswith("#")]
    assert lines == [
        "2001:db8::11 gpu1",
        "10.80.0.11 gpu1-ens1",
        "fd00:80::11 gpu1-ens1-v6",
        "10.0.0.12 gpu2",
        "10.80.0.12 gpu2-ens1",
        "127.0.0.1 localhost",
    ]
    assert "\n\n" not in first
    assert rendered(first) == first
    assert rendered(first, keep=False).strip() == "127.0.0.1 localhost"


CLOUD = """\
## template:jinja
{#
This file is only utilized if enabled in cloud-config.
-#}
# A boot writes this file from /etc/cloud/templates/hosts.debian.tmpl
127.0.1.1 {{fqdn}} {{hostname}}
127.0.0.1 localhost
"""


def test_names_are_in_what_cloud_init_makes_of_its_template() -> None:
    """As it makes it: without the first line, which names the language, by Jinja. Its own program is not run here."""
    path = "/etc/cloud/templates/hosts.debian.tmpl"
    text = rendered(CLOUD, file=path)
    first, _, body = text.partition("\n")
    assert first == "## template:jinja", "cloud-init reads the language there"
    made = jinja2.Environment(trim_blocks=True).from_string(body).render(fqdn="gpu2.site.example", hostname="gpu2")
    assert "127.0.1.1 gpu2.site.example gpu2\n" in made
    assert "10.80.0.12 gpu2-ens1\n" in made
    assert rendered(text, file=path) == text
    assert rendered(text, keep=False, file=path).strip() == CLOUD.strip()
