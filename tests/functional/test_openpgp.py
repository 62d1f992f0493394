"""Repository keys are read on the controller: fingerprints, self-signatures, expiry, and only declared ones pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import load

openpgp = load("plugins/plugin_utils/openpgp.py")

Gpg = Callable[..., bytes]


@pytest.fixture
def gpg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpg]:
    home = tmp_path_factory.mktemp("gnupg")
    home.chmod(0o700)

    def call(*args: str) -> bytes:
        words = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode=loopback", "--passphrase", ""]
        return subprocess.run([*words, *args], check=True, capture_output=True).stdout

    yield call
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    subprocess.run(["gpgconf", "--homedir", str(home), "--remove-socketdir"], check=False, capture_output=True)


def fingerprints(gpg: Gpg) -> list[str]:
    lines = gpg("--with-colons", "--fingerprint", "--list-keys").decode().splitlines()
    primary = [lines[i + 1] for i, line in enumerate(lines) if line.startswith("pub:")]
    return [line.split(":")[9] for line in primary]


@pytest.mark.parametrize("kind", ["rsa2048", "ed25519"])
@pytest.mark.parametrize("armoured", [True, False])
def test_fingerprint_and_hash_of_a_key(gpg: Gpg, kind: str, armoured: bool):
    gpg("--cert-digest-algo", "SHA512", "--quick-gen-key", "a <a@example.net>", kind, "sign", "never")
    text = gpg("--armor", "--export") if armoured else gpg("--export")
    given = text.decode() if armoured else text.decode("utf-8", "surrogateescape")  # as Ansible's lookups give it
    assert openpgp.openpgp_keys(given) == [
        {
            "fingerprint": fingerprints(gpg)[0],
            "created": openpgp.openpgp_keys(text)[0]["created"],
            "expires": "",
            "self_signature_hashes": ["sha512"],
        }
    ]
    assert openpgp.openpgp_keys(given)[0]["created"].startswith("20")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a /run/user of its own")
def test_nothing_is_left_below_run_user(gpg: Gpg, tmp_path: Path):
    gpg("--quick-gen-key", "a <a@example.net>", "rsa2048", "sign", "never")
    (tmp_path / "key").write_bytes(gpg("--export"))
    read = "print(openpgp.openpgp_keys(open(sys.argv[1], 'rb').read()))"
    program = f"import sys; from tests.functional.test_openpgp import openpgp; {read}"
    script = (
        'mkdir -p /run/user && mount -t tmpfs none /run/user && mkdir -m 700 /run/user/0 && "$@" && find /run/user/0'
    )
    words = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", program, str(tmp_path / "key")]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True)
    assert "fingerprint" in done.stdout
    assert "/d." not in done.stdout


def test_self_signatures_by_sha1_are_reported(gpg: Gpg):
    gpg("--cert-digest-algo", "SHA1", "--quick-gen-key", "a <a@example.net>", "rsa2048", "sign", "never")
    assert openpgp.openpgp_keys(gpg("--export"))[0]["self_signature_hashes"] == ["sha1"]


def test_a_foreign_signature_is_none_of_its_own(gpg: Gpg):
    gpg("--cert-digest-algo", "SHA512", "--quick-gen-key", "a <a@example.net>", "rsa2048", "default", "never")
    gpg("--cert-digest-algo", "SHA512", "--quick-gen-key", "b <b@example.net>", "rsa2048", "default", "never")
    first, second = fingerprints(gpg)
    gpg("--cert-digest-algo", "SHA256", "--yes", "--default-key", second, "--quick-sign-key", first)
    keys = openpgp.openpgp_keys(gpg("--export", first))
    assert [k["self_signature_hashes"] for k in keys] == [["sha512"]]


def test_expiry_is_that_of_the_newest_self_signature(gpg: Gpg):
    gpg("--faked-system-time", "20200101T000000", "--quick-gen-key", "a <a@example.net>", "rsa2048", "sign", "1y")
    key = openpgp.openpgp_keys(gpg("--export"))[0]
    assert (key["created"], key["expires"]) == ("2020-01-01T00:00:00Z", "2020-12-31T00:00:00Z")
    gpg("--faked-system-time", "20200601T000000", "--quick-set-expire", key["fingerprint"], "0")
    assert openpgp.openpgp_keys(gpg("--export"))[0]["expires"] == ""


def test_only_declared_keys_of_a_file_pass(gpg: Gpg, tmp_path: Path):
    for name in ("a", "b"):
        gpg("--quick-gen-key", f"{name} <{name}@example.net>", "rsa2048", "default", "never")
    first, second = fingerprints(gpg)
    blocks = gpg("--armor", "--export", first).decode() + gpg("--armor", "--export", second).decode()
    assert [k["fingerprint"] for k in openpgp.openpgp_keys(blocks)] == [first, second]
    spaced = " ".join(second[i : i + 4] for i in range(0, 40, 4)).lower()
    only = openpgp.openpgp_only(blocks, spaced)
    (tmp_path / "only.asc").write_text(only)
    shown = gpg("--with-colons", "--show-keys", str(tmp_path / "only.asc")).decode()
    assert second in shown
    assert first not in shown
    assert openpgp.openpgp_only(only, [second]) == only
    assert openpgp.openpgp_only(blocks, "0" * 40) == ""


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda t: "<html>404</html>", "not an OpenPGP public key"),
        (lambda t: "", "not an OpenPGP public key"),
        (lambda t: t.replace("m", "n", 1), "gpg refuses"),
        (lambda t: "\n".join(line for i, line in enumerate(t.splitlines()) if i != 5), "gpg refuses"),
    ],
)
def test_a_file_that_is_no_key_is_refused(gpg: Gpg, damage: Callable[[str], str], message: str):
    gpg("--quick-gen-key", "a <a@example.net>", "rsa2048", "sign", "never")
    with pytest.raises(AnsibleFilterError, match=message):
        openpgp.openpgp_keys(damage(gpg("--armor", "--export").decode()))


def test_a_secret_key_is_refused(gpg: Gpg):
    gpg("--quick-gen-key", "a <a@example.net>", "ed25519", "sign", "never")
    with pytest.raises(AnsibleFilterError, match="gpg refuses"):
        openpgp.openpgp_keys(gpg("--armor", "--export-secret-keys"))


def test_a_self_signature_that_does_not_verify_counts_for_nothing(gpg: Gpg):
    gpg("--quick-gen-key", "a <a@example.net>", "ed25519", "sign", "never")
    forged = bytearray(gpg("--export"))
    forged[-1] ^= 1  # the last byte of its only self-signature
    with pytest.raises(AnsibleFilterError, match="gpg refuses"):
        openpgp.openpgp_keys(bytes(forged))


def test_without_gpg_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AnsibleFilterError, match="gpg is not installed"):
        openpgp.openpgp_keys(b"x")


def test_a_key_that_is_cut_off_is_refused(gpg: Gpg):
    gpg("--quick-gen-key", "a <a@example.net>", "rsa2048", "sign", "never")
    whole = gpg("--export")
    for length in (1, 5, 40, len(whole) // 2, len(whole) - 1):
        with pytest.raises(AnsibleFilterError, match=r"gpg refuses|not an OpenPGP"):
            openpgp.openpgp_keys(whole[:length])
