"""Two real orders as recordings: what a check of the whole site says of them, and what preflight says at minute 0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.test_check_mode_per_os import REPO, keys
from tests.support.orders import ORDERS, inventory

pytestmark = pytest.mark.systems


def play(folder: Path, hosts: dict[str, Path], *arguments: str) -> dict[str, str]:
    """What Ansible printed, by inventory."""
    environment = {
        **os.environ,
        "ANSIBLE_CONNECTION_PLUGINS": str(REPO / "tests/plugins/connection"),
        "ANSIBLE_NOCOLOR": "1",
        "HOME": str(folder),
    }
    runs = [f"{path}:{path.parent / 'said'}" for path in hosts.values()]
    subprocess.run(
        [sys.executable, str(REPO / "tests/support/playbooks.py"), *runs, "--", *arguments],
        cwd=REPO, env=environment, check=True, timeout=1800,
    )  # fmt: skip
    return {name: (path.parent / "said").read_text(encoding="utf-8") for name, path in hosts.items()}


def recap(said: str) -> dict[str, str]:
    return {line.split()[0]: line for line in said.partition("PLAY RECAP")[2].splitlines() if " ok=" in line}


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return keys(tmp_path_factory.mktemp("keys"))


def ungrouped(path: Path, group: str) -> Path:
    """The same inventory without a group."""
    text = yaml.safe_load(path.read_text())
    del text["all"]["children"][group]
    path.write_text(yaml.safe_dump(text), encoding="utf-8")
    return path


def test_what_a_later_stage_would_find_is_refused_at_minute_0(tmp_path: Path, variables: dict[str, Any]) -> None:
    """An EL head that would make the training's image; no head; a GPU server without GPUs; a board that is missing."""
    ubuntu, el = ORDERS["xe9680"], ORDERS["r760xa"]
    two_ways = {"repos_from": "system", "repos_mirror": "http://m"}
    hosts = {
        "fit": inventory(ubuntu, tmp_path / "fit", variables, 1),
        "el": inventory(el, tmp_path / "el", variables, 1, horovod_state=None),
        "el fit": inventory(el, tmp_path / "el-fit", variables, 1),
        "alma": inventory(replace(el, identity="AlmaLinux"), tmp_path / "alma", variables, 1),
        "oracle": inventory(replace(el, identity="OracleLinux"), tmp_path / "oracle", variables, 1),
        "no head": ungrouped(inventory(ubuntu, tmp_path / "no-head", variables, 1), "heads"),
        "no gpu": inventory(replace(ubuntu, hardware="r760"), tmp_path / "no-gpu", variables, 1),
        "seven": inventory(replace(ubuntu, gpus=9), tmp_path / "seven", variables, 1),
        "two ways": inventory(el, tmp_path / "two", two_ways, 1, answers=ALL_THERE),
    }
    said = {name: " ".join(text.split()) for name, text in play(tmp_path, hosts, "playbooks/preflight.yml").items()}
    refused = {name for name, text in said.items() if "cannot be provisioned" in text}
    assert refused == {"el", "no head", "no gpu", "two ways", "oracle"}, said
    assert "gpu1 cannot be provisioned: repos_from is system, so that no repository is written" in said["two ways"]
    assert "gpu1 cannot be provisioned: operating system is oraclelinux 9.6; supported: debian 12," in said["oracle"]
    assert "head cannot be provisioned: the training image cannot be made here: rocky has no docker-reg" in said["el"]
    assert "gpu1 cannot be provisioned: the inventory has no host in its group heads" in said["no head"]
    assert "gpu1 cannot be provisioned: it is a GPU server with no NVIDIA GPU on its PCI bus" in said["no gpu"]
    assert "8 NVIDIA GPUs on its PCI bus, 9 in its bill of materials" in said["seven"]


def test_a_pool_of_which_no_server_got_so_far_is_refused_with_their_names(
    tmp_path: Path, variables: dict[str, Any]
) -> None:
    """slurmctld ends with "No PartitionName information available" there, minutes later."""
    hosts = {"two": inventory(ORDERS["xe9680"], tmp_path / "two", variables, 2)}
    said = " ".join(play(tmp_path, hosts, "site.yml", "--check", "--tags", "slurm", "--limit", "head")["two"].split())
    assert "no GPU server can be in the pool; unusable: gpu1, gpu2. Where they failed earlier in this run" in said
    assert "failed=1" in said


#: What module package_question answers where all can be had.
ALL_THERE = {"package_question": {"missing": {}, "unmet": [], "unreadable": ""}}


