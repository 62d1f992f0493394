"""What `toolkit check` does: the as-built checks of each node, by the same probe and parser as in a validation."""

from __future__ import annotations

import asyncio
import fnmatch
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.node_groups import not_named
from validation.base.counting import number_of
from validation.execute import Launcher
from validation.execute.measure import Taken, take
from validation.kinds import job_for
from validation.measures.asbuilt.checks import tag_of
from validation.measures.asbuilt.facts import AsBuiltFacts, CheckOutcome
from validation.measures.asbuilt.plan import AT_A_TIME, checks
from validation.model import Node, Topology

CRITERION = "pf.asbuilt"


@dataclass(frozen=True)
class Checked:
    """What became of a node. `facts` None: its checks could not be run, as `error` says; `junit` is pytest's file."""

    node: str
    facts: AsBuiltFacts | None
    error: str
    junit: str

    @property
    def exit_code(self) -> Exit:
        """FAILED where a check failed, INCOMPLETE where one could not be run, or none was."""
        if self.facts is None:
            return Exit.INCOMPLETE
        if self.facts.of("failed"):
            return Exit.FAILED
        return Exit.INCOMPLETE if self.facts.of("not-run") or not self.facts.of("passed") else Exit.OK

    @property
    def unreached(self) -> str:
        """Why nothing of the node was found out, "" where something was: then its checks all say the same."""
        if self.facts is None:
            return self.error or "its checks could not be run"
        told = {check.words for check in self.facts.of("not-run")}
        return told.pop() if len(told) == 1 and not self.facts.of("passed") + self.facts.of("failed") else ""

    def document(self) -> dict[str, object]:
        """For --json."""
        states = {Exit.OK: "ok", Exit.FAILED: "failed"}
        state = "not-checked" if self.unreached else states.get(self.exit_code, "incomplete")
        return {
            "node": self.node,
            "state": state,
            "error": self.unreached or None,
            "checks": [check.model_dump(mode="json") for check in self.facts.checks] if self.facts else [],
        }


def chosen(
    topology: Topology, limit: str | None, groups: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[Node, ...]:
    """The nodes that `limit` names: names, groups or patterns of names, with commas; UsageFault where one fits none.

    groups: node -> those of the inventory that it is in; without it only the part that it has in a site.
    """
    if not limit:
        return topology.nodes
    kept: dict[str, Node] = {}
    of = {n.name: (groups or {}).get(n.name, n.groups) for n in topology.nodes}
    for part in filter(None, (word.strip() for word in limit.split(","))):
        mine = [n for n in topology.nodes if part in (*of[n.name], "all") or fnmatch.fnmatchcase(n.name, part)]
        if not mine:
            names = [n.name for n in topology.nodes]
            raise UsageFault(not_named(part, names, (group for name in names for group in of[name])))
        kept |= {node.name: node for node in mine}
    if not kept:
        raise UsageFault(f"--limit {limit!r}: names no node; there are: {_names(topology.nodes)}")
    return tuple(node for node in topology.nodes if node.name in kept)


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(node.name for node in nodes)


async def check(
    launcher: Launcher, topology: Topology, nodes: Sequence[Node], begun: Callable[[str], None],
    ended: Callable[[Checked], None],
) -> list[Checked]:  # fmt: skip
    """Check the nodes, a few at a time; `begun` and `ended` are told of each."""
    gate = asyncio.Semaphore(AT_A_TIME)

    async def one(node: Node) -> Checked:
        m = checks(node, (CRITERION,))
        async with gate:
            begun(node.name)
            found = _checked(node.name, await take(m, job_for(m, topology), launcher))
        ended(found)
        return found

    return list(await asyncio.gather(*(one(node) for node in nodes)))


def _checked(node: str, taken: Taken) -> Checked:
    facts = taken.facts if taken.status == "ok" and isinstance(taken.facts, AsBuiltFacts) else None
    return Checked(node, facts, taken.error or "", taken.outputs[0][1] if facts is not None else "")


def lines(found: Checked, inventory: Path, width: int = 0) -> list[str]:
    """One line for the node, and one for each check that did not pass: what, where, and what to do next."""
    name = found.node.ljust(width)
    if found.facts is None or found.unreached:
        again = shlex.join(["toolkit", "check", "-i", str(inventory), "--limit", found.node])
        cure = "see that it is on and that ssh reaches it at its address, then"
        return [f"{name}  NOT CHECKED: {found.unreached}. Next: {cure}: {again}"]
    passed, failed, not_run, beside = map(found.facts.of, ("passed", "failed", "not-run", "not-applicable"))
    word = "FAILED" if failed else "INCOMPLETE" if found.exit_code != Exit.OK else "ok"
    counted = [f"{number_of(len(passed), 'check')} passed", *([f"{len(failed)} failed"] if failed else [])]
    counted += [f"{len(not_run)} could not be run"] if not_run else []
    counted += [f"{len(beside)} do not concern it"] if beside else []
    said = [f"{name}  {word}: {', '.join(counted)}"]
    said += [f"{name}  FAILED {_words(check)}. Next: {_next(check, found.node, inventory)}" for check in failed]
    return said + [f"{name}  NOT RUN {words}" for words in _together(not_run)]


def _together(checks: Sequence[CheckOutcome]) -> list[str]:
    """Each check with its words; those that one cause ended, in one line."""
    by_cause: dict[str, list[str]] = {}
    for check in checks:
        by_cause.setdefault(check.words, []).append(check.name)
    return [f"{', '.join(names)}: {words}".rstrip(": .") for words, names in by_cause.items()]


def _words(check: CheckOutcome) -> str:
    return f"{check.name}: {check.words}".rstrip(": .")


def _next(check: CheckOutcome, node: str, inventory: Path) -> str:
    tag = tag_of(check.name)
    tags = ["--", "--tags", tag] if tag else []
    return shlex.join(["toolkit", "deploy", "-i", str(inventory), "--limit", node, *tags])


def junit(found: Sequence[Checked], *more: Element) -> str:
    """One JUnit file over all nodes: a suite for each, pytest's own cases, an error for each check that is gone; and
    `more` suites.
    """
    root = Element("testsuites", {"name": "as built"})
    for one in found:
        suite = fromstring(one.junit).find("testsuite") if one.junit else None  # noqa: S314
        if suite is None:
            suite = Element("testsuite", {"tests": "1", "failures": "0", "errors": "1", "skipped": "0"})
            _error(suite, "checks", f"could not be run: {one.error}")
        suite.set("name", one.node)
        there = {f"{(case.get('classname') or '').rpartition('.')[2]}.py::{(case.get('name') or '').partition('[')[0]}"
                 for case in suite.iter("testcase")}  # fmt: skip
        gone = [check for check in (one.facts.checks if one.facts else ()) if check.name not in there]
        for check in gone:
            _error(suite, check.name, check.words)
        for key in ("tests", "errors"):
            suite.set(key, str(int(suite.get(key) or 0) + len(gone)))
        root.append(suite)
    root.extend(more)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'


def _error(suite: Element, name: str, words: str) -> None:
    case = SubElement(suite, "testcase", {"classname": "as-built", "name": name, "time": "0"})
    SubElement(case, "error", {"message": words}).text = words
