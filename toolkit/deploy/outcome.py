"""The end of a deployment: one line for each node, and the exit code."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from toolkit.deploy.running import Deployment
from toolkit.deploy.watch import DeployWatch, NodeState
from toolkit.exits import Exit
from validation.base.counting import be, number_of

_CONSENT = "reboot=if_needed"


@dataclass(frozen=True)
class EndLine:
    """A line of the end. `next_`: what to do, with the command that it ends with; `indent`: columns before what the
    line says of its node, in which its further lines begin on a terminal.
    """

    text: str
    next_: str = ""
    indent: int = 0

    @property
    def whole(self) -> str:
        """As it stands in the log."""
        return f"{self.text} Next: {self.next_}" if self.next_ else self.text

    def folded(self, width: int) -> list[str]:
        """For a terminal so wide: words are wrapped, and what to do next is whole on a line of its own."""
        if len(self.whole) <= width:
            return [self.whole]
        lead = " " * self.indent
        parts = textwrap.wrap(
            self.text, max(width, self.indent + 40), subsequent_indent=lead, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        return [*parts, f"{lead}Next: {self.next_}"] if self.next_ else parts


@dataclass(frozen=True)
class Ending:
    """What is printed, and with what the command ends."""

    lines: tuple[EndLine, ...]
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
        return Ending((), Exit.USAGE, _not_named(job, watch.unmatched_limit))
    interrupted = interrupted and (status != 0 or watch.stats is None)  # it may have come after the end
    lines = tuple(_once(node_line(job, watch, host, interrupted) for host in sorted(watch.nodes)))
    if interrupted:
        return Ending(lines, Exit.INTERRUPTED)
    if watch.unfit:
        return Ending((*unfit_table(watch), _untouched(job, watch)), Exit.FAILED)
    if any(watch.outcome(host) != "ok" for host in watch.nodes):
        return Ending(lines, Exit.FAILED)
    if status != 0 or watch.stats is None:
        said = watch.complaint() or f"ansible-playbook ended with status {status} and gave no reason"
        return Ending(lines, Exit.USAGE, said)
    if not watch.nodes:
        return Ending((), Exit.USAGE, f"{job.inventory}: no node of it belongs to any stage; nothing was done")
    return Ending(lines, Exit.INCOMPLETE if watch.waiting else Exit.OK)


def _not_named(job: Deployment, part: str) -> str:
    """Of a part of --limit that fits nothing, with the nodes that there are where Ansible tells them here."""
    from toolkit.inventory_source import InventoryError, read_source  # only here: nobody else waits for Ansible
    from toolkit.node_groups import not_named

    try:
        source = read_source(job.inventory, ())
    except InventoryError:  # such as one whose vault needs a password that was given to Ansible alone
        return f"--limit {part}: no such node or group; ansible-inventory -i {job.inventory} --graph lists them"
    return not_named(part, sorted(source.hosts), [name for name in source.groups if name not in ("all", "ungrouped")])


def _once(lines: Iterable[EndLine]) -> Iterator[EndLine]:
    """The same lines: of nodes that failed alike the first has the reason, and the last what to do next."""
    every = list(lines)
    last = {line.next_: number for number, line in enumerate(every)}
    first: dict[str, str] = {}
    for number, line in enumerate(every):
        host, what = line.text[: line.indent], line.text[line.indent :]
        outcome, at, _ = what.partition(" at ")
        if not at or outcome not in ("FAILED", "UNREACHABLE"):
            yield line
            continue
        like = first.setdefault(what, host.strip())
        text = line.text if like == host.strip() else f"{host}{outcome}, as {like}."
        yield replace(line, text=text, next_=line.next_ if last[line.next_] == number else "")


def _of_node(host: str, width: int, text: str, next_: str = "") -> EndLine:
    return EndLine(f"{host.ljust(width)}  {text}", next_, width + 2)


def unfit_table(watch: DeployWatch) -> list[EndLine]:
    """`gpu2  UNFIT: memory is ...`: every finding of every node that preflight refused, one on each line."""
    width = max(len(name) for name in watch.nodes)
    lines = []
    like: dict[tuple[str, ...], str] = {}
    for host in watch.unfit:
        if like.setdefault(watch.nodes[host].unfit, host) != host:
            lines.append(_of_node(host, width, f"UNFIT, as {like[watch.nodes[host].unfit]}"))
            continue
        first, *more = watch.nodes[host].unfit
        lines.append(_of_node(host, width, f"UNFIT: {first}"))
        lines += [EndLine(f"{' ' * width}         {reason}", indent=width + 9) for reason in more]
    return lines


def _untouched(job: Deployment, watch: DeployWatch) -> EndLine:
    """What that means for the others."""
    fit = len(watch.nodes) - len(watch.unfit)
    found = (
        f"{len(watch.unfit)} of {number_of(len(watch.nodes), 'node')} {be(len(watch.unfit))} unfit, so "
        "nothing was changed on any."
    )
    if head := indispensable(watch):
        return EndLine(found, f"correct that; {head} is the head, without which there is no site")
    without_them = f", or leave them out: {again(replace(job, skip_unfit=True))}" if fit else ""
    return EndLine(found, f"correct that{without_them}")


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
    lines = [_of_node(host, width, f"LEFT OUT: {'; '.join(reasons)}") for host, reasons in sorted(left_out.items())]
    names = ", ".join(sorted(left_out))
    lines.append(EndLine(f"nothing was changed on {names}.", "correct that, and deploy again"))
    code = Exit.INCOMPLETE if end.exit_code == Exit.OK else end.exit_code
    return replace(end, lines=(*end.lines, *lines), exit_code=code)


def node_line(job: Deployment, watch: DeployWatch, host: str, interrupted: bool) -> EndLine:
    """`gpu1  ok: changed docker 3, horovod 9`, or what stopped it and what to do next."""
    node = watch.nodes[host]
    width = max(len(name) for name in watch.nodes)
    outcome = watch.outcome(host)
    what, next_ = changes(node, job.check), ""
    if outcome != "ok":
        failure = node.failure
        reason = f"{failure.place}: {failure.message}" if failure else "Ansible gave no reason"
        address = "see that it is on and that ssh reaches it" if outcome == "unreachable" else "correct that"
        text, next_ = f"{outcome.upper()} at {reason.rstrip('.')}.", f"{address}, then: {again(job)}"
    elif interrupted:
        text = f"interrupted; {what}"
    elif not watch.reached_the_end(host):
        text = f"not finished: Ansible stopped in stage {watch.stage_name}; {what}"
    elif node.reboot:
        text = f"waits for a reboot: {'; '.join(node.reboot).rstrip('.')}."
        next_ = f"{again(consenting(job))}   ({what})"
    else:
        text = f"ok: {what}"
    return _of_node(host, width, text, next_)


def changes(node: NodeState, check: bool) -> str:
    """`changed base 4, docker 2`, by role and number of tasks."""
    if not node.changed:
        return "nothing to change" if check else "nothing changed"
    word = "would change" if check else "changed"
    return f"{word} " + ", ".join(f"{role} {count}" for role, count in node.changed.items())
