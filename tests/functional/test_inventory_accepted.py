"""What Ansible accepts in an inventory is read as Ansible reads it; what this release cannot carry is refused."""

from __future__ import annotations

import getpass
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from tests.support.warm import asking_ansible
from toolkit import inventory_bmc
from toolkit.cli import cli
from toolkit.errors import UsageFault
from toolkit.inventory import InventoryError, declared, read_inventory, read_site
from toolkit.lab_inventory import has_rules
from toolkit.node.listed import files_of
from toolkit.scan import wanted
from toolkit.switches import wanted as switches
from validation import ansible_side

HOSTS = """\
all:
  vars: {ansible_user: ops, fabric: roce400}
  children:
    heads: {hosts: {head: {ansible_host: 198.51.100.10}}}
    gpu_servers:
      hosts:
        gpu1: {ansible_host: 198.51.100.31, octet: 31}
        gpu2: {ansible_host: 198.51.100.32, octet: 32}
"""
PORTS = """\
fabric_ports:
  - {interface: ens31np0, address: '10.80.0.{{ octet }}/24', rate_gbps: 400}
  - {interface: ens32np0, address: '10.80.1.{{ octet }}/24', rate_gbps: 400}
"""


@pytest.fixture
def warm() -> Iterator[None]:
    """Ansible without its import. Its settings are those of this repository: tests of settings go without."""
    with asking_ansible():
        yield


def site(folder: Path, **files: str) -> Path:
    """An inventory: `hosts.yml` and others, whose names have `__` for a slash and `_` before their ending's dot."""
    root = folder / "site"
    for name, text in {"hosts_yml": HOSTS, **files}.items():
        path = root / (name.replace("__", "/").replace("_yml", ".yml"))
        path.parent.mkdir(parents=True, exist_ok=True)
        if text:
            path.write_text(text)
    return root


def addresses(root: Path, node: str) -> list[str]:
    return [f"{port.address}/{port.prefix}" for port in read_inventory(root).node(node).ports]


def fault(root: Path) -> str:
    with pytest.raises(InventoryError) as caught:
        read_inventory(root)
    words = str(caught.value)
    assert "\n" not in words
    return words


def test_a_template_within_a_list_is_resolved(tmp_path: Path, warm: None) -> None:
    root = site(tmp_path, group_vars__gpu_servers__ports_yml=PORTS)
    assert addresses(root, "gpu1") == ["10.80.0.31/24", "10.80.1.31/24"]
    assert addresses(root, "gpu2") == ["10.80.0.32/24", "10.80.1.32/24"]


SUM = """\
fabric_ports: "{{ base + [{'interface': 'b', 'address': '10.80.1.%d/24' | format(octet)}] }}"
base: [{interface: a, address: '10.80.0.{{ octet }}/24'}]
"""
OTHERS = """\
fabric_ports:
  - {interface: a, address: "{{ hostvars[inventory_hostname].rail }}.{{ octet }}/{{ '24' | int }}"}
  - {interface: b, address: '10.80.1.{{ ansible_host.split(".") | last }}/24'}
rail: 10.80.0
"""
LOOP = """\
fabric_ports: "{% set p = [] %}{% for r in [0, 1] %}{% set _ = p.append(\
{'interface': 'ens' ~ r, 'address': '10.80.' ~ r ~ '.' ~ octet ~ '/24'}) %}{% endfor %}{{ p }}"
"""
GROUPS = """\
fabric_ports:
  - {interface: a, address: '10.80.0.{{ groups.gpu_servers.index(inventory_hostname) + 31 }}/24'}
  - {interface: b, address: '10.80.1.{{ lookup("vars", "oct" ~ "et") }}/24', mtu: '{{ 8000 + 1000 }}'}
"""


@pytest.mark.parametrize("text", [SUM, OTHERS, LOOP, GROUPS], ids=["sum of lists", "variables", "loop", "lookup"])
def test_filters_lookups_loops_and_other_hosts_variables_are_resolved(tmp_path: Path, warm: None, text: str) -> None:
    root = site(tmp_path, group_vars__gpu_servers__ports_yml=text)
    assert addresses(root, "gpu1") == ["10.80.0.31/24", "10.80.1.31/24"]


def test_what_only_a_run_of_ansible_knows_is_refused_with_its_place(tmp_path: Path, warm: None) -> None:
    text = "---\nfabric_ports:\n  - {interface: a, address: '{{ ansible_facts.default_ipv4.address }}/24'}\n"
    root = site(tmp_path, group_vars__gpu_servers__ports_yml=text)
    words = fault(root)
    assert words.startswith(
        f"{root}/group_vars/gpu_servers/ports.yml:2: gpu1: fabric_ports: Ansible cannot resolve it: "
    )
    assert words.endswith("facts of nodes are not known here, so write the value")


