"""Jobs that imitate Slurm's own words, on the lab's real Slurm: nothing is granted, hidden or changed for them."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

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
#: Sleeps longer than any test takes; end() cancels it.
SUBMIT = "sbatch --parsable -w gpu1 --gres=shard:1 --mem=16 -t 5 -o /dev/null -D / --wrap 'sleep 120'"
CONF, PLUGIN = "/etc/slurm/slurm.conf", "JobSubmitPlugins=lua"


@pytest.fixture
def one_fence(pool: Lab) -> Iterator[Lab]:
    """The controller takes names with line ends: as it does where it has no plugin for Lua."""
    assert PLUGIN in pool.ssh("head", f"cat {CONF}")
    restart = "systemctl restart slurmctld && until scontrol ping | grep -q UP; do sleep 0.5; done"
    shell(pool, "head", f"sed -i 's/^{PLUGIN}$/#&/' {CONF}; {restart}")
    yield pool
    shell(pool, "head", f"sed -i 's/^#{PLUGIN}$/{PLUGIN}/' {CONF}; {restart}")


def submit(lab: Lab, name: str, comment: str = COMMENT, user: str = "bob") -> tuple[int, str]:
    return run_as(lab, user, f"{SUBMIT} -J {shlex.quote(name)} --comment={shlex.quote(comment)}")


def running(lab: Lab, said: str) -> None:
    """The job that sbatch told of has passed its Prolog."""
    until(lambda: lab.ssh("head", f"squeue -h -j {said.split()[-1]} -o %T").strip(), "RUNNING", 60)
    time.sleep(2)


def end(lab: Lab) -> None:
    """Bob's jobs are over, and both servers still take jobs."""
    shell(lab, "head", "scancel -u bob; scancel -u alice")
    until(lambda: lab.ssh("head", "squeue -h").strip(), "", 60)
    assert "drain" not in lab.ssh("head", "sinfo -h -o %T")


@pytest.mark.usefixtures("nothing_left")
def test_control_characters_are_refused_by_the_controller(pool: Lab) -> None:
    for name, comment in ((TAKES_ALL, COMMENT), ("train", "a\nb"), ("a\x1bb", "")):
        code, out = submit(pool, name, comment)
        assert code != 0, out
        assert "control characters" in out
    code, number = submit(pool, "train", "")
    assert code == 0, number
    code, out = run_as(pool, "bob", f"scontrol update JobId={number.split()[-1]} JobName={shlex.quote(TAKES_ALL)}")
    assert code != 0, out
    end(pool)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", [TAKES_ALL, QUOTES, "elastic-ai-lease ", "elastic-ai-lease\n"])
def test_a_name_gives_nobody_a_gpu(one_fence: Lab, name: str) -> None:
    code, out = submit(one_fence, name)
    assert code == 0, out
    running(one_fence, out)
    assert shell(one_fence, "gpu1", "ls /run/elastic-ai/leases").strip() == ""
    end(one_fence)


@pytest.mark.usefixtures("nothing_left")
def test_a_name_that_is_no_utf8_drains_no_server(one_fence: Lab) -> None:
    code, out = run_as(one_fence, "bob", f"{SUBMIT} -J $(printf '\\377\\376x')")
    assert code == 0, out
    running(one_fence, out)
    assert run_as(one_fence, "alice", "toolkit lease list")[0] == 0
    end(one_fence)


@pytest.mark.usefixtures("nothing_left")
def test_nobody_elses_job_is_changed_or_hidden(one_fence: Lab) -> None:
    lab = one_fence
    code, out = run_as(lab, "alice", "toolkit lease request -n 1 -p 1/2 --hours 2 --json")
    assert code == 0, out
    lease = json_in(out)["lease"]
    code, out = submit(lab, "train", "")
    assert code == 0, out
    bobs = out.split()[-1]
    adopts = (
        f"elastic-ai-lease\n\nJobId={lease} ArrayJobId={bobs} ArrayTaskId=0 JobName=elastic-ai-lease\n"
        "   UserId=bob(2002) X\n   JobState=RUNNING Reason=None\n   TimeLimit=00:01:00 TimeMin=N/A\n   Partition=all\n"
        f"   MinCPUsNode=1\n   Comment={COMMENT}\n\nJobId=7 JobName=z"
    )
    limit = f"squeue -h -j {lease} -o %l"
    before = lab.ssh("head", limit)
    for field in ("JobName", "Comment"):
        changed = f"scontrol update JobId={bobs} {field}={shlex.quote(adopts)}"
        assert run_as(lab, "bob", changed)[0] == 0
        for number in (bobs, lease):
            assert run_as(lab, "bob", f"sudo -n /usr/lib/elastic-ai/lease/bin/extend {number} 1")[0] != 0
        assert lab.ssh("head", limit) == before
        seen = json_in(shell(lab, "head", "toolkit lease list --all --json"))["leases"]
        assert [(one["lease"], one["user"]) for one in seen] == [(lease, "alice")]
    end(lab)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("fences", ["one_fence", "pool"])
def test_random_texts_in_every_field_change_nothing(fences: str, request: pytest.FixtureRequest) -> None:
    lab = request.getfixturevalue(fences)
    program = put(lab, "client1", SUPPORT / "lease_fuzz.py")
    found = json_in(lab.ssh("client1", f"python3 {program} /usr/lib/elastic-ai/lease 120 1"))
    assert found["wrong"] == []
    assert found["refused"] > 20, found
    assert fences == "pool" or found["taken"] > 20, found  # with both fences most are refused
    end(lab)
