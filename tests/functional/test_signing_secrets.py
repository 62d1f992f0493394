"""Secrets: planted wherever a site keeps them, they reach no byte of a run, its report or its bundle."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.support.report_fixture import make_run
from tests.support.signing_case import NEEDS_SSH, make_key, reported_run, sign
from tests.support.warm import COMMAND_PATH, command
from toolkit.inventory import InventoryError, read_site
from toolkit.inventory_record import NAMES, harmless
from validation.base.secret_words import looks_like
from validation.model.load import ConfigError
from validation.signing.pack import bundle_run
from validation.signing.secrets import scan
from validation.signing.verify import verify

pytestmark = pytest.mark.computes

PLANTED = "Pl4nted-"
ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests/support"
HOSTS = """
all:
  vars:
    elastic_ai_virtual: loopback
    lab_link: {rate_gbps: 1.0, rtt_max_us: 5000}
    db_password: Pl4nted-all
    cuda_version: "12.4"
    docker_state: present
    mirror_url: https://u:Pl4nted-url@mirror.example
    signing_token_version: Pl4nted-name
    note_release: "token=Pl4nted-value"
  children:
    gpu_servers:
      hosts:
        gpu1:
          ansible_host: 127.0.0.21
          ansible_password: Pl4nted-ssh
          ansible_become_password: Pl4nted-become
          fabric_ports: [{interface: lo, address: 127.0.0.21/8}]
          bom: {model: here}
        gpu2: {ansible_host: 127.0.0.22, fabric_ports: [{interface: lo, address: 127.0.0.22/8}]}
