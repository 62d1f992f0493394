"""Facts of a GPU that one class of users gave to another (kind remoting-move)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Literal

from pydantic import Field, model_validator

from validation.base.counting import number_of
from validation.judging.case import Case
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, number, real, short
from validation.measures.remoting.facts import Trained
from validation.measures.remoting.remoting_move_probe import HEADING
from validation.measures.remoting.train import load_of, loaded, of_load, same_keys
from validation.measures.remoting.wrong import Happened, judge_wrong
from validation.model import Judgement, Measurement, Result, Sample, Scalar, Subject
from validation.model.base import Model
from validation.model.facts import Count, Name
from validation.probes import ProbeDoc
from validation.probes.remoting_program import tool_of
from validation.rules.criterion import Criterion

Seconds = float


class Moved(Model):
    """What happened, in seconds since the one that took had asked.

    `told_s`: the program that gave heard the signal; `saved_s`: its checkpoint was on the disk; both None where it
    ended without (`failed`, its words). `gone_s`: its command had ended, and the lease was given back;
    `first_step_s`: the other's first step was done, `resumed_s`: the first step after the checkpoint was.
    `steps_lost`: done before and again, None where nobody knows how many there were. `differs_at`: the first step
    (from 1) with another loss than undisturbed. `held_twice_s`: how long both held the GPU, by the programs' own
    calls, 0 where they did not; `overlap_s`: the same of the leases, by Slurm's record.
    """

    gave: Name
    took: Name
    grace_s: Seconds = Field(ge=0, allow_inf_nan=False)
    safe_s: Seconds = Field(ge=0, allow_inf_nan=False)
    failed: str
    told_s: Seconds | None = Field(ge=0, allow_inf_nan=False)
    saved_s: Seconds | None = Field(ge=0, allow_inf_nan=False)
    gone_s: Seconds = Field(ge=0, allow_inf_nan=False)
    first_step_s: Seconds = Field(ge=0, allow_inf_nan=False)
    resumed_s: Seconds = Field(ge=0, allow_inf_nan=False)
    elsewhere: bool
    checkpoint_bytes: Count
    steps: Count
    steps_kept: Count
    steps_lost: Count | None
    differs_at: int | None = Field(ge=1)
    same_weights: bool
    held_twice_s: Seconds = Field(ge=0, allow_inf_nan=False)
    overlap_s: Seconds = Field(ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _whole(self) -> Moved:
        if (self.told_s is None) != bool(self.failed) or (self.saved_s is None) != bool(self.failed):
            raise ValueError("a program was notified and kept its work, or failed")
        return self


class MoveFacts(Trained):
    """A GPU that changed hands; `unmade`: why none did, "" where one did."""

    type: Literal["move"] = "move"
    server: str
    unmade: str
    moved: Moved | None

    @model_validator(mode="after")
    def _either(self) -> MoveFacts:
        if (self.moved is None) != bool(self.unmade):
            raise ValueError("a GPU changed hands, or there is a reason why it did not")
        return self

    def wrong(self) -> list[str]:
        """What must not be, in words."""
        found, it = [], self.moved
        if it is None:
            return []
        if it.failed:
            found.append(f"the program of {it.gave} was not notified, or could not keep its work: {it.failed}")
        if it.differs_at is not None:
            found.append(f"after it went on its losses are others from step {it.differs_at} on")
        elif not it.same_weights:
            found.append("after it went on it had the same losses and other weights")
        if it.held_twice_s:
            found.append(f"both programs used the GPU for {it.held_twice_s:.3g} s")
        if it.overlap_s:
            found.append(f"by Slurm's record both leases had the GPU for {it.overlap_s:g} s")
        return found


# --- A GPU that one class of users gave to another while a program trained on it -------------------------------------


NAMES = ("gave", "took", "resumed", "whole")
TIMES = ("told_s", "saved_s", "gone_s", "first_step_s", "resumed_s")


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`wrong`: what must not be (facts.wrong()); TIMES, since the other had asked; `steps_lost` where it is known. No
    sample where the pool's policy has no such classes.
    """
    raw = doc["facts"]
    for key in ("server", "elsewhere"):
        expect(params, key, raw[key], f"move: {key}")
    known = {key: raw[key] for key in ("emulated", "engine", "engine_release", "server", "unmade")}
    if raw["unmade"]:
        return [], as_facts(MoveFacts, {**known, "moved": None}, "move")
    made = _documents(doc["stdout"], params)
    if flag(raw["emulated"], "emulated") != flag(made["whole"]["emulated"], "move: emulated"):
        raise ParseError("move: pool and program do not agree whether the GPU is emulated")
    for key in ("batch", "inputs", "hidden"):
        expect(params, key, made["whole"][key], f"move: {key}")
    facts = as_facts(MoveFacts, {**known, **of_load(made["whole"], params), "moved": _moved(raw, made)}, "move")
    assert facts.moved is not None
    samples = [Sample(metric="wrong", value=len(facts.wrong()), unit="count")]
    times = ((key, getattr(facts.moved, key)) for key in TIMES)
    samples += [Sample(metric=key, value=value, unit="s") for key, value in times if value is not None]
    if facts.moved.steps_lost is not None:
        samples.append(Sample(metric="steps_lost", value=facts.moved.steps_lost, unit="count"))
    return samples, facts


