"""A job over many nodes fails: which nodes are at fault, by as few smaller jobs as possible. A plan; runs nothing.

Group testing in rounds. Groups of about the square root of all nodes first; a group that fails is halved, and what is
left aside on the way is tested together with what others left aside, for most of it is well. Nobody is named before two
jobs failed in which it ran with one node known to be good, a different one each time. The jobs of a round have no node
in common, so that they run at the same time.

Published for comparison: NVIDIA's cluster-readiness-engine, ADR-055, 232 nodes of which 5 are bad: about 55 jobs in 7
rounds, 28 in 3 where all are good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from validation.base.counting import number_of
from validation.plan.schedule import tournament_round, tournament_rounds

Job = tuple[str, ...]

CONFIRMATIONS = 2
"""So many jobs with one known-good node each, different ones, must fail before a node is named. Project default."""

MIXED_ROUNDS = 6
"""Rounds of pairs in which a good node is looked for when each group failed. Project default."""

REPEATS = 2
"""So many times a group is taken apart again that fails while each of its nodes by itself does not. Project default."""


@dataclass(frozen=True)
class Narrowed:
    """`bad`: named, each with the good nodes that it was confirmed with. `unsettled`: groups that failed and in which
    nobody could be named: their fault came and went, or shows only when they work together. `nobody_good`: every job
    failed, so that what all have in common is at fault. `jobs` and `rounds` count what it took.
    """

    bad: Mapping[str, tuple[str, ...]]
    good: tuple[str, ...]
    unsettled: tuple[Job, ...]
    nobody_good: bool
    jobs: int
    rounds: int

    @property
    def words(self) -> str:
        """One sentence for people."""
        if self.nobody_good:
            return f"all {number_of(self.jobs, 'job')} failed: what all nodes share is at fault, and nobody is named"
        said = [f"{node} (failed with {' and with '.join(by)})" for node, by in self.bad.items()]
        if self.unsettled:
            said.append("not settled: " + "; ".join(", ".join(group) for group in self.unsettled))
        if not said:
            said = ["no part of the job fails by itself: the fault shows only at full size, or is gone"]
        return f"{'; '.join(said)}; {number_of(self.jobs, 'job')} in {number_of(self.rounds, 'round')}"


@dataclass
class _Suspect:
    """Nodes of which at least one is bad, unless the fault was a passing one. `whole`: the group that failed."""

    nodes: Job
    whole: Job
    halves: tuple[Job, Job] | None = None


@dataclass
class Narrowing:
    """Round after round: `jobs()` says what to run, `tell` what came of it, until `jobs()` is empty; then `outcome()`.

    `nodes` took part in the job that failed; `groups` may say how to begin (by leaf, say), else they are made here. A
    job of `alone` nodes or more says something without a known-good node: two, for a node has a network to try.
    """

    nodes: Sequence[str]
    groups: Sequence[Sequence[str]] = ()
    alone: int = 2
    _good: dict[str, None] = field(default_factory=dict, init=False)
    _suspect: list[_Suspect] = field(default_factory=list, init=False)
    _aside: list[Job] = field(default_factory=list, init=False)  # nobody knows anything of these
    _confirming: dict[str, list[str]] = field(default_factory=dict, init=False)
    _bad: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)
    _origin: dict[str, Job] = field(default_factory=dict, init=False)
    _repeated: dict[Job, int] = field(default_factory=dict, init=False)
    _unsettled: list[Job] = field(default_factory=list, init=False)
    _asked: dict[Job, tuple[str, Job]] = field(default_factory=dict, init=False)  # job -> what it is for, of whom
    _jobs: int = field(default=0, init=False)
    _rounds: int = field(default=0, init=False)
    _used: dict[str, int] = field(default_factory=dict, init=False)
    _mixed: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """ValueError for a node that is named twice, and for groups that are not all nodes once."""
        nodes = list(self.nodes)
        if len(set(nodes)) != len(nodes):
            raise ValueError("a node is named twice")
        if self.groups:
            if sorted(n for group in self.groups for n in group) != sorted(nodes):
                raise ValueError("the groups are not all nodes, each once")
            first = [tuple(group) for group in self.groups if group]
        else:
            count = max(1, round(len(nodes) / max(self.alone, math.ceil(math.sqrt(len(nodes))))))
            first = [tuple(nodes[i::count]) for i in range(count)]
        self._first = [group for group in first if group]

    # --- what to run ----------------------------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        """The jobs of the next round; [] when nothing is left to be learnt."""
        if self._asked:
            return list(self._asked)
        busy: set[str] = set()
        if self._rounds == 0:
            for group in self._first:
                self._ask("group", group, group, busy)
            return self._begun()
        self._without_bad()
        for node in list(self._confirming):
            self._ask("confirm", (node,), (node,), busy, not_with=self._confirming[node])
        for suspect in self._suspect:
            half = (len(suspect.nodes) + 1) // 2
            suspect.halves = (suspect.nodes[:half], suspect.nodes[half:])
            self._ask("half", suspect.halves[0], suspect.nodes, busy)
        for group in self._merged_aside():
            self._ask("aside", group, group, busy)
        if not self._asked and not self._good and not self._bad:
            self._mixed_pairs(busy)
        return self._begun()

    def _without_bad(self) -> None:
        """What failed with a node that is named by now says nothing of the others."""
        for suspect in [s for s in self._suspect if self._bad.keys() & set(s.nodes)]:
            self._suspect.remove(suspect)
            self._aside.append(suspect.nodes)
        rest = (tuple(n for n in group if n not in self._bad) for group in self._aside)
        self._aside = [group for group in rest if group]

    def _mixed_pairs(self, busy: set[str]) -> None:
        """Each group failed and nobody is known to be good: nodes of different groups together, until two are well."""
        names = [n for s in self._suspect for n in s.nodes] + [n for g in self._aside for n in g]
        names = list(dict.fromkeys([*names, *self._confirming]))
        if self._mixed >= min(MIXED_ROUNDS, tournament_rounds(len(names))):
            return
        for pair in tournament_round(names, self._mixed):
            self._ask("mixed", pair, pair, busy)
        self._mixed += 1

    def _begun(self) -> list[Job]:
        if self._asked:
            self._rounds += 1
            self._jobs += len(self._asked)
        return list(self._asked)

    def _merged_aside(self) -> list[Job]:
        """What was left aside, in groups no larger than the first ones were."""
        most = max(map(len, self._first))
        merged: list[Job] = []
        for group in sorted(self._aside, key=len):
            if merged and len(merged[-1]) + len(group) <= most:
                merged[-1] += group
            else:
                merged.append(group)
        self._aside = merged
        return merged

    def _ask(self, what: str, nodes: Job, about: Job, busy: set[str], not_with: Iterable[str] = ()) -> None:
        """A job of these nodes, with a known-good one where they are too few to say anything."""
        if busy & set(nodes):
            return
        job = nodes
        if len(nodes) < self.alone or what == "confirm":
            free = [n for n in self._good if n not in busy and n not in not_with]
            if not free:
                return
            helper = min(free, key=lambda n: self._used.get(n, 0))
            self._used[helper] = self._used.get(helper, 0) + 1
            job = (*nodes, helper)
        busy.update(job)
        self._asked[job] = (what, about)

    # --- what came of it ------------------------------------------------------------------------------------------

    def tell(self, worked: Mapping[Job, bool]) -> None:
        """What the jobs of this round came to. KeyError where one is missing."""
        asked, self._asked = self._asked, {}
        before = (len(self._good), len(self._suspect), len(self._aside), len(self._bad), self._confirmed())
        for job, (what, about) in asked.items():
            fine = worked[job]
            if what == "confirm":
                self._told_confirm(about[0], job[-1], fine)
            elif what == "half":
                self._told_half(about, job, fine)
            elif what == "mixed":
                self._passed(about if fine else ())
            else:
                if what == "aside":
                    self._aside.remove(about)
                if fine:
                    self._passed(about)
                else:
                    self._suspected(about, about, job)
        after = (len(self._good), len(self._suspect), len(self._aside), len(self._bad), self._confirmed())
        if not asked or (before == after and not any(what in ("half", "mixed") for what, _ in asked.values())):
            self._give_up()

    def _confirmed(self) -> int:
        return sum(map(len, self._confirming.values()))

    def _passed(self, nodes: Sequence[str]) -> None:
        self._good |= dict.fromkeys(n for n in nodes if n not in self._bad)
        for node in nodes:
            self._confirming.pop(node, None)

    def _suspected(self, nodes: Job, whole: Job, job: Job = ()) -> None:
        if len(nodes) == 1:
            helper = [n for n in job if n != nodes[0]] if len(job) == 2 else []
            self._origin[nodes[0]] = whole
            self._confirming[nodes[0]] = [h for h in helper if h in self._good]
        else:
            self._suspect.append(_Suspect(nodes, whole))

    def _told_half(self, about: Job, job: Job, fine: bool) -> None:
        suspect = next(s for s in self._suspect if s.nodes == about)
        self._suspect.remove(suspect)
        assert suspect.halves is not None
        tried, other = suspect.halves
        if fine:
            self._passed(tried)
            self._suspected(other, suspect.whole)
        else:
            self._suspected(tried, suspect.whole, job)
            self._aside.append(other)

    def _told_confirm(self, node: str, helper: str, fine: bool) -> None:
        if not fine:
            self._confirming[node].append(helper)
            if len(self._confirming[node]) >= CONFIRMATIONS:
                self._bad[node] = tuple(self._confirming.pop(node))
            return
        # well with a good node: what failed with it has another reason, or was passing
        self._passed([node])
        whole = tuple(n for n in self._origin[node] if n not in self._bad)
        self._repeated[whole] = self._repeated.get(whole, 0) + 1
        if self._repeated[whole] >= REPEATS or len(whole) < self.alone:
            if whole not in self._unsettled:
                self._unsettled.append(whole)
        else:
            self._aside.append(whole)

    def _give_up(self) -> None:
        """Nothing more can be learnt: no good node is left to try somebody with."""
        for suspect in self._suspect:
            self._unsettled.append(suspect.nodes)
        self._unsettled += [group for group in self._aside if group not in self._unsettled]
        self._unsettled += [(node,) for node in self._confirming]
        self._suspect, self._aside, self._confirming = [], [], {}

    def outcome(self) -> Narrowed:
        """What is known so far."""
        if not self._asked and self._rounds and (self._suspect or self._aside or self._confirming):
            self._give_up()
        good = tuple(n for n in self.nodes if n in self._good and n not in self._bad)
        nobody = not good and not self._bad and self._jobs > 0
        return Narrowed(dict(self._bad), good, tuple(self._unsettled), nobody, self._jobs, self._rounds)


def narrow(
    nodes: Sequence[str], works: Callable[[Job], bool], groups: Sequence[Sequence[str]] = (), alone: int = 2
) -> Narrowed:
    """Narrow down a failing job: `works` runs one of these nodes and says whether it did what it should."""
    narrowing = Narrowing(nodes, groups, alone)
    while jobs := narrowing.jobs():
        narrowing.tell({job: works(job) for job in jobs})
    return narrowing.outcome()
