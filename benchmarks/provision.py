"""What provisioning costs: remote tasks by role, seconds beside public roles, and the controller at 1000 hosts.

    benchmarks/provision.py converged -i INVENTORY [--playbook site.yml] [--runs 3] [--mitogen FOLDER]
    benchmarks/provision.py docker    -i INVENTORY --peer FOLDER [--pairs 5]   # FOLDER: geerlingguy.docker
    benchmarks/provision.py toolkit   -i INVENTORY --peer FOLDER [--pairs 5]   # FOLDER: its nvidia_container_toolkit
    benchmarks/provision.py scale [--hosts 100 1000] [--playbook site.yml] [--recording FILE]

Run it with the project's Python on an idle machine; prints JSON, and says what it does on stderr. The nodes must be
provisioned already: what counts is a run that changes nothing, and one that does is refused as a measurement. Peers'
roles are used where they lie and are no part of this project. FOLDER of --mitogen is what
`pip install --target FOLDER mitogen==0.3.54` made.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
ANSIBLE = Path(sys.executable).parent / "ansible-playbook"

#: Settings with which geerlingguy.docker installs and keeps the same package as our role does on a Debian node.
DOCKER_PEER = {
    "docker_add_repo": False,
    "docker_packages": ["docker.io"],
    "docker_obsolete_packages": [],
    "docker_install_compose_plugin": False,
    "docker_users": [],
}
#: DeepOps' role takes Ubuntu only; its apt path is the same on Debian. It finds the key and the package that role repos
#: and our role brought; its own source goes where apt does not look, so that both sides have the same repositories; it
#: leaves Docker's default runtime as ours does.
TOOLKIT_PEER = {
    "ansible_distribution": "Ubuntu",
    "ansible_os_family": "Debian",
    "ansible_architecture": "x86_64",
    "nvidia_container_toolkit_repo_gpg_url": "file:///etc/apt/keyrings/elastic-ai-nvidia-container-toolkit.asc",
    "nvidia_container_toolkit_apt_source_path": "/var/tmp/nvidia-container-toolkit.list",
    "nvidia_container_toolkit_set_as_default_runtime": False,
}


class BenchmarkError(Exception):
    """Why there is no figure."""


@dataclass(frozen=True)
class Run:
    """One run of a playbook. Memory is that of the largest process, which is Ansible's main process or one fork."""

    wall_s: float
    cpu_s: float
    peak_memory_bytes: int
    load_before: float
    cost: dict[str, Any]


def play(arguments: list[str | Path], env: dict[str, str] | None = None) -> Run:
    """Run ansible-playbook and measure it with all processes that it waited for. BenchmarkError when it fails."""
    with tempfile.TemporaryDirectory() as scratch:
        cost = Path(scratch) / "cost.json"
        settings = {
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "plugins/callback"),
            "ANSIBLE_CALLBACKS_ENABLED": "task_cost",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "BENCH_COST_FILE": str(cost),
            "PATH": f"{ANSIBLE.parent}:{os.environ['PATH']}",
        }
        words = [str(ANSIBLE), *map(str, arguments)]
        load = os.getloadavg()[0]
        with (Path(scratch) / "out").open("w+") as output:
            began = time.monotonic()
            process = subprocess.Popen(
                words, cwd=ROOT, env={**os.environ, **settings, **(env or {})}, stdout=output, stderr=subprocess.STDOUT
            )
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.monotonic() - began
            process.returncode = os.waitstatus_to_exitcode(status)  # it was waited for behind Popen's back
            output.seek(0)
            tail = output.read()[-3000:]
        if process.returncode != 0 or not cost.exists():
            raise BenchmarkError(f"exit code {process.returncode}: {' '.join(words)}\n{tail}")
        document = json.loads(cost.read_text())
    cpu = usage.ru_utime + usage.ru_stime
    return Run(round(wall, 2), round(cpu, 2), usage.ru_maxrss * 1024, round(load, 2), document)


def converged(arguments: list[str | Path], env: dict[str, str] | None = None) -> Run:
    """A run that changes nothing; BenchmarkError for one that does."""
    run = play(arguments, env)
    if run.cost["changed"]:
        raise BenchmarkError(f"{run.cost['changed']} tasks changed something; provision the nodes first")
    return run


