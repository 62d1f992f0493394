"""What a run of Ansible has done so far, folded from ansible-runner's events; reads no file and starts nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from toolkit.deploy.stages import Stage

Outcome = Literal["ok", "failed", "unreachable"]
_MARK = re.compile(r"^\[?(?P<kind>ERROR|WARNING)\]?[:!]\s*")
_ORIGIN = re.compile(r"^Origin: (?P<place>.+:\d+:\d+)\s*$", re.MULTILINE)
_UNMATCHED = re.compile(r"Could not match supplied host pattern, ignoring: (?P<part>.+)")
_PLAIN = {"verbose", "warning", "error", "system_warning"}
_MOST_SAID = 4 << 20  # characters of Ansible's own that are held to find its reason in
_LONGEST = 20_000  # of a message, in characters: many times what a task with many faults says; the log has all of it


@dataclass
class Failure:
    """What stopped a node: where, and Ansible's own words."""

    place: str
    message: str
    unreachable: bool = False


@dataclass
class NodeState:
    """One node: what it changed by role, and what stopped it."""

    changed: Counter[str] = field(default_factory=Counter)
    tasks: list[str] = field(default_factory=list)  # that changed something, in words
    failure: Failure | None = None
    item: str = ""  # the words of the loop's item that failed
    unfit: tuple[str, ...] = ()  # what preflight found
    indispensable: bool = False  # the site cannot do without it
    reboot: tuple[str, ...] = ()  # why it waits for a reboot, as role reboot found last
    versions: dict[str, Any] = field(default_factory=dict)  # what of its recorded versions would be changed


