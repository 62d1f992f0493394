"""Nodes that answer testinfra's commands from a table: as a shell on a healthy node would, and what tests spoil of it.

Made here, not recorded. `python fake_node.py FILE ... COMMAND` stands in for ssh. FILE: a pickle, address -> FakeNode.
"""

from __future__ import annotations

import json
import pickle
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Said = tuple[int, str]
RELEASES = {"debian 12": "rehearsal", "ubuntu 24.04": "current"}


@dataclass
class FakeNode:
    """A machine as far as the checks look. `files`: path -> (content, owner, mode); `said`: beginning of a command ->
    (exit status, output).
    """

    name: str
    os: str = "debian 12"
    running: set[str] = field(default_factory=set)
    enabled: set[str] = field(default_factory=set)
    packages: dict[str, str] = field(default_factory=dict)
    files: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    said: dict[str, Said] = field(default_factory=dict)
    tools: set[str] = field(default_factory=set)
    down: bool = False

    def answer(self, command: str) -> Said:
        """Exit status and output; 127 for a command that the table does not have."""
        if self.down:
            return 255, ""
        words = shlex.split(command)
        for beginning in sorted(self.said, key=len, reverse=True):
            if command.startswith(beginning):
                return self.said[beginning]
        if words[:2] == ["command", "-v"]:
            return int(words[2] not in {"command", "systemctl", "dpkg-query", *self.tools}), ""
        if words[0] == "systemctl":
            if words[1] == "is-active":
                return (0, "active") if words[2] in self.running else (3, "inactive")
            return (0, "enabled") if words[2] in self.enabled else (1, "disabled")
        if words[0] == "dpkg-query":
            version = self.packages.get(words[-1])
            return (0, f"install ok installed {version}") if version is not None else (1, "")
        if words[0] == "test":
            return int(words[2] not in {*self.files, "/run/systemd/system/"}), ""
        if words[0] in ("cat", "stat") and words[-1] in self.files:
            content, owner, mode = self.files[words[-1]]
            return 0, {"cat": content, "%U": owner, "%a": mode}[words[0] if words[0] == "cat" else words[2]]
        if command == "cat /etc/os-release":
            name, version = self.os.split()
            return 0, f'ID={name}\nVERSION_ID="{version}"\n'
        return {"true": (0, ""), "uname -s": (0, "Linux\n"), "uname -m": (0, "x86_64\n")}.get(command, (127, ""))

    def runs(self, *units: str) -> None:
        """Running, and enabled."""
        self.running |= set(units)
        self.enabled |= set(units)

    def stops(self, unit: str) -> None:
        """Enabled, and not running."""
        self.running.remove(unit)


def inventory(**common: Any) -> dict[str, Any]:
    """What ansible-inventory says of a site of real machines: a head, a client and a GPU server."""
    shared = {
        "fabric_mtu": 9000, "roce_enabled": True, "ofed_soft_roce": True, "stack_release": "rehearsal",
        "horovod_volumes": ["/data:/data:ro"], "remoting_engine_artifact": "/engine.tar.gz",
        "docker_version": "20.10.24", "monitoring_revalidate": ["--fabric", "roce40"], **common,
    }  # fmt: skip
    nodes = {
        name: {**shared, "ansible_host": f"10.0.0.{last}",
               "fabric_ports": [{"interface": "fab0", "address": f"10.1.0.{last}/24"}]}
        for name, last in (("head", 10), ("client1", 11), ("gpu1", 12))
    }  # fmt: skip
    return {
        "_meta": {"hostvars": nodes}, "all": {"children": ["heads", "clients", "gpu_servers"]},
        "heads": {"hosts": ["head"]}, "clients": {"hosts": ["client1"]}, "gpu_servers": {"hosts": ["gpu1"]},
    }  # fmt: skip