def _documents(text: str, params: Mapping[str, Scalar]) -> dict[str, Mapping[str, Any]]:
    """By name; ParseError unless all four are there, once each, of one training on one GPU each."""
    words = HEADING.split(text)
    if len(words) == 1 or words[0].strip() or tuple(words[1::2]) != NAMES:
        raise ParseError(f"move: {short(', '.join(words[1::2]) or 'no output')}: not the four programs in their order")
    tool = tool_of(load_of(params))
    # steps and GPUs differ
    common = [key for key in (*same_keys(params), "batch") if key != "steps"]
    found: dict[str, Mapping[str, Any]] = {}
    found |= {name: json_object(output, f"move: {name}") for name, output in zip(words[1::2], words[2::2], strict=True)}
    for name, one in found.items():
        if name == "gave" and "failed" in one:
            continue
        what = f"move: {name}"
        if one["tool"] != tool or one["infer"] is not False or one["gpus"] != 1 or len(one["devices"]) != 1:
            raise ParseError(f"{what}: no training by {tool} on one GPU")
        if other := [key for key in common if one[key] != found["whole"][key]]:
            raise ParseError(f"{what}: {other[0]} is not that of the undisturbed training")
        steps, before = (int(count(one[key], f"{what}: {key}")) for key in ("steps", "resumed_from"))
        times = [number(value, f"{what}: seconds of a step") for value in one["step_s"]]
        losses = [number(value, f"{what}: loss") for value in one["losses"]]
        if len(losses) != steps or len(times) != steps - before or not times:
            raise ParseError(
                f"{what}: {len(times)} times and {len(losses)} losses of {number_of(steps, 'step')} after {before}"
            )
        if len(set(losses)) == 1:
            raise ParseError(f"{what}: its loss never changes: nothing was computed")
    return found


def _first_step(one: Mapping[str, Any], what: str) -> float:
    return real(one["began_s"], f"{what}: its begin") + number(one["step_s"][0], f"{what}: its first step")


