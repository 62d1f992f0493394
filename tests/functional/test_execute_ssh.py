"""The ssh launcher against a real sshd on loopback addresses: who is refused and why, and that nothing is left."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.run_case import Quiet, only, plan, processes_of, topology
from tests.support.sshd import NEEDED, host_line, keygen, serving
from validation.execute import Output, SshLauncher, run_plan, ssh
from validation.model import Node, SshTarget, Topology

pytestmark = NEEDED
PORT = 15322


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Keys and an sshd that runs commands with this environment's python on the path of the probes."""
    with tempfile.TemporaryDirectory(prefix="elastic-ai-test-") as name:
        path = Path(name)
        with serving(path, PORT, ("127.0.0.2", "127.0.0.3", "127.0.0.4"), "PasswordAuthentication no\n"):
            keygen(path / "other")
            names = [f"[127.0.0.{i}]:{PORT}" for i in range(2, 6)]
            (path / "known_hosts").write_text(host_line(path, names))
            yield path


def site(folder: Path, count: int = 3) -> Topology:
    """Nodes behind the test's sshd, whose address is that of their fabric port."""
    extra = ("-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes")
    return topology(count, port=PORT, key_file=str(folder / "user"), extra_args=extra)


@pytest.fixture
def probes_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "PROBE_PYTHON", sys.executable)


def connect(*nodes: Node) -> dict[str, str]:
    async def work() -> dict[str, str]:
        launcher = SshLauncher("inventories/test")
        try:
            return await launcher.connect(nodes)
        finally:
            await launcher.close()

    return asyncio.run(work())


@pytest.mark.usefixtures("probes_here")
def test_each_bad_node_gets_its_own_reason(folder: Path) -> None:
    good, refused, silent = site(folder).nodes
    refused = refused.model_copy(update={"ssh": refused.ssh.model_copy(update={"key_file": str(folder / "other")})})
    silent = silent.model_copy(update={"ssh": silent.ssh.model_copy(update={"port": 9})})
    unknown = good.model_copy(
        update={"name": "gpu4", "ssh": good.ssh.model_copy(update={"host": "no-such-host.invalid"})}
    )
    changed_file = folder / "changed"
    other = (folder / "other.pub").read_text()
    changed_file.write_text(f"[127.0.0.2]:{PORT} {other}")
    extra = ("-o", f"UserKnownHostsFile={changed_file}", "-o", "StrictHostKeyChecking=yes")
    changed = good.model_copy(update={"name": "gpu5", "ssh": good.ssh.model_copy(update={"extra_args": extra})})
    troubles = connect(good, refused, silent, unknown, changed)
    assert sorted(troubles) == ["gpu2", "gpu3", "gpu4", "gpu5"]
    assert "refuses the key for user root" in troubles["gpu2"]
    assert "refuses connections on port 9" in troubles["gpu3"]
    assert "does not resolve" in troubles["gpu4"]
    assert f"ssh-keygen -f {changed_file} -R '[127.0.0.2]:{PORT}'" in troubles["gpu5"]
    assert all("\n" not in line for line in troubles.values())