"""


def vault(folder: Path, *arguments: str, text: str) -> str:
    tool = Path(sys.executable).with_name("ansible-vault")
    done = subprocess.run(
        [tool, *arguments, "--vault-password-file", folder / "vault-password"],
        input=text, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site with a secret in each place where there may be one; environment for commands in it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "vault-password").write_text("Pl4nted-vaultkey\n")
    inventory = folder / "inventories" / "here"
    (inventory / "group_vars" / "all").mkdir(parents=True)
    (inventory / "host_vars").mkdir()
    (inventory / "hosts.yml").write_text(HOSTS)
    (inventory / "group_vars" / "gpu_servers.yml").write_text("lease_secret: Pl4nted-group\n")
    whole = vault(folder, "encrypt", "--output", "-", text="root_hash: Pl4nted-vaultfile\nbmc_state: 'x Pl4nted-no'\n")
    (inventory / "group_vars" / "all" / "vault.yml").write_text(whole)
    inline = vault(folder, "encrypt_string", "--stdin-name", "bmc_version", text="Pl4nted-inline")
    (inventory / "host_vars" / "gpu2.yml").write_text(inline)
    environment = {
        "ANSIBLE_VAULT_PASSWORD_FILE": str(folder / "vault-password"),
        "AWS_SECRET_ACCESS_KEY": "Pl4nted-env",
        "DB_URL": "postgres://u:Pl4nted-env2@db/x",
    }
    return folder, inventory, environment


def here(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": COMMAND_PATH, **environment}
    return command(folder, arguments, environment, SUPPORT / "cli_here.py")


def all_bytes(path: Path) -> bytes:
    """Every byte of the files in a folder or ZIP file.

    The PDF is a stand-in: it is laid out from report.html and nothing else, as test_report_formats proves.
    """
    if path.is_dir():
        return b"\n".join(p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file())
    with zipfile.ZipFile(path) as archive:
        return b"\n".join(archive.read(name) for name in archive.namelist())


@NEEDS_SSH
def test_planted_secrets_reach_no_byte_of_run_report_or_bundle(site):
    folder, _, environment = site
    key = make_key(folder / "key")
    done = here(folder, environment, "validate", "--fabric", "tcp10", "-i", "inventories/here", "--suite", "preflight")
    assert done.returncode in (0, 1, 3), done.stderr
    (run,) = (folder / "runs").iterdir()
    assert (run / "inventory.json").is_file()
    assert here(folder, environment, "sign", "--key", str(key), "--as", "A, B").returncode == 0
    made = here(folder, environment, "bundle")
    assert made.returncode == 0, made.stderr
    bundle = Path(made.stdout.strip())
    for content in (all_bytes(run), all_bytes(bundle)):
        assert b"127.0.0.21" in content
        assert PLANTED.encode() not in content


def test_the_inventory_is_kept_by_an_allow_list(site, monkeypatch):
    _, inventory, environment = site
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    record = read_site(inventory).record
    text = record.model_dump_json()
    assert PLANTED not in text
    one, two = record.hosts
    assert one.variables == {"cuda_version": "12.4", "docker_state": "present"}
    assert (one.groups, one.address, one.bom.model) == (("gpu_servers",), "127.0.0.21", "here")
    assert one.left_out == 10
    assert two.variables == one.variables


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("anything", "x"), ("password", "1"), ("token_version", "1"), ("secret_state", "present"),
        ("cuda_version", {"__ansible_vault": "$ANSIBLE_VAULT;1.1"}), ("cuda_version", "{{ lookup('env', 'TOKEN') }}"),
        ("cuda_version", "a" * 65), ("cuda_version", "ghp_" + "a" * 36), ("cuda_state", ["a"]),
        ("cuda_version", "a\nb"),
        ("cuda_version", None), ("stack_release", "https://u:p@h/x"),
    ],
)  # fmt: skip
def test_what_is_not_known_to_be_harmless_stays_out(name, value):
    assert not harmless(name, value)


def test_a_password_in_what_reaches_the_report_is_refused(tmp_path):
    def hosts(extra: str) -> Path:
        (tmp_path / "hosts.yml").write_text(
            f"gpu_servers:\n  hosts:\n    gpu1:\n      ansible_host: 127.0.0.1\n{extra}"
        )
        return tmp_path

    bad = {
        "ansible_ssh_common_args": "-o ProxyCommand='sshpass -p geheim ssh -W %h:%p jump'",
        "stack": "{licence_token: abcdef}",
        "bom": "{model: 'http://u:geheim@host/'}",
    }
    for name, value in bad.items():
        with pytest.raises(InventoryError, match="looks like a password or token") as caught:
            read_site(hosts(f"      {name}: {value if value[0] == '{' else chr(34) + value + chr(34)}\n"))
        assert name in str(caught.value)
        assert "geheim" not in str(caught.value)
    read_site(hosts("      ansible_ssh_common_args: \"-o ProxyCommand='ssh -W %h:%p jump'\"\n"))


def test_every_name_of_the_allow_list_is_an_option_of_a_role():
    """And none of a role's options that its own tasks hide."""
    specs = [p.read_text() for p in (ROOT / "roles").glob("*/meta/argument_specs.yml")]
    of_stages = {"fabric", "stack_release", "pool_page"}
    options = set(re.findall(r"^      ([a-z_]+):$", "\n".join(specs), re.MULTILINE)) | of_stages
    assert options >= NAMES
    assert not any(word in name for name in NAMES for word in ("key", "token", "secret", "pass", "url"))


