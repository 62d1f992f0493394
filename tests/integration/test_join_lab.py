"""A pool that joins a second, real Slurm with jobs of its own: theirs stays as it is, byte for byte and job for job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Lab, toolkit

from tests.support import foreign_slurm as foreign
from tests.support.lease_lab import json_in, run_as, shell, until
from tests.support.recap import recap
from tests.support.traces import traces

pytestmark = pytest.mark.rest
NAME = "join"
OURS = ("head", "gpu1")
CONSENT = foreign.CONSENT


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three machines, on which their cluster runs; a job of theirs on two of them."""
    inventory = tmp_path_factory.mktemp("inventory") / NAME
    if any(traces(NAME).values()):  # of a run that was cut off
        assert toolkit("lab", "down", "--name", NAME).returncode == 0
    up = toolkit("lab", "up", "--name", NAME, "--nodes", "3", "--inventory", inventory)
    assert up.returncode == 0, up.stderr
    try:
        made = Lab(NAME, inventory)
        foreign.make(made)
        foreign.begin_jobs(made)
        yield made
    finally:
        assert toolkit("lab", "down", "--name", NAME).returncode == 0


@pytest.fixture(scope="module")
def joined(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The lab by an inventory that joins."""
    folder = foreign.inventory_of(
        lab.inventory, tmp_path_factory.mktemp("joined") / "site", slurm_pool={"join": foreign.JOIN}
    )
    return Lab(NAME, folder)


def missing(lab: Lab) -> tuple[int, list[str]]:
    """Exit code of the check, and what is needed."""
    done = toolkit("pool", "check", "-i", lab.inventory, "--json")
    assert done.stdout, done.stderr
    return done.returncode, [one["what"] for one in json.loads(done.stdout)["missing"] if one["needed"]]


def test_without_join_their_nodes_are_refused_and_join_is_named(lab: Lab, tmp_path: Path) -> None:
    before = foreign.theirs(lab)
    alone = Lab(NAME, foreign.inventory_of(lab.inventory, tmp_path / "alone"))
    done = alone.playbook("--tags", "preflight")
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert "of cluster prod under gpu2" in said
    assert "slurm_pool: {join: ...}" in said
    assert foreign.changed(before, foreign.theirs(lab)) == []


def test_files_are_written_and_what_their_administrator_adds_is_said(joined: Lab) -> None:
    before = foreign.theirs(joined)
    done = joined.playbook(name="playbooks/pool.yml")
    assert done.returncode == 0, done.stdout[-6000:]
    assert foreign.changed(before, foreign.theirs(joined)) == [], "nothing of theirs was touched"
    code, needed = missing(joined)
    assert code == 1
    assert any("gpu1 has 4 GPUs, and 0 there" in one for one in needed)
    assert any("it has no Prolog" in one for one in needed)
    assert any("no partition lease" in one for one in needed)
    refused = joined.playbook("--tags", "preflight", *CONSENT)
    assert "could open no GPU once its device files are closed" in " ".join(refused.stdout.split())
    assert foreign.changed(before, foreign.theirs(joined)) == []


@pytest.fixture(scope="module")
def deployed(joined: Lab) -> dict[str, Any]:
    """After their administrator's lines and a deployment; all of theirs as it was in between."""
    joined.playbook(name="playbooks/pool.yml")
    foreign.add_lines(joined)
    until(lambda: missing(joined), (0, []), 60)
    between = foreign.theirs(joined)
    done = toolkit("deploy", "-i", joined.inventory, "--", *CONSENT, timeout_s=1800)
    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return between


def test_a_deployment_touches_nothing_of_theirs_and_a_third_changes_nothing(
    joined: Lab, deployed: dict[str, Any]
) -> None:
    assert foreign.changed(deployed, foreign.theirs(joined)) == []
    # Where the first run consented to jobs of somebody else, its record says so; then they are those of the pool's own
    # cluster, and the record changes once more.
    after = recap(joined.playbook(*CONSENT).stdout)
    assert {node: counts["changed"] for node, counts in after.items()} in (
        {"head": 0, "gpu1": 1},
        {"head": 0, "gpu1": 0},
    ), after
    again = joined.playbook(*CONSENT)
    assert {node: counts["changed"] for node, counts in recap(again.stdout).items()} == dict.fromkeys(OURS, 0), (
        again.stdout[-6000:]
    )
    assert foreign.changed(deployed, foreign.theirs(joined)) == []


def test_a_lease_by_their_controller_works_and_their_jobs_go_on(joined: Lab, deployed: dict[str, Any]) -> None:
    code, said = run_as(joined, "alice", "toolkit run -- nvidia-smi -L", node="head")
    assert code == 0, said
    assert "GPU 0" in said
    code, said = run_as(joined, "alice", "toolkit run -n 2 -p 1/4 -- nvidia-smi -L", node="head")
    assert code == 0, said
    code, said = run_as(joined, "alice", "toolkit gpus --json", node="head")
    assert code == 0, said
    assert {gpu["node"] for gpu in json_in(said)["gpus"]} == {"gpu1"}, "their controller's node is not the pool's"
    code, said = run_as(joined, "alice", "srun -p batch -w gpu1 --mem=10 hostname", node="head")
    assert (code, said.strip().splitlines()[-1]) == (0, "gpu1"), said
    now = foreign.theirs(joined)
    assert now["nodes"]["gpu2"] == deployed["nodes"]["gpu2"]
    assert now["nodes"]["gpu1"] == deployed["nodes"]["gpu1"], "the same jobs, the same daemons, the same files"
    assert shell(joined, "head", "sinfo -h -N -n gpu1 -o %T").split()[0] in ("mixed", "idle"), "drained by a lease"


def test_limits_are_those_of_their_accounting(joined: Lab, deployed: dict[str, Any]) -> None:
    code, said = run_as(joined, "alice", "toolkit gpus --limits", node="head")
    assert code == 0, said
    assert foreign.ACCOUNT in said


def test_a_user_without_an_account_there_is_refused_in_words(joined: Lab, deployed: dict[str, Any]) -> None:
    before = foreign.theirs(joined)
    code, said = run_as(joined, "bob", "toolkit run -- true", node="head")
    assert code != 0
    assert "ask its administrator for an account there" in said, said
    assert "Traceback" not in said
    assert foreign.changed(before, foreign.theirs(joined)) == []


@pytest.mark.parametrize(
    ("node", "breaks", "mends"),
    [
        (foreign.CONTROLLER, "systemctl stop slurmctld", "systemctl start slurmctld"),
        (
            "head",
            "cp -p /etc/munge/munge.key /root/theirs; head -c 1024 /dev/urandom > /etc/munge/munge.key; "
            "systemctl restart munge",
            "cp -p /root/theirs /etc/munge/munge.key; systemctl restart munge",
        ),
    ],
    ids=["controller away", "another key of munge"],
)
def test_a_cluster_that_does_not_answer_is_one_sentence_and_nothing_is_changed(
    joined: Lab, deployed: dict[str, Any], node: str, breaks: str, mends: str
) -> None:
    shell(joined, node, breaks)
    before = foreign.on_nodes(joined)
    try:
        check = toolkit("pool", "check", "-i", joined.inventory)
        code, run = run_as(joined, "alice", "toolkit run -- true", node="head")
        wrote = joined.playbook(name="playbooks/pool.yml")
        after = foreign.on_nodes(joined)
    finally:
        shell(joined, node, mends)
        shell(joined, foreign.CONTROLLER, foreign.SERVES)
    print(check.stderr, run, wrote.stdout[-3000:])
    assert (check.returncode, len(check.stderr.strip().splitlines())) == (2, 1), check.stderr
    assert "scontrol show config" in check.stderr
    assert code != 0
    assert "Traceback" not in run
    assert "no command of cluster prod works here" in " ".join(wrote.stdout.split())
    assert foreign.changed(before, after) == []


def test_the_pool_does_not_add_drain_or_remove_their_nodes(joined: Lab) -> None:
    for words in (("node", "remove", "gpu1"), ("upgrade", "--to", "rehearsal")):
        done = toolkit(*words, "-i", joined.inventory)
        assert done.returncode == 2
        assert "whose administrator adds, drains and resumes them" in done.stderr


def test_a_teardown_leaves_their_cluster_and_its_jobs(joined: Lab, deployed: dict[str, Any]) -> None:
    before = foreign.theirs(joined)
    done = joined.playbook(name="playbooks/teardown.yml")
    assert done.returncode == 0, done.stdout[-6000:]
    assert foreign.changed(before, foreign.theirs(joined)) == []
    code, said = run_as(joined, "alice", "srun -p batch -w gpu1 --mem=10 hostname", node="head")
    assert (code, said.strip().splitlines()[-1]) == (0, "gpu1"), said
    foreign.administer(joined, foreign.TAKES_OUT)
    for node in foreign.NODES:
        assert "elastic" not in shell(joined, node, "cat /etc/slurm/*.conf"), node
    steps = {node: one["steps"] for node, one in foreign.theirs(joined)["nodes"].items()}
    assert steps == {node: one["steps"] for node, one in before["nodes"].items()}, "the jobs of the beginning"
