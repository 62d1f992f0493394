"""The host variable `bmc`: refused in one sentence with its place, and its password is in nothing that is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

from tests.support.bmcs import PASSWORD
from toolkit.inventory import InventoryError, read_site
from toolkit.inventory_bmc import BmcVariable, plain_password

pytestmark = pytest.mark.systems


def write(folder: Path, bmc: str, **files: str) -> Path:
    path = folder / "hosts.yml"
    path.write_text(f"gpu_servers:\n  hosts:\n    gpu1:\n      ansible_host: 10.0.0.1\n      bmc:\n{bmc}")
    for name, text in files.items():
        (folder / "group_vars").mkdir(exist_ok=True)
        (folder / "group_vars" / f"{name}.yml").write_text(text)
    return path


def test_what_is_kept_of_a_bmc_has_no_password_whether_by_vault_or_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = tmp_path / "word"
    word.write_text("of-the-vault\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(word))
    hidden = VaultLib([("default", VaultSecret(b"of-the-vault"))]).encrypt(f"secret_of_bmcs: {PASSWORD}\n").decode()
    lines = "        address: 10.0.9.1\n        user: acceptance\n        password: '{{ secret_of_bmcs }}'\n"
    site = read_site(write(tmp_path, lines + "        bios: {LogicalProc: Disabled}\n", gpu_servers=hidden))
    (node,) = site.topology.nodes
    assert node.bmc is not None
    assert (node.bmc.address, node.bmc.port, node.bmc.user) == ("10.0.9.1", 443, "acceptance")
    assert node.bmc.bios == {"LogicalProc": "Disabled"}
    kept = site.topology.model_dump_json() + site.record.model_dump_json() + repr(site)
    assert PASSWORD not in kept


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("address: 10.0.9.1\nuser: a\npassword: Plain-0ne", "is written here in plain text; put it into a vault"),
        ("address: 10.0.9.1\nuser: a\nfingerprint: '12:34'", "is no SHA-256 fingerprint"),
    ],
)
def test_what_cannot_be_used_is_one_line_with_its_place(tmp_path: Path, lines: str, words: str) -> None:
    where = write(tmp_path, "".join(f"        {line}\n" for line in lines.splitlines()))
    with pytest.raises(InventoryError) as fault:
        read_site(where)
    assert words in str(fault.value)
    assert str(fault.value).startswith(f"{where}:8: gpu1: bmc.")
    assert "Plain-0ne" not in str(fault.value)


@pytest.mark.parametrize(
    "given",
    [
        {"address": "10.0.9.1"},
        {"address": "", "user": "a"},
        {"address": "10.0.9.1", "user": "a", "port": 0},
        {"address": "10.0.9.1", "user": "a", "ca": "/nowhere/ca.pem"},
        {"address": "10.0.9.1", "user": "a", "pasword": "S3cr3t-0ne"},
        {"address": "10.0.9.1", "user": "a", "password": 4711},
        "10.0.9.1",
    ],
    ids=str,
)
def test_a_variable_of_another_form_is_refused_and_its_values_are_not_repeated(given: object) -> None:
    with pytest.raises(ValueError) as fault:  # noqa: PT011 - pydantic's
        BmcVariable.model_validate(given)
    assert "S3cr3t-0ne" not in str(fault.value)
    assert "4711" not in str(fault.value)


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("  password: '{{ vault }}'", False),
        ("  password: !vault |", False),
        ("  password: abc", True),
        ("bmc: {address: a, password: abc}", True),
        ("bmc: {address: a, password: '{{ vault }}'}", False),
        ("bmc: {address: a}", False),
    ],
)
def test_a_password_in_plain_text_is_seen_in_its_line(tmp_path: Path, line: str, plain: bool) -> None:
    (tmp_path / "f.yml").write_text(line + "\n")
    assert plain_password(f"{tmp_path}/f.yml:1") is plain


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("switches_password: abc", True),
        ("switches_password=abc", True),
        ("switches_password='{{ vault }}'", False),
        ("switches_password: !vault |", False),
        ("password: abc", False),
    ],
)
def test_a_password_of_another_name_is_seen_in_its_line(tmp_path: Path, line: str, plain: bool) -> None:
    (tmp_path / "f.yml").write_text(line + "\n")
    assert plain_password(f"{tmp_path}/f.yml:1", "switches_password") is plain