def test_a_template_in_a_variable_that_no_one_reads_is_nobodys_business(tmp_path: Path, warm: None) -> None:
    more = "greeting: '{{ ansible_facts.nodename }}'\nnvidia_driver_version: '{{ ansible_facts.x }}'\n"
    more += "docker_version: '{{ v }}'\nv: 28.1\n"
    found = read_site(site(tmp_path, group_vars__all_yml=more))
    kept = found.record.hosts[0].variables
    assert "nvidia_driver_version" not in kept
    assert str(kept["docker_version"]) == "28.1"
    assert declared(tmp_path / "site", "gpu1", "docker_version") in ("28.1", 28.1)


@pytest.mark.parametrize(
    "connection", ["local", "ansible.builtin.local", "paramiko", "ansible.builtin.ssh", "'{{ how }}'"]
)
def test_the_head_from_which_ansible_runs_is_read(tmp_path: Path, warm: None, connection: str) -> None:
    hosts = HOSTS.replace("198.51.100.10}", f"198.51.100.10, ansible_connection: {connection}, how: local}}")
    head = read_inventory(site(tmp_path, hosts_yml=hosts)).node("head")
    assert (head.ssh.host, head.ssh.user) == ("198.51.100.10", "ops")


def test_a_connection_to_what_has_no_sshd_is_refused(tmp_path: Path, warm: None) -> None:
    hosts = HOSTS.replace("198.51.100.10}", "198.51.100.10, ansible_connection: community.docker.docker}")
    words = fault(site(tmp_path, hosts_yml=hosts))
    assert "hosts.yml:4: head: ansible_connection: " in words
    assert "is community.docker.docker; nodes are logged in to by ssh" in words


def test_other_names_of_the_variables_of_a_login(tmp_path: Path, warm: None) -> None:
    (tmp_path / "key").touch()
    hosts = HOSTS.replace(
        "ansible_user: ops", f"ansible_ssh_user: bob, ansible_private_key_file: {tmp_path}/key"
    ).replace(
        "ansible_host: 198.51.100.31",
        "ansible_ssh_host: 198.51.100.41, ansible_ssh_port: '2200', ansible_ssh_args: -J jump",
    )
    nodes = read_inventory(site(tmp_path, hosts_yml=hosts))
    gpu1 = nodes.node("gpu1").ssh
    assert (gpu1.host, gpu1.port, gpu1.user, gpu1.key_file) == ("198.51.100.41", 2200, "bob", f"{tmp_path}/key")
    assert gpu1.extra_args == ("-J", "jump")
    assert nodes.node("head").ssh.extra_args == (), "what ansible.cfg says of sockets and intervals is not the site's"


def test_settings_of_ansible_say_who_logs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = site(tmp_path, hosts_yml=HOSTS.replace("ansible_user: ops, ", ""))
    monkeypatch.chdir(tmp_path)
    assert read_inventory(root).node("head").ssh.user == getpass.getuser()
    Path("ansible.cfg").write_text("[defaults]\nremote_user = carol\n[ssh_connection]\nssh_common_args = -J bastion\n")
    ssh = read_inventory(root).node("head").ssh
    assert (ssh.user, ssh.extra_args) == ("carol", ("-J", "bastion"))


def vaulted(text: str, password: Path, *more: str) -> str:
    words = [
        str(Path(sys.executable).with_name("ansible-vault")),
        "encrypt",
        "--vault-password-file",
        str(password),
        *more,
    ]
    return subprocess.run([*words, "--output", "-"], input=text, capture_output=True, text=True, check=True).stdout


def test_values_out_of_a_vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    password = tmp_path / "password"
    password.write_text("secret of this test\n")
    root = site(
        tmp_path,
        hosts_yml=HOSTS.replace("ops", "'{{ vault_user }}'"),
        group_vars__all__vault_yml=vaulted("vault_user: dora\n", password),
    )
    monkeypatch.chdir(tmp_path)
    words = fault(root)
    assert "vault" in words.lower()
    assert "Traceback" not in words
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))
    assert read_inventory(root).node("gpu1").ssh.user == "dora"


