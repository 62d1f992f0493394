"""A head's files with the real age and tar, for the tests of backups: fixtures `head` and `loopback`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support import site
from tests.support.lease_texts import answer, slurm_job
from toolkit.backup import making, on_head, placing, restoring, there
from toolkit.node import head as node_head
from toolkit.node import playbooks
from validation.base.project import ROOT

MUNGE = "a-munge-key-that-nobody-may-see"
FILES = {
    "/etc/elastic-ai/slurm/munge.key": MUNGE,
    "/etc/elastic-ai/slurm/nodes.json": "[]",
    "/var/lib/slurm/slurmctld/job_state": "jobs",
    "/var/lib/slurm/slurmctld/hash.3/job.3/script": "#!/bin/sh",
    "/etc/elastic-ai/registry/ca.key": "ca",
    "/etc/elastic-ai/registry/ca.crt": "cert",
    "/var/lib/docker-registry/docker/blobs/ab": "x" * 300_000,
    "/var/lib/prometheus/metrics2/01/chunks": "y" * 5000,
    "/var/lib/elastic-ai/ledger/slurm.files.json": "{}",
}


class HeadFolder:
    """A head's files in a folder, with a key of its own and one of the site's."""

    def __init__(self, folder: Path) -> None:
        self.root, self.folder, self.metrics = folder / "root", folder / "kept", folder / "backup.prom"
        for path, text in FILES.items():
            target = self.root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        self.own, self.site, self.other = (folder / name for name in ("own", "site", "other"))
        for key in (self.own, self.site, self.other):
            subprocess.run(["age-keygen", "--output", key], check=True, capture_output=True)
        public = [
            subprocess.run(["age-keygen", "-y", key], check=True, capture_output=True, text=True).stdout
            for key in (self.own, self.site)
        ]
        (folder / "recipients").write_text("".join(public))
        self.settings = on_head.Settings(
            "pool", "head", str(self.folder), str(self.own), str(folder / "recipients"), 3, 108000, str(self.metrics),
            root=str(self.root),
        )  # fmt: skip
        self.file = folder / "settings.json"
        self.file.write_text(json.dumps(asdict(self.settings)))

    def run(self, verb: str) -> subprocess.CompletedProcess[str]:
        """The program as the timer starts it."""
        words = [sys.executable, "-B", "-m", "toolkit.backup.on_head", str(self.file), verb]
        return subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)

    def made(self) -> Path:
        """A backup of now."""
        done = self.run("now")
        assert done.returncode == 0, done.stderr
        return Path(json.loads(done.stdout)["file"])


@pytest.fixture
def head(tmp_path: Path) -> HeadFolder:
    return HeadFolder(tmp_path)


def staged(backup: Path, key: Path, folder: Path) -> dict[str, object]:
    """What `toolkit restore` sends, taken by the program of the new head."""
    packed = subprocess.run(["age", "--decrypt", "-i", key, backup], capture_output=True, check=True).stdout
    return there.stage(io.BytesIO(packed), "abc", b"program", folder / "lib/restore", folder)


@pytest.fixture
def loopback(head: HeadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A head that is this machine in a folder, reached by a shell in the place of ssh: its folder. Of Slurm there are
    answers alone, and nothing of systemd."""
    new, bin_ = tmp_path / "new", tmp_path / "bin"
    bin_.mkdir()
    jobs = json.dumps(json.loads(answer(slurm_job(3) + slurm_job(2, name="wrap", comment=None))))
    (tmp_path / "jobs.json").write_text(jobs)
    for name, body in {
        "systemctl": "exit 3",
        "squeue": f"cat {tmp_path / 'jobs.json'}",
        "scontrol": "printf 'PID JOBID STEPID\\n11 2 batch\\n12 3 batch\\n13 9 batch\\n'",
    }.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    for module in (there, placing):
        program = tmp_path / Path(str(module.__file__)).name
        text = Path(str(module.__file__)).read_text()
        for path in ("/var/lib", "/etc/elastic-ai"):
            text = text.replace(f'"{path}', f'"{new}{path}')
        program.write_text(text)
        monkeypatch.setattr(module, "__file__", str(program))
    topology = site.lab(("head", "gpu1"))
    monkeypatch.setattr("toolkit.inventory.read_site", lambda _: type("Site", (), {"topology": topology})())
    monkeypatch.setattr(restoring.checks, "refuse_joined", lambda *_: None)
    monkeypatch.setattr(restoring, "declared", lambda *_: "pool")
    for module in (making, restoring, node_head):
        monkeypatch.setattr(module, "ssh_words", lambda _: ["sh", "-c"])
    monkeypatch.setattr(making, "SETTINGS", str(head.file))
    monkeypatch.setattr(making, "LIBRARY", str(ROOT))

    def deploy(*_: object) -> tuple[str, ...]:
        """As role slurm does."""
        words = [sys.executable, str(new / "var/lib/elastic-ai/restore/there.py"), "take"]
        subprocess.run(words, check=True, capture_output=True)
        return ()

    monkeypatch.setattr(playbooks, "run", deploy)
    return new
