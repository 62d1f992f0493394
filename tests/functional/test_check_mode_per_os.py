"""`site.yml --check` for every supported operating system that no lab has, on nodes that exist only as recordings.

Nothing is installed and nothing is reached; what is proved is that tables, templates and conditionals of every role
work through for a system, and what they would ask of it. Debian 12 and 13 are provisioned for real, in the lab.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.node_modules import load

pytestmark = pytest.mark.systems

foreign: Any = load("plugins/module_utils/foreign.py")
make: Any = load("tests/data/facts/make.py")
REPO = Path(__file__).parents[2]
SYSTEMS = ("ubuntu2204", "ubuntu2404", "ubuntu2604", "el9", "el10")
# Names that only the other family has. A role that asks for one has no table for this system.
FOREIGN = {
    "deb": r"-devel$|^kernel-devel|^(iproute|iputils|procps-ng|gcc-c\+\+|openssh-clients|openmpi-devel|dkms-nvidia)$",
    "el": r"-dev$|^linux-(headers|image|modules)|^python3-venv$"
    r"|^(iproute2|iputils-ping|procps|g\+\+|openssh-client|openmpi-bin|rdmacm-utils|ibverbs-utils|slurm-wlm|docker\.io)$",
}
# Ubuntu installs with ufw off, and role firewall switches none on.
WITHOUT = {system: set() if system.startswith("el") else {"firewall"} for system in SYSTEMS}


@dataclass(frozen=True)
class Run:
    output: str
    calls: list[dict[str, Any]]

    @property
    def recap(self) -> dict[str, str]:
        """Host -> its line of the recap."""
        lines = self.output.partition("PLAY RECAP")[2].splitlines()
        return {line.split()[0]: line for line in lines if " ok=" in line}

    def of(self, module: str) -> Iterator[dict[str, Any]]:
        """Arguments of a module's calls."""
        return (call["args"] for call in self.calls if call["module"] == module)

    def packages(self) -> set[str]:
        """Every package that would be installed."""
        return {name for args in self.sets() for name in args.get("wanted") or {}}

    def told(self) -> set[str]:
        """Words of what is only told: in check mode the driver waits for the package that pins its version."""
        return set(re.findall(r"[\w.-]+", " ".join(re.findall(r"Would install\s+([^\"]*)", self.output))))

    def sets(self) -> Iterator[dict[str, Any]]:
        """What roles ask for: of one module with apt, of another with dnf."""
        yield from (*self.of("package_set"), *self.of("package_ledger"))

    def owners(self) -> set[str]:
        """Roles that would put files or packages on a node; ofed_inbox and ofed_doca are both of role ofed."""
        files = {args.get("owner_role") for args in self.of("managed_files") if args.get("files")}
        named = files | {args["owner"] for args in self.sets() if args.get("wanted")}
        roles = {path.name for path in (REPO / "roles").iterdir()}
        return {role for role in roles for owner in named if owner and re.match(rf"{role}(_|$)", owner)}


REPOSITORIES = ("cuda", "docker", "doca", "epel", "nvidia-container-toolkit")


def keys(folder: Path) -> dict[str, Any]:
    """A key for every repository in place of the vendors' own, which are on the internet."""
    home = folder / "gnupg"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode=loopback", "--passphrase", ""]
    subprocess.run([*gpg, "--quick-gen-key", "test <test@example.net>", "ed25519", "sign", "never"], check=True)
    key = subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True).stdout
    listed = subprocess.run([*gpg, "--with-colons", "--list-keys"], check=True, capture_output=True, text=True).stdout
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    subprocess.run(["gpgconf", "--homedir", str(home), "--remove-socketdir"], check=False, capture_output=True)
    fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
    for name in REPOSITORIES:
        (folder / f"{name}.asc").write_bytes(key)
    return {"repos_key_dir": str(folder), "repos_fingerprints": dict.fromkeys(REPOSITORIES, fingerprint)}


def inventory(system: str, folder: Path, variables: dict[str, Any]) -> Path:
    """That of a node that is head and GPU server in one, so that it meets every role and every table."""
    common = {
        "ansible_connection": "canned",
        "ansible_host": "192.0.2.11",
        "ansible_user": "root",
        "canned_log": str(folder / "log"),
        "canned_recording": str(REPO / f"tests/data/facts/os/{system}.json"),
        "fabric_ports": [{"interface": "ens31np0", "address": "10.80.0.11/24", "rate_gbps": 400}],
        "roce_enabled": True,
        "stack_release": "reference-2019" if system == "ubuntu2204" else "current",
        "slurm_unconfined_jobs": system == "ubuntu2204",  # preflight refuses it else
        "horovod_image": "registry.example.net/training:1",  # only a head with Debian builds one out of nothing
        **make.STATED.get(system, {}),
        **variables,
    }
    groups = {name: {"hosts": {"node1": {}}} for name in ("heads", "gpu_servers")}
    folder.mkdir()
    hosts = folder / "hosts.yml"
    hosts.write_text(yaml.safe_dump({"all": {"vars": common, "children": groups}}), encoding="utf-8")
    return hosts


