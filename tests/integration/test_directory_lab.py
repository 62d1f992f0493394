"""Users of a real directory (slapd, sssd) on a lab's head: classes by groups, quotas, and who leaves.

A lab of its own with a head and a server. A directory that is away, with a part of it in the cache, changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, Lab, call, toolkit

from tests.support import directory_lab
from tests.support.lease_lab import json_in, shell, until
from tests.support.traces import traces

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
LAB = "directory"
AFTER_S = 65.0  # the policy says a minute
POLICY = """slurm_pool:
  users:
    teaching: {groups: [students], max_gpus_per_user: 2, max_submitted: 20, max_hours: 2}
    research: {groups: [staff-ldap], max_hours: 24}
  leavers: {running: finish, grace_s: 30, after_minutes: 1}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Lab]:
    toolkit("lab", "down", "--name", LAB)  # of a run that was cut off
    up = toolkit("lab", "up", "--name", LAB, "--nodes", "2", "--inventory", tmp_path / "inventory")
    assert up.returncode == 0, up.stderr
    try:
        lab = Lab(LAB, tmp_path / "inventory")
        file = lab.inventory / "group_vars/all/pool.yml"
        file.parent.mkdir(parents=True)
        file.write_text(POLICY)
        books = ["playbooks/base.yml", "playbooks/pool.yml"]
        done = call([BIN / "ansible-playbook", *books, "-i", lab.inventory], timeout_s=1800)
        assert done.returncode == 0, done.stdout[-6000:]
        directory_lab.install(lab)
        yield lab
    finally:
        down = toolkit("lab", "down", "--name", LAB)
    assert down.returncode == 0, down.stderr
    assert not any(traces(LAB).values())


def synced(lab: Lab) -> Any:
    """One pass."""
    return json_in(shell(lab, "head", "elastic-ai-pool-sync"))


def asked(lab: Lab, user: str, words: str = "--gres=gpu:2") -> str:
    """What sbatch says to the user: a number, or why not."""
    job = f"cd /; runuser -u {user} -- sbatch --parsable {words} --mem=16 -t 60 -o /dev/null --wrap 'sleep 3000'"
    return shell(lab, "head", f"{job} 2>&1 || true").strip()


def classes(lab: Lab) -> set[str]:
    """user:class:MaxJobs of each association."""
    said = shell(lab, "head", "sacctmgr -nP show assoc format=User,Account,MaxJobs")
    return {line.replace("|", ":") for line in said.splitlines() if line.split("|")[0] in directory_lab.PEOPLE}


def states(lab: Lab, *jobs: str) -> list[str]:
    """Of jobs, as the controller has them."""
    said = shell(lab, "head", f"squeue --noheader --states=all --format='%A|%T' --jobs={','.join(jobs)}")
    found = dict(line.split("|") for line in said.splitlines())
    return [found[job] for job in jobs]


def test_classes_quotas_and_who_leaves(site: Lab) -> None:
    leaves(site)


def leaves(lab: Lab) -> None:
    """All of it, on a lab with its directory."""
    synced(lab)
    everybody = {"dora:teaching:", "emil:teaching:", "finn:teaching:", "gina:research:"}
    assert classes(lab) == everybody
    # quotas
    assert not asked(lab, "dora", "--gres=gpu:3").isdigit(), "three GPUs are more than the class ever gives"
    jobs = [asked(lab, user) for user in ("dora", "dora", "emil", "emil")]
    assert all(job.isdigit() for job in jobs), jobs
    running = ["RUNNING", "PENDING", "RUNNING", "PENDING"]
    until(lambda: states(lab, *jobs), running, 60)
    # away
    directory_lab.away(lab)
    for _ in range(3):
        said = synced(lab)
        assert (said["changed"], classes(lab), states(lab, *jobs)) == ([], everybody, running)
        assert any("sssd does not say that its domain lab is online" in word for word in said["waiting"]), said
        time.sleep(AFTER_S / 2)
    directory_lab.here(lab)
    assert synced(lab) == {"changed": [], "waiting": []}
    # one leaves the group, another the directory
    directory_lab.membership(lab, "delete", "students", "dora")
    directory_lab.deleted(lab, "emil")
    said = synced(lab)
    assert said["changed"] == []
    assert sum("as the directory may err" in word for word in said["waiting"]) == 2, said
    time.sleep(AFTER_S)
    said = synced(lab)
    assert classes(lab) == {"dora:teaching:0", "emil:teaching:0", "finn:teaching:", "gina:research:"}, said
    assert states(lab, *jobs) == ["RUNNING", "CANCELLED", "RUNNING", "CANCELLED"], said
    words = shell(lab, "head", f"scontrol show job {jobs[1]}; scontrol show job {jobs[3]}")
    assert words.count("is no longer in class teaching") == 2, words
    # she starts nothing more
    late = asked(lab, "dora", "--gres=gpu:1")
    time.sleep(5)
    assert not late.isdigit() or states(lab, late) == ["PENDING"]
    synced(lab)
    assert not late.isdigit() or states(lab, late) == ["CANCELLED"]
    # what ran ends, and they are gone
    shell(lab, "head", f"scancel {jobs[0]} {jobs[2]}")
    until(lambda: shell(lab, "head", "squeue --noheader").strip(), "", 60)
    until(lambda: synced(lab)["waiting"], [], 60)
    assert classes(lab) == {"finn:teaching:", "gina:research:"}
    assert not asked(lab, "dora").isdigit()
    # and one comes back
    directory_lab.membership(lab, "add", "students", "dora")
    synced(lab)
    assert classes(lab) == {"dora:teaching:", "finn:teaching:", "gina:research:"}
