"""Signing a run and checking it: what is signed, what is refused, what is found."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.signing_case import NEEDS_SSH, allow, make_key, reported_run, sign, signed_bundle
from validation.model import VerdictDoc
from validation.model.base import NAMESPACES
from validation.model.load import ConfigError, load_json
from validation.signing import MANIFEST, is_signed, ssh
from validation.signing.manifest import compare, entries, make_manifest, parse_manifest, read_manifest
from validation.signing.sign import check_data, sign_run
from validation.signing.statement import WORDS, Statement, read_statement, signer
from validation.signing.verify import verify

pytestmark = [NEEDS_SSH, pytest.mark.computes]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A signed run and its bundle, not to be changed."""
    return signed_bundle(tmp_path_factory.mktemp("signed"))


@pytest.fixture
def run(made, tmp_path):
    """A copy of the signed run, to be changed."""
    return Path(shutil.copytree(made[0], tmp_path / "run"))


@pytest.fixture
def key(made):
    return made[0].parent / "key"


def unsigned(run: Path) -> Path:
    shutil.rmtree(run / "signatures")
    (run / MANIFEST).unlink()
    return run


def test_a_signed_run_is_good_and_says_so(run, key, tmp_path):
    assert is_signed(run)
    found = verify(run)
    assert found.good
    assert [s.state for s in found.signatures] == ["intact"]
    assert found.judged_again
    assert set(found.made_again) >= {"report.html", "report.json", "junit.xml", "metrics.prom"}
    allowed = allow(tmp_path / "allowed", key)
    found = verify(run, allowed)
    assert found.good
    assert (found.signatures[0].state, found.signatures[0].principal) == ("trusted", "a@example.com")


@pytest.mark.parametrize(
    "name", ["run.json", "verdict.json", "plan.json", "results.jsonl", "criteria/10-preflight.yml"]
)
@pytest.mark.parametrize(
    "text", ["[" * 100_000, "9" * 5000, "a: {{ b }}\n", "\0\n"], ids=["deep", "digits", "yaml", "nul"]
)
@pytest.mark.parametrize("tied", [False, True])
def test_odd_documents_are_found_and_told(run, name, text, tied):
    (run / name).write_text(text)
    if tied:
        (run / MANIFEST).write_text(make_manifest(run))
    found = verify(run)
    assert not found.good
    assert found.faults or found.difference