def test_a_single_value_out_of_a_vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    password = tmp_path / "password"
    password.write_text("secret of this test\n")
    value = vaulted("dora", password).replace("\n", "\n  ").rstrip()
    root = site(tmp_path, group_vars__gpu_servers_yml=f"ansible_user: !vault |\n  {value}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(password))
    nodes = read_inventory(root)
    assert (nodes.node("gpu1").ssh.user, nodes.node("head").ssh.user) == ("dora", "ops")


INI = """\
[heads]
head ansible_host=198.51.100.10
[gpu_servers]
gpu[1:2]
[gpu_servers:vars]
training_slots=8
[all:vars]
ansible_user=ops
"""


@pytest.mark.parametrize("name", ["inventory.yml", "10-static.yaml", "site", "nodes.ini", "racks.json"])
def test_files_of_any_name(tmp_path: Path, warm: None, name: str) -> None:
    root = tmp_path / "site"
    root.mkdir()
    if name == "racks.json":
        text = '{"heads": {"hosts": {"head": {}}}, "gpu_servers": {"hosts": {"gpu1": null, "gpu2": null}}}'
    else:
        text = HOSTS if name.endswith("ml") else INI
    (root / name).write_text(text)
    for inventory in (root, root / name):
        assert [node.name for node in read_inventory(inventory).nodes] == ["head", "gpu1", "gpu2"], inventory


def test_a_program_that_prints_the_inventory(tmp_path: Path, warm: None) -> None:
    root = site(
        tmp_path,
        hosts_yml="",
        group_vars__all="ansible_user: ops\n",
        group_vars__gpu_servers="training_slots: '{{ 4 * 2 }}'\n",
    )
    text = '{"heads": ["head"], "gpu_servers": ["gpu1"], "_meta": {"hostvars": {"gpu1": {"ansible_port": 2200}}}}'
    (root / "cmdb.py").write_text(f"#!/bin/sh\necho '{text}'\n")
    (root / "cmdb.py").chmod(0o755)
    gpu1 = read_inventory(root).node("gpu1")
    assert (gpu1.ssh.port, gpu1.ssh.user, gpu1.slots) == (2200, "ops", 8)


def test_groups_in_groups_texts_for_numbers_and_truths_as_ansible_writes_them(tmp_path: Path, warm: None) -> None:
    hosts = """\
all:
  children:
    heads: {hosts: {head: {ansible_port: '2022'}}}
    gpu_servers:
      children:
        rack1: {hosts: {'gpu[01:02:1]': {gpu_mig: 'yes', training_slots: '4', fabric_mtu: '9000'}}}
        rack2: {hosts: {gpu03: {bom: {gpu_count: "{{ ('8') | int }}"}}}}
"""
    nodes = read_inventory(site(tmp_path, hosts_yml=hosts)).nodes
    assert [node.name for node in nodes] == ["head", "gpu01", "gpu02", "gpu03"]
    assert [node.slots for node in nodes] == [1, 4, 4, 8]
    assert [node.mig for node in nodes] == [False, True, True, False]
    assert nodes[0].ssh.port == 2022


def test_copies_and_hidden_files_beside_variables_are_not_read(tmp_path: Path, warm: None) -> None:
    root = site(tmp_path, group_vars__all__site_yml="training_slots: 2\n")
    for name in (".site.yml", "site.yml~", "site.yml.orig", "notes.txt"):
        (root / "group_vars/all" / name).write_text("a: [\n")
    (root / "README.md").write_text("a: [\n")
    assert read_inventory(root).node("gpu1").slots == 2


def test_a_fault_in_a_file_without_an_ending_has_its_line_and_one_of_another_host_has_not(
    tmp_path: Path, warm: None
) -> None:
    root = site(tmp_path, host_vars__gpu1="---\ntraining_slots: two\n", host_vars__gpu10_yml="training_slots: 1\n")
    assert fault(root).startswith(f"{root}/host_vars/gpu1:2: gpu1: training_slots: ")


@pytest.mark.parametrize("address", ["2001:db8::31", "[2001:db8::31]", "fe80::1%eth0"])
def test_an_ipv6_management_address_is_refused_in_words(tmp_path: Path, warm: None, address: str) -> None:
    root = site(tmp_path, hosts_yml=HOSTS.replace("198.51.100.31,", f"'{address}',"))
    words = fault(root)
    assert "hosts.yml:7: gpu1: ansible_host: " in words
    assert "IPv4 alone; give the node's IPv4 address" in words


def test_an_ipv6_address_of_a_fabric_port_stands_beside_an_ipv4_one(tmp_path: Path, warm: None) -> None:
    port = "fabric_ports: [{interface: a, address: 'ADDRESS', address6: 'fd00::1/64'}]\n"
    root = site(tmp_path, host_vars__gpu1_yml=port.replace("ADDRESS", "fd00::31/64"))
    assert "IPv4 alone; give the port an IPv4 address, and this one as its address6" in fault(root)
    root = site(tmp_path, host_vars__gpu1_yml=port.replace("ADDRESS", "10.80.0.31/24"))
    assert addresses(root, "gpu1") == ["10.80.0.31/24"]


@pytest.mark.parametrize("word", ["2001:db8::31", "[2001:db8::31]"])
def test_a_scan_of_an_ipv6_address_is_refused_before_it_is_asked(word: str) -> None:
    with pytest.raises(UsageFault, match="is an IPv6 address, and this release manages nodes over IPv4 alone"):
        wanted.checked(wanted.from_words((word,)))


def test_new_addresses_of_a_fabric_are_not_of_ipv6(tmp_path: Path) -> None:
    given = ["inventory", "init", str(tmp_path / "site"), "198.51.100.31", "--rails", "fd00:80:{rail}::/64"]
    ran = CliRunner().invoke(cli, given)
    assert ran.exit_code == 2
    assert "is of IPv6, and this release sets fabrics up over IPv4" in ran.output


@pytest.mark.parametrize("variable", ["bmc", "switches"])
def test_an_ipv6_address_of_a_bmc_or_a_switch_is_refused_in_words(variable: str) -> None:
    form: Any = {"bmc": inventory_bmc.BmcVariable, "switches": switches.Reached}[variable]
    given = {"address": "2001:db8::11", "user": "root", **({"system": "sonic"} if variable == "switches" else {})}
    with pytest.raises(ValidationError, match="is an IPv6 address, and this release reaches everything over IPv4 al"):
        form.model_validate(given)
    assert form.model_validate({**given, "address": "192.0.2.11"}).address == "192.0.2.11"


def test_ansible_of_another_python_reads_where_this_one_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ansible_side, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    root = site(tmp_path)
    assert fault(root) == f"ansible-core is not installed: {sys.executable} -m pip install ansible-core"
    tool = tmp_path / "ansible-inventory"
    tool.write_text(f"#!{sys.executable}\n")
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert [node.name for node in read_inventory(root).nodes] == ["head", "gpu1", "gpu2"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("'10.0.0.1 '", "neither an IPv4 address nor a name"),
        ("10.0.0.1/24", "neither an IPv4 address nor a name"),
        ("'-oProxyCommand=id'", "neither an IPv4 address nor a name"),
        ("root@10.0.0.1", "ansible_user"),
        ("10.0.0.1:2222", "ansible_port"),
        ("010.001.002.003", "no IPv4 address"),
        ("3232235777", "no IPv4 address"),
        ("", "is null"),
    ],
)
def test_what_is_neither_an_address_nor_a_name_is_refused(tmp_path: Path, warm: None, given: str, words: str) -> None:
    said = fault(site(tmp_path, hosts_yml=HOSTS.replace("198.51.100.31", given)))
    assert "hosts.yml:7: gpu1: ansible_host" in said
    assert words in said


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("all:\n children:\n  gpu_servers:\n   hosts:\n    '2001:db8::2':\n", "hosts.yml:5: "),
        ("[gpu_servers]\n\n2001:db8::2\n", "hosts:3: "),
        ("[gpu_servers]\n[2001:db8::2]:2222\n", "hosts:2: "),
    ],
)
def test_a_node_whose_name_is_an_ipv6_address_is_refused(tmp_path: Path, warm: None, text: str, place: str) -> None:
    file = place.partition(":")[0]
    root = site(tmp_path, hosts_yml="")
    (root / file).write_text(text)
    said = fault(root)
    assert place in said
    assert "IPv6" in said


