"""The end of a deployment: one line for each node, and the exit code."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from toolkit.deploy.running import Deployment
from toolkit.deploy.watch import DeployWatch, NodeState
from toolkit.exits import Exit


@dataclass(frozen=True)
class Ending:
    """What is printed, and with what the command ends."""

    lines: tuple[str, ...]
    exit_code: Exit
    error: str = ""


def again(job: Deployment) -> str:
    """The command that goes on."""
    limit = ["--limit", job.limit] if job.limit else []
    rest = ["--", *job.arguments] if job.arguments else []
    check = ["--check"] if job.check else []
    return shlex.join(["toolkit", "deploy", "-i", str(job.inventory), *limit, *check, *rest])


def ending(job: Deployment, watch: DeployWatch, status: int, interrupted: bool) -> Ending:
    """Judge a run that is over."""
    if watch.unmatched_limit:
        return Ending((), Exit.USAGE, f"{watch.unmatched_limit}; nothing was changed; correct --limit")
    interrupted = interrupted and (status != 0 or watch.stats is None)  # it may have come after the end
    lines = tuple(node_line(job, watch, host, interrupted) for host in sorted(watch.nodes))
    if interrupted:
        return Ending(lines, Exit.INTERRUPTED)
    if any(watch.outcome(host) != "ok" for host in watch.nodes):
        return Ending(lines, Exit.FAILED)
    if status != 0 or watch.stats is None:
        said = watch.complaint() or f"ansible-playbook ended with status {status} and gave no reason"
        return Ending(lines, Exit.USAGE, said)
    if not watch.nodes:
        return Ending((), Exit.USAGE, f"{job.inventory}: no node of it belongs to any stage; nothing was done")
    return Ending(lines, Exit.OK)


def node_line(job: Deployment, watch: DeployWatch, host: str, interrupted: bool) -> str:
    """`gpu1  ok: changed docker 3, horovod 9`, or what stopped it and what to do next."""
    node = watch.nodes[host]
    width = max(len(name) for name in watch.nodes)
    outcome = watch.outcome(host)
    what = changes(node, job.check)
    if outcome != "ok":
        failure = node.failure
        reason = f"{failure.place}: {failure.message}" if failure else "Ansible gave no reason"
        address = "see that it is on and that ssh reaches it" if outcome == "unreachable" else "correct that"
        text = f"{outcome.upper()} at {reason.rstrip('.')}. Next: {address}, then: {again(job)}"
    elif interrupted:
        text = f"interrupted; {what}"
    elif not watch.reached_the_end(host):
        text = f"not finished: Ansible stopped in stage {watch.stage_name}; {what}"
    else:
        text = f"ok: {what}"
    return f"{host.ljust(width)}  {text}"


def changes(node: NodeState, check: bool) -> str:
    """`changed base 4, docker 2`, by role and number of tasks."""
    if not node.changed:
        return "nothing to change" if check else "nothing changed"
    word = "would change" if check else "changed"
    return f"{word} " + ", ".join(f"{role} {count}" for role, count in node.changed.items())
