"""Slurm's commands on the head, over a real sshd: more steps at once than one connection carries, the head by ssh."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import fake_slurm
from tests.support.run_case import Quiet, plan, processes_of, topology
from tests.support.sshd import NEEDED, host_line, keygen, serving
from validation.base.errors import RunError
from validation.execute import run_plan, ssh
from validation.execute.doors import SESSIONS
from validation.execute.slurm import SlurmLauncher, Wanted
from validation.model import Topology
from validation.model.load import read_results

pytestmark = [
    *NEEDED,
    pytest.mark.skipif(shutil.which("salloc") is not None, reason="this machine has Slurm's own commands"),
]
PORT, COUNT = 15324, SESSIONS + 4


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Keys, Slurm's commands, and an sshd that has these on its path."""
    with tempfile.TemporaryDirectory(prefix="elastic-ai-test-") as name:
        path = Path(name)
        programs = fake_slurm.install(path, {f"gpu{at}": "idle" for at in range(2, COUNT + 1)})
        with serving(path, PORT, ("127.0.0.2",), f"PasswordAuthentication no\nSetEnv PATH={programs}:/usr/bin:/bin\n"):
            keygen(path / "other")
            (path / "known_hosts").write_text(host_line(path, [f"[127.0.0.2]:{PORT}"]))
            yield path


def site(folder: Path, key: str = "user", port: int = PORT, count: int = COUNT) -> Topology:
    """A head, behind the test's sshd, and servers that nobody can log in to."""
    extra = ("-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes")
    found = topology(count, port=port, key_file=str(folder / key), extra_args=extra)
    head = found.nodes[0].model_copy(update={"name": "head", "groups": ("heads",)})
    return found.model_copy(update={"nodes": (head, *found.nodes[1:])})


def run(topo: Topology, run_dir: Path) -> tuple[dict[str, str], list[str]]:
    """Facts of all nodes at the same time; status by measurement, and what was said."""
    said: list[str] = []
    whole = plan(topo)
    facts = tuple(m for m in whole.measurements if m.kind == "facts")
    whole = whole.model_copy(update={"measurements": facts, "rounds": (tuple(m.id for m in facts),)})

    async def work() -> None:
        launcher = SlurmLauncher("inventories/test", Wanted(17), said.append)
        try:
            assert not await launcher.connect(topo.nodes)
            await run_plan(whole, topo, launcher, run_dir, Quiet())
        finally:
            await launcher.close()

    asyncio.run(work())
    return {r.measurement: r.status for r in read_results(run_dir / "results.jsonl", whole.run)[0]}, said


def test_more_steps_at_once_than_a_connection_carries(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "PROBE_PYTHON", sys.executable)
    found, said = run(site(folder), tmp_path)
    assert found == {"facts.head": "ok", **{f"facts.gpu{at}": "ok" for at in range(2, COUNT + 1)}}
    assert said[0] == "by ssh, for Slurm does not know them: head"
    assert said[1].startswith("Slurm job 7 holds gpu10, gpu11")
    assert processes_of("fake_slurm.py", str(folder)) == []
    assert processes_of("ssh", "eat-door-") == []


@pytest.fixture(scope="module")
def noisy(folder: Path) -> Iterator[Path]:
    """The same head, whose login files print before, beside and after every answer."""
    with tempfile.TemporaryDirectory(prefix="elastic-ai-test-") as name:
        path, program = Path(name), Path(name) / "noisy"
        program.write_text(
            "#!/bin/sh\necho 'all*|gpu2|down|motd'; echo '{}'; sleep 0.2; echo JobState=FAILED\n"
            "(for i in 1 2 3 4 5; do echo '{\"ready\": true}'; sleep 0.3; done) &\nprintf 'last login'\n"
            'echo "bash: warning: setlocale: LC_ALL: cannot change locale" >&2\neval "$SSH_ORIGINAL_COMMAND"\n'
        )
        program.chmod(0o755)
        settings = f"SetEnv PATH={folder / 'bin'}:/usr/bin:/bin\nForceCommand {program}\n"
        with serving(path, PORT + 1, ("127.0.0.2",), f"PasswordAuthentication no\n{settings}"):
            (path / "known_hosts").write_text(host_line(path, [f"[127.0.0.2]:{PORT + 1}"]))
            yield path


def test_a_noisy_head_changes_nothing(
    noisy: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "PROBE_PYTHON", sys.executable)
    found, said = run(site(noisy, port=PORT + 1, count=4), tmp_path)
    assert found == {"facts.head": "ok", **{f"facts.gpu{at}": "ok" for at in range(2, 5)}}
    assert said[1] == "Slurm job 7 holds gpu2, gpu3, gpu4 for 17 minutes at most"


def test_a_head_that_refuses_is_said_in_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"the head 127\.0\.0\.2: refuses the key for user"):
        run(site(folder, "other"), tmp_path)