def check(folder: Path) -> dict[str, Run]:
    """One check run for each system."""
    variables = keys(folder)
    runs = [f"{inventory(system, folder / system, variables)}:{folder / system / 'said'}" for system in SYSTEMS]
    environment = {
        **os.environ,
        "ANSIBLE_CONNECTION_PLUGINS": str(REPO / "tests/plugins/connection"),
        "ANSIBLE_NOCOLOR": "1",
        "HOME": str(folder),  # caches of the controller are not this user's
    }
    subprocess.run(
        [sys.executable, str(REPO / "tests/support/playbooks.py"), *runs, "--", "site.yml", "--check"],
        cwd=REPO, env=environment, check=True, timeout=900,
    )  # fmt: skip
    done = {}
    for system in SYSTEMS:
        log = folder / system / "log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
        said = (folder / system / "said").read_text(encoding="utf-8")
        done[system] = Run(said, [json.loads(line) for line in lines])
    return done


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return check(tmp_path_factory.mktemp("check"))


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def errors(run: Run) -> str:
    """What went wrong, without the rest of the output."""
    return "\n".join(re.findall(r"^(?:\[ERROR\].*|fatal:.*|Origin:.*)$", run.output, re.MULTILINE))[:3000]


def test_the_whole_site_works_through(runs: dict[str, Run], system: str) -> None:
    recap = runs[system].recap
    assert set(recap) == {"node1"}, errors(runs[system]) or runs[system].output[-2000:]
    assert all("failed=0" in line and "unreachable=0" in line for line in recap.values()), errors(runs[system])
    assert not any("changed=0" in line for line in recap.values()), "a bare node, and nothing would be done to it"


def test_no_role_renders_nothing(runs: dict[str, Run], system: str) -> None:
    """What one system gets, every system gets: a role whose table lacks a system would stand out here."""
    whole = set().union(*(run.owners() for run in runs.values()))
    assert len(whole) > 10, "hardly a role says whose files and packages it brings"
    assert whole - runs[system].owners() - WITHOUT.get(system, set()) == set()


def test_what_is_rendered_is_whole(runs: dict[str, Run], system: str) -> None:
    """No file without content, no template left over, no package without a name."""
    files = [entry for args in runs[system].of("managed_files") for entry in args.get("files") or []]
    files = [entry for entry in files if entry.get("state", "present") == "present"]
    assert files
    for entry in files:
        assert entry["content"] not in ("", None), f"{entry['path']} would be empty"
        # `{{.State}}` is docker's own; our variables have an underscore.
        left = re.search(r"\{\{ *\w+_\w+|\{%|Undefined", str(entry["content"]))
        assert not left, f"{entry['path']} was not rendered: {left}"
    assert all(re.fullmatch(r"[a-z0-9][a-zA-Z0-9.+_-]+(:[a-z0-9]+)?", name) for name in runs[system].packages())


def test_whatever_is_written_over_is_looked_at_by_preflight(runs: dict[str, Run], system: str) -> None:
    """A file under a name that is not the toolkit's may be somebody else's; /etc/hosts gets a block of its own."""
    files = [entry for args in runs[system].of("managed_files") for entry in args.get("files") or []]
    paths = {entry["path"] for entry in files if entry.get("state", "present") == "present"}
    others = {path for path in paths if "elastic-ai" not in path} - {"/etc/hosts"}
    assert {"/etc/slurm/slurm.conf", "/etc/munge/munge.key", "/etc/docker/daemon.json"} <= others
    assert others - set(foreign.FILES) == set()


def test_no_package_of_the_other_family_is_asked_for(runs: dict[str, Run], system: str) -> None:
    assert len(runs[system].packages()) > 10
    foreign = FOREIGN["el" if system.startswith("el") else "deb"]
    assert sorted(name for name in runs[system].packages() if re.search(foreign, name)) == []


def test_the_gpus_decide_what_is_installed(runs: dict[str, Run]) -> None:
    """H100 with NVSwitch on Ubuntu 24.04; V100 without on 22.04, with the release for it."""
    hopper, volta = (run.packages() | run.told() for run in (runs["ubuntu2404"], runs["ubuntu2204"]))
    assert {"nvidia-dkms-580-open", "nvidia-fabricmanager", "cuda-toolkit-13-5"} <= hopper
    assert {"nvidia-dkms-580", "cuda-toolkit-12-9"} <= volta
    assert volta.isdisjoint({"nvidia-dkms-580-open", "nvidia-fabricmanager", "cuda-toolkit-13-5"})


