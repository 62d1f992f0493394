"""A mirror's medium that was in somebody's hands, or that is another folder: what building, checking and serving do."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolkit.cli import cli
from toolkit.errors import UsageFault
from toolkit.mirror import building, fetching, manifest, medium, openpgp, serving, verifying
from toolkit.mirror.documents import PLAN, Package, Plan, Repository
from validation.signing import ssh

EMPTY = Plan(site="hall", made="2026-11-28T12:00:00Z", release="1", repositories=(), upstream={"repos_mirror": ""})


def quiet(_: str) -> None:
    """No progress."""


def new_key(path: Path) -> ssh.Key:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return ssh.read_key(path)


@pytest.fixture
def key(tmp_path: Path) -> ssh.Key:
    return new_key(tmp_path / "key")


@pytest.fixture(autouse=True)
def without_gpg(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror's own key is no matter here."""
    monkeypatch.setattr(openpgp, "own_key", lambda: "AB" * 20)
    monkeypatch.setattr(openpgp, "own_public", lambda target: target.write_text("key"))
    monkeypatch.setattr(building.extras, "take_wheels", lambda folder, say: None)


@pytest.fixture
def folder(tmp_path: Path, key: ssh.Key) -> Path:
    """A finished mirror of nothing but the documentation, and a key."""
    made = tmp_path / "medium"
    building.build(EMPTY, made, key, quiet)
    (made / "keys/docker.asc").write_text("a key")
    manifest.write(made, EMPTY, "AB" * 20, key)
    return made


def test_a_folder_that_is_no_mirror_is_not_built_in(tmp_path: Path, key: ssh.Key) -> None:
    """Its docs/, keys/ and images/ would be replaced, and all that it holds signed and served."""
    mine = tmp_path / "mine"
    (mine / "docs").mkdir(parents=True)
    (mine / "docs/thesis.txt").write_text("years of work")
    with pytest.raises(UsageFault, match=r"mine: has files of something else \(docs\); name a folder that is empty"):
        building.build(EMPTY, mine, key, quiet)
    assert (mine / "docs/thesis.txt").read_text() == "years of work"
    assert [path.name for path in mine.iterdir()] == ["docs"]


def test_what_a_new_file_system_has_is_no_other_file(tmp_path: Path, key: ssh.Key) -> None:
    for name in ("lost+found", "System Volume Information", ".Trash-1000"):
        (tmp_path / "medium" / name).mkdir(parents=True)
    building.build(EMPTY, tmp_path / "medium", key, quiet)
    assert verifying.verify(tmp_path / "medium", None, quiet).faults == ()


@pytest.mark.parametrize(
    "link", ["packages/evil", "docs/here", "keys/more", "images", ".partial/lock", "MANIFEST.sha256.new", ".partial"]
)
def test_a_link_on_a_medium_leads_no_build_into_other_folders(
    tmp_path: Path, folder: Path, key: ssh.Key, link: str
) -> None:
    home = tmp_path / "home"
    (home / "debian12").mkdir(parents=True)
    for name in ("debian12/precious", "lock", "precious"):
        (home / name).write_text("mine")
    target = folder / link
    if target.is_dir():
        target.rename(tmp_path / "away")
    target.unlink(missing_ok=True)
    target.parent.mkdir(exist_ok=True)
    target.symlink_to(home / "lock" if target.name == "lock" else home)
    with pytest.raises(UsageFault, match=rf"{link}: is a link, and a mirror has none; .* take it away"):
        building.build(EMPTY, folder, key, quiet)
    assert sorted(path.name for path in home.rglob("*") if path.is_file()) == ["lock", "precious", "precious"]
    assert {path.read_text() for path in home.rglob("*") if path.is_file()} == {"mine"}


def test_links_that_apt_left_of_a_build_that_was_broken_off_are_no_fault(folder: Path, key: ssh.Key) -> None:
    (folder / ".partial/0123456789abcdef-a.deb").symlink_to("/nowhere/a.deb")
    building.build(EMPTY, folder, key, quiet)


def test_a_key_inside_the_medium_is_refused(tmp_path: Path) -> None:
    """It would be listed, carried away and served."""
    (tmp_path / "medium/.partial").mkdir(parents=True)
    inside = new_key(tmp_path / "medium/.partial/key")
    with pytest.raises(UsageFault, match=r"key: is in the mirror, which others get; keep it elsewhere"):
        building.build(EMPTY, tmp_path / "medium", inside, quiet)
    private = tmp_path / "medium/tls.key"
    private.write_text("x")
    with pytest.raises(UsageFault, match=r"tls.key: is in the mirror"):
        medium.refuse_inside(private, tmp_path / "medium")