def test_stock_tools_check_it_without_the_toolkit(run, key, tmp_path):
    for file in (MANIFEST, "signatures/01-a-example.txt"):
        done = subprocess.run(
            ["sha256sum", "-c", "--strict", file], cwd=run, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
    allowed = allow(tmp_path / "allowed", key)
    line = f"ssh-keygen -Y verify -f {allowed} -I a@example.com -n elastic-ai-rehearsal "
    line += "-s signatures/01-a-example.txt.sig < signatures/01-a-example.txt"
    done = subprocess.run(["sh", "-c", line], cwd=run, capture_output=True, text=True, check=True)
    assert "Good" in done.stdout
    wrong = subprocess.run(
        ["sh", "-c", line.replace("rehearsal", "acceptance")], cwd=run, capture_output=True, check=False
    )
    assert wrong.returncode != 0


def test_the_commands_of_the_readme_work(run, key, tmp_path):
    text = (run / "README.txt").read_text()
    commands = re.findall(r"^  (\S.*)$", text, re.MULTILINE)
    public = key.with_name("key.pub").read_text().strip()
    script = "set -e\n" + "\n".join(commands)
    script = script.replace("S=signatures/NN-NAME.txt", "S=signatures/01-a-example.txt")
    script = script.replace("ssh-ed25519 AAAA...", public).replace("../allowed", str(tmp_path / "allowed"))
    done = subprocess.run(["bash", "-c", script], cwd=run, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Good ") == 2
    assert verify(run).good


def test_a_rehearsal_is_signed_as_one(run):
    text = (run / "signatures/01-a-example.txt").read_text()
    assert text.startswith("# REHEARSAL. This is a rehearsal on virtual hardware; it accepts nothing.\n")
    assert "accept" not in text.replace("accepts nothing", "").lower()
    statement = read_statement(text, "x")
    assert statement.namespace == "elastic-ai-rehearsal"
    assert statement.text() == text
    assert (run / "README.txt").read_text().splitlines()[1] == WORDS["REHEARSAL"]


@pytest.mark.parametrize(
    ("options", "sign_off"),
    [
        ({"virtual": False, "waive": False}, "INCOMPLETE"),
        ({"virtual": False, "slow": "gpu2"}, "REJECTED"),
        ({"virtual": False, "dead": "gpu2"}, "INCOMPLETE"),
    ],
)
def test_every_state_has_its_own_words_and_namespace(tmp_path, key, options, sign_off):
    run = reported_run(tmp_path / "run", judged=True, **options)
    statement = sign(run, key).statement
    assert statement.sign_off == sign_off
    assert statement.namespace == NAMESPACES[sign_off]
    assert statement.text().startswith(f"# {WORDS[sign_off]}\n")
    assert verify(run).good
    assert len(set(NAMESPACES.values())) == len(set(WORDS.values())) == len(NAMESPACES)


def test_a_rehearsal_cannot_be_turned_into_an_acceptance_by_hand(run, key):
    """Whoever signs other words with plain ssh-keygen is found, even with a good signature."""
    path = run / "signatures/01-a-example.txt"
    old = read_statement(path.read_text(), "x")
    changed = Statement(**{**vars(old), "sign_off": "ACCEPTED", "headline": "ACCEPTED: all good"})
    path.write_text(changed.text())
    path.with_name(path.name + ".sig").write_bytes(ssh.sign(ssh.read_key(key), changed.namespace, path.read_bytes()))
    found = verify(run)
    assert not found.good
    assert "sign-off ACCEPTED, the run says REHEARSAL" in found.signatures[0].why
    path.write_text(old.text().replace("it accepts nothing", "it accepts all"))
    path.with_name(path.name + ".sig").write_bytes(ssh.sign(ssh.read_key(key), old.namespace, path.read_bytes()))
    assert "text was changed" in verify(run).signatures[0].why


def test_several_sign_the_same_manifest(run, key, tmp_path):
    other = make_key(tmp_path / "other", "-t", "ecdsa")
    manifest = (run / MANIFEST).read_bytes()
    second = sign(run, other, "Käthe Söhne")
    assert second.path.name == "02-kathe-sohne.txt"
    assert (run / MANIFEST).read_bytes() == manifest
    assert verify(run).good
    allowed = allow(tmp_path / "allowed", key)
    found = verify(run, allowed)
    assert [s.state for s in found.signatures] == ["trusted", "bad"]
    assert not found.good
    assert "does not vouch for this key" in found.signatures[1].why
    allow(allowed, other, "k@example.com")
    assert verify(run, allowed).good
    with pytest.raises(ConfigError, match="is signed with this key already"):
        sign(run, other)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: (run / "results.jsonl").open("a").write("\n"), "results.jsonl: changed"),
        (lambda run: (run / "raw/facts.gpu1/gpu1.out").unlink(), "raw/facts.gpu1/gpu1.out: missing"),
        (lambda run: (run / "raw/more.out").write_text("x"), "raw/more.out: added"),
        (lambda run: (run / "report.html").write_text("ACCEPTED"), "report.html: changed"),
        (lambda run: (run / "link").symlink_to("/etc/passwd"), "link: added"),
    ],
)
def test_a_second_signer_is_refused_and_verify_names_the_file(run, tmp_path, damage, words):
    damage(run)
    found = verify(run)
    assert not found.good
    assert words in found.difference.words()
    with pytest.raises(ConfigError, match="was changed since it was signed") as caught:
        sign(run, make_key(tmp_path / "other"))
    assert words in str(caught.value)


def test_a_link_in_place_of_a_file_is_found(run):
    path = run / "fabric.yml"
    path.rename(run / "copy.yml")
    path.symlink_to("copy.yml")
    assert verify(run).difference.words() == ["fabric.yml: missing", "copy.yml: added", "fabric.yml: added"]


def test_a_signature_taken_away_or_put_beside_is_found(run, key, tmp_path):
    sign(run, make_key(tmp_path / "other"), "B")
    for path in (run / "signatures").glob("01-*"):
        path.unlink()
    assert any("was taken away or added" in fault for fault in verify(run).faults)
    (run / "signatures/note").write_text("x")
    assert any("signatures/note: is no pair" in fault for fault in verify(run).faults)


def test_a_signature_of_another_run_does_not_fit(run, tmp_path, key):
    other = reported_run(tmp_path / "other", slow="gpu2")
    sign(other, key)
    shutil.rmtree(run / "signatures")
    shutil.copytree(other / "signatures", run / "signatures")
    found = verify(run)
    assert not found.good
    assert f"it signs another {MANIFEST}" in found.signatures[0].why


