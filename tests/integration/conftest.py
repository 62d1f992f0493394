"""A real lab of four nodes, provisioned once by site.yml, for all tests that need one. Needs root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.browser import browser  # noqa: F401 - a fixture
from tests.support.hub_lab import PASSWORDS
from tests.support.lease_lab import left, on_each, until
from tests.support.recap import recap
from tests.support.snapshot import snapshots
from tests.support.traces import traces
from toolkit.lab import lab as labs
from toolkit.lab.host import VM_TOOLS
from validation.plan.suites import DEFAULT

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
NAME = "it"
TRIES = 3  # of a validation, while this machine is too busy to decide it
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
NODES = ("head", "client1", "gpu1", "gpu2")
STOOD_IN = ("head", "gpu1")
MACHINES = "tests/playbooks/machines.yml"

_MISSING = sorted({package for tool, package in VM_TOOLS.items() if shutil.which(tool) is None})
NEEDS_VMS = pytest.mark.skipif(bool(_MISSING), reason=f"no virtual machines here: apt-get install {' '.join(_MISSING)}")

# Run last, in this order: what measures, with nothing beside it any more, and what takes away what the others need.
# The engines for PyTorch and TensorFlow, the page and the hub change the site, and are taken away with it.
LAST = (
    "test_drill_lab.py", "test_rehearsal.py", "test_lease_torch.py", "test_lease_tensorflow.py", "test_page_lab.py",
    "test_jupyterhub.py", "test_page_and_hub.py", "test_teardown.py",
)  # fmt: skip
BESIDE_LIMIT_S = 1800

RECORD_CHANGES = {
    "ANSIBLE_CALLBACKS_ENABLED": "changes",
    "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests" / "plugins" / "callback"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LAST.index(item.path.name) + 1 if item.path.name in LAST else 0)


@pytest.fixture(scope="session")
def quiet() -> None:
    """What bin/test runs beside the lab while that is not measured has ended."""
    beside = os.environ.get("ELASTIC_AI_BESIDE")
    end = time.monotonic() + BESIDE_LIMIT_S
    while beside and Path(beside).exists():
        assert time.monotonic() < end, f"bin/test still runs something else: {beside} is there"
        time.sleep(1)


def recording(changes: Path) -> dict[str, str]:
    """Environment in which Ansible writes what changed to a file, one JSON line per task and host."""
    return {**RECORD_CHANGES, "ELASTIC_AI_CHANGES_FILE": str(changes)}


def call(
    args: Sequence[str | Path], timeout_s: float = 900, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of the project from its root, with its output as text."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1", **(env or {})}
    words = [str(a) for a in args]
    return subprocess.run(words, cwd=ROOT, env=env, text=True, capture_output=True, timeout=timeout_s, check=False)


def toolkit(
    *args: str | Path, timeout_s: float = 900, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the `toolkit` command."""
    return call([BIN / "toolkit", *args], timeout_s, env)


