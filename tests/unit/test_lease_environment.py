"""`toolkit lease env`: a lease for programs that something else starts, in the words of the lease's engine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.lease_host import FakeHost
from tests.support.lease_texts import jobs_of, slurm_job
from toolkit.commands import lease
from toolkit.lease import LeaseError
from toolkit.lease.server import hooks, instance


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """A machine of the pool on which lease 41 runs, half of one GPU."""
    found = FakeHost(folder=tmp_path)
    said = slurm_job(41, gres="shard:v100:70(IDX:2)", uid=os.getuid())
    instance.start(found, jobs_of(said)[0], found.serve())
    found.slurm.said, found.slurm.files = [said], [json.dumps(found.endpoint(41))]
    monkeypatch.setattr(lease, "this_host", lambda: found)
    return found


def asked(*words: str) -> Result:
    return CliRunner().invoke(lease.lease, ["env", *words], catch_exceptions=True)


def test_a_program_gets_files_and_variables(host: FakeHost, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    said = json.loads(asked("41", str(folder), "--json").output)
    token = host.endpoint(41)["token"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert Path(said["secret"]).read_text() == f"{token}\n"
    assert said["environment"]["ELASTIC_AI_TOKEN_FILE"] == said["secret"]
    assert said["servers"] == [said["environment"]["ELASTIC_AI_SERVERS"]]
    assert (said["engine"], said["holds_memory_of"]) == ("reference", "lease")
    assert json.loads(said["environment"]["ELASTIC_AI_GPUS"]) == [
        {
            "uuid": "GPU-2",
            "emulated": True,
            "memory_bytes": 128 << 20,
            "context_bytes": 300_000,
            "name": "Emulated V100",
            "server": "gpu1",
            "server_index": 2,
            "total_bytes": 256 << 20,
            "part": "1/2",
            "capability": "7.0",
            "driver": "580.95.05",
            "cuda": 13000,
        }
    ]
    assert token not in json.dumps(said)
    lines = asked("41", str(tmp_path / "again")).output.splitlines()
    assert "export ELASTIC_AI_LEASE=41" in lines
    assert all(line.startswith("export ") for line in lines)


def test_a_folder_that_is_there_is_not_written_to(host: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    fault = asked("41", str(tmp_path / "there")).exception
    assert isinstance(fault, LeaseError)
    assert "File exists; name a folder that is to be made" in str(fault)
    assert not list((tmp_path / "there").iterdir())


def test_a_lease_that_waits_has_none(host: FakeHost, tmp_path: Path) -> None:
    host.slurm.said = [slurm_job(41, gres="", state="PENDING", uid=os.getuid())]
    fault = asked("41", str(tmp_path / "mine")).exception
    assert isinstance(fault, LeaseError)
    assert "does not run" in str(fault)


def test_a_server_says_what_a_context_takes(host: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert hooks.inventory(host) == 0
    gpus = json.loads(capsys.readouterr().out)["gpus"]
    assert [(gpu["context_bytes"], gpu["reserved_mib"]) for gpu in gpus] == [(300_000, 0)] * 4
    host.gpus.sizes = {}
    hooks.inventory(host)
    assert {gpu["context_bytes"] for gpu in json.loads(capsys.readouterr().out)["gpus"]} == {0}
