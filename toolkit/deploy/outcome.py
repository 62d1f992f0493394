"""The end of a deployment: one line for each node, and the exit code."""

from __future__ import annotations

import shlex
import textwrap
from dataclasses import dataclass, replace

from toolkit.deploy.running import Deployment
from toolkit.deploy.watch import DeployWatch, NodeState
from toolkit.exits import Exit
from validation.base.counting import be, number_of

_CONSENT = "reboot=if_needed"


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
    skip = ["--skip-unfit"] if job.skip_unfit else []
    return shlex.join(["toolkit", job.command, "-i", str(job.inventory), *limit, *check, *skip, *rest])


def afterwards(job: Deployment) -> str:
    """The command that comes after one that went through."""
    where = shlex.join(["-i", str(job.inventory)])
    if job.check:
        return again(replace(job, check=False))
    return f"toolkit validate --fabric NAME {where}" if job.command == "deploy" else f"toolkit deploy {where}"


def consenting(job: Deployment) -> Deployment:
    """The same job with consent to reboots."""
    given = any(word.endswith(_CONSENT) for word in job.arguments)
    return job if given else replace(job, arguments=(*job.arguments, "-e", _CONSENT))


def ending(job: Deployment, watch: DeployWatch, status: int, interrupted: bool) -> Ending:
    """Judge a run that is over."""
    if watch.unmatched_limit:
        return Ending((), Exit.USAGE, f"{watch.unmatched_limit}; nothing was changed; correct --limit")
    interrupted = interrupted and (status != 0 or watch.stats is None)  # it may have come after the end
    lines = tuple(node_line(job, watch, host, interrupted) for host in sorted(watch.nodes))
    if interrupted:
        return Ending(lines, Exit.INTERRUPTED)
    if watch.unfit:
        return Ending((*unfit_table(watch), *_untouched(job, watch)), Exit.FAILED)
    if any(watch.outcome(host) != "ok" for host in watch.nodes):
        return Ending(lines, Exit.FAILED)
    if status != 0 or watch.stats is None:
        said = watch.complaint() or f"ansible-playbook ended with status {status} and gave no reason"
        return Ending(lines, Exit.USAGE, said)
    if not watch.nodes:
        return Ending((), Exit.USAGE, f"{job.inventory}: no node of it belongs to any stage; nothing was done")
    return Ending(lines, Exit.INCOMPLETE if watch.waiting else Exit.OK)


def unfit_table(watch: DeployWatch) -> list[str]:
    """`gpu2  UNFIT: memory is ...`: every finding of every node that preflight refused, one on each line."""
    width = max(len(name) for name in watch.nodes)
    lines = []
    for host in watch.unfit:
        first, *more = watch.nodes[host].unfit
        lines.append(f"{host.ljust(width)}  UNFIT: {first}")
        lines += [f"{' ' * width}         {reason}" for reason in more]
    return lines


def _untouched(job: Deployment, watch: DeployWatch) -> list[str]:
    """What that means for the others."""
    fit = len(watch.nodes) - len(watch.unfit)
    found = (
        f"{len(watch.unfit)} of {number_of(len(watch.nodes), 'node')} {be(len(watch.unfit))} unfit, so "
        "nothing was changed "
        "on any. Next: correct that"
    )
    if head := indispensable(watch):
        return [f"{found}; {head} is the head, without which there is no site"]
    return [f"{found}, or leave them out: {again(replace(job, skip_unfit=True))}" if fit else found]


def indispensable(watch: DeployWatch) -> str | None:
    """The unfit node that the site cannot do without."""
    return next((host for host in watch.unfit if watch.nodes[host].indispensable), None)


def may_go_on(job: Deployment, watch: DeployWatch) -> bool:
    """Whether the same command is to be run again without the nodes that preflight refused."""
    fit = len(watch.nodes) - len(watch.unfit)
    return job.skip_unfit and bool(watch.unfit) and fit > 0 and indispensable(watch) is None


def without(end: Ending, left_out: dict[str, tuple[str, ...]]) -> Ending:
    """The end of a deployment that left nodes out: it names them, and is never a success."""
    if not left_out:
        return end
    width = max(map(len, left_out))
    lines = [f"{host.ljust(width)}  LEFT OUT: {'; '.join(reasons)}" for host, reasons in sorted(left_out.items())]
    names = ", ".join(sorted(left_out))
    lines.append(f"nothing was changed on {names}. Next: correct that, and deploy again")
    code = Exit.INCOMPLETE if end.exit_code == Exit.OK else end.exit_code
    return replace(end, lines=(*end.lines, *lines), exit_code=code)


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
    elif node.reboot:
        next_ = again(consenting(job))
        text = f"waits for a reboot: {'; '.join(node.reboot).rstrip('.')}. Next: {next_}   ({what})"
    else:
        text = f"ok: {what}"
    return f"{host.ljust(width)}  {text}"


def shown(line: str, width: int) -> list[str]:
    """A line for a terminal so wide: words are wrapped, and the command that it ends with is whole on its own line."""
    if len(line) <= width:
        return [line]
    words, next_, rest = line.partition(" Next: ")
    first = words.partition("  ")[2].lstrip()
    indent = " " * (len(words) - len(first)) if first else ""
    parts = textwrap.wrap(
        words, max(width, len(indent) + 40), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [*parts, f"{indent}Next: {rest}"] if next_ else parts


def changes(node: NodeState, check: bool) -> str:
    """`changed base 4, docker 2`, by role and number of tasks."""
    if not node.changed:
        return "nothing to change" if check else "nothing changed"
    word = "would change" if check else "changed"
    return f"{word} " + ", ".join(f"{role} {count}" for role, count in node.changed.items())
