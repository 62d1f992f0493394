"""Secrets in files of `toolkit support`: each form is hidden, and what a vendor needs of a log stays."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from toolkit.support import controller, secret_filter
from toolkit.support.controller import known_secrets
from toolkit.support.package import Package
from toolkit.support.secret_filter import Literals, clean, hidden_line
from validation.base.secret_words import secret_name

NONE = Literals([])
S = "Zq7-secret/x"


@pytest.mark.parametrize(
    "text",
    [
        f"password: {S}", f"password = {S} and more", f"DB_PASSWORD={S}", f"export TOKEN='{S}'", f"StoragePass={S}",
        f'{{"a": 1, "password": "{S}", "b": 2}}', f'{{"pool": {{"api_key":"{S}"}}}}', f"secret_key: '{S}'", f"psk={S}",
        f"Environment=NGC_API_KEY={S}", f"Authorization: Basic {S}", f"< X-Auth-Token: {S}", f"Cookie: session={S}",
        f'{{"Cookie": "session={S}", "b": 2}}',
        "https://user:Zq7-secret@host/x", "https://user:p@Zq7-secret@host/x", "redis://:Zq7-secret@host:6379",
        f"ipmitool -I lanplus -H 10.0.0.1 -U root -P {S} sel list", f"curl -k -u root:{S} https://bmc/redfish",
        f"mysql -u slurm -p{S} slurm_acct_db", f"sshpass -p {S} ssh x", f"machine h login ops password {S}",
        f"bindpw {S}", f"rocommunity {S}", f"snmp-server community {S} ro", f"<userPassword>{S}</userPassword>",
        f"toolkit --password {S}", f"toolkit --auth-token={S}", "$6$salt$Zq7secretZq7secretZq7secretZq7secretZq7",
        f"ELASTIC_AI_BMC_PASSWORD={S}", f"munge_key: {S}", "password=123456789", "passwd: abc", f"credentials: {S}",
        f"Nov 27 10:00:00 gpu2 app[1]: login with password={S} failed", f"p\0a\0s\0s\0w\0o\0r\0d\0=\0{S}",
        f"ansible_become_pass: {S}", f"export BMC_PASS={S}", f"pass={S}", f'{{"pass":"{S}"}}', f"PresharedKey = {S}",
        f"AccountKey={S}", f"IDENTIFIED BY '{S}'", f"racadm -r 10.0.0.1 -u root -p {S} getsel", '"auth": "Zq7aGVsbG8="',
        f"docker login -u ops -p {S} nvcr.io", "root:$1$Zq7Zq7Zq$Zq7Zq7Zq7Zq7Zq7Zq7Zq7Z",
        "ops:$apr1$Zq7Zq7Zq$Zq7Zq7Zq7Zq7Zq7Zq7Zq7Z", "root grub.pbkdf2.sha512.10000.ABC0ABC0",
        "client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJZq7abc", f"redis-cli -h 10.0.0.1 -a {S} ping",
        f"ldapsearch -x -D cn=ops -w {S} -b dc=site", f"snmpget -v3 -u ops -A {S} 10.0.0.1 x",
        f"snmpwalk -v2c -c {S} 10.0.0.1", f"smbclient -U ops%{S} //h/x", f"mosquitto_pub -u ops -P {S} -t x",
        f"password: |\n  {S}\n  Zq7-second line", f"  - db_password: >-\n\n      {S}\n\n      Zq7-more",
        f'"token": |2+\n\t{S}',
    ],
)  # fmt: skip
def test_every_form_is_hidden(text: str) -> None:
    cleaned = clean(f"before\n{text}\nafter\n".encode(), NONE)
    for part in ("Zq7", "123456789", "abc"):
        assert part.encode() not in cleaned.data.replace(b"before", b"")
    assert cleaned.data.startswith(b"before\n")
    assert cleaned.data.endswith(b"\nafter\n")
    assert sum(cleaned.hidden.values()) == 1


def test_a_value_over_several_lines_ends_where_its_indentation_ends() -> None:
    text = f"users:\n  - password: |\n      {S}\n    name: ops\nnotes: |\n  kept\nsecret: |\nother: kept\n"
    shown = clean(text.encode(), NONE).data.decode()
    assert S not in shown
    for line in ("    name: ops", "notes: |\n  kept", "other: kept"):
        assert f"\n{line}\n" in shown


@pytest.mark.parametrize(
    "line",
    [
        "ls -a /var/lib; tar -c x; redis-cli -n 3 ping",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
        "mlx5_core 0000:5e:00.0: cmd_work_handler:968:(pid 321): failed to allocate command entry, token: 12",
        "mlx5_core 0000:5e:00.0: poll_health:955: device's health compromised - reached miss count",
        "pcieport 0000:3a:00.0: AER: Multiple Corrected error received: 0000:3b:00.0",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#0", "Self-test passed: 12", "bypass: enabled",
        "Serial Number : 1650921000000", "        Pass-through: yes", "password: none", "PasswordAuthentication no",
        "https://docs.example:8080/path", "key 0x1234 of 7", "Board Part Number : 692-2G520-0202-000",
        "PermitEmptyPasswords no", '"cookie": "k3vplhz7mmnvyhz5",', "SSH key: SHA256 is of the host",
        "rx_pass: 1234", "first_pass=enabled", "PASS: memory", "identified as nvme0", "racadm is not installed",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(line: str) -> None:
    cleaned = clean(line.encode(), NONE)
    assert (cleaned.data.decode(), dict(cleaned.hidden)) == (line, {})


def test_only_the_value_goes_where_it_is_known_where_it_ends() -> None:
    assert hidden_line(f'{{"serial": "1", "password": "{S}", "model": "x"}}') == (
        '{"serial": "1", "password": "...", "model": "x"}'
    )
    assert hidden_line(f"pull https://u:{S.partition('/')[0]}@host/y now") == "pull https://...@host/y now"


KEY = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    + "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n" * 3
    + "-----END OPENSSH PRIVATE KEY-----"
)


def test_keys_go_whole_also_in_a_log_that_was_cut_within_one() -> None:
    for text in (KEY, KEY.replace("OPENSSH ", ""), "\n".join(f"Nov 27 gpu2 x: {line}" for line in KEY.split("\n")),
                 KEY.partition("\n")[2], KEY.rpartition("-----END")[0], KEY.replace("\n", "\\n")):  # fmt: skip
        cleaned = clean(f"before\n{text}\nafter".encode(), NONE)
        assert b"b3Blb" not in cleaned.data, text
        assert cleaned.data.startswith(b"before\n")
        assert cleaned.hidden["a private key"] == 1
        if "END" in text:
            assert cleaned.data.endswith(b"after"), cleaned.data


def test_a_vault_goes_with_all_its_lines() -> None:
    vault = "pool:\n  secret: !vault |\n    $ANSIBLE_VAULT;1.1;AES256\n    6331653761626364\n    63\n  host: gpu2\n"
    cleaned = clean(vault.encode(), NONE)
    assert b"6331" not in cleaned.data
    assert b"    63\n" not in cleaned.data
    assert cleaned.data.endswith(b"  host: gpu2\n")


def test_the_sites_own_secrets_are_known_by_their_text() -> None:
    known = Literals(["p@ss wörd", "short", 'quo"te-secret'])
    text = 'p@ss wörd, p%40ss%20w%C3%B6rd, short, "quo\\"te-secret"'
    assert clean(text.encode(), known).data.decode() == '..., ..., short, "..."'
    assert "p@ss" not in repr(known)


def test_a_log_without_a_hint_is_not_looked_at_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_filter, "hidden_line", lambda _: "looked at")
    text = b"Nov 27 10:00:00 gpu2 kernel: nothing of interest here, line after line after line\n" * 1000
    assert clean(text, NONE).data == text
    assert clean(text + b"password: x\n", NONE).data == text + b"looked at\n"


def test_a_line_that_would_take_too_long_is_hidden_whole() -> None:
    cleaned = clean(b"before\npassword: x " + b"-" * (1 << 20) + b"\nafter", NONE)
    assert cleaned.data == b"before\n...\nafter"
    long = b"no hint in " + b"-" * (1 << 20)
    assert clean(long, NONE).data == long


def test_a_text_that_takes_too_long_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Package(tmp_path, Literals([]))
    monkeypatch.setattr(secret_filter, "ONE_LOOK_S", -1.0)
    package.add("node/a.txt", "password: x", "source")
    package.add("node/b.txt", "plain", "source")
    package.add("node/c.txt", "-----END PRIVATE KEY-----\n" * 101, "source")
    assert set(package.entries) == {"node/b.txt"}
    assert package.left.pop()["what"] == "node/c.txt", "marks that no log has so often"
    assert package.left == [{"what": "node/a.txt", "why": "could not be looked through for secrets in its time"}]


def test_secrets_of_the_node_are_known_by_the_inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if secret_name(name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ELASTIC_AI_BMC_PASSWORD", "from-the-environment")
    names = {"gpu1": {"ldap_password": "of-another-node"}, "gpu2": {"pool": {"api_key": "of-this-node", "name": "lab"}}}
    hosts = {"all": {"hosts": names, "vars": {"slurm_token": "{{ 'of-' + 'a-template' }}"}}}
    (tmp_path / "hosts.yml").write_text(json.dumps(hosts))
    assert known_secrets(tmp_path / "hosts.yml", "gpu2") == (
        ["from-the-environment", "of-a-template", "of-this-node"], "",
    )  # fmt: skip
    hosts["all"]["vars"] = {"slurm_token": "{{ nowhere }}"}
    (tmp_path / "hosts.yml").write_text(json.dumps(hosts))
    assert known_secrets(tmp_path / "hosts.yml", "gpu2")[1] == "Ansible cannot resolve slurm_token here"
    assert known_secrets(tmp_path / "none.yml", "gpu2")[1]


def test_which_variables_are_secrets_of_the_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    long = "k" * 400  # no file has such a name
    odd = os.fsdecode(b"odd-\xff-secret")
    given = {"ansible_become_pass": "of-become", "registry_token": long, "bmc": {"password": 12345678},
             "token_lifetime_s": 604800, "ssh_password_file": str(key)}  # fmt: skip
    host = SimpleNamespace(values=given, unresolved=[])
    monkeypatch.setattr(controller, "read_source", lambda *_: SimpleNamespace(hosts={"gpu1": host}))
    monkeypatch.setattr(os, "environ", {
        "PWD": "/var/log", "OLDPWD": "/no/such/folder", "VAULT_PASSWORD_FILE": str(tmp_path), "BMC_PASSWORD": odd,
    })  # fmt: skip
    found, _ = controller.known_secrets(tmp_path, "gpu1")
    assert sorted(found) == sorted(["of-become", long, "12345678", odd])
    assert clean(b"a odd-\xff-secret b " + long.encode(), Literals(found)).data == b"a ... b ..."
