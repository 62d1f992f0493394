"""How the site was built: its deployments as the section of the report shows them, from built.json of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from validation.model.built import Deployment, HowBuilt, NodeBuilt
from validation.report.documents import RunDocuments
from validation.report.numbers import plural

SHOWN = 20
"""Deployments in the report, the latest ones; built.json has all. Project default."""


@dataclass(frozen=True)
class BuiltRow:
    """A deployment: when, by whom, of which release, over what, how it ended, what it changed."""

    began: str
    ended: str
    who: str
    version: str
    scope: str
    outcome: str
    good: bool
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Built:
    """The section. `recorded` False: the run has no built.json. `earlier` counts deployments that are not shown."""

    recorded: bool
    rows: tuple[BuiltRow, ...]
    earlier: int


def built(documents: RunDocuments) -> Built:
    """The latest deployments of the record, the latest first."""
    record: HowBuilt | None = documents.built
    if record is None:
        return Built(recorded=False, rows=(), earlier=0)
    shown = record.deployments[-SHOWN:][::-1]
    earlier = len(record.deployments) - len(shown) + record.left_out
    return Built(recorded=True, rows=tuple(map(_row, shown)), earlier=earlier)


def _row(done: Deployment) -> BuiltRow:
    scope = [f"--limit {done.limit}"] if done.limit else []
    scope += done.options
    scope += [plural(done.other_options, "further option")] if done.other_options else []
    outcome, good = _outcome(done)
    return BuiltRow(
        began=done.began,
        ended=done.ended,
        who=done.who,
        version=done.version_words,
        scope=", ".join(scope) or "the whole site",
        outcome=outcome,
        good=good,
        changes=_changes(done.nodes),
    )


def _outcome(done: Deployment) -> tuple[str, bool]:
    if done.interrupted:
        return "interrupted", False
    bad = [node for node in done.nodes if node.outcome != "ok"]
    if bad:
        said = "; ".join(f"{node.node} {node.outcome}: {node.failure}".rstrip(": ") for node in bad[:3])
        return said + (f"; and {len(bad) - 3} more" if len(bad) > 3 else ""), False
    if done.error or not done.finished:
        return done.error or "Ansible did not come to its end", False
    waiting = [node.node for node in done.nodes if node.reboot]
    if waiting:
        return (
            f"{', '.join(waiting)} waited for a reboot, of {plural(len(done.nodes), 'node')} without a failure",
            False,
        )
    return f"{plural(len(done.nodes), 'node')} ok", True


def _changes(nodes: Sequence[NodeBuilt]) -> tuple[str, ...]:
    """`gpu1, gpu2: base 4, docker 2`: roles with the tasks that changed something, for all nodes with the same ones."""
    same: dict[str, list[str]] = {}
    for node in nodes:
        words = ", ".join(f"{role} {count}" for role, count in node.roles.items()) or "nothing"
        same.setdefault(words, []).append(node.node)
    return tuple(f"{', '.join(names)}: {words}" for words, names in same.items())