def test_two_nodes_whose_names_or_addresses_differ_by_capital_letters_are_refused(tmp_path: Path, warm: None) -> None:
    assert "capital letters" in fault(site(tmp_path, hosts_yml=HOSTS.replace("gpu2", "GPU1")))
    alike = HOSTS.replace("198.51.100.31", "gpu.example.com").replace("198.51.100.32", "GPU.example.com")
    assert "also used by gpu1" in fault(site(tmp_path, hosts_yml=alike))


@pytest.mark.parametrize("given", ["", '"{{ other | default(omit) }}"'])
def test_a_setting_of_a_login_that_is_null_or_omitted_is_left_out(tmp_path: Path, warm: None, given: str) -> None:
    lines = "".join(f"{name}: {given}\n" for name in ("ansible_port", "ansible_ssh_common_args"))
    node = read_inventory(site(tmp_path, group_vars__all_yml=lines)).node("gpu1")
    assert (node.ssh.port, node.ssh.extra_args) == (22, ())


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[gpu_servers]\ngpu1 ansible_port=99999\n", 2),
        ("[gpu_servers]\ngpu[1:3]:2200 ansible_host=10.0.0.1\n", 2),
        ("[gpu_servers]\ngpu1\n[gpu_servers:vars]\n# of all\nansible_port = 99999\n", 5),
        ("[gpu_servers]\ngpu1 fabric_ports=\"[{'interface':'e1','address':'10.0.0.1'}]\"\n", 2),
        ("[gpu_servers]\ngpu1 ansible_host=10.0.0.2\ngpu2 foo\n", 3),
    ],
)
def test_a_fault_in_a_file_of_the_ini_form_has_its_line(tmp_path: Path, warm: None, text: str, place: int) -> None:
    root = site(tmp_path, group_vars__all_yml="ansible_user: ops\n", hosts_yml="")
    (root / "nodes").write_text(text)
    assert fault(root).startswith(f"{root / 'nodes'}:{place}: ")


