"""A mirror's medium that is full, read-only or of a small file system, or that is taken out; and Ctrl-C at any time.

The medium is a tmpfs of a fixed size. FAT is not tried for real: its limits are said by the test.
"""

from __future__ import annotations

import errno
import hashlib
import http.server
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from toolkit.errors import UsageFault
from toolkit.mirror import building, fetching, manifest, openpgp, room, verifying
from toolkit.mirror.documents import Package, Plan, Repository
from validation.base.project import python_words
from validation.signing import ssh

CONTENT = bytes(range(256)) * (8 << 12)
MB = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file system of its own that fills up")


def quiet(_: str) -> None:
    """No progress."""


@pytest.fixture
def key(tmp_path: Path) -> ssh.Key:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    return ssh.read_key(tmp_path / "key")


@pytest.fixture(autouse=True)
def without_other_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror's own key and the index are no matter here."""
    monkeypatch.setattr(openpgp, "own_key", lambda: "AB" * 20)
    monkeypatch.setattr(openpgp, "own_public", lambda target: target.write_text("key"))
    monkeypatch.setattr(openpgp, "join", lambda files, prints, target: target.write_text("keys"))
    monkeypatch.setattr(building, "publish", lambda one, folder, fingerprint, say: True)
    monkeypatch.setattr(building.extras, "take_wheels", lambda folder, say: None)
    monkeypatch.setattr(fetching.time, "sleep", lambda seconds: None)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A medium of 96 MB."""
    folder = tmp_path / "medium"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


class Files(http.server.BaseHTTPRequestHandler):
    """A server of one file that sends the rest of it where a part is there already."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)
    asked: tuple[list[int], ...] = ()

    def do_GET(self) -> None:
        first = int((re.findall(r"\d+", self.headers.get("Range", "")) or [0])[0])
        self.asked[0].append(first)
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(CONTENT) - first))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.end_headers()
        half = max(first, len(CONTENT) // 2)
        self.wfile.write(CONTENT[first:half])
        self.wfile.flush()
        type(self).meanwhile()
        self.wfile.write(CONTENT[half:])

    def log_message(self, *_: object) -> None:
        """No log."""


@contextmanager
def served(meanwhile: Callable[[], None] = lambda: None) -> Iterator[tuple[Plan, list[int]]]:
    """A plan with one package of 8 MB, and from where on it was asked for; meanwhile: when half of it has been sent."""
    asked: list[int] = []
    handler = type("Handler", (Files,), {"meanwhile": staticmethod(meanwhile), "asked": (asked,)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield planned(f"http://127.0.0.1:{server.server_address[1]}/a.rpm"), asked
        finally:
            server.shutdown()


def planned(url: str, **changed: object) -> Plan:
    said = {"name": "a", "version": "1", "architecture": "all", "url": url, "file": "pool/a.rpm",
            "sha256": hashlib.sha256(CONTENT).hexdigest(), "size": len(CONTENT)}  # fmt: skip
    one = Repository(name="vendor", system="el9", packages=(Package.model_validate({**said, **changed}),))
    return Plan(site="hall", made="2026-11-28T12:00:00Z", release="1", repositories=(one,), upstream={})


def fill(folder: Path, leave: int) -> bool:
    """So that there is no more room than `leave`; True."""
    with (folder / "lost+found").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(MB)) == MB:
            pass
    with suppress(OSError):
        os.truncate(folder / "lost+found", (folder / "lost+found").stat().st_size - leave)
    return True


def half_is_there(folder: Path) -> None:
    """Wait for the half that was sent."""
    while sum(part.stat().st_size for part in folder.glob(".partial/*.rpm")) < len(CONTENT) // 2:
        pass


def refused(plan: Plan, folder: Path, key: ssh.Key) -> str:
    """The sentence with which a build ends; nothing of it is trusted."""
    with pytest.raises(UsageFault) as fault:
        building.build(plan, folder, key, quiet)
    assert "\n" not in str(fault.value)
    with pytest.raises(UsageFault, match="this is no mirror, or one that was not finished"):
        manifest.read(folder, None)
    return str(fault.value)


@needs_root
def test_a_medium_that_fills_up_while_a_file_comes_is_told_with_what_is_needed(small: Path, key: ssh.Key) -> None:
    def meanwhile() -> None:
        half_is_there(small)
        if len(asked) == 1:
            fill(small, 0)

    with served(meanwhile) as (plan, asked):
        said = refused(plan, small, key)
        assert said.startswith(f"{small}: cannot be written: the medium is full; ")
        assert re.search(r"full; [\d.]+ k?B free, 75 MB still to come; the mirror is not signed", said), said
        assert said.endswith("; make room, and run the same command, which goes on where it ended")
        assert len(asked) == 1, "no second try mends it"
        (small / "lost+found").unlink()
        assert building.build(plan, small, key, quiet).came == 1
        assert asked[1] > 0, "it goes on with the part that came"
    assert verifying.verify(small, None, quiet).faults == ()


@needs_root
@pytest.mark.parametrize("leave", [0, 8 << 10, 512 << 10])
def test_a_medium_that_fills_up_later_is_told_and_not_trusted(
    small: Path, key: ssh.Key, monkeypatch: pytest.MonkeyPatch, leave: int
) -> None:
    with served() as (plan, _):
        monkeypatch.setattr(building, "publish", lambda *_: fill(small, leave))
        said = refused(plan, small, key)
        assert "cannot be written: the medium is full; " in said
        assert " free, 67 MB still to come; the mirror is not signed" in said, "of the packages nothing, but of indices"
        (small / "lost+found").unlink()
        monkeypatch.setattr(building, "publish", lambda *_: True)
        assert building.build(plan, small, key, quiet).came == 0
    assert verifying.verify(small, None, quiet).faults == ()


@needs_root
def test_a_read_only_medium_is_told_and_can_be_verified(small: Path, key: ssh.Key) -> None:
    with served() as (plan, _):
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        said = refused(plan, small, key)
        assert "cannot be written: the medium is read-only; the mirror is not signed" in said
        subprocess.run(["mount", "-o", "remount,rw", small], check=True)
        building.build(plan, small, key, quiet)
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        assert verifying.verify(small, None, quiet).faults == ()
        with pytest.raises(UsageFault, match="the medium is read-only"):
            building.build(plan, small, key, quiet)
        assert manifest.read(small, None).good, "it is as it was"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"size": 5 << 30}, r"pool/a.rpm is over 4 GiB, more than this file system takes \(vfat\); format the medium"),
        ({"file": "pool/a:1.rpm"}, r"pool/a:1.rpm has a name with signs that this file system does not take \(vfat\)"),
    ],
)
def test_what_fat_does_not_take_is_told_before_anything_comes(
    tmp_path: Path, key: ssh.Key, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object], words: str
) -> None:
    monkeypatch.setattr(room, "file_system", lambda folder: "vfat")
    monkeypatch.setattr(room, "_takes", lambda file: False)
    monkeypatch.setattr(building, "refuse_too_small", lambda folder, size: None)
    plan = planned("http://127.0.0.1:9/a.rpm", **changed)
    said = refused(plan, tmp_path / "medium", key)
    assert re.search(words, said), said
    assert said.endswith("or name a folder on another one; nothing was downloaded")