def test_where_the_system_has_its_own_repositories_none_is_written(tmp_path: Path) -> None:
    """Nor is a key downloaded: there is no folder of keys here. What no repository has is known at minute 0."""
    lacking = {"missing": {"docker-ce": ["3:28.5.2-1.el9"], "sockperf": []}, "unmet": [], "unreadable": ""}
    hosts = {
        name: inventory(ORDERS["r760xa"], tmp_path / name, {"repos_from": "system"}, 1, answers=answers)
        for name, answers in (("satellite", ALL_THERE), ("lacking", {"package_question": lacking}))
    }
    said = play(tmp_path, hosts, "site.yml", "--check", "--tags", "repos")
    ends = recap(said["satellite"]).values()
    assert all("changed=0" in line and "failed=0" in line for line in ends), said["satellite"][-3000:]
    refused = " ".join(said["lacking"].split()).partition("gpu1 cannot be provisioned: ")[2]
    assert "no repository of this node has, for role docker: docker-ce 3:" in refused
    assert "(there: 3:28.5.2-1.el9)" in refused
    assert "for role acceptance: sockperf: add them to the content view" in refused


def asked(log: Path, host: str) -> tuple[set[str], set[str]]:
    """Packages that preflight asked for on a host, and those that roles wanted there."""
    calls = [call for line in log.read_text().splitlines() if (call := json.loads(line))["host"] == host]
    before = [call["args"]["wanted"] for call in calls if call["module"] == "package_question"]
    wanted = [set(call["args"]["wanted"]) for call in calls if call["module"] == "package_set"]
    wanted += [set(call["args"].get("wanted", {})) for call in calls if call["module"] == "package_ledger"]
    return set().union(*before), set().union(*wanted)


#: Wanted by roles of which preflight does not ask: monitoring, the training's image.
NOT_ASKED = {"prometheus", "prometheus-node-exporter", "node-exporter"}
NOT_ASKED |= {"docker-registry", "openssl", "skopeo", "mmdebstrap"}


@pytest.mark.rest
@pytest.mark.parametrize("order", sorted(ORDERS))
def test_the_package_manager_is_asked_for_what_the_roles_install(tmp_path: Path, order: str) -> None:
    """The tables that preflight reads, against what the roles of the whole site ask for afterwards."""
    variables = {"repos_from": "system"}
    hosts = {order: inventory(ORDERS[order], tmp_path / order, variables, 1, answers=ALL_THERE)}
    said = play(tmp_path, hosts, "site.yml", "--check")[order]
    assert all("failed=0" in line for line in recap(said).values()), said[-3000:]
    for host in ("head", "gpu1"):
        before, wanted = asked(tmp_path / order / "log", host)
        assert len(wanted) > 20
        assert wanted - before - NOT_ASKED == set(), host


@pytest.mark.rest
def test_a_check_of_both_orders_goes_through(tmp_path: Path, variables: dict[str, Any]) -> None:
    alma = replace(ORDERS["r760xa"], identity="AlmaLinux", servers=1)
    orders = {**ORDERS, "alma": alma}
    hosts = {name: inventory(order, tmp_path / name, variables) for name, order in orders.items()}
    for name, said in play(tmp_path, hosts, "site.yml", "--check").items():
        ends = recap(said)
        assert set(ends) == {"head", *(f"gpu{n}" for n in range(1, orders[name].servers + 1))}, said[-3000:]
        assert all("failed=0" in line and "unreachable=0" in line for line in ends.values()), said[-3000:]


def test_with_consent_the_newest_kernel_is_booted_before_anything_is_built(
    tmp_path: Path, variables: dict[str, Any]
) -> None:
    """One server waited over the weekend, and its system has installed a kernel meanwhile."""
    newer = {"kernels": ["6.8.0-90-generic", "6.8.0-87-generic"]}
    vain = {**newer, "contents": {"/run/elastic-ai/first-kernel": "6.8.0-90-generic\n"}}
    consent = {"reboot": "if_needed"}
    hosts = {
        name: inventory(ORDERS["xe9680"], tmp_path / name, variables, 2, states={"gpu1": gpu1}, **given)
        for name, gpu1, given in (("consent", newer, consent), ("none", newer, {}), ("in vain", vain, consent))
    }
    said = play(tmp_path, hosts, "site.yml", "--check", "--tags", "kernel,nvidia_driver")
    refused = " ".join(said["none"].split())
    assert "gpu1 cannot be provisioned: kernel 6.8.0-87-generic runs and 6.8.0-90-generic is the newest" in refused
    assert "the same command with -e reboot=if_needed boots it first" in refused
    kept = " ".join(said["in vain"].split())
    assert "a reboot for it ended in 6.8.0-87-generic" in kept.partition("gpu1 cannot be provisioned: ")[2]
    assert "TASK [reboot : Reboot]" not in kept
    whole = said["consent"]
    assert all("failed=0" in line for line in recap(whole).values()), whole[-3000:]
    first, _, rest = whole.partition("PLAY [Base system]")
    assert "changed: [gpu1]" in first.partition("TASK [reboot : Reboot]")[2]
    assert "changed: [gpu2]" not in first
    assert "TASK [nvidia_driver" in rest