def test_a_prettified_report_is_not_signed_and_is_found_by_verify(run, key):
    path = run / "report.html"
    path.write_text(path.read_text().replace("REHEARSAL", "ACCEPTED"))
    unsigned(run)
    with pytest.raises(ConfigError, match=r"report.html: is not what the data"):
        sign(run, key)
    # even with a manifest made by hand, and a true signature over it
    (run / MANIFEST).write_text(make_manifest(run))
    assert any("report.html: is not what the data" in fault for fault in verify(run).faults)


def test_reports_of_another_release_are_not_checked_and_its_verdict_must_fit(run, monkeypatch):
    monkeypatch.setattr("validation.signing.verify.release", lambda: "9.9.9")
    monkeypatch.setattr(
        "validation.signing.again.make", lambda documents, names: ({n: b"looks different" for n in names}, {})
    )
    found = verify(run)
    assert found.answer == "not-checked"
    assert any("report.html" in words and "signed with toolkit" in words for words in found.unchecked)


def test_a_duplicate_key_in_the_verdict_is_found(run, key):
    path = unsigned(run) / "verdict.json"
    path.write_text(path.read_text().replace('"outcome":', '"outcome": "failed", "outcome":', 1))
    with pytest.raises(ConfigError, match="duplicate key: outcome"):
        sign(run, key)


def _bad_key(tmp_path: Path, name: str) -> tuple[Path, str]:
    path = tmp_path / name
    if name == "none":
        return path, "no such key; make one with: ssh-keygen"
    if name == "folder":
        path.mkdir()
        return path, "is a directory"
    if name == "pgp":
        path.write_text("-----BEGIN PGP PRIVATE KEY BLOCK-----\n")
        return path, "is an OpenPGP key"
    if name == "ppk":
        path.write_text("PuTTY-User-Key-File-3: ssh-ed25519\n")
        return path, "is a PuTTY key; convert it"
    if name == "x509":
        path.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n")
        return path, "is an X.509 certificate"
    if name == "certificate":
        ca, own = make_key(tmp_path / "ca"), make_key(tmp_path / "own")
        subprocess.run(["ssh-keygen", "-q", "-s", ca, "-I", "id", f"{own}.pub"], check=True)
        return own.with_name("own-cert.pub"), "is an SSH certificate"
    if name == "lonely.pub":
        make_key(tmp_path / "lonely").unlink()
        return path, "its private half is neither beside it nor in ssh-agent"
    if name == "locked":
        return make_key(path, passphrase="correct horse"), "wrong passphrase, or no terminal to ask for it"
    if name == "open":
        make_key(path).chmod(0o644)
        return path, "chmod 600"
    path.write_text("hello\n")
    return path, "not an OpenSSH key"


@pytest.mark.parametrize(
    "name", ["none", "folder", "pgp", "ppk", "x509", "certificate", "lonely.pub", "locked", "open", "junk"]
)
def test_a_key_that_cannot_sign_is_one_clear_line(run, tmp_path, monkeypatch, name):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    path, words = _bad_key(tmp_path, name)
    with pytest.raises(ConfigError) as caught:
        sign_run(unsigned(run), path, "A", "B")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert not is_signed(run)


def test_the_private_half_may_be_in_an_agent(run, tmp_path):
    if shutil.which("ssh-agent") is None:
        pytest.skip("ssh-agent is not installed here")
    key = make_key(tmp_path / "agents")
    socket = tmp_path / "s"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        while not socket.exists():
            assert agent.poll() is None
        environment = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
        subprocess.run(["ssh-add", "-q", key], env=environment, check=True)
        key.unlink()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSH_AUTH_SOCK", str(socket))
            sign(unsigned(run), key.with_name("agents.pub"))
    finally:
        agent.terminate()
        agent.wait()
    assert verify(run).good


def test_rsa_keys_in_pem_sign_too(run, tmp_path):
    assert sign(unsigned(run), make_key(tmp_path / "rsa", "-t", "rsa", "-b", "2048", "-m", "PEM")).statement
    assert verify(run).good


def test_allowed_signers_are_looked_at_as_of_the_signature(run, key, tmp_path):
    """A key that ran out since still verifies; one that had run out before, or is for another purpose, does not."""
    good = allow(tmp_path / "good", key, options='valid-before="20270101"')
    early = allow(tmp_path / "early", key, options='valid-before="20260101"')
    other = allow(tmp_path / "other", key, options='namespaces="elastic-ai-acceptance"')
    assert verify(run, good).good
    assert not verify(run, early).good
    found = verify(run, other)
    assert not found.good
    assert found.intact


