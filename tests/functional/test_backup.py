"""A head's backup with the real age and tar: made, read back, damaged in every way, and taken by a new head."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support import answers, site
from tests.support.backups import MUNGE, HeadFolder, head, loopback, staged
from tests.support.lease_texts import answer, slurm_job
from toolkit.backup import archive, on_head, placing, restoring, there
from toolkit.cli import cli
from toolkit.exits import Exit
from toolkit.lease.jobs.slurm_json import parse_jobs
from validation.base.project import ROOT

__all__ = ["head", "loopback"]  # fixtures


def test_a_backup_comes_back_on_a_new_head_as_it_was(head: HeadFolder, tmp_path: Path) -> None:
    backup, new = head.made(), tmp_path / "new"
    assert MUNGE.encode() not in backup.read_bytes()
    assert backup.stat().st_mode & 0o777 == 0o600
    header = archive.verified(backup, head.site)
    assert set(header.missing) == {"accounting", "runs"}
    assert header.parts["registry"] > 300_000

    staged(backup, head.site, new)
    key = new / "etc/elastic-ai/slurm/munge.key"
    assert (key.read_text(), key.stat().st_mode & 0o777) == (MUNGE, 0o600)
    assert key.parent.stat().st_mode & 0o777 == 0o700
    assert (new / "etc/elastic-ai/registry/ca.key").stat().st_mode & 0o777 == 0o600
    assert (new / "lib/restore").stat().st_mode & 0o777 == 0o700

    controller = new / "var/lib/slurm/slurmctld"
    controller.mkdir(parents=True)
    (controller / "clustername").write_text("the new head's own")
    assert there.take(new / "lib/restore", controller) == {"changed": True}
    assert (controller / "hash.3/job.3/script").read_text() == "#!/bin/sh"
    (kept,) = (new / "lib/replaced").iterdir()
    assert (kept / "slurm/state/clustername").exists(), "what was there is kept"
    assert there.take(new / "lib/restore", controller) == {"changed": False}, "a second time changes nothing"

    blob = new / "var/lib/docker-registry/docker/blobs/new"
    blob.parent.mkdir(parents=True)
    blob.write_text("of the new head")
    assert set(there.finish(new / "lib/restore", new)["finished"]) == {"prometheus", "registry", "ledgers"}
    assert {path.name for path in blob.parent.iterdir()} == {"ab", "new"}, "images come beside those that are there"
    assert (new / "var/lib/prometheus/metrics2/01/chunks").stat().st_size == 5000
    assert not (new / "lib/restore").exists(), "no plain key is left"


def test_what_a_running_controller_writes_down_seconds_late_is_in_the_backup(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does with a job that began just before; seen in a lab, whose jobs a new head did not know."""
    runs = tmp_path / "bin/systemctl"
    runs.parent.mkdir()
    runs.write_text(f"#!/bin/sh\n(sleep 3; echo late >{head.root}/var/lib/slurm/slurmctld/job_state) &\n")
    runs.chmod(0o755)
    monkeypatch.setenv("PATH", str(runs.parent), prepend=os.pathsep)
    staged(head.made(), head.site, tmp_path / "new")
    there.take(tmp_path / "new/lib/restore", tmp_path / "new/var/lib/slurm/slurmctld")
    assert (tmp_path / "new/var/lib/slurm/slurmctld/job_state").read_text() == "late\n"


def test_a_power_cut_between_two_steps_is_gone_on_from(head: HeadFolder, tmp_path: Path) -> None:
    backup, new = head.made(), tmp_path / "new"
    staged(backup, head.site, new)
    there.take(new / "lib/restore", new / "var/lib/slurm/slurmctld")
    staged(backup, head.site, new)  # the same command again
    assert placing.note(new / "lib/restore")["taken"] is True, "what was taken is not taken twice"
    assert (new / "var/lib/slurm/slurmctld/job_state").exists()


def _older(path: Path, head: HeadFolder, target: Path) -> None:
    """The same backup as another release would have made it."""
    packed = subprocess.run(["age", "-d", "-i", head.own, path], capture_output=True, check=True).stdout
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(packed)) as old, tarfile.open(fileobj=out, mode="w:gz") as new:
        for member in old:
            stream = old.extractfile(member) if member.isreg() else None
            data = stream.read() if stream is not None else b""
            if member.name == archive.HEADER:
                data = json.dumps({**json.loads(data), "format": 0}).encode()
                member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    words = ["age", "-R", head.settings.recipients, "-o", str(target)]
    subprocess.run(words, input=out.getvalue(), check=True)


