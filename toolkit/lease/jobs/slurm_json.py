"""Slurm's jobs as `squeue --json` prints them, read strictly.

A user chooses the name, the comment and the paths of a job. In Slurm's text for people such words can pass for Slurm's
own; in JSON they stay within one string, whatever they are. Two forms are read: plain values (Slurm 21.08 and 22.05,
openapi/v0.0.37 and v0.0.38) and {set, infinite, number} objects with lists of states (23.02 and later, data_parser).

What no user can bring about (a key that is missing, of another type or there twice, two jobs of one number) makes the
whole answer one LeaseError. What a user might is that job's alone: `SlurmJob.problem`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from toolkit.lease import Exit, LeaseError
from toolkit.lease.jobs.slurm_lists import expand_hosts, tres
from toolkit.lease.jobs.slurm_text import ENDED, Held, SlurmError, SlurmJob, Unclear, parse_gres
from validation.base.counting import number_of

#: Slurm's NO_VAL and INFINITE as unsigned 32-bit numbers: not set, and no limit. From slurm.h.
_NO_NUMBER = (0xFFFFFFFE, 0xFFFFFFFF)
#: Flags that are a job's state as users see it, whatever its base state is; the first that is there. From
#: job_state_string() of slurm_protocol_defs.c.
_FLAGS_FIRST = ("COMPLETING", "CONFIGURING", "STAGE_OUT", "RESIZING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")
_BASE = ("PENDING", "RUNNING", "SUSPENDED", *ENDED)
_STATE = re.compile(r"[A-Z_]+")


def _fault(words: str) -> LeaseError:
    return LeaseError(f"the answer of squeue --json cannot be used: {words}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the document; LeaseError for a key that is there twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, _ in pairs if [k for k, _ in pairs].count(key) > 1)
        raise _fault(f"{_clean(twice)[:40]} is there twice in one object")
    return found


def _clean(text: str) -> str:
    """A string of the document, printable anywhere: what is not UTF-8 stays visible as an escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _value(job: Mapping[str, Any], key: str) -> Any:
    if key not in job:
        raise _fault(f"a job has no {key}; this release of Slurm does not say enough for leases (21.08 and later do)")
    return job[key]


def _text(job: Mapping[str, Any], key: str) -> str:
    """A string, '' for null."""
    value = _value(job, key)
    if value is not None and not isinstance(value, str):
        raise _fault(f"{key} of a job is no text")
    return _clean(value or "")