def healthy(name: str) -> FakeNode:
    """A node of `inventory` that is as it was to be built."""
    last = {"head": 10, "client1": 11, "gpu1": 12}[name]
    node = FakeNode(name)
    _base(node, last)
    _containers(node)
    node.runs("munge", "prometheus-node-exporter", "elastic-ai-node-metrics")
    node.files["/etc/munge/munge.key"] = ("key", "munge", "400")
    node.said["toolkit "] = (0, "")
    node.said["ss -Hltn 'sport = :9100'"] = (0, "LISTEN 0 4096 *:9100 *:*\n")
    node.said["/opt/elastic-ai/acceptance/bin/python -m validation.probes --help"] = (0, "")
    node.said["/opt/elastic-ai/acceptance/bin/python -m pip"] = (0, "elastic-ai-toolkit==0.1.0\npip==24.0\n")
    node.tools |= {"iperf3", "sockperf", "ping", "ethtool", "ip"}
    if name == "head":
        _head(node)
    if name == "gpu1":
        _server(node)
    if name != "client1":
        _training(node, last)
    return node


def _base(node: FakeNode, last: int) -> None:
    node.runs("chrony", "elastic-ai-rxe@fab0", "elastic-ai-roce@fab0")
    node.said["chronyc"] = (0, "" if node.name == "head" else "^,*,10.0.0.10,3,6\n")
    names = [(n, f"10.0.0.{a}", f"10.1.0.{a}") for n, a in (("head", 10), ("client1", 11), ("gpu1", 12))]
    node.said["for n in"] = (0, "".join(f"{n} {one}\n{n}-fab0 {two}\n" for n, one, two in names))
    node.said["runuser -u nobody"] = (0, "unlimited\n1048576\n")
    wanted = {}
    for role in ("tuning", "fabric"):
        import yaml

        defaults = yaml.safe_load((ROOT / "roles" / role / "defaults/main.yml").read_text())
        wanted |= defaults[f"{role}_sysctl_default"]
    node.said["sysctl "] = (0, "".join(f"{key} = {value}\n" for key, value in wanted.items()))
    booted = "quiet iommu=pt numa_balancing=disable processor.max_cstate=1"
    node.files["/proc/cmdline"] = (booted, "root", "444")
    node.said["cat /run/elastic-ai/reboot-required/"] = (1, "")
    node.said["systemctl list-units --failed"] = (0, "")
    link = {
        "ifname": "fab0", "flags": ["UP", "LOWER_UP"], "mtu": 9000,
        "addr_info": [{"family": "inet", "local": f"10.1.0.{last}", "prefixlen": 24}],
    }  # fmt: skip
    node.said["ip -json"] = (0, json.dumps([link]))
    for name in ("rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "infiniband-diags", "perftest",
                 "mstflint"):  # fmt: skip
        node.packages[name] = "44.0"
    node.said["cut -d' ' -f1 /proc/modules"] = (0, "ib_uverbs\nrdma_ucm\n")
    node.said["/usr/local/libexec/elastic-ai-roce check"] = (0, "")


def _containers(node: FakeNode) -> None:
    node.runs("docker")
    gpu = node.name == "gpu1"
    runtimes = {"nvidia": {"path": "nvidia-container-runtime"}} if gpu else {}
    node.files["/etc/docker/daemon.json"] = (json.dumps({"runtimes": runtimes}), "root", "644")
    live = {"DefaultRuntime": "runc", "Runtimes": {"runc": {}, **runtimes}}
    node.said["docker info"] = (0, json.dumps(live))
    node.said["docker version"] = (0, "20.10.24\n")


def _head(node: FakeNode) -> None:
    node.runs("mariadb", "slurmdbd", "slurmctld", "elastic-ai-pool-sync.timer")
    node.runs("prometheus", "elastic-ai-pool-metrics", "elastic-ai-keys-metrics", "docker-registry")
    node.said["sinfo"] = (0, "gpu1 idle\n")
    node.said["ss -Hltn 'sport = :9090'"] = (0, "LISTEN 0 4096 127.0.0.1:9090 0.0.0.0:*\n")
    node.said["ss -Hltn 'sport = :5000'"] = (0, "LISTEN 0 4096 10.0.0.10:5000 0.0.0.0:*\n")
    node.said["promtool check config"] = (0, "SUCCESS")
    node.runs("elastic-ai-revalidate.timer")
    _browsers(node)
    node.files["/opt/elastic-ai-toolkit/.venv/bin/toolkit"] = ("", "root", "755")


