"""A pool that joins a real Slurm 24.11 of somebody's, on Debian 13: leases of a GPU, of parts and of two, and their end
by that Slurm's own Prolog and Epilog, while its jobs go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Lab, toolkit

from tests.support import foreign_slurm as foreign
from tests.support.lease_lab import LEFT, held, hold, json_in, run_as, shell, until
from tests.support.traces import traces

pytestmark = pytest.mark.rest
NAME = "newer"
WAITING = f"squeue --noheader --all -p {foreign.PARTITION} -o %i"


@dataclass(frozen=True)
class Joined:
    """The lab, and all of theirs as it was when the deployment began."""

    lab: Lab
    theirs: dict[str, Any]


def needed(lab: Lab) -> list[str]:
    """What their administrator has to add yet."""
    done = toolkit("pool", "check", "-i", lab.inventory, "--json")
    return [one["what"] for one in json.loads(done.stdout)["missing"] if one["needed"]]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    """Three machines with their cluster, whose administrator has added the lines; the pool is deployed."""
    inventory = tmp_path_factory.mktemp("inventory") / NAME
    if any(traces(NAME).values()):  # of a run that was cut off
        assert toolkit("lab", "down", "--name", NAME).returncode == 0
    up = toolkit("lab", "up", "--os", "debian13", "--name", NAME, "--nodes", "3", "--inventory", inventory)
    try:
        assert up.returncode == 0, up.stderr
        foreign.make(Lab(NAME, inventory))
        foreign.begin_jobs(Lab(NAME, inventory))
        site: Path = foreign.inventory_of(inventory, inventory.parent / "site", slurm_pool={"join": foreign.JOIN})
        lab = Lab(NAME, site)
        done = lab.playbook(name="playbooks/pool.yml")
        assert done.returncode == 0, done.stdout[-6000:]
        foreign.add_lines(lab)
        until(lambda: needed(lab), [], 60)
        theirs = foreign.theirs(lab)
        done = toolkit("deploy", "-i", site, "--", *foreign.CONSENT, timeout_s=1800)
        assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
        yield Joined(lab, theirs)
    finally:
        assert toolkit("lab", "down", "--name", NAME).returncode == 0


def ended(lab: Lab) -> None:
    """Their controller has no lease any more, nothing of one is on the server, and no Epilog has drained it."""
    until(lambda: shell(lab, "head", WAITING).strip(), "", 90)
    until(lambda: shell(lab, "gpu1", LEFT).strip(), "", 60)
    assert shell(lab, "head", "sinfo -h -N -n gpu1 -o %T").split()[0] in ("mixed", "idle")


def test_it_is_their_24_11_and_nothing_of_it_was_touched(joined: Joined) -> None:
    assert shell(joined.lab, "head", "sinfo --version").split()[1].startswith("24.11.")
    assert foreign.changed(joined.theirs, foreign.theirs(joined.lab)) == []


@pytest.mark.parametrize("share", ["", "-p 1/4 ", "-n 2 -p 1/4 ", "-n 2 "], ids=["GPU", "part", "parts", "GPUs"])
def test_a_lease_runs_and_ends(joined: Joined, share: str) -> None:
    code, said = run_as(joined.lab, "alice", f"toolkit run {share}-- nvidia-smi -L", node="head")
    assert code == 0, said
    assert said.count("GPU ") >= (2 if "-n 2" in share else 1), said
    ended(joined.lab)


@pytest.mark.parametrize("how", ["scancel $number", "toolkit lease release $number"], ids=["scancel", "release"])
def test_a_lease_that_is_cancelled_ends_by_their_epilog(joined: Joined, how: str) -> None:
    lab = joined.lab
    hold(lab, "head", "alice", "toolkit run --no-kernels -p 1/2 -- sleep 600")
    until(lambda: bool(held(lab, "head") and shell(lab, "gpu1", LEFT).strip()), True, 90)
    code, said = run_as(lab, "alice", "toolkit gpus --json", node="head")
    assert code == 0, said
    assert {gpu["node"] for gpu in json_in(said)["gpus"]} == {"gpu1"}
    shell(lab, "head", f"number=$({WAITING}); runuser -u alice -- {how}")
    ended(lab)
    until(lambda: lab.processes("head", "sleep 600"), "", 60)


def test_their_jobs_go_on(joined: Joined) -> None:
    now = foreign.theirs(joined.lab)["nodes"]
    assert now == joined.theirs["nodes"], foreign.changed(joined.theirs["nodes"], now)
