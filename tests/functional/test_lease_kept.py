"""Programs that go on alone: what is kept of them, for whom and how long."""

# ruff: noqa: F811 - fixtures have their names
from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.kept_place import Place, kept_by, made, place, shown, start  # noqa: F401 - two are fixtures
from toolkit.lease import LeaseError
from toolkit.lease.kept import afterwards, folder, reading, record, supervisor
from toolkit.lease.kept.output import Log
from toolkit.lease.kept.record import Order
from toolkit.lease.machine.host import Host

#: As systemd-tmpfiles does it, which leaves folders that are locked.
CLEANS = "flock --exclusive --nonblock $XDG_RUNTIME_DIR true && echo free || echo locked"


def test_it_returns_with_the_lease_and_output_and_exit_code_are_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_MINE", "yes")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/gone")
    script = (
        "while [ ! -e go ]; do sleep 0.05; done; echo $OF_MINE-$SSH_AUTH_SOCK-$ELASTIC_AI_KEPT_FD; echo no >&2; exit 7"
    )
    monkeypatch.chdir(place.tmp)
    kept = kept_by("47", "sh", "-c", script)
    assert kept.status.leases == (47,)
    assert kept.order.program.startswith("sh -c 'while")
    assert record.running()[47].name == kept.name
    assert shown(kept, follow=False) == (b"", None, "")
    (place.tmp / "go").touch()
    assert shown(kept) == (b"yes--\nno\n", 7, "lease 47: ended with exit code 7")
    assert record.running() == {}
    found = record.of_lease(47)
    assert found is not None
    assert found.name == kept.name
    for path in (folder.programs(), kept.path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.path.iterdir()} == {0o600}
    assert not (kept.path / record.ENVIRONMENT).exists(), "it may have secrets"


def test_what_is_refused_before_a_lease_leaves_nothing(place: Place) -> None:
    said: list[bytes] = []
    assert start("refused", said=said, then=f"touch {place.tmp}/then") == 2
    assert place.supervisors[0].wait(30) == 0
    assert not (place.tmp / "then").exists(), "there was no lease"
    assert b"error: x: no such program\n" in b"".join(said)
    assert folder.folders() == []


def test_a_lease_that_is_asked_for_again_is_found_by_both_numbers(made: Path) -> None:
    notes = record.Notes(made)
    notes.lease(47)
    notes.lease(48)
    assert [found.status.lease for found in map(record.of_lease, (47, 48)) if found] == [48, 48]


def test_what_is_only_there_while_it_runs_is_the_users_and_goes_with_it(place: Place) -> None:
    script = f'stat -c "%a %u" $XDG_RUNTIME_DIR; echo $XDG_RUNTIME_DIR; touch $XDG_RUNTIME_DIR/x; {CLEANS}'
    output, code, _words = shown(kept_by("47", "sh", "-c", script))
    mode, runtime, cleans = output.decode().splitlines()
    assert (code, mode, cleans) == (0, f"700 {os.geteuid()}", "locked")
    assert Path(runtime).parent == place.tmp
    assert supervisor.RUNTIME == "/tmp", "where containers see it by its path on the host"
    place.supervisors[0].wait(30)
    assert not Path(runtime).exists()


def test_a_home_without_locks_is_refused_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(LeaseError, match="this file system has no locks"):
        start("47", "true")
    assert folder.folders() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file system of its own that fills up")
@pytest.mark.parametrize(("lease", "cancelled"), [("47", ["47"]), ("held47", [])])
def test_a_file_system_that_is_full_ends_the_program_and_its_own_lease(
    lease: str, cancelled: list[str], place: Place
) -> None:
    place.state.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs", place.state], check=True)
    try:
        kept = kept_by(lease, "sh", "-c", "echo first; while :; do echo 0123456789012345678901234567890123456789; done")
        output, code, words = shown(kept)
        assert output.startswith(b"first\n0123")
        assert code == 143
        place.supervisors[0].wait(30)
        assert "its output could not be written to" in words
        assert words.endswith("No space left on device")
        assert [path.read_text() for path in place.tmp.glob("cancelled")] == cancelled
        with pytest.raises(LeaseError, match="No space left on device; what the program prints is kept there"):
            start("48", "true")
    finally:
        subprocess.run(["umount", "-l", place.state], check=True)