@pytest.mark.parametrize("who", ["A", "A,", ", B", ""])
def test_who_signs_has_name_and_company(who):
    with pytest.raises(ConfigError, match="NAME, COMPANY"):
        signer(who)
    assert signer("A. Example, Sons & Co., Ltd.") == ("A. Example", "Sons & Co., Ltd.")


@pytest.mark.parametrize("who", ["A\n, B", "A\x1b[1m, B"])
def test_who_signs_has_no_character_that_cannot_be_seen(who):
    with pytest.raises(ConfigError, match="cannot be seen"):
        signer(who)


def test_names_of_hosts_cannot_write_into_a_statement(tmp_path, key):
    """A headline that holds line breaks stays one line, and the statement says what it said."""
    run = reported_run(tmp_path / "run")
    statement = sign(run, key).statement
    changed = Statement(**{**vars(statement), "headline": "x"})
    assert read_statement(changed.text(), "x") == changed
    with pytest.raises(ConfigError, match="not a statement"):
        read_statement(Statement(**{**vars(statement), "headline": "x\n# sign-off:  ACCEPTED"}).text(), "x")


@pytest.mark.parametrize("text", ["", "x\n", "0" * 64 + "  a", "0" * 64 + "  a\n" + "1" * 64 + "  a\n"])
def test_a_damaged_manifest_is_refused(tmp_path, text):
    if text == "":
        with pytest.raises(ConfigError):
            read_manifest(tmp_path)
        text = "\n"
    with pytest.raises(ConfigError):
        parse_manifest(text, tmp_path / MANIFEST)


def test_the_manifest_leaves_out_what_is_no_part_of_a_run(tmp_path):
    (tmp_path / ".lock").write_text("1")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden/file").write_text("1")
    (tmp_path / "signatures").mkdir()
    (tmp_path / "signatures/01-a.txt").write_text("1")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/signatures").write_text("1")
    (tmp_path / "a.txt").write_text("1")
    manifest = make_manifest(tmp_path)
    assert [line[66:] for line in manifest.splitlines()] == ["a.txt", "a/signatures"]
    assert not compare(tmp_path, parse_manifest(manifest, tmp_path))
    (tmp_path / "new\nline").write_text("1")
    with pytest.raises(ConfigError, match="unusable name"):
        make_manifest(tmp_path)


def test_signing_and_verifying_read_the_verdict_once_for_all_that_is_made_again(run, monkeypatch):
    """Of a fleet it is tens of MB: what is judged and reported again asks for the same one."""
    asked = []

    def counted(source, model, *more):
        asked.append(model)
        return load_json(source, model, *more)

    for module in ("run.read", "signing.sign", "signing.verify"):
        monkeypatch.setattr(f"validation.{module}.load_json", counted)
    check_data(run)
    assert asked.count(VerdictDoc) == 1
    asked.clear()
    assert verify(run).good
    assert asked.count(VerdictDoc) == 2  # what it says of itself, and what follows from the data


def test_the_manifest_names_everything_that_is_no_ordinary_file(tmp_path):
    for name in (
        "raw/a/x",
        "raw/signatures/s",
        f"raw/{MANIFEST}",
        "signatures/01",
        MANIFEST,
        "ab",
        "a.b",
        ".a",
        ".d/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    ordinary = ["a.b", "ab", f"raw/{MANIFEST}", "raw/a/x", "raw/signatures/s"]
    assert list(entries(tmp_path)) == [(name, True) for name in ordinary]
    (tmp_path / "to").symlink_to("ab")
    (tmp_path / "folder").symlink_to("raw")
    (tmp_path / "raw" / "round").symlink_to("..")
    (tmp_path / "raw" / "nowhere").symlink_to("nothing")
    os.mkfifo(tmp_path / "raw" / "pipe")
    (tmp_path / "two\nlines").write_text("")
    (tmp_path / "back\\slash").write_text("")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/raw/\xff")).write_text("")
    odd = {"to", "folder", "raw/round", "raw/nowhere", "raw/pipe", "two\nlines", "back\\slash", "raw/\udcff"}
    assert {name for name, good in entries(tmp_path) if not good} == odd
    assert [name for name, good in entries(tmp_path) if good] == ordinary
    with pytest.raises(ConfigError, match="cannot be read"):
        list(entries(tmp_path / "nothing"))