SECRETS = [
    "-----BEGIN OPENSSH PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----",
    "$ANSIBLE_VAULT;1.1;AES256", '{"x": {"__ansible_vault": "..."}}',
    "git clone https://user:geheim99@git.example/x.git", "redis://:geheim99@cache:6379/0",
    "password=geheim99", "password: geheim", "password: geheim  ", "user=x password=geheim user=y",
    "PASSWORD: geheim99", '"db_password": "geheim99"', "DB_PASSWD='geheim 99'",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENG", "api_key: abcd1234efgh", "export HF_TOKEN=hf_" + "a" * 34,
    "Authorization: Bearer abcdefghijklmnop", "curl -H 'Authorization: Basic dXNlcjpwYXNz'",
    "sshpass -p geheim ssh host", "mysql --password=geheim99", "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a" * 36,
    "glpat-" + "a" * 20, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "root:$6$saltsalt$" + "a" * 40,
]  # fmt: skip
HARMLESS = [
    "a token was refused", "no token, a wrong one", "password: none", "token: ********", "password=${PASSWORD}",
    "password: {{ vault_password }}", "secret: refused", "http://host:8080/x", "https://example.org/a@b",
    "ssh://git@host/x", "tokens/s: 1234.5", "token: 12", "the password is asked for on the terminal",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFz", "SHA256:aG85OD8JP6YWMOeoaatS11kE7IDzJ1uUHcTJ1G",
    "key_file: /root/.ssh/id_ed25519", "token: /run/elastic-ai/token", "basic authentication", "access: denied",
    "Where it is a secret: change it first", "ELASTIC_AI_TOKEN_FILE=tokens", "two credentials: one, and another",
]  # fmt: skip


@pytest.mark.parametrize("line", SECRETS)
def test_the_usual_forms_of_secrets_are_seen(tmp_path, line):
    assert looks_like(line.encode())
    (tmp_path / "log").write_text(f"one\ntwo\n{line}\nfour\n")
    (hit,) = scan(tmp_path)
    assert (hit.file, hit.line) == ("log", 3)
    assert "geheim" not in str(hit)


@pytest.mark.parametrize("line", HARMLESS)
def test_what_only_speaks_of_secrets_is_let_through(line):
    assert looks_like(line.encode()) is None


def test_a_clean_run_holds_nothing_that_looks_like_a_secret(tmp_path):
    assert scan(reported_run(tmp_path / "run")) == []


def test_lines_across_pieces_of_a_large_file_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("validation.signing.secrets._PIECE_BYTES", 64)
    lines = [f"line {n:03d} " + "x" * (n % 50) for n in range(200)]
    lines[70], lines[150] = "password=geheim99", "z" * 500
    lines[199] = "token: abcdefgh"
    (tmp_path / "log").write_text("\n".join(lines))
    assert [hit.line for hit in scan(tmp_path)] == [71, 200]


def test_long_lines_and_large_files_do_not_take_long(tmp_path):
    (tmp_path / "long").write_bytes(b"token password api secret://" * 40_000)
    (tmp_path / "large").write_bytes(b"a line of an ordinary log, nothing in it\n" * 500_000)
    begin = time.process_time()
    scan(tmp_path)
    assert time.process_time() - begin < 10


@NEEDS_SSH
def test_signing_and_bundling_stop_at_a_secret_until_its_file_is_allowed(tmp_path):
    run, key = make_run(tmp_path / "run"), make_key(tmp_path / "key")
    (run / "raw/debug.out").write_text("all well\nDB_PASSWORD=geheim99\n")
    from validation.report.formats import write_formats

    write_formats(run, ("html", "json"))
    for work in (lambda: sign(run, key), lambda: bundle_run(run)):
        with pytest.raises(ConfigError, match=r"raw/debug.out:2: looks like a password or token") as caught:
            work()
        assert "geheim" not in str(caught.value)
        assert not (run / "signatures").exists()
    from validation.signing.sign import sign_run

    with pytest.raises(ConfigError, match=r"--allow raw/debg.out: no such file"):
        sign_run(run, key, "A", "B", ["raw/debg.out"])
    signed = sign_run(run, key, "A", "B", ["raw/debug.out", "run.json"])
    assert signed.statement.allowed == ("raw/debug.out",)
    assert "# allowed:   raw/debug.out\n" in signed.path.read_text()
    bundle = bundle_run(run)  # what a signer has allowed need not be allowed again
    assert bundle.allowed == ("raw/debug.out",)
    assert verify(bundle.path).signatures[0].allowed == ("raw/debug.out",)
