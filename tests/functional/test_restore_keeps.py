"""What a head has is not lost by a restoration: it is refused, or kept; also on a disk of its own, and when cut off."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support import answers, site
from tests.support.backups import MUNGE, HeadFolder, head, loopback, staged
from toolkit.backup import placing, restoring, there
from toolkit.cli import cli
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.node import playbooks
from validation.base.project import ROOT

__all__ = ["head", "loopback"]  # fixtures
FIGURES = "var/lib/prometheus/metrics2"
CA = "etc/elastic-ai/registry/ca.key"
LEAVERS = "etc/elastic-ai/slurm/leavers.json"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def words(backup: Path, head: HeadFolder, folder: Path) -> list[str]:
    return ["restore", str(backup), "--key", str(head.site), "-i", str(folder)]


@pytest.mark.parametrize(
    ("path", "has"),
    [
        (CA, "the key of a registry"), ("etc/elastic-ai/slurm/munge.key", "a munge key"),
        (f"{FIGURES}/01/chunks", "figures of Prometheus"), ("var/lib/mysql/slurm_acct_db/x", "an accounting database"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dry", [False, True])
def test_a_head_that_lives_is_refused_also_without_a_pool(
    head: HeadFolder, loopback: Path, tmp_path: Path, path: str, has: str, dry: bool
) -> None:
    living = write(loopback / path, "of a head that lives")
    backup = head.made()
    done = CliRunner().invoke(cli, [*words(backup, head, tmp_path), *(["--dry-run"] if dry else [])])
    assert done.exit_code == Exit.USAGE, done.output
    assert f"head has {has} already; --replace puts the backup of" in done.stderr
    assert living.read_text() == "of a head that lives"
    assert not (loopback / "var/lib/elastic-ai").exists(), "nothing was changed"


def test_a_new_disk_and_a_folder_without_anything_are_no_head(head: HeadFolder, loopback: Path, tmp_path: Path) -> None:
    (loopback / FIGURES / "lost+found").mkdir(parents=True)
    (loopback / "var/lib/mysql/slurm_acct_db").mkdir(parents=True)
    done = CliRunner().invoke(cli, words(head.made(), head, tmp_path))
    assert done.exit_code == 0, done.output
    assert "is kept there" not in done.output
    assert not (loopback / "var/lib/elastic-ai/replaced").exists()
    assert (loopback / FIGURES / "lost+found").is_dir()
    assert (loopback / FIGURES / "01/chunks").exists()


def test_what_is_replaced_is_kept_and_its_place_is_named(head: HeadFolder, loopback: Path, tmp_path: Path) -> None:
    for path in (CA, f"{FIGURES}/02/chunks", LEAVERS, "var/lib/slurm/slurmctld/job_state"):
        write(loopback / path, "newer")
    backup = head.made()
    done = CliRunner().invoke(cli, [*words(backup, head, tmp_path), "--replace"])
    assert done.exit_code == 0, done.output
    (kept,) = (loopback / "var/lib/elastic-ai/replaced").iterdir()
    assert f"what was on the head before is kept there in {kept}; remove it when nobody needs it\n" in done.stdout
    found = {str(path.relative_to(kept)): path.read_text() for path in kept.rglob("*") if path.is_file()}
    assert found == {
        "registry/ca.key": "newer", "prometheus/data/02/chunks": "newer", "slurm/state/job_state": "newer",
    }  # fmt: skip
    assert kept.stat().st_mode & 0o077 == kept.parent.stat().st_mode & 0o077 == 0
    assert (loopback / CA).read_text() == "ca"

    again = CliRunner().invoke(cli, [*words(backup, head, tmp_path), "--replace", "--json"])
    assert again.exit_code == 0, again.output
    said = answers.check(again.stdout, "restore")
    assert Path(said["replaced"]).parent == kept.parent
    assert (kept / "registry/ca.key").exists(), "no restoration removes what one before it has kept"


def test_another_backup_than_the_one_that_was_begun_is_refused(
    head: HeadFolder, loopback: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has what the head had before: its folder went with the second."""
    first = head.made()
    with monkeypatch.context() as cut:
        cut.setattr(playbooks, "run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert CliRunner().invoke(cli, words(first, head, tmp_path)).exit_code == Exit.INTERRUPTED
    write(head.root / "etc/elastic-ai/slurm/munge.key", "another")
    first.rename(tmp_path / "first.backup")
    done = CliRunner().invoke(cli, words(head.made(), head, tmp_path))
    assert done.exit_code == Exit.USAGE, done.output
    assert "head is taking the backup of 20" in done.stderr
    assert "whose own command goes on; --replace puts" in done.stderr
    done = CliRunner().invoke(cli, words(tmp_path / "first.backup", head, tmp_path))
    assert done.exit_code == 0, done.output


def test_a_backup_of_another_cluster_is_refused(head: HeadFolder, loopback: Path, tmp_path: Path) -> None:
    """Heads are often called head."""
    settings = replace(head.settings, cluster="theirs")
    head.file.write_text(json.dumps(asdict(settings)))
    done = CliRunner().invoke(cli, words(head.made(), head, tmp_path))
    assert done.exit_code == Exit.USAGE, done.output
    said = f"it is of head head of cluster theirs, and {tmp_path} has head head of cluster pool (slurm_cluster_name)"
    assert said in done.stderr
    assert not loopback.exists()


def test_the_cluster_is_the_one_that_role_backup_takes(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("all: {children: {heads: {hosts: {head: {}}}}}\n")
    assert restoring.cluster_of(hosts, "head") == "elastic-ai"
    hosts.write_text("all: {vars: {slurm_cluster_name: rack}, children: {heads: {hosts: {head: {}}}}}\n")
    assert restoring.cluster_of(hosts, "head") == "rack"
    assert "slurm_cluster_name | default('elastic-ai')" in (ROOT / "roles/backup/vars/main.yml").read_text()


def slurm(folder: Path, version: str, offered: str = "") -> None:
    """Of the head of `loopback`."""
    bin_ = folder / "bin"
    for name, said in {"slurmctld": f"slurm-wlm {version}", "apt-cache": f"slurmctld:\n  Candidate: {offered}"}.items():
        if name != "slurmctld" or version:
            (bin_ / name).write_text(f"#!/bin/sh\necho '{said}'\n")
            (bin_ / name).chmod(0o755)


def test_a_slurm_that_is_too_old_is_refused_before_anything_is_changed(
    head: HeadFolder, loopback: Path, tmp_path: Path
) -> None:
    slurm(tmp_path, "24.11.1")
    backup = head.made()
    slurm(tmp_path, "23.11.4")
    for more in ([], ["--dry-run"], ["--replace"]):
        done = CliRunner().invoke(cli, [*words(backup, head, tmp_path), *more])
        assert done.exit_code == Exit.USAGE, done.output
        assert "the backup is of Slurm 24.11.1 and this head has slurm-wlm 23.11.4" in done.stderr
        assert not loopback.exists()
    (tmp_path / "bin/slurmctld").unlink()
    slurm(tmp_path, "", "23.11.4-1.2")
    done = CliRunner().invoke(cli, [*words(backup, head, tmp_path), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "the package sources of this head have 23.11.4-1.2 now" in done.stderr


def test_a_slurm_that_the_deployment_installs_too_old_is_told_with_what_was_changed(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    base, key = new / "lib/restore", write(new / "etc/elastic-ai/slurm/munge.key", "of this head")
    staged(head.made(), head.site, new)
    said = placing.note(base)
    placing.noted(base, {**said, "header": {**said["header"], "slurm": "24.11.1"}})
    monkeypatch.setattr(there, "slurm", lambda: "slurm-wlm 23.11.4")
    with pytest.raises(placing.Refusal) as refused:
        there.take(base, new / "var/lib/slurm/slurmctld", new)
    assert "Nothing was changed" not in str(refused.value)
    assert "the keys of pool and registry are the backup's already; what was there before is in" in str(refused.value)
    assert key.read_text() == MUNGE
    assert (placing.replaced(base) / "slurm/munge.key").read_text() == "of this head"


PIECES = ("01", "02", "wal")


@pytest.mark.parametrize("busy", [errno.EBUSY, errno.EXDEV])
@pytest.mark.parametrize("cut", range(7))
def test_a_disk_of_its_own_keeps_what_it_has_whatever_is_cut_off(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: int, cut: int
) -> None:
    """A stand-in of rename, as the kernel answers for a mount point, and between disks."""
    for name in ("02", "wal"):
        write(head.root / FIGURES / name / "chunks", "of the backup")
    new = tmp_path / "new"
    base, target = new / "lib/restore", new / FIGURES
    for name in (*PIECES, "lost+found"):
        write(target / name / "old", "of the head")
    staged(head.made(), head.site, new)
    real, done = os.rename, [0]

    def rename(path: Path, where: Path) -> Path:
        across = (target in (path, where) or target in path.parents) != (target in where.parents or where == target)
        if path == target or where == target or (across and busy == errno.EXDEV):
            raise OSError(busy, os.strerror(busy), str(path))
        done[0] += 1
        if done[0] == cut:
            raise KeyboardInterrupt
        real(path, where)
        return where

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        if cut:
            with pytest.raises(KeyboardInterrupt):
                there.finish(base, new)
            write(target / "queries.active", "of a Prometheus that started again")
        there.finish(base, new)
    assert {path.name for path in target.iterdir()} == {*PIECES, "lost+found"}
    assert {path.name for piece in PIECES for path in (target / piece).iterdir()} == {"chunks"}
    (kept,) = (new / "lib/replaced").iterdir()
    for name in PIECES:
        assert (kept / "prometheus/data" / name / "old").read_text() == "of the head"
    assert bool(cut) == (kept / "prometheus/data/queries.active").exists()
    assert not list(new.rglob(".*.elastic-ai-*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount")
@pytest.mark.parametrize("where", [FIGURES, "var/lib/slurm/slurmctld"])
def test_a_mount_point_is_restored_in_its_place(head: HeadFolder, tmp_path: Path, where: str) -> None:
    """With the kernel's own word, in a namespace that ends with it."""
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no namespaces here")
    backup, new = head.made(), tmp_path / "new"
    (tmp_path / "packed").write_bytes(
        subprocess.run(["age", "--decrypt", "-i", head.site, backup], capture_output=True, check=True).stdout
    )
    program = f"""
import io, json, subprocess
from pathlib import Path
from toolkit.backup import there
new = Path({str(new)!r})
base, target = new / "lib/restore", new / {where!r}
target.mkdir(parents=True)
subprocess.run(["mount", "-t", "tmpfs", "none", target], check=True)
(target / "old").write_text("of the head")
there.stage(io.BytesIO(Path({str(tmp_path / "packed")!r}).read_bytes()), "abc", b"", base, new)
there.take(base, new / "var/lib/slurm/slurmctld", new)
there.finish(base, new)
print(json.dumps([sorted(path.name for path in target.iterdir()), target.is_mount()]))
"""
    ran = [sys.executable, "-c", program]
    done = subprocess.run(["unshare", "-m", *ran], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["01"] if where == FIGURES else ["hash.3", "job_state"], True]
    (old,) = (new / "lib/replaced").rglob("old")
    assert old.read_text() == "of the head"


def test_what_does_not_fit_stays_where_it_is(head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    old = write(tmp_path / "disk/01/chunks", "x" * 4096)
    kept.mkdir()
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    placing.fits([old.parent], kept)  # of one disk: nothing is copied
    shm = Path("/dev/shm")
    if shm.is_dir() and shm.stat().st_dev != tmp_path.stat().st_dev:
        with pytest.raises(placing.Refusal, match="make room there, or take away what is in the way"):
            placing.fits([old.parent], shm)


def test_whom_the_database_holds_comes_with_it(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user whom nobody remembers to have held begins no job for ever; one who is remembered and not held begins."""
    monkeypatch.setattr(there, "_loaded", lambda *_: None)
    for name, text in (("one", '{"held": ["eve/ml"]}'), ("two", "")):
        if text:
            write(head.root / LEAVERS, text)
        else:
            (head.root / LEAVERS).unlink()
        new = tmp_path / name
        now = write(new / LEAVERS, '{"held": ["ann/ml"]}')
        packed = subprocess.run(
            ["age", "--decrypt", "-i", head.site, head.made()], capture_output=True, check=True
        ).stdout
        there.stage(io.BytesIO(packed), "abc", b"", new / "lib/restore", new)
        write(new / "lib/restore/accounting/dump.sql", "")
        there.take(new / "lib/restore", new / "var/lib/slurm/slurmctld", new)
        assert (now.read_text() if now.exists() else "") == text
        (kept,) = (new / "lib/replaced").rglob("leavers.json")
        assert kept.read_text() == '{"held": ["ann/ml"]}'


CLIENT = """#!/bin/sh
case "$*" in
*SHOW*) test ! -e {folder}/none && echo table;;
*DROP*) echo dropped >> {folder}/log;;
*) cat > {folder}/loaded;;
esac
"""


@pytest.mark.parametrize("how", ["kept", "none", "broken"])
def test_the_database_that_is_there_is_kept_first(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    dump = "echo broken table >&2; exit 2" if how == "broken" else "echo of the head"
    for name, text in {"mariadb": CLIENT.format(folder=tmp_path), "mariadb-dump": f"#!/bin/sh\n{dump}\n"}.items():
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_), prepend=os.pathsep)
    if how == "none":
        (tmp_path / "none").touch()
    staged(head.made(), head.site, tmp_path / "new")
    base = tmp_path / "new/lib/restore"
    sql = write(base / "accounting/dump.sql", "of the backup")
    if how == "broken":
        with pytest.raises(placing.Refusal, match="was not kept: broken table; mend that, or remove it yourself"):
            there._loaded(sql, base)
        assert not (tmp_path / "log").exists(), "nothing was dropped"
        return
    there._loaded(sql, base)
    there._loaded(sql, base)
    assert (tmp_path / "loaded").read_text() == "of the backup"
    found = [path.read_text() for path in (tmp_path / "new/lib/replaced").rglob("dump.sql*")]
    assert found == (["of the head\n"] if how == "kept" else []), "once: a second time it is the backup's"


def test_the_head_of_another_site_is_named_before_it_is_asked(
    head: HeadFolder, loopback: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "ssh_words", lambda _: pytest.fail("the head was asked"))
    monkeypatch.setattr(restoring, "declared", lambda *_: None)
    with pytest.raises(UsageFault, match=r"of cluster pool, and \S+ has head head of cluster elastic-ai"):
        restoring.Restoring(
            restoring.Asked(tmp_path, head.made(), head.site), site.lab(("head", "gpu1")), lambda _: None
        )