def test_names_that_differ_in_case_alone_are_told_where_they_are_one_file(
    tmp_path: Path, key: ssh.Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned("http://127.0.0.1:9/a.rpm")
    (one,) = plan.repositories
    two = (*one.packages, one.packages[0].model_copy(update={"file": "pool/A.rpm"}))
    plan = plan.model_copy(update={"repositories": (one.model_copy(update={"packages": two}),)})
    monkeypatch.setattr(room, "_folds", lambda folder: True)
    assert "pool/A.rpm differs from another in capital letters alone" in refused(plan, tmp_path / "medium", key)


def test_the_file_system_of_a_folder_is_the_innermost_mounts(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    inner = tmp_path / "Büro\\ b"
    place = str(inner).replace("\\", "\\134").replace(" ", "\\040")
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {place} rw shared:1 - vfat /dev/b rw\n")
    assert [room.file_system(one, mounts) for one in (inner / "x", tmp_path)] == ["vfat", "ext4"]
    assert room.file_system(tmp_path, tmp_path / "none") == ""


def test_a_file_that_is_too_large_for_the_medium_is_told(
    tmp_path: Path, key: ssh.Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    def large(*_: object) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(tmp_path / "medium/engines/e"))

    monkeypatch.setattr(building, "fetch", large)
    said = refused(planned("http://127.0.0.1:9/a.rpm"), tmp_path / "medium", key)
    assert said.startswith(f"{tmp_path}/medium/engines/e: cannot be written: the medium takes no file as large as this")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_file_elsewhere_that_is_denied_is_no_fault_of_the_medium(
    number: int, tmp_path: Path, key: ssh.Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [str(tmp_path / "elsewhere/engine.tar"), None, str(tmp_path / "medium/engines/e"), f"{tmp_path}/medium2/e"]
    said = []
    for place in places:

        def denied(*_: object, place: str | None = place) -> None:
            raise OSError(number, os.strerror(number), place)

        monkeypatch.setattr(building, "fetch", denied)
        said.append(refused(planned("http://127.0.0.1:9/a.rpm"), tmp_path / "medium", key))
    assert said[0].startswith(f"{places[0]}: {os.strerror(number)}; the mirror is not signed")
    assert said[1].startswith(f"something that is no file of this mirror: {os.strerror(number)}; ")
    assert said[2].startswith(f"{places[2]}: cannot be written: the medium may not be written by this user")
    assert "medium may" not in said[3]


def test_ctrl_c_while_a_file_comes_leaves_nothing_trusted_and_goes_on(tmp_path: Path, key: ssh.Key) -> None:
    folder, once = tmp_path / "medium", threading.Event()

    def meanwhile() -> None:
        if not once.is_set():
            once.set()
            half_is_there(folder)
            os.kill(os.getpid(), signal.SIGINT)

    with served(meanwhile) as (plan, asked):
        with pytest.raises(KeyboardInterrupt):
            building.build(plan, folder, key, quiet)
        with pytest.raises(UsageFault, match="this is no mirror, or one that was not finished"):
            manifest.read(folder, None)
        assert building.build(plan, folder, key, quiet).came == 1
        assert asked[-1] > 0
    assert verifying.verify(folder, None, quiet).faults == ()


def test_ctrl_c_ends_a_verification_in_the_middle_of_a_file(tmp_path: Path, key: ssh.Key) -> None:
    folder, size = tmp_path / "medium", 1 << 40
    plan = planned("http://127.0.0.1:9/a.rpm", size=size)
    place = folder / "packages/vendor/el9/pool/a.rpm"
    place.parent.mkdir(parents=True)
    with place.open("wb") as file:
        file.truncate(size)  # takes no room, and hours to read
    manifest.write(folder, plan, "AB" * 20, key)
    words = [*python_words("toolkit"), "mirror", "verify", str(folder)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        while place not in _open_files(process.pid):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("interrupted before every file was read: nothing is known of this mirror")


def _open_files(pid: int) -> list[Path]:
    found = []
    for one in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            found.append(one.readlink())
    return found


def test_a_medium_that_is_taken_out_is_no_damaged_file(
    tmp_path: Path, key: ssh.Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served() as (plan, _):
        building.build(plan, tmp_path / "medium", key, quiet)

    def broken(path: Path, asked_to_end: Callable[[], bool]) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(verifying, "sha256", broken)
    faults = verifying.verify(tmp_path / "medium", None, quiet).faults
    named = "packages/vendor/el9/pool/a.rpm: cannot be read: Input/output error; the medium is broken, or was taken out"
    assert named in faults