def spread(values: list[float]) -> dict[str, float]:
    """Smallest, median and largest."""
    return {"min": min(values), "median": round(statistics.median(values), 3), "max": max(values)}


def by_role(run: Run) -> dict[str, int]:
    """Remote tasks of each role on the host that has most of them."""
    return {role: max(hosts.values()) for role, hosts in sorted(run.cost["remote"].items())}


def summary(runs: list[Run]) -> dict[str, Any]:
    """Figures of several runs of the same."""
    remote = sum(sum(hosts.values()) for hosts in runs[0].cost["remote"].values())
    return {
        "runs": len(runs),
        "wall_s": spread([r.wall_s for r in runs]),
        "cpu_s": spread([r.cpu_s for r in runs]),
        "remote_tasks": remote,
        "executions": runs[0].cost["executions"],
        "cpu_ms_per_execution": spread([round(1000 * r.cpu_s / r.cost["executions"], 2) for r in runs]),
        "wall_ms_per_remote_task": spread([round(1000 * r.wall_s / max(remote, 1), 1) for r in runs]),
        "peak_memory_bytes": max(r.peak_memory_bytes for r in runs),
        "load_before": spread([r.load_before for r in runs]),
    }


def site(options: argparse.Namespace) -> dict[str, Any]:
    """The converged run of a playbook, and the same through mitogen where asked for."""
    arguments: list[str | Path] = [options.playbook, "-i", options.inventory, *extra(options)]
    variants: dict[str, dict[str, str]] = {"plain": {}}
    if options.mitogen:
        variants["mitogen"] = {
            "PYTHONPATH": str(options.mitogen.resolve()),
            "ANSIBLE_STRATEGY_PLUGINS": str(options.mitogen.resolve() / "ansible_mitogen/plugins/strategy"),
            "ANSIBLE_STRATEGY": "mitogen_linear",
        }
    runs: dict[str, list[Run]] = {name: [] for name in variants}
    for number in range(options.runs):  # interleaved, so that a change of the machine's load meets both
        for name, env in variants.items():
            runs[name].append(converged(arguments, env))
            print(f"{name} {number + 1}: {runs[name][-1].wall_s} s", file=sys.stderr)
    figures: dict[str, Any] = {name: summary(found) for name, found in runs.items()}
    first = runs["plain"][0]
    figures["remote_tasks_by_role"] = by_role(first)
    figures["remote_tasks"] = first.cost["tasks"]
    figures["skipped"] = first.cost["skipped"]
    figures["executions_by_action"] = first.cost["actions"]
    figures["cpu_s_by_task"] = dict(sorted(first.cost["cpu_s"].items(), key=lambda one: -one[1])[:40])
    return figures


def extra(options: argparse.Namespace) -> list[str]:
    """The caller's further variables."""
    return [word for value in options.extra_vars for word in ("-e", value)]


def wrapper(folder: Path, role: str, hosts: str, variables: dict[str, Any], stacked: bool) -> Path:
    """A playbook of one role. Both sides gather the same facts."""
    book = {"hosts": hosts, "become": True, "gather_facts": True, "gather_subset": ["!all", "min", "virtual"]}
    if stacked:
        stack = ROOT / "stacks"
        release = "{{ stack_release | default('current') }}"
        book["vars_files"] = [f"{stack}/{release}.yml", f"{stack}/select.yml"]
    path = folder / f"{role.replace('/', '-').strip('-')}.yml"
    path.write_text(yaml.safe_dump([{**book, "vars": variables, "roles": [role]}]))
    return path