def test_verify_names_links_pipes_and_what_is_hidden(tmp_path: Path, folder: Path) -> None:
    (folder / "packages").mkdir(exist_ok=True)
    (folder / "packages/etc").symlink_to("/etc")
    os.mkfifo(folder / "packages/pipe")
    (folder / "packages/.partial").mkdir()
    (folder / "packages/.partial/evil").write_text("x")
    faults = verifying.verify(folder, None, quiet).faults
    for name in ("packages/etc", "packages/pipe", "packages/.partial/evil"):
        assert any(one.startswith(f"{name}: is not of this mirror") for one in faults), name
    elsewhere = tmp_path / ".partial/medium"
    elsewhere.parent.mkdir()
    folder.rename(elsewhere)
    assert verifying.verify(elsewhere, None, quiet).faults == faults, "the name of a folder above is no matter"


def test_a_statement_without_an_end_is_not_read(folder: Path) -> None:
    with (folder / manifest.STATEMENT).open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageFault, match=r"mirror.txt: .* is no statement of a mirror"):
        manifest.read(folder, None)


def serve(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> Result:
    monkeypatch.setattr(serving.Server, "serve_forever", lambda self, poll_interval=0.5: None)
    return CliRunner().invoke(cli, ["mirror", "serve", str(folder), "--listen", "127.0.0.1:0", *words])


def told(done: Result) -> str:
    """All that it printed, as one line."""
    return " ".join(done.output.split())


@pytest.mark.parametrize("name", [PLAN, "keys/docker.asc"])
def test_serve_takes_no_plan_and_no_key_that_is_not_the_signed_one(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str
) -> None:
    """Both go into the inventory: fingerprints that nodes trust, and what Ansible reads."""
    assert serve(monkeypatch, folder).exit_code == 0
    text = (folder / name).read_text()
    (folder / name).write_text(text.replace("hall", "hell").replace("a key", "b key"))
    done = serve(monkeypatch, folder)
    assert done.exit_code == 2
    assert f"{name}: is not the signed one" in told(done)
    (folder / name).write_text(text)
    (folder / "keys/added.asc").write_text("x")
    assert serve(monkeypatch, folder).exit_code == 2


def test_serve_says_who_signed_and_what_nobody_vouches_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path, key: ssh.Key
) -> None:
    said = serve(monkeypatch, folder)
    assert "for hall, signed 20" in told(said)
    assert key.fingerprint in told(said)
    assert "whose key that is was not checked: name --signers" in told(said)
    signers = tmp_path / "signers"
    signers.write_text(f"me {key.path.with_suffix('.pub').read_text()}")
    known = serve(monkeypatch, folder, "--signers", str(signers))
    assert known.exit_code == 0
    assert "was not checked" not in told(known)
    signers.write_text(f"me {new_key(tmp_path / 'other').path.with_suffix('.pub').read_text()}")
    assert serve(monkeypatch, folder, "--signers", str(signers)).exit_code == 2


def test_what_a_plan_says_is_no_program_of_ansibles(folder: Path) -> None:
    evil = EMPTY.model_copy(update={"upstream": {"repos_urls": {"docker": "{{ lookup('pipe', 'id') }}"}}})
    with pytest.raises(UsageFault, match=r"plan.json: has \{\{ in mirror_upstream"):
        serving.variables(folder, evil, "AB" * 20, "http://10.0.0.5:8080")


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    names = frozenset(manifest.read(folder, None).manifest)
    with serving.Server(serving.Place("127.0.0.1", 0), folder, names) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server.server_address[:2]  # type: ignore[misc]
        finally:
            server.shutdown()


def status(address: tuple[str, int], path: str, method: str = "GET") -> int:
    client = http.client.HTTPConnection(*address, timeout=20)
    client.putrequest(method, path, skip_host=False)
    client.endheaders()
    found = client.getresponse().status
    client.close()
    return found


