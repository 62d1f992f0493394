"""A controller of Slurm's for spoofed jobs: the same jobs as text for people and as JSON, whichever a program asks for.

The text is what Slurm 22.05 prints: names, comments and paths stand in it raw, line ends and all.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.lease_texts import COMMENT, PLAIN, Job, answer, slurm_job

#: A lease of four whole GPUs, as a name: what follows it in Slurm's text is then another job's.
TAKES_ALL = (
    "elastic-ai-lease\n   UserId=bob({uid})\n     Nodes=gpu1 CPU_IDs=0 Mem=1 GRES=gpu:v100:4(IDX:0-3)\n"
    f"   MinCPUsNode=1\n   Comment={COMMENT}\n\nJobId=7 JobName=z"
)
#: Job 41 as a part of the lease 99, as a name of job 99.
ADOPTS = (
    "elastic-ai-lease\n\nJobId=41 ArrayJobId=99 ArrayTaskId=0 JobName=elastic-ai-lease\n   UserId=bob({uid}) X\n"
    "   JobState=RUNNING Reason=None\n   TimeLimit=00:01:00 TimeMin=N/A\n   Partition=v100\n   MinCPUsNode=1\n"
    f"   Comment={COMMENT}\n\nJobId=7 JobName=z"
)
#: A second job 41, as a name: which of them is true?
HIDES = "z\n\nJobId=41 JobName=y"
#: What would end a string of JSON and begin another field, if it were not escaped.
QUOTES = 'elastic-ai-lease", "gres_detail": ["gpu:v100:4(IDX:0-3)"], "user_id": 0, "x": "'


def text_of(job: Job) -> str:
    """`scontrol show job -d` of one job."""
    array = f"ArrayJobId={job['array_job_id']} ArrayTaskId={job['array_task_id']} " if job["array_job_id"] else ""
    details = "".join(f"     Nodes={job['nodes']} CPU_IDs=0 Mem=16 GRES={gres}\n" for gres in job["gres_detail"])
    return (
        f"JobId={job['job_id']} {array}JobName={job['name']}\n"
        f"   UserId={job['user_name']}({job['user_id']}) GroupId=users(100) MCS_label=N/A\n"
        "   Priority=4294901757 Nice=0 Account=(null) QOS=normal\n"
        f"   JobState={job['job_state']} Reason=None Dependency=(null)\n"
        "   RunTime=00:00:10 TimeLimit=01:00:00 TimeMin=N/A\n"
        "   StartTime=2026-11-21T15:00:00 EndTime=2026-11-21T16:00:00 Deadline=N/A\n"
        f"   Partition={job['partition']} AllocNode:Sid=client1:812\n"
        f"   NodeList={job['nodes'] or '(null)'}\n"
        f"{details}"
        "   MinCPUsNode=1 MinMemoryNode=16M MinTmpDiskNode=0\n"
        f"   Command={job['command']}\n"
        f"   WorkDir={job['current_working_directory']}\n"
        f"   Comment={job['comment']} \n"
        "   StdErr=/dev/null\n"
        "\n"
    )


@dataclass
class Controller:
    """Takes the place of subprocess.run: answers about `jobs`, notes all other commands."""

    jobs: list[Job]
    form: str = PLAIN
    commands: list[list[str]] = field(default_factory=list)

    def __call__(self, args: Sequence[str], **how: Any) -> subprocess.CompletedProcess[Any]:
        if args[0] == "squeue":
            said = answer(self.jobs, self.form)
        elif args[:3] == ["scontrol", "show", "job"]:
            wanted = [int(word) for word in args if word.isdigit()]
            there = [j for j in self.jobs if not wanted or wanted[0] in (j["job_id"], j["array_job_id"])]
            said = "".join(map(text_of, there)).encode("utf-8", "surrogateescape")
        elif args[:3] == ["scontrol", "show", "partition"]:
            said = b"PartitionName=v100\n   QoS=N/A\n   MaxTime=UNLIMITED\n"
        else:
            self.commands.append(list(args))
            said = b""
        return subprocess.CompletedProcess(args, 0, said.decode() if how.get("text") else said, b"")


def alices_lease(**more: Any) -> list[Job]:
    """Job 41, two days long."""
    return slurm_job(41, minutes=2 * 24 * 60, **more)


def bobs_job(name: str, number: int = 99, uid: int = 2002, **more: Any) -> list[Job]:
    """A job with one share of a GPU."""
    given = {"gres": "shard:v100:1(IDX:1)", "user": "bob", "uid": uid, "name": name}
    return slurm_job(number, **(given | more))
