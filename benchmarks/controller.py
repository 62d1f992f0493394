"""What a validation costs the machine that runs it: CPU seconds for each measurement and node, over ssh.

    .venv/bin/python benchmarks/controller.py                # as root; 4 and 60 nodes
    .venv/bin/python benchmarks/controller.py --nodes 60 --profile

The nodes are loopback addresses of one machine, behind a real sshd; everything between them and the files of the run is
the product's own. Counted is the processor time of this process and of the ssh programs that it starts, and not that of
sshd and the probes, which on a site is the nodes' business. The probes are short ones: facts and path MTU.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

PORT = 15422


def cpu() -> tuple[float, float]:
    """CPU seconds of this process, and of those that it started and that have ended."""
    used = os.times()
    return used.user + used.system, used.children_user + used.children_system


def one(nodes: int, rounds: int, folder: Path, profile: bool) -> dict[str, float]:
    """Facts of every node, so many times over, and once the path MTU of as many pairs."""
    from tests.support.run_case import Quiet, plan, topology
    from tests.support.sshd import host_line, serving
    from validation.execute import SshLauncher, run_plan, ssh

    ssh.PROBE_PYTHON = sys.executable
    ssh.CONNECT_TIMEOUT_S = 100  # all nodes share the processors of one machine
    names = [f"127.0.0.{i}" for i in range(2, nodes + 2)]
    with serving(folder, PORT, names, "MaxStartups 200\nMaxSessions 50\nPasswordAuthentication no\n"):
        (folder / "known_hosts").write_text(host_line(folder, [f"[{name}]:{PORT}" for name in names]))
        extra = ("-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes")
        topo = topology(nodes, port=PORT, key_file=str(folder / "user"), extra_args=extra)
        whole = plan(topo, "preflight")
        kept = [ids for ids in whole.rounds if whole.measurement(ids[0]).kind == "facts"] + [
            ids for ids in whole.rounds if whole.measurement(ids[0]).kind == "path-mtu"
        ][: max(0, rounds - 1)]
        ids = {id_ for one in kept for id_ in one}
        some = whole.model_copy(
            update={"rounds": tuple(kept), "measurements": tuple(m for m in whole.measurements if m.id in ids)}
        )
        progress, found = Quiet(), {}
        profiler = cProfile.Profile()

        async def work() -> None:
            launcher = SshLauncher("benchmark")
            try:
                before, began = cpu(), time.monotonic()
                troubles = await launcher.connect(topo.nodes)
                assert not troubles, troubles
                connected, at = cpu(), time.monotonic()
                found["connect_wall_s"] = at - began
                if profile:
                    profiler.enable()
                await run_plan(some, topo, launcher, folder / "run", progress)
                profiler.disable()
                ran = cpu()
                found["run_wall_s"] = time.monotonic() - at
                found["own_cpu_s"], found["ssh_cpu_s"] = (b - a for a, b in zip(connected, ran, strict=True))
            finally:
                last = cpu()
                await launcher.close()
            found["connect_cpu_s"] = sum(connected) - sum(before) + sum(cpu()) - sum(last)

        (folder / "run").mkdir()
        asyncio.run(work())
        bad = {i: r.error for i, r in progress.results.items() if r.status != "ok"}
        if len(bad) > len(progress.results) // 2:
            print(f"most measurements failed: {next(iter(bad.values()))}", file=sys.stderr)
        found["measurements"] = len(progress.results)
        found["failed"] = len(bad)
        found["probes"] = sum(1 for _ in some.measurements)
        found["cpu_s_each"] = (found["own_cpu_s"] + found["ssh_cpu_s"]) / len(progress.results)
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, action="append", help="how many; repeatable.  [default: 4 and 60]")
    parser.add_argument("--rounds", type=int, default=4, help="of facts and path MTU")
    parser.add_argument("--profile", action="store_true", help="where this process spends its time")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("needs root: an sshd that lets root in")
    load = Path("/proc/loadavg").read_text().split()[0]
    print(f"load {load}, {os.cpu_count()} cores, {subprocess.getoutput('ssh -V')}", file=sys.stderr)
    for nodes in options.nodes or (4, 60):
        with tempfile.TemporaryDirectory(prefix="elastic-ai-controller-") as name:
            found = one(nodes, options.rounds, Path(name), options.profile)
        print(json.dumps({"nodes": nodes, **{key: round(value, 4) for key, value in found.items()}}))


if __name__ == "__main__":
    main()
