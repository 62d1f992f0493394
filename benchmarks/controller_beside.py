"""What a measurement of a node costs the machine that runs it, in turns with ReFrame and SuperBench: CPU seconds.

    .venv/bin/python benchmarks/controller_beside.py --reframe /path/to/reframe --sb /path/to/sb --nodes 4   # as root

Each is a whole command: its start, its connections, and so many tests of each node, behind a real sshd on loopback
addresses of this machine (as of benchmarks/controller.py). Counted is the processor time of the command and of what it
starts here, and not that of sshd and of what runs behind it. ReFrame's tests read a file of the node by its own
scheduler `ssh`; SuperBench's are its `tcp-connectivity` without Docker; ours read the node's facts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.sshd import host_line, serving

PORT = 15433
SETTINGS = "MaxStartups 200\nMaxSessions 50\nPasswordAuthentication no\nSubsystem sftp internal-sftp\n"

OURS = """
import asyncio, gc, sys
from pathlib import Path
from toolkit.entry import COLLECTOR
gc.set_threshold(*COLLECTOR)  # as every command does
from tests.support.run_case import Quiet, plan, topology
from validation.execute import SshLauncher, run_plan, ssh
folder, nodes, tests, port = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
ssh.PROBE_PYTHON, ssh.CONNECT_TIMEOUT_S = sys.executable, 300
extra = ("-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes")
topo = topology(nodes, port=port, key_file=str(folder / "user"), extra_args=extra)
whole = plan(topo, "preflight")
mine = [m for m in whole.measurements if m.kind == "facts"]
some = [m.model_copy(update={"id": f"{m.id}.{n}"}) for n in range(tests) for m in mine]
rounds = tuple(tuple(f"{m.id}.{n}" for m in mine) for n in range(tests))
some = whole.model_copy(update={"rounds": rounds, "measurements": tuple(some)})
progress = Quiet()
async def work():
    launcher = SshLauncher("benchmark")
    try:
        troubles = await launcher.connect(topo.nodes)
        assert not troubles, troubles
        await run_plan(some, topo, launcher, folder / "run", progress)
    finally:
        await launcher.close()
(folder / "run").mkdir()
asyncio.run(work())
bad = [r.error for r in progress.results.values() if r.status != "ok"]
assert len(progress.results) == nodes * tests and not bad, bad[:2]
"""

REFRAME = """
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Read(rfm.RunOnlyRegressionTest):
    number = parameter(range({tests}))
    host = parameter({hosts!r})
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "cat"
    executable_opts = ["/proc/net/dev"]

    @run_before("run")
    def pin(self):
        self.job.options = [f"#host={{self.host}}"]

    @sanity_function
    def read(self):
        return sn.assert_found("lo:", self.stdout)
"""
SITE = """
site_configuration = {{
    "systems": [{{
        "name": "nodes", "hostnames": [".*"],
        "partitions": [{{
            "name": "all", "scheduler": "ssh", "launcher": "local", "environs": ["plain"], "max_jobs": {jobs},
            "sched_options": {{"ssh_hosts": {hosts!r}}}, "access": {access!r},
        }}],
    }}],
    "environments": [{{"name": "plain"}}],
}}
"""
SUPERBENCH = """version: v0.12
superbench:
  enable: null
  monitor:
    enable: false
  var: {}
  benchmarks:
"""
TEST = """    tcp-connectivity:{number}:
      enable: true
      timeout: 600
      modes:
        - name: local
          proc_num: 1
          parallel: no
      parameters:
        hostfile: hostfile
        port: {port}
        count: 1
"""


def used(command: list[str], folder: Path, **more: str) -> float:
    """CPU seconds of a command and of all that it started and waited for."""
    before = os.times()
    environment = {**os.environ, **more}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    after = os.times()
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return after.children_user + after.children_system - before.children_user - before.children_system


def ours(folder: Path, hosts: list[str], tests: int) -> float:
    """Facts of each node."""
    here = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-c", OURS, str(folder), str(len(hosts)), str(tests), str(PORT)]
    return used(command, folder, PYTHONPATH=here)


def reframe(program: str, folder: Path, hosts: list[str], tests: int) -> float:
    """Reading a file of each node."""
    options = {"Port": PORT, "IdentityFile": folder / "user", "UserKnownHostsFile": folder / "known_hosts"}
    access = [f"-o {key}={value}" for key, value in options.items()]
    (folder / "site.py").write_text(SITE.format(hosts=hosts, access=access, jobs=len(hosts)))
    (folder / "read.py").write_text(REFRAME.format(hosts=hosts, tests=tests))
    return used([program, "-C", "site.py", "-c", "read.py", "-r", "--prefix", str(folder / "reframe")], folder)


def superbench(program: str, folder: Path, hosts: list[str], tests: int) -> float:
    """Its tcp-connectivity on each node, to itself and the others."""
    common = f"-o UserKnownHostsFile={folder / 'known_hosts'}"
    told = f"ansible_port={PORT} ansible_user=root ansible_python_interpreter={Path(program).parent / 'python'}"
    lines = [f'{host} {told} ansible_ssh_common_args="{common}"' for host in hosts]
    (folder / "hosts.ini").write_text("\n".join(["[all]", *lines, ""]))
    named = "".join(TEST.format(number=number, port=PORT) for number in range(tests))
    (folder / "sb.yaml").write_text(SUPERBENCH + named)
    command = [program, "run", "--no-docker", "--host-file", "hosts.ini", "--private-key", str(folder / "user")]
    path = f"{Path(program).parent}:{os.environ['PATH']}"
    return used([*command, "--config-file", "sb.yaml", "--output-dir", str(folder / "sb")], folder, PATH=path)


def main() -> None:
    """One row for each turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reframe", help="the program")
    parser.add_argument("--sb", help="the program")
    parser.add_argument("--nodes", type=int, action="append", help="how many; repeatable.  [default: 4 and 60]")
    parser.add_argument("--tests", type=int, default=3, help="of each node")
    parser.add_argument("--turns", type=int, default=1)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("needs root: an sshd that lets root in")
    ways = {"ours": ours}
    if options.reframe:
        ways["ReFrame"] = lambda *what: reframe(options.reframe, *what)
    if options.sb:
        ways["SuperBench"] = lambda *what: superbench(options.sb, *what)
    print("| nodes, tests of each | | CPU s | for each test and node | load |\n|---|---|---|---|---|", flush=True)
    for nodes in options.nodes or (4, 60):
        hosts = [f"127.0.0.{i}" for i in range(2, nodes + 2)]
        for _ in range(options.turns):
            for name, way in ways.items():
                with tempfile.TemporaryDirectory(prefix="elastic-ai-beside-") as scratch:
                    folder = Path(scratch)
                    path = f"{Path(options.sb).parent}:{os.environ['PATH']}" if options.sb else os.environ["PATH"]
                    with serving(folder, PORT, hosts, f"{SETTINGS}SetEnv PATH={path}\n"):  # of what runs on nodes
                        (folder / "known_hosts").write_text(host_line(folder, [f"[{host}]:{PORT}" for host in hosts]))
                        load, took = os.getloadavg()[0], way(folder, hosts, options.tests)
                each = took / nodes / options.tests
                print(f"| {nodes}, {options.tests} | {name} | {took:.2f} | {each:.3f} | {load:.0f} |", flush=True)


if __name__ == "__main__":
    main()
