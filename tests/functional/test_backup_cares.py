"""A head's backup beside other heads, mounts that are away, a head that answers nonsense, Ctrl-C and power cuts."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
import yaml
from click.testing import CliRunner

from tests.support import answers, site
from tests.support.backups import HeadFolder, head, loopback, staged
from toolkit.backup import archive, making, on_head, placing, restoring, there
from toolkit.cli import cli
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from validation.base.project import ROOT

__all__ = ["head", "loopback"]  # fixtures
NEWEST = "elastic_ai_backup_timestamp_seconds "


def figure(head: HeadFolder, name: str) -> float:
    """Of the file that Prometheus reads."""
    (line,) = [line for line in head.metrics.read_text().splitlines() if line.startswith(name)]
    return float(line.removeprefix(name))


@pytest.mark.parametrize("keep", [0, -1])
def test_the_newest_is_kept_whatever_the_number(head: HeadFolder, keep: int) -> None:
    made = head.made()
    assert on_head.thinned(replace(head.settings, keep=keep), {}) == []
    assert made.exists()
    old = made.rename(made.with_name("pool-head-2026-01-01T01-30-00Z.backup"))
    head.own.write_text(re.sub("created: .*", "created: 2025-12-31T12:00:00Z", head.own.read_text()))
    made.write_bytes(old.read_bytes())
    assert on_head.thinned(replace(head.settings, keep=keep), {}) == [old.name]


def test_one_that_a_wrong_clock_made_is_not_the_newest(head: HeadFolder) -> None:
    """It would keep the alert silent for a year, and the place of each new one where one is kept."""
    made = head.made()
    ahead = made.rename(made.with_name("pool-head-2126-01-01T01-30-00Z.backup"))
    year_s = 365 * 86400
    os.utime(ahead, (time.time() + year_s,) * 2)
    assert head.run("check").returncode == 0
    assert figure(head, NEWEST) == 0.0, "nothing else is there"
    before = time.time()
    made = head.made()
    assert before - 1 <= figure(head, NEWEST) <= time.time()
    os.utime(made, (before - 200_000,) * 2)
    head.run("check")
    assert figure(head, NEWEST) == pytest.approx(before - 200_000, abs=1)
    assert on_head.thinned(replace(head.settings, keep=1), {}) == [ahead.name]


def test_a_file_server_whose_clock_is_minutes_ahead_is_no_fault(head: HeadFolder) -> None:
    made = head.made()
    os.utime(made, (time.time() + 600,) * 2)
    head.run("check")
    assert time.time() - 60 < figure(head, NEWEST) <= time.time()


def test_the_role_takes_numbers_from_one_and_a_whole_path(tmp_path: Path) -> None:
    """Its own assert, on a host for each case."""
    good: dict[str, object] = {"backup_keep": 7, "backup_overdue_h": 30, "backup_folder": "/mnt/backups"}
    cases = {
        "good": good, "one": good | {"backup_keep": 1}, "none": good | {"backup_keep": 0},
        "less": good | {"backup_keep": -1}, "words": good | {"backup_keep": "all"},
        "at-once": good | {"backup_overdue_h": 0}, "part": good | {"backup_folder": "backups"},
        "disk": good | {"backup_folder": "/"},
    }  # fmt: skip
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": cases}}))
    tasks = yaml.safe_load((ROOT / "roles/backup/tasks/make.yml").read_text())
    (task,) = [task for task in tasks if "backup_keep" in str(task.get("ansible.builtin.assert", ""))]
    play = {"hosts": "all", "connection": "local", "gather_facts": False, "tasks": [task]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    words = ["ansible-playbook", "-i", tmp_path / "hosts.json", tmp_path / "play.yml"]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    refused = set(re.findall(r"^fatal: \[(\S+)\]: FAILED", done.stdout, re.MULTILINE))
    assert refused == set(cases) - {"good", "one"}, done.stdout + done.stderr
    assert "backup_keep: -1, backup_overdue_h: 30, backup_folder: /mnt/backups; give numbers from 1" in done.stdout


def test_two_heads_in_one_folder_do_not_disturb_each_other(head: HeadFolder) -> None:
    other = replace(head.settings, head="head-2")
    head.folder.mkdir()
    with on_head.locked(other):
        (head.folder / ".pool-head-2-abc_1.part").write_text("of a backup that the other one is making")
        (head.folder / ".pool-head-abc_1.part").write_text("of a killed one")
        head.made()
    assert {path.name for path in head.folder.glob("*.part")} == {".pool-head-2-abc_1.part"}


def test_a_folder_whose_disk_is_away_gets_no_backup_and_an_alert(head: HeadFolder, tmp_path: Path) -> None:
    fstab = head.root / "etc/fstab"
    fstab.write_text(f"# comment\nUUID=1 / ext4\nnas:/x {tmp_path}/nas nfs defaults\nnas:/y {head.folder} nfs\n")
    done = head.run("now")
    assert done.returncode == 1
    assert f"no backup was made: {head.folder} is not mounted" in done.stderr
    assert not head.folder.exists()
    assert figure(head, NEWEST) == 0.0


def test_a_first_backup_that_fails_is_an_alert(head: HeadFolder) -> None:
    began = time.time()
    assert head.run("begin").stdout == "written\n"
    assert began - 1 <= figure(head, NEWEST) <= time.time()
    Path(head.settings.recipients).write_text("nonsense")
    assert head.run("now").returncode == 1
    assert figure(head, NEWEST) == 0.0
    head.metrics.unlink()
    assert head.run("now").returncode == 1
    assert figure(head, NEWEST) == 0.0


def test_backups_for_the_key_of_a_head_that_was_lost_are_left_to_their_own_key(head: HeadFolder) -> None:
    """As on a disk that outlives the head: the new one has another key."""
    old = head.made()
    of_old = old.with_name("pool-head-2026-01-01T01-30-00Z.backup")
    old.rename(of_old)
    head.own.unlink()
    subprocess.run(["age-keygen", "--output", head.own], check=True, capture_output=True)
    public = subprocess.run(["age-keygen", "-y", head.own], check=True, capture_output=True, text=True).stdout
    recipients = Path(head.settings.recipients)
    recipients.write_text(public + recipients.read_text().splitlines()[1] + "\n")
    for _ in range(4):
        time.sleep(1.05)  # names are by the second
        assert head.run("now").returncode == 0, "no alert"
    assert figure(head, "elastic_ai_backup_unreadable ") == 0.0
    assert of_old.exists(), "it takes no place and is not removed"
    assert len(on_head.kept(head.settings)) == 3
    archive.verified(of_old, head.site)


@pytest.mark.parametrize(
    ("folder", "home", "tmp"),
    [("/mnt/back ups/100%", "yes", "yes"), ("/home/backups", "no", "yes"), ("/root", "no", "yes"),
     ("/var/tmp/x", "yes", "no"), ("/homes", "yes", "yes")],
)  # fmt: skip
def test_the_unit_reaches_the_folder(folder: str, home: str, tmp: str, tmp_path: Path) -> None:
    role = ROOT / "roles/backup"
    variables: dict[str, Any] = yaml.safe_load((role / "vars/main.yml").read_text())
    environment = jinja2.Environment(autoescape=False)
    environment.tests["match"] = lambda text, pattern: re.match(pattern, text) is not None
    known = {"backup_folder": folder}
    for name in ("__backup_in_home", "__backup_in_tmp"):
        known[name] = environment.from_string(variables[name]).render(known) == "True"
    known |= {name: variables[name] for name in ("__backup_lib", "__backup_etc")}
    text = environment.from_string((role / "templates/backup.service.j2").read_text()).render(known)
    assert f"ProtectHome={home}\n" in text + "\n"
    assert f"PrivateTmp={tmp}\n" in text
    assert f'RequiresMountsFor="{folder.replace("%", "%%")}"\n' in text
    unit = tmp_path / "elastic-ai-backup.service"
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert "RequiresMountsFor" not in done.stderr


@pytest.mark.parametrize("name", ["/var/../../etc/cron.d/x", "/x/..", "/", "/x/.bashrc", "-rf", "/x/a\nb.backup", "x"])
def test_a_name_of_the_heads_choice_is_no_place_here(name: str, tmp_path: Path) -> None:
    answer = {"file": name, "header": {}, "bytes": 1, "seconds": 1, "kept": 1, "bad": {}}
    lab = site.lab(("head",))
    with pytest.raises(making.BackupFault, match="is no name of a backup"):
        making._made(restoring.Head(lab), answer, tmp_path)
    good = {**answer, "file": "/var/backups/pool-head-2026-01-01T01-30-00Z.backup"}
    with pytest.raises(making.BackupFault, match="its answer is not one of this toolkit's"):
        making._made(restoring.Head(lab), good, tmp_path)


def alive(marker: str) -> list[str]:
    """Processes of the head's program with these settings."""
    done = subprocess.run(["pgrep", "-f", marker], capture_output=True, text=True, check=False)
    return [pid for pid in done.stdout.split() if pid != str(os.getpid())]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_who_stops_the_command_stops_the_head(head: HeadFolder, tmp_path: Path, number: int) -> None:
    """A shell is in the place of ssh; an age that takes nothing holds the backup there."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, body in {"age": "exec sleep 600", "ssh": 'for last; do :; done; exec sh -c "$last"'}.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_ / name).chmod(0o755)
    (head.root / "var/lib/prometheus/metrics2/01/large").write_bytes(os.urandom(4 << 20))
    program = (
        "import sys, pathlib\n"
        "from tests.support import site\n"
        "from toolkit.backup import making\n"
        f"making.SETTINGS, making.LIBRARY = {str(head.file)!r}, {str(ROOT)!r}\n"
        f"making.make(site.lab(('head',)), pathlib.Path({str(tmp_path)!r}), print)\n"
    )
    env = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not list(head.folder.glob(".*.part")):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        process.wait(60)
        deadline = time.monotonic() + 60
        while (alive(str(head.file)) or list(head.folder.glob(".*.part"))) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert alive(str(head.file)) == []
        assert list(head.folder.glob(".*.part")) == []
    finally:
        process.kill()
        for pid in alive(str(head.file)):
            os.kill(int(pid), signal.SIGKILL)


def test_a_fault_of_this_machine_is_a_sentence(
    head: HeadFolder, loopback: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["restore", str(head.made()), "--key", str(head.site), "-i", str(tmp_path)]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/tmp/x")

    monkeypatch.setattr(restoring.archive, "decrypting", full)
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == Exit.FAILED, done.output
    assert "error: /tmp/x: No space left on device; continue with: toolkit restore" in done.stderr


def test_a_fault_of_the_heads_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def full(*_: object, **_more: object) -> None:
        raise OSError(28, "No space left on device", "/var/lib/elastic-ai/restore.part/x")

    monkeypatch.setattr(there, "stage", full)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=None))
    assert there.main(["stage", "abc"]) == 2
    said = json.loads(capsys.readouterr().out)["refused"]
    assert said.startswith("/var/lib/elastic-ai/restore.part/x: No space left on device")


def test_all_nodes_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits until all are asked."""
    names = tuple(f"gpu{number}" for number in range(1, 9))
    together = threading.Barrier(len(names))

    def run_on(node: Any, *_: object) -> Any:
        together.wait(20)
        if node.name == "gpu3":
            raise UsageFault("away")
        return subprocess.CompletedProcess([], 0, b"PID JOBID STEPID\n11 2 batch\n12 2 0\n13 x -\n", b"")

    monkeypatch.setattr(restoring, "run_on", run_on)
    work = object.__new__(restoring.Restoring)
    work.topology = site.lab(("head", *names))
    ran, silent = work.running()
    assert ran == {2: tuple(name for name in names if name != "gpu3")}
    assert silent == ("gpu3",)


