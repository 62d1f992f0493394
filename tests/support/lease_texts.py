"""Slurm's answers for tests of leases: jobs in both forms of `squeue --json`, and the text of nodes. Constructed; what
Slurm really said is in tests/data/lease."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from toolkit.lease.jobs.slurm_json import parse_jobs
from toolkit.lease.jobs.slurm_text import SlurmJob

COMMENT = (
    '{"elastic-ai-lease":1,"clients":["10.77.1.12","10.78.1.12"],"host":"client1","mode":"run","what":"1/2 GPU",'
    '"ttl_s":0,"memory_mib":0}'
)
#: 2026-11-21 15:00 UTC.
START = 1795273200
#: Numbers that data_parser wraps; job_id and user_id are plain in both forms.
_WRAPPED = (
    "array_job_id", "array_task_id", "end_time", "start_time", "submit_time", "time_limit", "het_job_id",
    "preempt_time", "memory_per_node",
)  # fmt: skip
#: Fields of a job that its user shapes, in both forms.
USERS_FIELDS = (
    "name", "comment", "current_working_directory", "command", "dependency", "features", "batch_features", "licenses",
    "mcs_label", "required_nodes", "excluded_nodes", "standard_error", "standard_input", "standard_output", "wckey",
    "tres_per_node", "tres_bind", "burst_buffer", "array_task_string", "account", "resv_name", "state_description",
)  # fmt: skip
PLAIN, OBJECTS = "plain", "objects"
FORMS = (PLAIN, OBJECTS)
Job = dict[str, Any]


def slurm_job(
    job: int = 41,
    name: str = "elastic-ai-lease",
    comment: str | None = COMMENT,
    gres: str | Sequence[str] = "shard:v100:70(IDX:2)",
    node: str = "gpu1",
    state: str = "RUNNING",
    array: int = 0,
    task: int | None = None,
    user: str = "alice",
    uid: int = 1001,
    end: int | None = START + 3600,
    minutes: int | None = 60,
    **more: Any,
) -> list[Job]:
    """One job as Slurm 22.05 says it, in a list, so that jobs add up. gres "": none, for a job that waits."""
    fields: Job = dict.fromkeys(USERS_FIELDS, "")
    fields |= {
        "job_id": job,
        "array_job_id": array,
        "array_task_id": task,
        "name": name,
        "comment": comment,
        "admin_comment": "",
        "user_id": uid,
        "user_name": user,
        "job_state": state,
        "state_reason": "None",
        "partition": "v100",
        "qos": "normal",
        "nodes": node if gres else None,
        "gres_detail": ([gres] if isinstance(gres, str) else list(gres)) if gres else [],
        "start_time": START,
        "end_time": end,
        "time_limit": minutes,
        "submit_time": START,
        "preempt_time": 0,
        "restart_cnt": 0,
        "memory_per_node": 4096,
        "current_working_directory": "/",
        "standard_output": "/dev/null",
        "tres_per_node": "gres:shard:70",
    }
    return [fields | more]


def _wrapped(job: Job) -> Job:
    """The same job as later releases say it."""
    later = {key: "" if value is None else value for key, value in job.items()}
    for key in _WRAPPED:
        if key in job:
            number = job[key]
            infinite = number is None and key == "time_limit"
            later[key] = {"set": number is not None, "infinite": infinite, "number": number or 0}
    return later | {"job_state": [job["job_state"]]}


def answer(jobs: Sequence[Job], form: str = PLAIN, errors: Sequence[Job] = ()) -> bytes:
    """`squeue --json`. Bytes that are no UTF-8 (surrogates, as Python has them) stay as they are, as json-c does it."""
    said = [_wrapped(job) if form == OBJECTS else job for job in jobs]
    text = json.dumps({"meta": {}, "errors": list(errors), "jobs": said}, ensure_ascii=False, indent=3)
    return text.encode("utf-8", "surrogateescape")


def jobs_of(jobs: Sequence[Job], form: str = PLAIN) -> list[SlurmJob]:
    """As the toolkit reads them."""
    return parse_jobs(answer(jobs, form))


def node_text(
    name: str = "gpu1", state: str = "MIXED", gres: str = "gpu:v100:4,shard:v100:560", reason: str = ""
) -> str:
    """`scontrol show node` of one node."""
    why = f"   Reason={reason} [root@1795273200]\n" if reason else ""
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=2 \n"
        "   CPUAlloc=1 CPUEfctv=2 CPUTot=2 CPULoad=0.40\n"
        "   AvailableFeatures=(null)\n"
        "   ActiveFeatures=(null)\n"
        f"   Gres={gres}\n"
        f"   NodeAddr=10.77.1.13 NodeHostName={name} Version=22.05.8\n"
        "   OS=Linux 6.1.0 #1 SMP Debian \n"
        "   RealMemory=22784 AllocMem=16 FreeMem=20000 Sockets=1 Boards=1\n"
        f"   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n"
        "   Partitions=all,v100 \n"
        "   BootTime=1795269600 SlurmdStartTime=1795269610\n"
        "   CfgTRES=cpu=2,mem=22784M,billing=2,gres/gpu=4,gres/shard=560\n"
        f"{why}"
        "\n"
    )