def _moved(raw: Mapping[str, Any], made: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    gave, took, resumed, whole = (made[name] for name in NAMES)
    asked = number(raw["asked_s"], "move: when the other asked")
    gone = number(raw["gone_s"], "move: when the first had ended")
    failed = _failed(gave) if "failed" in gave else ""
    told = saved = held_twice = 0.0
    taken = _first_step(took, "move: took")
    if not failed:
        told, saved, ended, held_twice = _given(gave, took)
        if not asked <= told or not ended <= gone:
            raise ParseError(
                "move: the program that gave was notified before anybody asked, or ended after its command"
            )
    if resumed["resumed_from"] > whole["steps"] or resumed["steps"] != whole["steps"] or whole["resumed_from"]:
        raise ParseError("move: the undisturbed training is not the same number of steps")
    if not failed and not 0 < resumed["resumed_from"] <= gave["steps"]:
        raise ParseError(f"move: went on from step {short(resumed['resumed_from'])}, {gave['steps']} were done")
    on = _first_step(resumed, "move: resumed")
    if not asked < taken or not gone < on:
        raise ParseError("move: the steps are not in the order of what happened")
    pairs = zip_longest(whole["losses"], resumed["losses"])
    start, end = (_record(raw["leases"][name], key, name) for name, key in (("took", "start_s"), ("gave", "end_s")))
    return {
        **{key: raw[key] for key in ("gave", "took", "grace_s", "safe_s")},
        "failed": failed,
        "told_s": None if failed else told - asked,
        "saved_s": None if failed else saved - asked,
        "gone_s": gone - asked,
        "first_step_s": taken - asked,
        "resumed_s": on - asked,
        "elsewhere": resumed["devices"][0]["uuid"] != took["devices"][0]["uuid"],
        "checkpoint_bytes": 0 if failed else gave["kept"]["bytes"],
        "steps": whole["steps"],
        "steps_kept": resumed["resumed_from"],
        "steps_lost": None if failed else gave["steps"] - resumed["resumed_from"],
        "differs_at": next((at for at, (a, b) in enumerate(pairs, 1) if a != b), None),
        "same_weights": resumed["weights_sha256"] == whole["weights_sha256"],
        "held_twice_s": held_twice,
        "overlap_s": float(max(0, end - start)),
    }


def _failed(gave: Mapping[str, Any]) -> str:
    words = str(gave["failed"]).strip() or "without a word"
    return f"{short(words, 200)} (exit status {short(gave['status'])})"


def _given(gave: Mapping[str, Any], took: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """When the program was told, had its checkpoint and made its last call; for how long both used the GPU."""
    moments = {key: gave[key] for key in ("opened_s", "began_s", "told_s", "ended_s")}
    moments["saved_s"] = (gave["kept"] or {}).get("saved_s")
    opened, began, told, ended, saved = (number(value, f"move: gave: {key}") for key, value in moments.items())
    if not opened < began < told <= saved <= ended:
        raise ParseError("move: gave: its times are not in their order")
    if gave["kept"]["steps"] != gave["steps"]:
        raise ParseError("move: gave: its checkpoint is not of all its steps")
    if gave["devices"][0]["uuid"] != took["devices"][0]["uuid"]:
        raise ParseError("move: the other trained on another GPU than that which was given: nothing moved")
    return told, saved, ended, max(0.0, ended - real(took["opened_s"], "move: took: its first call"))


def _record(lease: Mapping[str, Any], key: str, name: str) -> int:
    start, end = (int(count(lease[moment], f"move: {name}: {moment}")) for moment in ("start_s", "end_s"))
    if not 0 < start <= end:
        raise ParseError(f"move: the lease of {name} ended before it began")
    return int(lease[key])


# ----------------------------------------------------------------------------------------------------------------------
# Judging a GPU that changed hands: nothing is lost or held twice, on any device; how long it took is reported.


def said(it: Moved) -> str:
    """What happened when, in words."""
    told = (
        "not notified"
        if it.told_s is None
        else f"notified after {it.told_s:.1f} s, its work kept after {it.saved_s or 0:.1f} s"
    )
    where = "elsewhere" if it.elsewhere else "on the same GPU"
    lost = (
        "" if it.steps_lost is None else f", {it.steps_lost} of {number_of(it.steps_kept + it.steps_lost, 'step')} lost"
    )
    return (
        f"{it.took} took a GPU from {it.gave}: {told}, given back after {it.gone_s:.1f} s; the other's first step "
        f"after {it.first_step_s:.1f} s; it went on {where} after {it.resumed_s:.1f} s{lost}"
    )


@method("remote-move", "what must not be where a GPU changes hands under a program that trains, and how long it took")
def judge_remote_move(case: Case, criterion: Criterion) -> list[Judgement]:
    """For each measurement; a pool whose policy lets nobody take a GPU back has nothing to judge, with that reason."""
    return [_move(case, criterion, job) for job in case.serving(criterion)]


def _move(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject = Subject.node(str(job.params.get("server") or job.nodes[-1]), loaded(job))
    return judge_wrong(case, criterion, job, subject, _happened)


def _happened(result: Result) -> Happened:
    facts = result.facts_of(MoveFacts)
    if facts is None or facts.unmade or facts.moved is None:
        return Happened(facts.unmade if facts is not None else "", None)
    emulated = " (GPUs are emulated: the times are those of the pool, not of a GPU)" if facts.emulated else ""
    return Happened("", facts.wrong(), f"{said(facts.moved)}{emulated}")