def test_only_what_is_signed_is_served(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (folder / "added").write_text("x")
    (folder / "link").symlink_to(folder / "plan.json")
    os.mkfifo(folder / "pipe")
    with served(folder) as address:
        for path in ("/plan.json", "/mirror.txt", "/mirror.txt.sig", "/MANIFEST.sha256", "/docs/../plan.json"):
            assert status(address, path) == 200, path
        for path in ("/added", "/link", "/pipe", "/%00", "/plan.json%00", "/..%2fsecret", "/%2e%2e/secret", "//secret",
                     "/docs/", "/docs", "/", "/.partial/lock", "/..%5csecret"):  # fmt: skip
            assert status(address, path) == 404, path
        assert status(address, "/plan.json", "HEAD") == 200
        (folder / "plan.json").unlink()
        os.mkfifo(folder / "plan.json")  # opening it would wait for ever
        assert status(address, "/plan.json") == 404


def ended(client: socket.socket) -> bool:
    """Whether the server ends it, though it says a letter now and then."""
    with client:
        for _ in range(400):
            try:
                client.sendall(b"x")
            except OSError:
                return True
            time.sleep(0.05)
    return False


def test_clients_that_say_nothing_keep_nobody_waiting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of one address than it may have; and one that says a letter now and then is not waited for longer."""
    monkeypatch.setattr(serving, "OF_ONE", 4)
    monkeypatch.setattr(serving, "HEAD_S", 0.5)
    with served(folder) as address:
        silent = [socket.create_connection(address, timeout=20) for _ in range(4)]
        many = socket.create_connection(address, timeout=20)
        assert many.recv(1) == b"", "closed at once"
        for one in silent:
            one.sendall(b"GET /")
        for one in silent:
            assert ended(one)
        assert status(address, "/plan.json") == 200


def package(**changed: object) -> Package:
    found = {"name": "a", "version": "1", "architecture": "all", "url": "http://x/a.rpm", "file": "pool/a.rpm",
             "sha256": "0" * 64, "size": 10}  # fmt: skip
    return Package.model_validate({**found, **changed})


@pytest.mark.parametrize(
    "changed",
    [{"sha256": "../../../tmp/evil"}, {"sha256": "0" * 63}, {"file": "pool/.."}, {"file": "pool/a/b"}, {"file": "/a"},
     {"file": "pool/"}, {"size": -1}],
)  # fmt: skip
def test_a_package_is_a_file_of_the_pool_with_a_hash(changed: dict[str, object]) -> None:
    """Its hash is part of the name under which it comes: that of an index could lead out of the medium."""
    package()
    with pytest.raises(ValueError, match=next(iter(changed))):
        package(**changed)


def test_a_server_that_sends_for_ever_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TRIES", 1)
    sent = []

    def endless(listening: socket.socket) -> None:
        client, _ = listening.accept()
        with client, listening:
            client.recv(4096)
            client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            try:
                while sum(sent) < 64 << 20:
                    sent.append(client.send(b"x" * 65536))
            except OSError:
                return

    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/a.rpm"
    thread = threading.Thread(target=endless, args=(listening,), daemon=True)
    thread.start()
    monkeypatch.setenv("no_proxy", "*")
    one = (Repository(name="vendor", system="el9"), package(url=url, size=100_000))
    with pytest.raises(UsageFault, match=r"vendor: a.rpm cannot be had"):
        fetching.fetch([one], tmp_path, quiet)
    thread.join(20)
    assert sum(sent) < 64 << 20
    assert all(path.stat().st_size <= 200_000 for path in tmp_path.rglob("*") if path.is_file())


def test_json_is_pure(folder: Path) -> None:
    (folder / "a\x1b[2Jb").write_text("x")
    done = CliRunner().invoke(cli, ["mirror", "verify", str(folder), "--json"])
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout
    assert json.loads(done.stdout)["faults"] == ["a\x1b[2Jb: is not of this mirror; nobody has signed it"]


def test_the_key_that_is_told_is_the_one_that_signed(tmp_path: Path, folder: Path, key: ssh.Key) -> None:
    """Whatever a statement calls itself: another's signature over it is good, too."""
    statement = (folder / manifest.STATEMENT).read_bytes()
    other = new_key(tmp_path / "other")
    (folder / manifest.SIGNATURE).write_bytes(ssh.sign(other, manifest.NAMESPACE, statement))
    said = verifying.verify(folder, None, quiet).said
    assert key.fingerprint in statement.decode()
    assert said["key"].startswith(other.fingerprint)
