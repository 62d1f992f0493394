"""A finished run judged by other rules than its own, from its files alone, and what that changes. Writes nothing.

The run's own verdict stays what it is: what comes out here is nobody's sign-off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from validation.kinds.parsing import place
from validation.model import Model, Plan, SignOff, VerdictDoc, VerdictName
from validation.model.load import ConfigError, Source, load_json, load_yaml, read_source
from validation.plan.suites import SUITES
from validation.rules.criterion import Criterion
from validation.rules.profile import Profile, read_profile
from validation.run.baseline import unfit
from validation.run.catalogue import CriteriaFile, load_criteria, read_criteria
from validation.run.names import VERDICT
from validation.run.read import Run, read
from validation.verdict.judge import judge

PACKAGED = "packaged"
"""In place of a file of criteria: those of this release, all of them."""


@dataclass(frozen=True)
class Rules:
    """What a run is to be judged by. `sources`: each file that was given, as it was read; `words`: the same in words.

    `profile` None: what the run was agreed on stays.
    """

    criteria: tuple[Criterion, ...]
    profile: Profile | None
    sources: tuple[Source, ...]
    words: tuple[str, ...]


class SubjectChange(Model):
    """A pair, port, node or job of which the verdict is another now. None: that judgement has no such subject."""

    subject: str
    old: VerdictName | None
    new: VerdictName | None
    reason: str


class RuleChange(Model):
    """A criterion that is judged otherwise: its verdict, its bound in words, or whether it is owed. None: the rules on
    that side do not have it.
    """

    id: str
    statement: str
    old: VerdictName | None
    new: VerdictName | None
    old_bound: str | None
    new_bound: str | None
    old_owed: bool
    new_owed: bool
    reason: str
    subjects: tuple[SubjectChange, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether the verdict is another, and not only the bound or what is owed."""
        return self.old != self.new


class Rejudged(Model):
    """judged.json: a run's verdict by its own rules, that by others, and what is different.

    `rules` say in words what was put in place of the run's own, with SHA-256. `headline` is that of the new verdict.
    """

    schema_: Literal["elastic-ai-judged/1"] = Field(default="elastic-ai-judged/1", alias="schema")
    run: str
    rules: tuple[str, ...]
    old_sign_off: SignOff
    sign_off: SignOff
    old_outcome: Literal["passed", "failed", "incomplete"]
    outcome: Literal["passed", "failed", "incomplete"]
    old_headline: str
    headline: str
    changes: tuple[RuleChange, ...]
    same: int
    notes: tuple[str, ...]


def rules_of(run: Path | Run, criteria: str | Path | None, profile: str | None) -> Rules:
    """The run's rules with others in their place.

    `criteria`: a file, whose criteria take the place of those of the same id and stand beside the others; a folder of
    files, or PACKAGED, which take the place of all. `profile`: a packaged one by name, or a file. ConfigError with file
    and line for what cannot be used.
    """
    run = read(run)
    own, sources, words = run.criteria, [], []
    if criteria is not None:
        path = Path(criteria)
        if str(criteria) == PACKAGED:
            given, whole, named = read_criteria(), True, "criteria of this release"
        else:
            whole, named = path.is_dir(), str(path)
            given = read_criteria(path) if whole else (read_source(path),)
        reference = None if str(criteria) == PACKAGED else run.reference
        own = _with(own, load_criteria(given if given else path, reference), whole)
        sources += [(f"criteria/{source.path.name}", source) for source in given]
        for source in given:
            of = None if str(criteria) == PACKAGED else load_yaml(source, CriteriaFile, run.reference).baseline
            why = unfit(of, run.topology, run.fabric.name) if of is not None else ""
            if why:
                raise ConfigError(f"{source.path}: {why}; it says nothing of {run.info.run}")
        words.append(f"{named}: " + ("all criteria" if whole else "its criteria, and beside them the run's others"))
    agreed = None
    if profile is not None:
        agreed, source = read_profile(profile, own, SUITES)
        sources.append(("profile.yml", source))
        words.append(f"acceptance profile {agreed.name}")
    kept = tuple(replace(source, path=Path(name)) for name, source in sources)
    hashes = [f"{source.path}: sha256 {source.sha256}" for source in kept]
    return Rules(own, agreed, kept, (*words, *hashes) or ("the run's own rules",))


def _with(own: Sequence[Criterion], given: Sequence[Criterion], whole: bool) -> tuple[Criterion, ...]:
    if whole:
        return tuple(given)
    fresh = {c.id: c for c in given}
    return (*(fresh.pop(c.id, c) for c in own), *fresh.values())