def test_the_package_manager_of_the_system_is_asked(runs: dict[str, Run], system: str) -> None:
    """With dnf Ansible's own module, in one transaction for all that a role wants; our module has no hand in it."""
    ours, dnf = list(runs[system].of("package_set")), [args for args in runs[system].of("dnf") if args.get("name")]
    assert (bool(ours), bool(dnf)) == ((False, True) if system.startswith("el") else (True, False))
    sets = (args for args in runs[system].of("package_ledger") if args["wanted"])
    for args, asked in zip(dnf, sets, strict=True):
        assert {f"{name}-{version}".rstrip("-") for name, version in asked["wanted"].items()} <= set(args["name"])


def test_the_ports_go_to_the_network_manager_of_the_system(runs: dict[str, Run], system: str) -> None:
    files = {entry["path"] for args in runs[system].of("managed_files") for entry in args.get("files") or []}
    keyfile = "/etc/NetworkManager/system-connections/elastic-ai-ens31np0.nmconnection" in files
    networkd = "/etc/systemd/network/05-elastic-ai-ens31np0.network" in files
    assert (keyfile, networkd) == ((True, False) if system.startswith("el") else (False, True))


def test_nccl_and_ucx_are_told_of_the_fabric(runs: dict[str, Run], system: str) -> None:
    """RoCE's policy is not there yet in a check of a bare node, so its traffic class is not either."""
    files = {
        entry["path"]: entry["content"]
        for args in runs[system].of("managed_files")
        for entry in args.get("files") or []
        if args.get("owner_role") == "cuda"
    }
    assert "NCCL_SOCKET_IFNAME==ens31np0\n" in files["/etc/nccl.conf"]
    assert "NCCL_IB_HCA==mlx5_0\n" in files["/etc/nccl.conf"]
    assert "UCX_NET_DEVICES=mlx5_0:1\n" in files["/etc/ucx/ucx.conf"]


def test_the_exporter_of_nodes_answers_at_the_management_address(runs: dict[str, Run]) -> None:
    files = {e["path"]: e.get("content") for a in runs["ubuntu2404"].of("managed_files") for e in a.get("files") or []}
    assert "--web.listen-address=192.0.2.11:9100" in files["/etc/default/prometheus-node-exporter"]
    assert '"192.0.2.11:9100"' in files["/etc/prometheus/prometheus.yml"]
    assert "RestartSec" in files["/etc/systemd/system/prometheus-node-exporter.service.d/elastic-ai.conf"]


def test_el_has_the_exporters_with_a_unit_of_the_role_and_no_prometheus(runs: dict[str, Run]) -> None:
    """EPEL's package, whose own unit has another name in each generation; DCGM's exporter needs a daemon that runs."""
    run = runs["el9"]
    files = {e["path"]: e.get("content") for a in run.of("managed_files") for e in a.get("files") or []}
    unit = files["/etc/systemd/system/elastic-ai-node-exporter.service"]
    assert "ExecStart=/usr/bin/node_exporter --web.listen-address=192.0.2.11:9100" in unit
    assert "User=elastic-ai-metrics\n" in unit
    for metrics in ("gpu", "pool"):
        assert "User=elastic-ai-metrics\n" in files[f"/etc/systemd/system/elastic-ai-{metrics}-metrics.service"]
    assert not [path for path in files if "prometheus" in path]
    assert "node-exporter" in run.packages()
    assert not {name for name in run.packages() if "prometheus" in name}
    assert "has no package of Prometheus; the exporters of all nodes run" in " ".join(run.output.split())


def test_a_head_that_is_a_gpu_server_has_its_gpus_in_the_pool(runs: dict[str, Run], system: str) -> None:
    """slurmd beside slurmctld: a site of GPU servers alone loses none of them."""
    files = {e["path"]: e.get("content") for a in runs[system].of("managed_files") for e in a.get("files") or []}
    nodes = [line for line in str(files["/etc/slurm/slurm.conf"]).splitlines() if line.startswith("NodeName=")]
    assert len(nodes) == 1
    assert "NodeName=node1 " in nodes[0]
    assert f"gpu:{'v100' if system == 'ubuntu2204' else 'h100'}" in nodes[0].lower()
    assert {"/etc/slurm/slurmdbd.conf", "/etc/systemd/system/slurmd.service.d/elastic-ai.conf"} <= files.keys()
    daemons = {"slurm-slurmctld", "slurm-slurmd"} if system.startswith("el") else {"slurmctld", "slurmd"}
    assert daemons <= runs[system].packages()
