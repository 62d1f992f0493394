"""site.yml over the whole order: an honest check mode, nothing to do the second time, and what it leaves to be read."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable

import pytest
from conftest import NODES, Change, Provisioned, call


def by_host(changes: Iterable[Change], what: Callable[[Change], Iterable[str]]) -> dict[str, set[str]]:
    """Host -> everything that `what` tells of its changes."""
    found: dict[str, set[str]] = {}
    for change in changes:
        found.setdefault(change["host"], set()).update(what(change))
    return found


OWN = ("/etc/elastic-ai/", "/opt/elastic-ai", "/var/lib/elastic-ai/")


def system_files(change: Change) -> list[str]:
    """Paths of the system itself. What check mode says of the toolkit's own folders is compared by role."""
    return [path for path in change["paths"] if not path.startswith(OWN)]


def test_check_mode_predicts_the_roles_files_and_packages_that_change(provisioned: Provisioned):
    def compare(what: Callable[[Change], Iterable[str]]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        predicted, changed = by_host(provisioned.predicted, what), by_host(provisioned.changed, what)
        assert all(changed.get(node) for node in NODES), "nothing changed: this comparison would hold for anything"
        return {n: changed[n] - predicted[n] for n in NODES}, {n: predicted[n] - changed[n] for n in NODES}

    nothing = {node: set() for node in NODES}
    assert compare(lambda c: [c["role"]]) == (nothing, nothing)
    missed, invented = compare(system_files)
    assert missed == nothing, "files changed without having been predicted"
    for node, paths in invented.items():  # a folder may come with a package of the same run, which nobody knew yet
        for path in paths:
            assert provisioned.lab.ssh(node, "dpkg", "-S", path), f"{node}: {path} was predicted and then not changed"
    # What a package brings along is not known either before its repository is there.
    assert compare(lambda c: c["packages"])[1] == nothing, "packages predicted and then not installed"


def test_deploy_ends_with_a_line_for_each_node(provisioned: Provisioned):
    """`toolkit deploy` provisions the whole site and says of each node what it changed there."""
    told = dict(line.split(maxsplit=1) for line in provisioned.said)
    assert sorted(told) == sorted(NODES)
    for words in told.values():
        assert words.startswith("ok: changed"), words


def test_second_run_changes_nothing(provisioned: Provisioned):
    again = provisioned.lab.playbook()
    assert again.returncode == 0
    recap = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", again.stdout, re.MULTILINE)
    nodes = {name: numbers for name, *numbers in recap if name != "localhost"}
    assert nodes == {n: ["0", "0", "0"] for n in NODES}, again.stdout[-3000:]


def test_a_service_that_was_stopped_is_named_by_the_checks(provisioned: Provisioned):
    """One file of them by pytest alone, as `toolkit check` and a validation run all."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hosts=ansible://gpu1"]
    words += [f"--ansible-inventory={provisioned.lab.inventory}", "validation/asbuilt/test_pool.py"]
    provisioned.lab.ssh("gpu1", "systemctl", "stop", "slurmd")
    try:
        done = call(words)
    finally:
        provisioned.lab.ssh("gpu1", "systemctl", "start", "slurmd")
    assert done.returncode == 1, done.stdout
    assert "test_node_daemon_runs" in done.stdout
    assert "slurmd does not run" in done.stdout


def test_every_role_recorded_its_result_and_labelled_what_is_not_real(provisioned: Provisioned):
    record = json.loads(provisioned.lab.ssh("gpu1", "cat", "/etc/elastic-ai/provisioned.json"))
    assert record["release"] == "rehearsal"
    roles = {"preflight", "repos", "base", "kernel", "tuning", "ofed", "fabric", "roce", "nvidia_driver", "gpudirect"}
    roles |= {"cuda", "docker", "nvidia_container_toolkit", "horovod", "slurm", "dcgm"}
    assert roles - set(record["results"]) == set()
    assert {"cuda", "dcgm", "nvidia_container_toolkit"} <= set(record["stand_ins"])
    assert record["not_applicable"], "a container allows neither modules nor boot parameters"
    for role, result in record["results"].items():
        assert {"state", "versions", "not_applicable", "reboot_required", "stand_ins"} <= set(result), role


def test_the_recorded_versions_are_those_that_are_installed(provisioned: Provisioned):
    record = json.loads(provisioned.lab.ssh("gpu1", "cat", "/etc/elastic-ai/provisioned.json"))
    assert record["pinned"], "the set pins packages"
    for name, version in record["pinned"].items():
        assert provisioned.lab.ssh("gpu1", "dpkg-query", "-W", "-f", "'${Version}'", name) == version
    held = set(provisioned.lab.ssh("gpu1", "apt-mark", "showhold").split())
    assert set(record["pinned"]) <= held


@pytest.mark.rest
def test_a_reboot_with_consent_waits_for_the_job_and_gives_the_node_back(provisioned: Provisioned):
    lab = provisioned.lab

    def boots() -> dict[str, str]:
        return {node: lab.ssh(node, "cat", "/proc/sys/kernel/random/boot_id") for node in NODES}

    before = boots()
    lab.ssh("gpu2", "mkdir -p /run/elastic-ai/reboot-required && echo planted > /run/elastic-ai/reboot-required/test")
    without = lab.playbook(name="playbooks/reboot.yml")
    assert without.returncode == 0
    assert "gpu2 needs a reboot: test: planted" in without.stdout
    assert boots() == before, "nothing reboots without consent"
    lab.ssh("head", "systemctl", "stop", "slurmctld")
    silent = lab.playbook("-e", "reboot=if_needed", name="playbooks/reboot.yml")
    lab.ssh("head", "systemctl", "start", "slurmctld")
    assert silent.returncode != 0
    assert "does not say whether jobs run there" in " ".join(silent.stdout.split())
    assert boots() == before, "a node whose jobs nobody knows is not rebooted"
    job = lab.ssh("head", "sbatch --parsable --nodelist gpu2 --output /dev/null --wrap 'sleep 20'").strip()
    running = f"squeue --noheader --jobs {job} --states RUNNING"
    lab.ssh("head", f"timeout 60 sh -c 'until {running} | grep -q .; do sleep 1; done'")
    done = lab.playbook("-e", "reboot=if_needed", name="playbooks/reboot.yml")
    assert done.returncode == 0, done.stdout[-3000:]
    after = boots()
    assert {node for node in NODES if after[node] != before[node]} == {"gpu2"}
    record = lab.ssh("head", "scontrol", "show", "job", "--oneliner", job)
    assert "JobState=COMPLETED" in record, record
    assert "Restarts=0" in record, "it ended before the reboot; it was not started a second time after it"
    assert lab.ssh("head", "sinfo --noheader --partition all --nodes gpu2 --format %T").strip() in ("idle", "mixed")
    for unit in ("docker", "slurmd", "elastic-ai-training"):
        assert lab.ssh("gpu2", "systemctl", "is-active", unit).strip() == "active"