#: Of a chunk that is cut age finds only that it is not the one that was written.
CUT, ALTERED = "cut off", "altered"
DAMAGE = {
    "cut in the header": (lambda data: data[:90], CUT),
    "cut in the first chunk": (lambda data: data[:700], CUT),
    "cut late": (lambda data: data[:-40], CUT),
    "a bit of the body": (lambda data: data[:2000] + bytes([data[2000] ^ 1]) + data[2001:], ALTERED),
    "the last bit": (lambda data: data[:-1] + bytes([data[-1] ^ 1]), ALTERED),
    "a bit of the header": (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], ALTERED),
    "more behind it": (lambda data: data + b"x" * 100, ALTERED),
    "another file": (lambda data: b"PK" + data, "no backup of this toolkit"),
    "nothing": (lambda data: b"", "it is empty"),
}


def refused(backup: Path, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `toolkit restore` prints of it; the head is not spoken to."""
    monkeypatch.setattr("toolkit.inventory.read_site", lambda _: type("Site", (), {"topology": site.lab(("head",))})())
    monkeypatch.setattr(restoring.checks, "refuse_joined", lambda *_: None)
    monkeypatch.setattr(restoring, "declared", lambda *_: "pool")
    monkeypatch.setattr(restoring, "ssh_words", lambda _: pytest.fail("the head was asked"))
    words = ["restore", str(backup), "--key", str(key), "-i", str(tmp_path)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == Exit.USAGE, done.output
    assert len(done.stderr.strip().splitlines()) <= 2, done.stderr
    assert "Traceback" not in done.output
    return done.stderr


def test_a_damaged_backup_is_one_sentence_and_changes_nothing(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = head.made()
    whole = backup.read_bytes()
    for how, (change, words) in DAMAGE.items():
        backup.write_bytes(change(whole))
        said = refused(backup, head.site, tmp_path, monkeypatch)
        assert re.search(words, said), f"{how}: {said}"
        assert "nothing was changed" in said, how

    # and the head's own nightly look finds it, with the figure of its alert
    done = head.run("check")
    assert done.returncode == 1
    assert f"{backup.name} cannot be read: " in done.stderr
    assert "elastic_ai_backup_unreadable 1.0\n" in head.metrics.read_text()
    assert "elastic_ai_backup_timestamp_seconds 0.0\n" in head.metrics.read_text()


def test_every_cut_is_found(head: HeadFolder, tmp_path: Path) -> None:
    data, target = head.made().read_bytes(), tmp_path / "cut"
    for size in sorted({*range(0, len(data), max(1, len(data) // 12)), len(data) - 1}):
        target.write_bytes(data[:size])
        with pytest.raises(archive.Unreadable):
            archive.verified(target, head.site)


def test_a_wrong_key_an_older_release_and_another_head_are_named(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = head.made()
    assert "is not the one that it was made for" in refused(backup, head.other, tmp_path, monkeypatch)
    (tmp_path / "nonsense").write_text("nonsense")
    assert "is no key of age" in refused(backup, tmp_path / "nonsense", tmp_path, monkeypatch)
    _older(backup, head, tmp_path / "old.backup")
    assert "format 0 of an older toolkit" in refused(tmp_path / "old.backup", head.site, tmp_path, monkeypatch)
    head.file.write_text(json.dumps({**asdict(head.settings), "head": "head2"}))
    assert "it is of head head2 of cluster pool" in refused(head.made(), head.site, tmp_path, monkeypatch)


def test_a_stream_that_breaks_off_leaves_the_new_head_as_it_was(head: HeadFolder, tmp_path: Path) -> None:
    packed = subprocess.run(["age", "-d", "-i", head.site, head.made()], capture_output=True, check=True).stdout
    for size in (0, 100, len(packed) // 2, len(packed) * 9 // 10):
        with pytest.raises((tarfile.TarError, EOFError, placing.Refusal)):
            there.stage(io.BytesIO(packed[:size]), "abc", b"", tmp_path / "new/restore", tmp_path / "new")
        assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]


def test_the_newest_are_kept_and_one_that_cannot_be_read_takes_no_place(head: HeadFolder) -> None:
    folder = head.folder
    head.own.write_text(re.sub("created: .*", "created: 2025-12-31T12:00:00Z", head.own.read_text()))
    for day in range(1, 5):
        made = head.made()
        made.rename(folder / f"pool-head-2026-01-0{day}T01-30-00Z.backup")
    (folder / "pool-head-2026-01-03T01-30-00Z.backup").write_bytes(b"rotten")
    done = head.run("now")
    assert done.returncode == 1
    assert "pool-head-2026-01-03T01-30-00Z.backup cannot be read: " in done.stderr
    names = [path.name[10:20] for path in on_head.kept(head.settings)]
    assert names[:3] == ["2026-01-02", "2026-01-03", "2026-01-04"]
    assert len(names) == 4, "three that can be read, and the other until somebody looks"


@pytest.mark.parametrize(
    ("header", "manifest"),
    [
        ({"format": 1}, {"sha256": {}}),
        ({"format": 1, "made": 7, "cluster": [], "head": "\x1b[2J"}, {"sha256": {}}),
        ([], {"sha256": {}}),
        ({"format": 1, "made": "", "cluster": "", "head": "head"}, []),
        ({"format": 1, "made": "", "cluster": "", "head": "head"}, {"sha256": 5}),
    ],
)
def test_one_that_somebody_made_up_is_refused(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: object, manifest: object
) -> None:
    """Whoever has the public key can encrypt for it."""
    with (tmp_path / "made.backup").open("wb") as out:
        writer = archive.Writer(out, Path(head.settings.recipients))
        writer.text(archive.HEADER, header)
        writer.text(archive.MANIFEST, manifest)
        writer.tar.close()
        writer.packed.close()
        writer.stop(False)
    assert "nothing was changed" in refused(tmp_path / "made.backup", head.site, tmp_path, monkeypatch)


def test_files_of_other_heads_in_the_folder_are_left_alone(head: HeadFolder) -> None:
    head.made()
    for name in ("pool-head2-2026-01-01T01-30-00Z.backup", "notes.backup"):
        (head.folder / name).write_text("of somebody else")
    head.made()
    assert "elastic_ai_backup_unreadable 0.0\n" in head.metrics.read_text()
    assert (head.folder / "notes.backup").exists()


def test_one_that_is_killed_leaves_no_half_backup(head: HeadFolder, tmp_path: Path) -> None:
    """In the middle: an age that takes nothing holds it there."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/age").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "bin/age").chmod(0o755)
    (head.root / "var/lib/prometheus/metrics2/01/large").write_bytes(os.urandom(4 << 20))
    words = [sys.executable, "-B", "-m", "toolkit.backup.on_head", str(head.file), "now"]
    slow = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen(
            words, cwd=ROOT, env=slow, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        while not list(head.folder.glob(".*.part")):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        assert on_head.kept(head.settings) == []
        assert bool(list(head.folder.glob(".*.part"))) == (number == signal.SIGKILL)
    head.made()
    assert not list(head.folder.glob(".*.part")), "what a killed one left is gone with the next"


def test_two_at_once_are_refused_and_no_output_has_a_secret(head: HeadFolder) -> None:
    with on_head.locked(head.settings):
        done = head.run("now")
    assert done.returncode == Exit.RETRY
    assert "another backup is being made" in done.stderr
    done = head.run("now")
    for secret in (MUNGE, "AGE-SECRET-KEY"):
        assert secret not in done.stdout + done.stderr


def test_backup_and_restore_from_a_controller(head: HeadFolder, loopback: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()
    done = CliRunner().invoke(cli, ["backup", "-i", str(tmp_path), "--to", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    said = answers.check(done.stdout, "backup")
    assert Path(said["file"]).read_bytes() == Path(said["on_head"]).read_bytes()

    words = ["restore", said["file"], "--key", str(head.site), "-i", str(tmp_path)]
    done = CliRunner().invoke(cli, [*words, "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "runs       job 9 on gpu1" in done.stdout
    assert not loopback.exists(), "a dry run changes nothing"

    done = CliRunner().invoke(cli, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found = {one["job"]: (one["state"], one["lease"]) for one in answers.check(done.stdout, "restore")["jobs"]}
    assert found == {2: ("goes on", False), 3: ("goes on", True), 9: ("ended", False)}
    assert (loopback / "var/lib/slurm/slurmctld/job_state").read_text() == "jobs"
    assert (loopback / "etc/elastic-ai/slurm/munge.key").read_text() == MUNGE
    assert MUNGE not in done.output

    # the head has a pool now
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == Exit.USAGE
    assert "--replace puts the backup of" in done.stderr
    done = CliRunner().invoke(cli, [*words, "--replace"])
    assert done.exit_code == 0, done.output
    assert "lease 3 of alice on gpu1 goes on\n" in done.stdout
    assert "so it does not read, count or remove them; your key reads them\n" in done.stdout, "backups of the lost head"


def test_a_job_that_the_controller_ends_after_it_came_back_is_reported() -> None:
    jobs = parse_jobs(answer(slurm_job(5, state="NODE_FAIL", end=2000) + slurm_job(6, state="COMPLETED", end=900)))
    (found,) = restoring.outcomes({}, jobs, 1000)
    assert found.words.startswith("lease 5 of alice")
    assert "ended: node_fail, for it was not on its node any more" in found.words
