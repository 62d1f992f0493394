"""What a deployment did, as a document: from what the watch folded of Ansible's events, and who ran which commit."""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone

from toolkit.deploy.outcome import Ending
from toolkit.deploy.running import Deployment as Job
from toolkit.deploy.watch import DeployWatch
from toolkit.exits import Exit
from validation.base import project
from validation.model.built import MOST_TASKS, Deployment, NodeBuilt
from validation.rules.release import release

_PARTIAL = ("--tags", "-t", "--skip-tags", "--start-at-task")
"""Options of ansible-playbook that leave parts of the site out; their values are names of tags and tasks."""


def utc_now() -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def deployment(
    job: Job,
    watch: DeployWatch,
    end: Ending,
    interrupted: bool,
    began: str,
    ended: str,
    left_out: Mapping[str, Sequence[str]],
) -> Deployment:
    """The document. `began` and `ended` are ISO 8601 in UTC; `left_out`: node -> why preflight refused it."""
    partial = list(_partial(job.arguments))
    commit, modified = project.commit()
    return Deployment(
        inventory=str(job.inventory),
        who=who(),
        began=began,
        ended=ended,
        toolkit_version=release(),
        commit=commit,
        modified=modified,
        check=job.check,
        limit=job.nodes,
        options=tuple(" ".join(words) for words in partial),
        other_options=len(job.arguments) - sum(map(len, partial)),
        stages=tuple(stage.name for stage in watch.stages),
        finished=watch.stats is not None,
        interrupted=interrupted and end.exit_code == Exit.INTERRUPTED,
        error=end.error,
        nodes=(
            *(_node(watch, host) for host in sorted(watch.nodes)),
            *(_refused(host, left_out[host]) for host in sorted(left_out)),
        ),
    )


def who() -> str:
    """`anna@controller`, of who called sudo where somebody did."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        user = str(os.getuid())
    return f"{user}@{platform.node()}"


def _partial(arguments: Sequence[str]) -> Iterator[list[str]]:
    rest = iter(arguments)
    for word in rest:
        name, given, _ = word.partition("=")
        if name in _PARTIAL:
            yield [word] if given else [word, next(rest, "")]


def _refused(host: str, reasons: Sequence[str]) -> NodeBuilt:
    return NodeBuilt(node=host, outcome="failed", ok=0, changed=0, failure=f"preflight: {'; '.join(reasons)}")


def _node(watch: DeployWatch, host: str) -> NodeBuilt:
    node, outcome = watch.nodes[host], watch.outcome(host)
    roles, tasks = dict(node.changed), list(node.tasks)
    recap = {key: counts.get(host, 0) for key, counts in (watch.stats or {}).items()}
    beside = recap.get("changed", 0) - sum(roles.values())
    if beside > 0:  # Ansible counts tasks that failed, and were to be ignored, as changed too
        roles["ignored failures"] = beside
        tasks.append("a task that failed and was to be ignored")
    failure = f"{node.failure.place}: {node.failure.message}" if node.failure and outcome != "ok" else ""
    return NodeBuilt(
        node=host,
        outcome=outcome if outcome != "ok" or watch.reached_the_end(host) else "not-finished",
        ok=recap.get("ok", 0),
        changed=sum(roles.values()),
        roles=roles,
        tasks=tuple(tasks[:MOST_TASKS]),
        failure=failure,
        reboot=node.reboot if outcome == "ok" else (),
    )