def _plain(value: Any, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _fault(f"{key} of a job is no number")
    return value


def _number(job: Mapping[str, Any], key: str) -> int | None:
    """A number in either form; None where it is not set or infinite."""
    value = _value(job, key)
    if isinstance(value, dict):
        if not all(isinstance(value.get(flag), bool) for flag in ("set", "infinite")):
            raise _fault(f"{key} of a job is no number")
        none = value["infinite"] or not value["set"]
        if none and value.get("number") is None:
            return None
        number = _plain(value.get("number"), key)
        return None if none else number
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return None if value is None or value in _NO_NUMBER else _plain(value, key)


def _certain(job: Mapping[str, Any], key: str) -> int:
    """A number that every job has."""
    number = _number(job, key)
    if number is None:
        raise _fault(f"a job has no {key}")
    return number


def _state(job: Mapping[str, Any]) -> str:
    """One word in either form."""
    value = _value(job, "job_state")
    words = value if isinstance(value, list) else [value]
    if not words or not all(isinstance(word, str) and _STATE.fullmatch(word) for word in words):
        raise _fault("job_state of a job is none")
    base = next((word for word in words if word in _BASE), words[0])
    return next((flag for flag in _FLAGS_FIRST if flag in words), str(base))


def _held(job: Mapping[str, Any], nodes: tuple[str, ...]) -> tuple[Held, ...]:
    """GPUs of each node. Unclear where they cannot be told."""
    details = _value(job, "gres_detail")
    details = [] if details is None else details
    if not isinstance(details, list) or not all(isinstance(detail, (str, type(None))) for detail in details):
        raise _fault("gres_detail of a job is no list of texts")
    if not any(details):
        _refuse_silence(job, nodes)
        return ()
    if len(details) != len(nodes):
        raise Unclear(f"Slurm reports GPUs on {number_of(len(details), 'server')}, and the job has {len(nodes)}")
    return tuple(held for node, detail in zip(nodes, details) for held in parse_gres(node, detail or ""))


def _refuse_silence(job: Mapping[str, Any], nodes: tuple[str, ...]) -> None:
    """Unclear where Slurm counts GPUs of a job that is on nodes, and does not tell which: so where gres.conf names no
    device files."""
    counted = job.get("tres_alloc_str")
    held = [f"{n} {name}s" for name in ("gpu", "shard", "mps") if (n := tres(str(counted or ""), f"gres/{name}"))]
    if held and nodes and _state(job) not in ("PENDING", *ENDED):
        if _state(job) == "COMPLETING":  # as Slurm 24.11 does while the Epilog runs
            raise Unclear(f"it is ending, and Slurm no longer says which of its {', '.join(held)} are given back here")
        raise Unclear(f"Slurm counts {', '.join(held)} for it on {', '.join(nodes)[:80]}, and does not say which")


def _job(job: object) -> SlurmJob:
    if not isinstance(job, dict):
        raise _fault("a job is no object")
    uid, minutes, problem = _certain(job, "user_id"), _number(job, "time_limit"), ""
    try:
        nodes = expand_hosts(_text(job, "nodes"))
    except LeaseError:
        raise _fault("nodes of a job is no list of hosts") from None
    try:
        held = _held(job, nodes)
    except Unclear as fault:
        held, problem = (), str(fault)
    return SlurmJob(
        id=_certain(job, "job_id"),
        name=_text(job, "name"),
        user=_text(job, "user_name") or f"uid {uid}",
        uid=uid,
        state=_state(job),
        reason=_text(job, "state_reason"),
        partition=_text(job, "partition"),
        start=_number(job, "start_time") or None,
        end=_number(job, "end_time") or None,
        time_limit_s=None if minutes is None else minutes * 60,
        held=held,
        comment=_text(job, "comment"),
        admin_comment=_text(job, "admin_comment"),
        submitted=(_number(job, "submit_time") or None) if "submit_time" in job else None,
        array=_number(job, "array_job_id") or None,
        task=_number(job, "array_task_id") or 0,
        nodes=nodes,
        qos=_text(job, "qos"),
        memory_mib=_number(job, "memory_per_node"),
        cpus=_number(job, "cpus") if "cpus" in job else None,
        preempted=bool(_number(job, "preempt_time")),
        account=_text(job, "account"),
        restarts=(_number(job, "restart_cnt") or 0) if "restart_cnt" in job else 0,
        priority=(_number(job, "priority") or 0) if "priority" in job else 0,
        problem=problem,
    )


def parse_jobs(answer: bytes) -> list[SlurmJob]:
    """All jobs of an answer. LeaseError when it is none, or when Slurm says in it that something failed."""
    try:
        data = json.loads(answer.decode("utf-8", "surrogateescape"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as fault:
        words = "squeue --json is not JSON here: this Slurm was built without it, or prints something else"
        raise LeaseError(f"{words} ({_clean(str(fault))[:80]})") from None
    if not isinstance(data, dict) or not isinstance(data.get("jobs"), list) or not isinstance(data.get("errors"), list):
        raise _fault("it has no jobs and errors")
    if data["errors"]:
        raise SlurmError(_words(data["errors"][0]), Exit.RETRY, before="Slurm does not answer: ")
    jobs = [_job(job) for job in data["jobs"]]
    numbers = [job.id for job in jobs]
    if len(set(numbers)) != len(numbers):
        raise _fault("two jobs have the same number")
    return jobs


def _words(error: object) -> str:
    """What an entry of `errors` says, in one line."""
    told = error if isinstance(error, dict) else {}
    words = [_clean(told[key]) for key in ("description", "error") if isinstance(told.get(key), str)]
    return " ".join(" ".join(words).split())[:200] or "it reports an error"