class DeployWatch:
    """The state of a run."""

    def __init__(self, stages: tuple[Stage, ...], rescued: frozenset[tuple[str, str]] = frozenset()) -> None:
        """`stages` are the playbook's; `rescued`: (role, task) whose failure a rescue takes up."""
        self.stages = stages
        self._rescued = rescued
        self.stage = -1
        self.play = self.role = self.task = ""
        self.at_work: dict[str, None] = {}  # the nodes of this task; a dict keeps their order
        self.running: dict[str, None] = {}  # those of them that are not through
        self.nodes: dict[str, NodeState] = {}
        self.pid = 0
        self.started = False
        self.stats: dict[str, dict[str, int]] | None = None
        self.fresh_failure = ""
        self._said: list[str] = []
        self._length = 0
        self._said_before = 0  # how many of them before anything ran

    @property
    def stage_name(self) -> str:
        """The stage that runs, or that ran last."""
        return self.stages[self.stage].name if 0 <= self.stage < len(self.stages) else self.play

    @property
    def step(self) -> str:
        """The name of the running task, for comparison with an earlier run."""
        return f"{self.stage_name}|{self.role}|{self.task}"

    @property
    def unmatched_limit(self) -> str:
        """A part of --limit that fits no node, of which Ansible warns before anything runs; "" where each fits."""
        said = "\n".join(self._said[: self._said_before if self.started else None]).replace("\r", "")
        lines = (_first_line(line) for line in said.splitlines() if _MARK.match(line))
        found = (_UNMATCHED.match(line) for line in lines)
        return next((one["part"] for one in found if one), "")

    def take(self, event: Mapping[str, Any]) -> None:
        """Take an event of ansible-runner."""
        kind = event.get("event", "")
        data: dict[str, Any] = event.get("event_data") or {}
        self.fresh_failure = ""
        if kind in _PLAIN:
            if self._length < _MOST_SAID:  # the log has all of it
                self._said.append(str(event.get("stdout", "")))
                self._length += len(self._said[-1])
        elif kind == "playbook_on_start":
            self.started, self._said_before = True, len(self._said)
            self.pid = int(event.get("pid") or 0)
        elif kind == "playbook_on_play_start":
            self._play_begins(str(data.get("name") or data.get("play") or ""))
        elif kind in ("playbook_on_task_start", "playbook_on_handler_task_start"):
            self.role, self.task = str(data.get("role") or ""), str(data.get("task") or data.get("name") or "")
            self.running, self.at_work = {}, {}
        elif kind == "playbook_on_stats":
            self.stats = {key: value for key, value in data.items() if isinstance(value, dict)}
        elif kind.startswith("runner_") and data.get("host"):
            self._node(kind, str(data["host"]), data)

    def _play_begins(self, name: str) -> None:
        self.play, self.role, self.task = name, "", ""
        self.running, self.at_work = {}, {}
        for number in range(max(self.stage, 0), len(self.stages)):
            if name in self.stages[number].plays:
                self.stage = number
                return

    def _node(self, kind: str, host: str, data: dict[str, Any]) -> None:
        node = self.nodes.setdefault(host, NodeState())
        result: dict[str, Any] = data.get("res") or {}
        if kind == "runner_on_start":
            self.running[host] = self.at_work[host] = None
            node.item = ""
            return
        if kind == "runner_item_on_failed":
            node.item = message(result)
        if kind.startswith(("runner_item_", "runner_retry")):
            return
        self.running.pop(host, None)
        self._concluded(node, result.get("ansible_facts"))
        if kind == "runner_on_ok" and result.get("changed"):
            role = str(data.get("role") or self.stage_name)
            node.changed[role] += 1
            node.tasks.append(f"{role}: {data.get('task') or self.task}")
        if kind == "runner_on_unreachable" or (kind == "runner_on_failed" and not data.get("ignore_errors")):
            place = ": ".join(str(part) for part in (data.get("role"), data.get("task")) if part)
            said = (node.item or message(result)).removeprefix(f"{host}: ")  # of its own messages, which name it
            node.failure = Failure(place, said, kind == "runner_on_unreachable")
            if (str(data.get("role") or ""), str(data.get("task") or "")) not in self._rescued:
                self.fresh_failure = host

    @staticmethod
    def _concluded(node: NodeState, facts: object) -> None:
        """What roles preflight and reboot conclude, from the facts that they set."""
        if isinstance(facts, dict) and isinstance(facts.get("preflight_reasons"), list):
            node.unfit = tuple(" ".join(str(reason).split()) for reason in facts["preflight_reasons"])
        if isinstance(facts, dict) and isinstance(facts.get("reboot_reasons"), list):
            node.reboot = tuple(" ".join(str(reason).split()) for reason in facts["reboot_reasons"])
        if isinstance(facts, dict) and isinstance(facts.get("preflight_changes"), dict):
            node.versions = facts["preflight_changes"]
        if isinstance(facts, dict) and facts.get("preflight_indispensable") is True:
            node.indispensable = True

    @property
    def unfit(self) -> tuple[str, ...]:
        """Nodes that preflight refused, in order."""
        return tuple(sorted(host for host, node in self.nodes.items() if node.unfit))

    @property
    def waiting(self) -> tuple[str, ...]:
        """Nodes without a failure that wait for a reboot, in order."""
        return tuple(sorted(host for host, node in self.nodes.items() if node.reboot and self.outcome(host) == "ok"))

    def outcome(self, host: str) -> Outcome:
        """What became of a node: Ansible's recap decides, so that a rescued failure is none."""
        failure = self.nodes[host].failure
        if self.stats is not None:
            if self.stats.get("dark", {}).get(host):
                return "unreachable"
            return "failed" if self.stats.get("failures", {}).get(host) else "ok"
        if failure is None:
            return "ok"
        return "unreachable" if failure.unreachable else "failed"

    def reached_the_end(self, host: str) -> bool:
        """Whether the run came to its last stage, so that nothing more was to be done to a node without a failure."""
        if self.stats is None:
            return False
        return self.stage >= len(self.stages) - 1 or all(self.outcome(other) == "ok" for other in self.nodes)

    def complaint(self) -> str:
        """Ansible's own message why it ended before any node was at fault: once, on one line; "" when it said none."""
        text = "\n".join(self._said).replace("\r", "")
        parts = [part.strip() for part in re.split(r"(?m)^(?=\[?(?:ERROR|WARNING)\]?[:!])", text) if part.strip()]
        errors = [part for part in parts if part.lstrip("[").startswith("ERROR")]
        if not errors:
            return _whole(" ".join(text.split()))
        words = _first_line(errors[-1])
        if "parse inventory" in words:
            for part in parts:  # one for each kind of inventory that Ansible tried; the one that names a line knows why
                origin = _ORIGIN.search(part)
                if origin and "Failed to parse inventory" in part:
                    why = _first_line(part).split(" plugin: ", 1)[-1].rstrip(".")
                    return f"{words}: {why}, at {origin['place']}"
        origin = _ORIGIN.search(errors[-1])
        return f"{words} (at {origin['place']})" if origin else words


def _first_line(part: str) -> str:
    return _MARK.sub("", part.splitlines()[0]).strip()


def message(result: Mapping[str, Any]) -> str:
    """Ansible's words for a failed task, on one line; those of the program that failed with them."""
    words = [str(result.get("msg") or result.get("censored") or "failed without a message")]
    for key in ("stderr", "module_stderr", "stdout"):
        said = str(result.get(key) or "").strip()
        if said and said not in words[0]:
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            words = [words[0].rstrip(". "), "; ".join(lines[-2:])]
            break
    return _whole(" ".join(": ".join(words).split()))


def _whole(text: str) -> str:
    """A message as it is; of one that no task of ours says, how much is left out."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST].rsplit(' ', 1)[0]} ... ({len(text):,} characters in all; the log has them)"