def test_a_dry_run_as_json_has_the_jobs(head: HeadFolder, loopback: Path, tmp_path: Path) -> None:
    words = ["restore", str(head.made()), "--key", str(head.site), "-i", str(tmp_path), "--dry-run", "--json"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    jobs = answers.check(done.stdout, "restore")["jobs"]
    assert [(one["job"], one["nodes"], one["state"]) for one in jobs] == [(job, ["gpu1"], "runs") for job in (2, 3, 9)]


def test_a_name_that_begins_with_a_dash_is_no_option(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.made().rename(tmp_path / "-o.backup")
    head.site.rename(tmp_path / "-key")
    monkeypatch.chdir(tmp_path)
    assert archive.verified(Path("-o.backup"), Path("-key")).head == "head"
    with archive.decrypting(Path("-o.backup"), Path("-key")) as age:
        assert age.stdout is not None
        assert age.stdout.read()[:2] == b"\x1f\x8b"
    asked = restoring.Asked(tmp_path, Path("-o.backup"), Path("key"), False, ("-e", "reboot=if_needed"))
    assert restoring.quoted(asked).startswith("toolkit restore ./-o.backup -i ")
    assert restoring.quoted(asked).endswith(" -- -e reboot=if_needed"), "what goes to Ansible is not lost"


def test_a_power_cut_between_a_move_and_its_owners_is_mended(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    base, controller = new / "lib/restore", new / "var/lib/slurm/slurmctld"
    (head.root / "var/lib/slurm/slurmctld/job_state").chmod(0o640)
    staged(head.made(), head.site, new)

    def dark(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(placing, "owned", dark)
        with pytest.raises(KeyboardInterrupt):
            there.take(base, controller)
    assert (controller / "job_state").stat().st_mode & 0o777 == 0o600
    assert there.take(base, controller) == {"changed": True}
    assert (controller / "job_state").stat().st_mode & 0o777 == 0o640
    with monkeypatch.context() as patched:
        patched.setattr(placing, "owned", dark)
        with pytest.raises(KeyboardInterrupt):
            there.finish(base, new)
    chunks = new / "var/lib/prometheus/metrics2/01/chunks"
    assert chunks.exists()
    assert chunks.stat().st_mode & 0o777 == 0o600
    there.finish(base, new)
    assert chunks.stat().st_mode & 0o777 == 0o644
    assert not base.exists()


def jobs_until(number: int) -> bytes:
    """As Slurm 22.05 begins its file."""
    return struct.pack(">I17sHQI", 17, b"PROTOCOL_VERSION", 0x2600, 1795858244, number) + b"jobs"


@pytest.mark.parametrize(
    ("kept", "highest", "replaced", "number"),
    [(40, 55, 0, 56), (40, 0, 90, 90), (40, 55, 90, 90), (40, 12, 0, 40), (40, 0, 0, 40), (40, 2**30, 0, 40)],
)
def test_no_number_of_a_job_that_may_still_run_is_given_again(
    head: HeadFolder, tmp_path: Path, kept: int, highest: int, replaced: int, number: int
) -> None:
    """Slurm would drain the server for a "Duplicate jobid", as a power cut in the lab showed."""
    new = tmp_path / "new"
    base, controller = new / "lib/restore", new / "var/lib/slurm/slurmctld"
    (head.root / "var/lib/slurm/slurmctld/job_state").write_bytes(jobs_until(kept))
    (head.root / "var/lib/slurm/slurmctld/job_state.old").write_bytes(b"of another form")
    packed = subprocess.run(["age", "--decrypt", "-i", head.site, head.made()], capture_output=True, check=True).stdout
    there.stage(io.BytesIO(packed), "abc", b"program", base, new, highest=highest)
    if replaced:
        controller.mkdir(parents=True)
        (controller / "job_state").write_bytes(jobs_until(replaced))
    assert there.take(base, controller) == {"changed": True}
    assert (controller / "job_state").read_bytes() == jobs_until(number)
    assert (controller / "job_state.old").read_bytes() == b"of another form"


def test_a_power_cut_while_the_plain_keys_are_removed(
    head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    base = new / "lib/restore"
    staged(head.made(), head.site, new)
    there.take(base, new / "var/lib/slurm/slurmctld")
    with monkeypatch.context() as patched:
        patched.setattr(there.shutil, "rmtree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            there.finish(base, new)
    assert there.state(base, new / "var/lib/slurm/slurmctld")["done"]["sha256"] == "abc"
    assert there.finish(base, new) == {"finished": [], "replaced": ""}
    assert not list(base.parent.glob("restore*/key/munge.key")), "no plain key is left"


def test_a_restoration_that_came_to_its_end_is_named(head: HeadFolder, loopback: Path, tmp_path: Path) -> None:
    words = ["restore", str(head.made()), "--key", str(head.site), "-i", str(tmp_path)]
    assert CliRunner().invoke(cli, words).exit_code == 0
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == Exit.USAGE
    assert "has taken this backup already, to the end; --replace puts the backup of" in done.stderr
    assert asdict(head.settings)["head"] == "head"
