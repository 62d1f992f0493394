"""An older mirror of a site, whose signature is as good: refused on a machine that accepted a newer one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolkit.cli import cli
from toolkit.mirror import accepted, building, manifest, openpgp, serving
from toolkit.mirror.documents import Plan
from validation.signing import ssh

OLD, NEW = "2026-11-01T12:00:00.000+00:00", "2026-11-20T12:00:00.000+00:00"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this machine keeps what it accepted; and the mirror's own key is no matter here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(openpgp, "own_key", lambda: "AB" * 20)
    monkeypatch.setattr(openpgp, "own_public", lambda target: target.write_text("key"))
    monkeypatch.setattr(building.extras, "take_wheels", lambda folder, say: None)
    monkeypatch.setattr(serving.Server, "serve_forever", lambda self, poll_interval=0.5: None)
    return tmp_path / "state/elastic-ai-toolkit/mirror"


@pytest.fixture
def key(tmp_path: Path) -> ssh.Key:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    (tmp_path / "signers").write_text(f"me {(tmp_path / 'key.pub').read_text()}")
    return ssh.read_key(tmp_path / "key")


def mirror(folder: Path, key: ssh.Key, signed: str, monkeypatch: pytest.MonkeyPatch, site: str = "hall") -> Path:
    """A mirror of nothing but documentation, which was signed then."""
    plan = Plan(site=site, made=signed, release="1", repositories=(), upstream={"repos_mirror": ""})
    with monkeypatch.context() as then:
        then.setattr(manifest, "utc_now", lambda: signed)
        building.build(plan, folder, key, lambda words: None)
    return folder


def called(verb: str, folder: Path, *words: str) -> Result:
    signers = ["--signers", str(folder.parent / "signers")]
    listen = ["--listen", "127.0.0.1:0"] if verb == "serve" else []
    return CliRunner().invoke(cli, ["mirror", verb, str(folder), *signers, *listen, *words])


def told(done: Result) -> str:
    return " ".join(done.output.split())


def test_an_older_mirror_is_refused_where_a_newer_one_was_accepted(
    tmp_path: Path, key: ssh.Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = mirror(tmp_path / "old", key, OLD, monkeypatch)
    new = mirror(tmp_path / "new", key, NEW, monkeypatch)
    assert called("verify", old).exit_code == 0, "the first one"
    assert called("verify", new).exit_code == 0
    done = called("verify", old)
    assert done.exit_code == 1
    assert f"signed {OLD}, before the mirror of hall that was accepted here last (signed {NEW} with " in told(done)
    assert "if that is meant: --older" in told(done)
    assert json.loads(called("verify", old, "--json").stdout)["faults"][0].startswith(f"signed {OLD}, before")
    done = called("serve", old)
    assert done.exit_code == 2
    assert f"{old}: signed {OLD}, before the mirror of hall" in told(done)
    assert called("serve", new).exit_code == 0
    assert called("verify", new).exit_code == 0, "the same one again"
    assert called("serve", old, "--older").exit_code == 0
    assert called("serve", old).exit_code == 2, "serving it keeps nothing"
    assert called("verify", old, "--older").exit_code == 0
    assert called("serve", old).exit_code == 0, "it is the last one now"


def test_only_what_was_checked_whole_and_vouched_for_is_kept(
    tmp_path: Path, key: ssh.Key, monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    old = mirror(tmp_path / "old", key, OLD, monkeypatch)
    new = mirror(tmp_path / "new", key, NEW, monkeypatch)
    assert CliRunner().invoke(cli, ["mirror", "verify", str(new)]).exit_code == 0
    assert called("serve", new).exit_code == 0
    (new / "added").write_text("x")
    assert called("verify", new).exit_code == 1
    assert not state.exists()
    (new / "added").unlink()
    other = mirror(tmp_path / "other", key, NEW, monkeypatch, site="elsewhere")
    assert called("verify", other).exit_code == 0
    assert called("verify", old).exit_code == 0, "another site's is no matter"


def test_a_state_that_cannot_be_read_is_no_permission(
    tmp_path: Path, key: ssh.Key, monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    old = mirror(tmp_path / "old", key, OLD, monkeypatch)
    assert called("verify", old).exit_code == 0
    (file,) = state.iterdir()
    file.write_text("{")
    done = called("verify", old)
    assert done.exit_code == 2
    assert f"if it may be: rm {file}" in told(done)
    file.unlink()
    assert called("verify", old).exit_code == 0
    assert file.exists()


@pytest.mark.parametrize("signed", ["", "yesterday", "2026-11-20"])
def test_a_mirror_that_says_no_time_is_older_than_one_that_does(signed: str) -> None:
    said = {"site": "hall", "signed": NEW, "key": "k"}
    accepted.accept(said, "a")
    assert "if that is meant: --older" in accepted.older({**said, "signed": signed}, "b")
    assert accepted.older(said, "b") == ""