def test_missing_or_foreign_probes_name_the_playbook(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = site(folder, 2).nodes[0]
    monkeypatch.setattr(ssh, "PROBE_PYTHON", "/nowhere/python")
    assert "toolkit deploy -i inventories/test" in connect(node)["gpu1"]
    monkeypatch.setattr(ssh, "PROBE_PYTHON", sys.executable)
    monkeypatch.setattr(ssh, "digest", lambda: "of another release")
    assert "another release; run: toolkit deploy -i" in connect(node)["gpu1"]


def test_a_user_that_is_not_root_goes_through_sudo() -> None:
    target = SshTarget(host="h", user="operator", extra_args=("-J", "gate"))
    assert ssh.remote_command(target, ["facts", "--interface", "a b"]).startswith("sudo -n /opt/elastic-ai/")
    assert ssh.remote_command(target, ["facts", "--interface", "a b"]).endswith("facts --interface 'a b'")
    assert ssh.common_arguments(target) == ["-p", "22", "-l", "operator", "-J", "gate"]
    said = Output(1, b"", b"sudo: a password is required\n")
    assert "needs sudo without a password" in ssh.explain(target, said, "i")


@pytest.mark.usefixtures("probes_here")
@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed here")
def test_a_run_over_ssh_leaves_no_process_and_no_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topo = site(folder)
    whole = only(plan(topo, "preflight", "transport", seconds=2), "facts.gpu1", "tcp-bandwidth.gpu1-lo.gpu2-lo")
    progress = Quiet()

    async def work() -> None:
        launcher = SshLauncher("inventories/test")
        try:
            assert await launcher.connect(topo.nodes) == {}
            assert await launcher.alive("gpu3") is None
            await run_plan(whole, topo, launcher, tmp_path, progress)
        finally:
            await launcher.close()

    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    asyncio.run(work())
    assert {i: (r.status, r.error) for i, r in progress.results.items()} == {i: ("ok", None) for i in progress.results}
    assert len(progress.results) == 2
    assert processes_of(f"-p {PORT}", "ssh ") == []
    probes = processes_of("validation.probes", "--controlled") + processes_of("validation.probes anchor")
    own = [line for line in probes if line.split()[1] != "ssh" and " converged {" not in line]
    assert own == []  # ssh, converged: of the controller of a lab beside this one
    assert list(folder.glob("eat-*")) == []


@pytest.mark.usefixtures("probes_here")
def test_a_node_that_loses_its_connection_is_unreachable_at_once(folder: Path, tmp_path: Path) -> None:
    topo = site(folder)
    whole = only(plan(topo, "transport", seconds=30), "tcp-bandwidth.gpu1-lo.gpu2-lo", "tcp-bandwidth.gpu3-lo.gpu1-lo")
    whole = whole.model_copy(update={"rounds": (("tcp-bandwidth.gpu1-lo.gpu2-lo",),)})
    progress = Quiet()

    async def work() -> None:
        launcher = SshLauncher("inventories/test")
        try:
            await launcher.connect(topo.nodes)
            running = asyncio.ensure_future(run_plan(whole, topo, launcher, tmp_path, progress))
            while not processes_of("iperf3 -c", "127.0.0.3"):
                await asyncio.sleep(0.05)
            for line in processes_of("ssh -M", "127.0.0.3"):
                os.kill(int(line.split()[0]), 9)
            await running
        finally:
            await launcher.close()

    began = time.monotonic()
    asyncio.run(work())
    result = progress.results["tcp-bandwidth.gpu1-lo.gpu2-lo"]
    assert result.status == "unreachable"
    assert "connection to gpu2 lost" in str(result.error)
    assert time.monotonic() - began < 20
    assert progress.lines == ["planned 2 done 0"], "gpu2 could be reached again, so it is not given up"
    assert processes_of("iperf3", "127.0.0.3") == []


@pytest.mark.usefixtures("probes_here")
def test_killing_the_controller_ends_connections_and_probes(folder: Path, tmp_path: Path) -> None:
    topo = site(folder, 2)
    (tmp_path / "topology.json").write_text(topo.model_dump_json())
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom validation.execute import SshLauncher, run_plan, ssh\n"
        "from validation.model import Topology\nfrom tests.support.run_case import Quiet, only, plan\n"
        f"ssh.PROBE_PYTHON = {sys.executable!r}\nfolder = Path({str(tmp_path)!r})\n"
        "topo = Topology.model_validate_json((folder / 'topology.json').read_text())\n"
        "whole = only(plan(topo, 'transport', seconds=60), 'tcp-bandwidth.gpu1-lo.gpu2-lo')\n"
        "async def work():\n    launcher = SshLauncher('i')\n    await launcher.connect(topo.nodes)\n"
        "    await run_plan(whole, topo, launcher, folder, Quiet())\nasyncio.run(work())\n"
    )
    controller = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    until = time.monotonic() + 20
    while not processes_of("iperf3 -c", "127.0.0.3"):
        assert time.monotonic() < until, "the measurement did not begin"
        time.sleep(0.05)
    controller.kill()
    controller.wait()
    until = time.monotonic() + 10
    while (
        left := processes_of("iperf3", "127.0.0.3")
        + processes_of(f"-p {PORT}", "ssh ")
        + processes_of("probes anchor", sys.executable)
    ):
        assert time.monotonic() < until, f"still running: {left}"
        time.sleep(0.05)
