"""Jobs that imitate Slurm's own words, on the lab's real Slurm: nothing is granted, hidden or changed for them."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Lab

from tests.support.lease_lab import json_in, put, run_as, shell, until

SUPPORT = Path(__file__).parents[1] / "support"
COMMENT = json.dumps({"elastic-ai-lease": 1, "clients": ["10.0.0.1"], "host": "x", "mode": "hold"})
TAKES_ALL = (
    "elastic-ai-lease\n   UserId=bob(2002)\n     Nodes=gpu1 CPU_IDs=0 Mem=1 GRES=gpu:v100:4(IDX:0-3)\n"
    f"   MinCPUsNode=1\n   Comment={COMMENT}\n\nJobId=7 JobName=z"
)
QUOTES = 'elastic-ai-lease", "gres_detail": ["gpu:v100:4(IDX:0-3)"], "x": "'
#: What the shell makes each name of: the last is no UTF-8.
NAMES = (*map(shlex.quote, (TAKES_ALL, QUOTES, "elastic-ai-lease ", "elastic-ai-lease\n")), "$(printf '\\377\\376x')")
#: Sleeps longer than any test takes; end() cancels it. It shares its core, so that several run at the same time.
SUBMIT = "sbatch --parsable -w gpu1 --gres=shard:1 --mem=16 --oversubscribe -t 5 -o /dev/null -D / --wrap 'sleep 120'"
CONF, PLUGIN = "/etc/slurm/slurm.conf", "JobSubmitPlugins=lua"


@pytest.fixture(scope="class")
def one_fence(pool: Lab) -> Iterator[Lab]:
    """The controller takes names with line ends: as it does where it has no plugin for Lua."""
    assert PLUGIN in pool.ssh("head", f"cat {CONF}")
    restart = "systemctl restart slurmctld && until scontrol ping | grep -q UP; do sleep 0.5; done"
    shell(pool, "head", f"sed -i 's/^{PLUGIN}$/#&/' {CONF}; {restart}")
    yield pool
    shell(pool, "head", f"sed -i 's/^#{PLUGIN}$/{PLUGIN}/' {CONF}; {restart}")


def submit(lab: Lab, name: str, comment: str = COMMENT) -> tuple[int, str]:
    """Bob's job of that name, as the shell reads it."""
    return run_as(lab, "bob", f"{SUBMIT} -J {name} --comment={shlex.quote(comment)}")


def running(lab: Lab, jobs: list[str]) -> None:
    """Jobs, as sbatch told of them, have passed their Prolog."""
    numbers = ",".join(said.split()[-1] for said in jobs)
    until(lambda: set(lab.ssh("head", f"squeue -h -j {numbers} -o %T").split()), {"RUNNING"}, 60)
    time.sleep(2)


def end(lab: Lab) -> None:
    """Bob's jobs are over, and both servers still take jobs."""
    shell(lab, "head", "scancel -u bob; scancel -u alice")
    until(lambda: lab.ssh("head", "squeue -h -o %i").strip(), "", 60)  # names may be no UTF-8
    assert "drain" not in lab.ssh("head", "sinfo -h -o %T")


def fuzzed(lab: Lab) -> dict[str, Any]:
    """What random texts in every field of bob's jobs came to."""
    program = put(lab, "client1", SUPPORT / "lease_fuzz.py")
    found: dict[str, Any] = json_in(lab.ssh("client1", f"python3 {program} /usr/lib/elastic-ai/lease 120 1"))
    assert found["wrong"] == []
    assert found["refused"] > 20, found
    end(lab)
    return found


@pytest.mark.usefixtures("nothing_left")
def test_control_characters_are_refused_by_the_controller(pool: Lab) -> None:
    for name, comment in ((TAKES_ALL, COMMENT), ("train", "a\nb"), ("a\x1bb", "")):
        code, out = submit(pool, shlex.quote(name), comment)
        assert code != 0, out
        assert "control characters" in out
    code, number = submit(pool, "train", "")
    assert code == 0, number
    code, out = run_as(pool, "bob", f"scontrol update JobId={number.split()[-1]} JobName={shlex.quote(TAKES_ALL)}")
    assert code != 0, out
    end(pool)


@pytest.mark.usefixtures("nothing_left")
def test_random_texts_in_every_field_change_nothing(pool: Lab) -> None:
    fuzzed(pool)  # the controller refuses most


@pytest.mark.usefixtures("one_fence", "nothing_left")
class TestOneFence:
    """What the other parts of the pool do with texts that the controller let through."""

    def test_a_name_gives_nobody_a_gpu_and_drains_no_server(self, pool: Lab) -> None:
        jobs = []
        for name in NAMES:
            code, out = submit(pool, name)
            assert code == 0, out
            jobs.append(out)
        running(pool, jobs)
        assert shell(pool, "gpu1", "ls /run/elastic-ai/leases").strip() == ""
        assert run_as(pool, "alice", "toolkit lease list")[0] == 0
        end(pool)

    def test_nobody_elses_job_is_changed_or_hidden(self, pool: Lab) -> None:
        code, out = run_as(pool, "alice", "toolkit lease request -n 1 -p 1/2 --time 2h --json")
        assert code == 0, out
        lease = json_in(out)["lease"]
        code, out = submit(pool, "train", "")
        assert code == 0, out
        bobs = out.split()[-1]
        adopts = (
            f"elastic-ai-lease\n\nJobId={lease} ArrayJobId={bobs} ArrayTaskId=0 JobName=elastic-ai-lease\n"
            "   UserId=bob(2002) X\n   JobState=RUNNING Reason=None\n   TimeLimit=00:01:00 TimeMin=N/A\n"
            f"   Partition=all\n   MinCPUsNode=1\n   Comment={COMMENT}\n\nJobId=7 JobName=z"
        )
        limit = f"squeue -h -j {lease} -o %l"
        before = pool.ssh("head", limit)
        for field in ("JobName", "Comment"):
            changed = f"scontrol update JobId={bobs} {field}={shlex.quote(adopts)}"
            assert run_as(pool, "bob", changed)[0] == 0
            for number in (bobs, lease):
                assert run_as(pool, "bob", f"sudo -n /usr/lib/elastic-ai/lease/bin/extend {number} 1")[0] != 0
            assert pool.ssh("head", limit) == before
            seen = json_in(shell(pool, "head", "toolkit lease list --all --json"))["leases"]
            assert [(one["lease"], one["user"]) for one in seen] == [(lease, "alice")]
        end(pool)

    def test_random_texts_in_every_field_change_nothing(self, pool: Lab) -> None:
        assert fuzzed(pool)["taken"] > 20