def _browsers(node: FakeNode) -> None:
    node.runs("elastic-ai-page.socket", "elastic-ai-page.service", "elastic-ai-login.socket")
    node.runs("elastic-ai-jupyterhub-proxy", "elastic-ai-jupyterhub")
    node.files["/etc/elastic-ai/page/page.json"] = ('{"certificate": "/page.pem"}', "root", "644")
    node.files["/etc/elastic-ai/jupyterhub/settings.json"] = ("{}", "root", "644")
    unit = "/etc/systemd/system/elastic-ai-jupyterhub-proxy.service"
    node.files[unit] = ("[Service]\nLoadCredential=certificate:/hub.pem\nLoadCredential=key:/key.pem\n", "root", "644")
    node.said["openssl x509"] = (0, "Certificate will not expire\n")


def _server(node: FakeNode) -> None:
    node.files["/sys/module/nvidia/version"] = ("535.183.01\n", "root", "444")
    node.files["/usr/local/cuda-12.2/bin/nvcc"] = ("", "root", "755")
    node.packages |= {"cuda-toolkit-12-2": "12.2.2-1", "datacenter-gpu-manager-4-core": "1:4.6.0-1"}
    node.packages |= dict.fromkeys(("nvidia-container-toolkit", "nvidia-container-toolkit-base",
                                    "libnvidia-container-tools", "libnvidia-container1"), "1.19.1-1")  # fmt: skip
    node.runs("nvidia-persistenced", "nvidia-dcgm", "slurmd", "elastic-ai-gpu-metrics", "elastic-ai-xid-metrics")
    node.runs("elastic-ai-lease-firewall", "elastic-ai-lease-sweep.timer")
    node.said["nft list table"] = (0, "table inet elastic_ai_lease { policy drop; }")


def _training(node: FakeNode, last: int) -> None:
    node.runs("elastic-ai-training")
    node.said["ss -Hltn 'sport = :50000'"] = (0, f"LISTEN 0 128 10.1.0.{last}:50000 0.0.0.0:*\n")
    etc = "/etc/elastic-ai/training"
    node.files[f"{etc}/id_ed25519"] = ("key", "elastic-ai-train", "600")
    mounts = [{"Type": "bind", "Source": a, "Destination": a} for a in (etc, "/data")]
    node.said["docker inspect --format '{{json .Mounts}}'"] = (0, json.dumps(mounts))
    node.said["/usr/local/bin/elastic-ai-training-exec python3"] = (0, "0.28.1\n")


ROOT = Path(__file__).resolve().parents[2]


def fake_host(node: FakeNode, of: Mapping[str, Any], log: Callable[[str], None] = lambda _: None) -> Any:
    """testinfra's Host over such a node, with the inventory `of`."""
    from testinfra.backend.ansible import AnsibleBackend
    from testinfra.host import Host

    class Backend(AnsibleBackend):
        ansible_runner = type("Runner", (), {"inventory": of})()  # type: ignore[assignment]

        def run(self, command: str, *args: str, **_: Any) -> Any:
            text = self.get_command(command, *args)
            log(text)
            rc, out = node.answer(text)
            if rc == 255:
                raise RuntimeError("no answer")
            return self.result(rc, text.encode(), out.encode(), b"")

    backend = Backend(node.name)
    host = Host(backend)
    backend.set_host(host)
    return host


def main() -> int:
    """As ssh: the last word is the command, the one before it the address."""
    nodes = pickle.loads(Path(sys.argv[1]).read_bytes())
    address, command = sys.argv[-2:]
    if address not in nodes or re.search(r"ControlPath|-O ", command):
        print(f"ssh: connect to host {address} port 22: No route to host", file=sys.stderr)
        return 255
    rc, out = nodes[address].answer(command)
    sys.stdout.write(out)
    return rc


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    import tests.support.fake_node  # noqa: F401 - the pickle names it so

    sys.exit(main())