def test_a_fault_in_a_json_file_has_its_line_and_tabs_in_one_are_none(tmp_path: Path, warm: None) -> None:
    root = site(tmp_path, group_vars__all_json='{\n\t"ansible_user": "ops"\n}\n')
    assert read_inventory(root).node("gpu1").ssh.user == "ops"
    root = site(tmp_path / "other", hosts_yml="")
    (root / "n.json").write_text('{"gpu_servers": {"hosts": {"gpu1":\n {"ansible_port": 99999}}}}\n')
    assert fault(root).startswith(f"{root / 'n.json'}:2: gpu1: ansible_port")


def test_inventories_in_folders_of_the_folder_are_read(tmp_path: Path, warm: None) -> None:
    root = site(tmp_path, hosts_yml="", racks__a__hosts_yml=HOSTS, group_vars__all_yml="ansible_port: 2222\n")
    (root / "racks" / "b.ini").write_text("[clients]\nclient1\n")
    assert [node.name for node in read_inventory(root).nodes] == ["head", "client1", "gpu1", "gpu2"]
    assert read_inventory(root).node("gpu1").ssh.port == 2222


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("more.yml", "gpu_servers:\n  hosts: [gpu9]\n", 'more.yml:1: Ansible cannot read it: Invalid "hosts" entry'),
        ("more.yml", "gpu_servers:\n  hosts:\n    101:\n", "more.yml:3: Ansible cannot read it: Host pattern 101"),
        ("more", "[gpu_servers\ngpu9\n", "more: Ansible cannot read it: not enough values"),
        ("more", "\ufeff[gpu_servers]\ngpu9\n", "more: Ansible cannot read it: it begins with a byte order mark"),
        ("more", "#!/bin/sh\nexit 3\n", "more: Ansible cannot read it: Inventory script returned non-zero exit code 3"),
    ],
)
def test_a_source_that_nobody_can_read_is_named_with_the_reason_by_whatever_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, words: str
) -> None:
    """Ansible's own default is a warning, and the nodes of that source would be missing."""
    monkeypatch.chdir(tmp_path)
    root = site(tmp_path)
    (root / name).write_text(text)
    (root / name).chmod(0o755 if text.startswith("#!") else 0o644)
    assert f"{root}/{words}" in fault(root)


def test_a_value_whose_vault_is_locked_says_how_it_is_opened(
    tmp_path: Path, warm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    body = "$ANSIBLE_VAULT;1.1;AES256\n 6231336539636634\n"
    said = fault(site(tmp_path, group_vars__all_yml=f"ansible_user: !vault |\n {body}"))
    assert "ANSIBLE_VAULT_PASSWORD_FILE" in said
    assert "facts of nodes" not in said


def test_a_node_is_found_in_a_folder_of_the_folder_too(tmp_path: Path) -> None:
    root = site(tmp_path, hosts_yml="", racks__a__hosts_yml=HOSTS, group_vars__all_yml="ansible_port: 2222\n")
    assert files_of(root) == [root / "racks/a/hosts.yml"]
    (root / "racks/a/rails.yml").write_text("plugin: elastic_ai.toolkit.rails\ngroups: {}\n")
    assert has_rules(root)