def test_then_and_mail_at_the_end(place: Place) -> None:
    mail = place.tmp / "mail"
    mail.mkdir()
    (mail / "sendmail").write_text(
        f'#!/bin/sh\n{{ echo "$@"; cat; }} > {place.tmp}/sent.new; mv {place.tmp}/sent.new {place.tmp}/sent\n'
    )
    (mail / "sendmail").chmod(0o755)
    afterwards._SENDMAIL_PATH, before = str(mail), afterwards._SENDMAIL_PATH
    try:
        script = f"echo $ELASTIC_AI_LEASE $ELASTIC_AI_EXIT_CODE > {place.tmp}/then; echo said; exit 3"
        kept = kept_by("47", "sh", "-c", "exit 5", then=script, mail="alice@example.org")
    finally:
        afterwards._SENDMAIL_PATH = before
    assert shown(kept)[1] == 5
    place.supervisors[0].wait(30)
    assert (place.tmp / "then").read_text() == "47 5\n"
    assert shown(kept)[0] == b"said\n--then ended with exit code 3\n"
    sent = (place.tmp / "sent").read_text()
    assert sent.startswith("-i -- alice@example.org\nTo: alice@example.org\n")
    assert f"Subject: lease 47 on {kept.order.host}: ended with exit code 5\n" in sent


@pytest.mark.parametrize("address", ["-oQ/tmp", "a b@c", "a@b,c@d", "a@b\nBcc: c@d", "|sh"])
def test_an_address_that_is_an_option_or_several_is_none(address: str) -> None:
    with pytest.raises(LeaseError, match="no address"):
        afterwards.refuse_mail(address)


def test_no_mail_is_promised_where_none_can_be_sent(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(afterwards, "_SENDMAIL_PATH", "/nonexistent")
    with pytest.raises(LeaseError, match="sends no mail"):
        start("47", "true", mail="alice")
    assert folder.folders() == []


def test_what_is_missing_between_two_pieces_is_reported(made: Path) -> None:
    log, notes = Log(made, half_bytes=1000), record.Notes(made)
    notes.lease(47)
    log.write(b"a" * 500)
    read: list[bytes] = []
    said: list[str] = []

    def write(data: bytes) -> None:
        read.append(data)
        if len(read) == 1:
            log.write(b"b" * 5600)
            notes.end(0)

    end = reading.show(Host(), record.read(made), write, said.append, follow=True)
    assert end is not None
    assert len(b"".join(read)) == 500 + 500 + 1100
    assert said == ["lease 47: 4000 bytes were not kept: they were printed faster than they were read here"]


def test_a_folder_of_another_or_open_to_others_keeps_nothing(place: Place) -> None:
    place.state.mkdir(mode=0o700)
    elsewhere = place.tmp / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    (place.state / "kept").symlink_to(elsewhere)
    with pytest.raises(LeaseError, match="can be written by others"):
        start("47", "true")
    if os.geteuid() == 0:
        elsewhere.chmod(0o700)
        os.chown(elsewhere, 65534, 65534)
        with pytest.raises(LeaseError, match="belongs to another user"):
            start("47", "true")
    assert list(elsewhere.iterdir()) == []


def test_a_program_in_the_list_is_one_plain_line() -> None:
    order = Order(("toolkit",), ("python", "x\n\x1b[2J" * 400), "/", "", "", "here", 0o22, 0.0)
    assert order.program.isprintable()
    assert len(order.program) <= record.MOST_WORDS


def test_only_so_many_that_have_ended_stay(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MOST_KEPT", 2)
    for lease in range(1, 5):
        shown(kept_by(str(lease), "true"))
        place.supervisors[-1].wait(30)
    assert [one.status.lease for one in record.everything()] == [4, 3, 2]