def judge_otherwise(run: Path | Run, rules: Rules) -> tuple[VerdictDoc, Rejudged]:
    """The verdict on a run by other rules, and what is different from that by its own.

    Both are made from the results now, so that nothing but the rules is different. ConfigError, one line, for a run
    that is damaged or contradicts itself.
    """
    run = read(run)
    own = run.data()

    def by(criteria: Sequence[Criterion], profile: Profile | None) -> VerdictDoc:
        known = {c.id for c in criteria}
        # a waiver of what is no longer judged has nothing to lift, and is no reason not to judge
        waivers = [w for w in run.waivers_for([*criteria, *run.criteria]) if w.criterion in known]
        plan = _served(run.plan, [c for c in criteria if c.id not in {mine.id for mine in run.criteria}])
        try:
            return judge(replace(own, plan=plan, criteria=criteria, waivers=waivers, profile=profile))
        except ConfigError:
            raise
        except Exception as fault:  # an answer that nobody foresaw is an error of ours, and no verdict
            raise ConfigError(
                f"{run.folder}: cannot be judged: {place(fault)}; this is an error of the toolkit: report it with this "
                "run and these rules"
            ) from fault

    old = by(run.criteria, run.profile)
    agreed, gone = _kept(run, rules)
    new = by(rules.criteria, agreed)
    aside = "judged by other rules than the run's own, after it: " + "; ".join(rules.words)
    new = new.model_copy(update={"notes": (aside, *new.notes)})
    changes = _changes(run, old, new, rules)
    return new, Rejudged(
        run=run.info.run,
        rules=rules.words,
        old_sign_off=old.sign_off,
        sign_off=new.sign_off,
        old_outcome=old.outcome,
        outcome=new.outcome,
        old_headline=old.headline,
        headline=new.headline,
        changes=changes,
        same=len({c.id for c in (*old.criteria, *new.criteria)}) - len(changes),
        notes=(*run.notes(), *((run.torn,) if run.torn else ()), *_notes(run, old), *gone),
    )


def _kept(run: Run, rules: Rules) -> tuple[Profile | None, tuple[str, ...]]:
    """The profile to judge by: the given one, else the run's as far as these rules have what it owes; and a note where
    they do not. A criterion that it does not know is not owed.
    """
    own = run.profile
    if rules.profile is not None or own is None:
        return rules.profile, ()
    known = {c.id for c in rules.criteria}
    gone = [id_ for id_ in own.owed if id_ not in known]
    if not gone:
        return own, ()
    kept = own.model_copy(update={"owed": tuple(id_ for id_ in own.owed if id_ in known)})
    return kept, (f"the run's profile {own.name} owes what these rules do not have: {', '.join(gone)}",)


def _served(plan: Plan, criteria: Sequence[Criterion]) -> Plan:
    """The plan with criteria that it was not made by: what was measured for others of their kind serves them, too."""
    kinds: dict[str, tuple[str, ...]] = {}
    for c in criteria:
        if c.kind is not None and c.bound.since is None:
            kinds[c.kind] = (*kinds.get(c.kind, ()), c.id)
    if not kinds:
        return plan
    served = [m.model_copy(update={"criteria": (*m.criteria, *kinds.get(m.kind, ()))}) for m in plan.measurements]
    return plan.model_copy(update={"measurements": tuple(served)})


def _changes(run: Run, old: VerdictDoc, new: VerdictDoc, rules: Rules) -> tuple[RuleChange, ...]:
    one, two = ({c.id: c for c in verdict.criteria} for verdict in (old, new))
    bounds = [{c.id: c.bound.said(run.fabric) for c in criteria} for criteria in (run.criteria, rules.criteria)]
    found = []
    for id_ in dict.fromkeys([*two, *one]):
        was, now = one.get(id_), two.get(id_)
        known = now or was
        assert known is not None
        judged = [{j.subject: j for j in c.judgements} if c else {} for c in (was, now)]
        subjects = tuple(
            SubjectChange(
                subject=name,
                old=judged[0][name].verdict if name in judged[0] else None,
                new=judged[1][name].verdict if name in judged[1] else None,
                reason=judged[1][name].reason if name in judged[1] else "",
            )
            for name in dict.fromkeys([*judged[1], *judged[0]])
            if name not in judged[0] or name not in judged[1] or judged[0][name].verdict != judged[1][name].verdict
        )
        change = RuleChange(
            id=id_,
            statement=known.statement,
            old=was.verdict if was else None,
            new=now.verdict if now else None,
            old_bound=bounds[0].get(id_),
            new_bound=bounds[1].get(id_),
            old_owed=was is not None and was.owed,
            new_owed=now is not None and now.owed,
            reason=now.reason if now else "",
            subjects=subjects,
        )
        pairs = ((change.old, change.new), (change.old_bound, change.new_bound), (change.old_owed, change.new_owed))
        if subjects or any(a != b for a, b in pairs):
            found.append(change)
    return tuple(found)


def _notes(run: Run, fresh: VerdictDoc) -> tuple[str, ...]:
    """Where the run's own verdict is not what its results give by its own rules, with this release."""
    if not (run.folder / VERDICT).is_file():
        return ("the run was never judged: what it is compared with was judged now, by the run's own rules",)
    try:
        stands = load_json(run.folder / VERDICT, VerdictDoc)
    except ConfigError as fault:
        return (f"the run's own verdict cannot be read, so what it is compared with was judged now: {fault}",)
    if stands == fresh:
        return ()
    return (
        f"{VERDICT} of the run says {stands.line}; by the run's own rules this release judges {fresh.line}, and what "
        "follows is compared with that",
    )