def pairs(options: argparse.Namespace, role: str, hosts: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Our role and a peer's, converged, in turns on the same nodes."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ours: list[str | Path] = [wrapper(folder, role, hosts, {}, stacked=True), "-i", options.inventory]
        peer_role = str(options.peer.resolve())
        peer: list[str | Path] = [wrapper(folder, peer_role, hosts, {}, stacked=False), "-i", options.inventory]
        # Extra variables, because the peer's own defaults and facts would win over a play's.
        peer += ["-e", json.dumps(settings)]
        sides = {"ours": [*ours, *extra(options)], "peer": [*peer, *extra(options)]}
        for name, arguments in sides.items():  # each side may bring the nodes to its own wanted state once
            print(f"{name}, not counted: {play(arguments).wall_s} s", file=sys.stderr)
        runs: dict[str, list[Run]] = {name: [] for name in sides}
        for number in range(options.pairs):
            order = list(sides) if number % 2 == 0 else list(sides)[::-1]
            for name in order:
                runs[name].append(converged(sides[name]))
                print(f"{name} {number + 1}: {runs[name][-1].wall_s} s", file=sys.stderr)
    ratios = [p.wall_s / o.wall_s for o, p in zip(runs["ours"], runs["peer"], strict=True)]
    cpu = [p.cpu_s / o.cpu_s for o, p in zip(runs["ours"], runs["peer"], strict=True)]
    return {
        **{name: {**summary(found), "remote_tasks_by_role": by_role(found[0])} for name, found in runs.items()},
        "peer_over_ours_wall": spread([round(r, 2) for r in ratios]),
        "peer_over_ours_cpu": spread([round(r, 2) for r in cpu]),
        "each_wall_s": {name: [r.wall_s for r in found] for name, found in runs.items()},
    }


def scale(options: argparse.Namespace) -> dict[str, Any]:
    """A check run over many bare hosts that are answered for from a recording: what the controller itself costs."""
    figures = {}
    for count in options.hosts:
        with tempfile.TemporaryDirectory() as scratch:
            inventory = Path(scratch) / "hosts.yml"
            inventory.write_text(yaml.safe_dump(canned_inventory(count, options.recording)))
            env = {"ANSIBLE_CONNECTION_PLUGINS": str(ROOT / "tests/plugins/connection")}
            run = play([options.playbook, "--check", "-i", inventory, *extra(options)], env)
            per_host = round(1000 * run.cpu_s / count, 1)
            figures[str(count)] = {**summary([run]), "cpu_ms_per_host": per_host, "changed": run.cost["changed"]}
            print(f"{count} hosts: {run.wall_s} s, {run.cpu_s} s of CPU", file=sys.stderr)
    return figures


def canned_inventory(count: int, recording: Path) -> dict[str, Any]:
    """A head and GPU servers that are all alike."""
    hosts = {
        f"gpu{i}": {"ansible_host": f"10.{i // 62500}.{i // 250 % 250}.{i % 250 + 1}"} for i in range(1, max(count, 2))
    }
    common = {
        "ansible_connection": "canned",
        "canned_recording": str(recording.resolve()),
        "canned_node": "bare",
        "fabric_ports": [],
    }
    groups = {
        "heads": {"hosts": {"head": {"ansible_host": "10.255.0.1"}}},
        "gpu_servers": {"hosts": hosts},
        "clients": {"hosts": {}},
    }
    return {"all": {"vars": common, "children": groups}}


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = {name: commands.add_parser(name) for name in ("converged", "docker", "toolkit", "scale")}
    for name, sub in command.items():
        sub.add_argument("-e", dest="extra_vars", action="append", default=[], help="as of ansible-playbook")
        if name != "scale":
            sub.add_argument("-i", "--inventory", type=Path, required=True)
        if name in ("docker", "toolkit"):
            sub.add_argument("--peer", type=Path, required=True, help="folder of the peer's role")
            sub.add_argument("--pairs", type=int, default=5)
        else:
            sub.add_argument("--playbook", type=Path, default=ROOT / "site.yml")
    command["converged"].add_argument("--runs", type=int, default=3)
    command["converged"].add_argument("--mitogen", type=Path)
    command["scale"].add_argument("--hosts", type=int, nargs="+", default=[100, 1000])
    command["scale"].add_argument("--recording", type=Path, default=ROOT / "tests/data/facts/os/debian12.json")
    options = parser.parse_args()
    try:
        if options.command == "converged":
            figures = site(options)
        elif options.command == "docker":
            figures = pairs(options, "docker", "all", DOCKER_PEER)
        elif options.command == "toolkit":
            figures = pairs(options, "nvidia_container_toolkit", "gpu_servers", TOOLKIT_PEER)
        else:
            figures = scale(options)
    except BenchmarkError as error:
        print(f"provision.py: {error}", file=sys.stderr)
        return 1
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