@dataclass(frozen=True)
class Lab:
    """The lab under test."""

    name: str
    inventory: Path

    def ssh(self, node: str, *command: str) -> str:
        """stdout of a command on a node; fails the test when it fails. As `toolkit lab ssh`, which takes 0.6 s more."""
        spec = labs.load(self.name)
        done = call([*labs.ssh_words(spec, spec.node(node)), *command])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def processes(self, node: str, pattern: str) -> str:
        """Command lines on a node that match an extended regular expression ('' when none)."""
        return self.ssh(node, f"pgrep -fa '{pattern}' | grep -v pgrep || true")

    def playbook(
        self, *args: str | Path, name: str = "site.yml", changes: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """ansible-playbook on this lab; what changed goes to the file `changes`, one JSON line per task and host."""
        env = {} if changes is None else recording(changes)
        return call([BIN / "ansible-playbook", name, "-i", self.inventory, *args], timeout_s=1800, env=env)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four running nodes, links of 1 Gbit/s, not provisioned; at the end the lab goes without a trace."""
    inventory = tmp_path_factory.mktemp("inventory") / "it"
    if any(traces(NAME).values()):  # of a run that was cut off, or whose machine was
        assert toolkit("lab", "down", "--name", NAME).returncode == 0
    forwarding, before = FORWARDING.read_text(), traces(NAME)
    assert not any(before.values()), before
    up = toolkit("lab", "up", "--name", NAME, "--inventory", inventory)
    assert up.returncode == 0, up.stderr
    during = traces(NAME)
    for kind in ("processes", "mounts", "namespaces", "folders"):
        assert during[kind], f"the search for {kind} would find nothing anyway"
    assert FORWARDING.read_text() == forwarding
    yield Lab(NAME, inventory)
    down = toolkit("lab", "down", "--name", NAME)
    assert down.returncode == 0, down.stderr
    assert traces(NAME) == before


@contextlib.contextmanager
def machines(name: str, inventory: Path) -> Iterator[Lab]:
    """A lab of two machines and two containers with fabric and probes provisioned, down again afterwards."""
    up = toolkit("lab", "up", "--nodes", "vm", "--name", name, "--inventory", inventory)
    assert up.returncode == 0, up.stderr
    lab = Lab(name, inventory)
    try:
        done = lab.playbook(name=MACHINES)
        assert done.returncode == 0, done.stdout[-6000:]
        yield lab
    finally:
        toolkit("lab", "down", "--name", name)


@contextlib.contextmanager
def stood_in(system: str, inventory: Path, name: str) -> Iterator[Lab]:
    """A head and a GPU server that stand in for a system, in a lab called `name`, which is gone afterwards."""
    if any(traces(name).values()):  # of a run that was cut off
        assert toolkit("lab", "down", "--name", name).returncode == 0
    up = toolkit("lab", "up", "--os", system, "--name", name, "--nodes", str(len(STOOD_IN)), "--inventory", inventory)
    try:
        assert up.returncode == 0, up.stderr
        yield Lab(name, inventory)
    finally:
        assert toolkit("lab", "down", "--name", name).returncode == 0


Change = dict[str, Any]  # host, role, task, paths, packages


@dataclass(frozen=True)
class Provisioned:
    """A lab after `toolkit deploy`: its nodes as they were before, what check mode predicted, and what then changed."""

    lab: Lab
    before: dict[str, dict[str, Any]]
    predicted: list[Change]
    changed: list[Change]
    said: list[str]  # the last lines of toolkit deploy, one for each node


def changes_in(path: Path) -> list[Change]:
    """The lines that the callback wrote."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="session")
def provisioned(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Provisioned:
    """The lab after one run of site.yml in check mode, by ansible-playbook, and one for real, by toolkit deploy."""
    folder = tmp_path_factory.mktemp("site")
    before = snapshots(lab, NODES)
    predicted, changed = folder / "predicted", folder / "changed"
    done = lab.playbook("--check", changes=predicted)
    assert done.returncode == 0, f"site.yml --check:\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
    done = toolkit("deploy", "-i", lab.inventory, timeout_s=1800, env=recording(changed))
    assert done.returncode == 0, f"toolkit deploy:\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return Provisioned(lab, before, changes_in(predicted), changes_in(changed), done.stdout.splitlines())


@dataclass(frozen=True)
class Run:
    """One finished `toolkit validate`."""

    exit_code: int
    verdict: dict  # type: ignore[type-arg]
    stderr: str
    folder: Path


def validation_of(inventory: Path, runs: Path, *args: str) -> Run:
    """`toolkit validate` with run directories under `runs`.

    A run that could not be decided because this machine was too busy is made again, as its message asks; when no run
    can be decided, the test is skipped with that reason. A failure is never made again.
    """
    for _ in range(TRIES):
        done = toolkit("validate", *args, "-i", inventory, "--runs-dir", runs, "--json")
        assert done.stdout.strip(), done.stderr
        verdict = json.loads(done.stdout)
        noisy = [c["id"] for c in verdict["criteria"] if c["reason_code"] == "too-noisy"]
        if done.returncode != 3 or not noisy:
            return Run(done.returncode, verdict, done.stderr, max(runs.iterdir()))
        print(f"this machine was too busy to decide {', '.join(noisy)}: validated again\n{done.stderr[-1000:]}")
    pytest.skip(f"this machine was too busy, {TRIES} times, to decide {', '.join(noisy)}")


@pytest.fixture(scope="session")
def clean(provisioned: Provisioned, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All suites that a lab is measured by, and as-built, once, on a lab where nothing is wrong."""
    suites = [word for suite in (*DEFAULT, "as-built") for word in ("--suite", suite)]
    runs = tmp_path_factory.mktemp("clean")
    return validation_of(provisioned.lab.inventory, runs, "--fabric", "tcp10", *suites, "--format", "html")


@pytest.fixture(scope="module")
def pool(provisioned: Provisioned) -> Iterator[Lab]:
    """The lab; its two users' folders are afterwards what they were."""
    lab = provisioned.lab
    on_each(lab, NODES, "cp -a /home /root/homes")
    yield lab
    on_each(lab, NODES, "rm -r /home && mv /root/homes /home; rm -f /root/lease_*.py /root/stop; ls /home")


@pytest.fixture
def nothing_left(pool: Lab) -> Iterator[None]:
    """After the test nothing of any lease is left, and no job of Slurm's that is ending."""
    yield
    until(lambda: (left(pool), pool.ssh("head", "squeue", "--noheader").strip()), ({}, ""), 60)


@pytest.fixture(scope="session")
def page_and_hub(provisioned: Provisioned) -> Lab:
    """The lab with the page and JupyterHub, by one deployment, whose second run changed nothing. The teardown of the
    whole site takes them away."""
    lab, wanted = provisioned.lab, ["-e", "pool_page=true", "-e", "jupyterhub=true"]
    torch = yaml.safe_load((lab.inventory / "hosts.yml").read_text())["all"]["vars"].get("remoting_server_torch_python")
    if torch is not None:  # a lab that has PyTorch offers it
        offered = [{"name": "JupyterLab", "python": ""}, {"name": "PyTorch", "python": torch}]
        wanted += ["-e", json.dumps({"jupyterhub_environments": offered})]
    done = toolkit("deploy", "-i", lab.inventory, "--", *wanted, timeout_s=1800)
    assert done.returncode == 0, f"toolkit deploy:\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
    again = lab.playbook(*wanted)
    assert {node: counts["changed"] for node, counts in recap(again.stdout).items()} == dict.fromkeys(NODES, 0), (
        again.stdout[-6000:]
    )
    return lab


@pytest.fixture(scope="module")
def web(page_and_hub: Lab, pool: Lab) -> Iterator[Lab]:
    """The same, with passwords of its two users; afterwards they have none, as before."""
    pool.ssh("head", "cp -p /etc/shadow /root/shadow")
    pool.ssh("head", "chpasswd <<< $'" + "\\n".join(f"{user}:{word}" for user, word in PASSWORDS.items()) + "'")
    yield page_and_hub
    pool.ssh("head", "mv /root/shadow /etc/shadow")
