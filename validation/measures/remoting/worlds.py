"""Facts of one training on several GPUs in several places (kinds remoting-scale, remoting-layout)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from validation.analysis.denial import explains, loss_of
from validation.analysis.scaling import Efficiency, efficiency
from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.attempts import too_noisy
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import STEPS, against, bound_of, impossible, most_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, short
from validation.measures.remoting.facts import Trained
from validation.measures.remoting.remoting_layout_probe import layouts
from validation.measures.remoting.remoting_scale_probe import ONE, prefixes
from validation.measures.remoting.remoting_worlds_probe import HEADING
from validation.measures.remoting.train import load_of, loaded, of_load, same_keys, trained
from validation.measures.remoting.train_judge import unjudged
from validation.model import Judgement, Measurement, Sample, Scalar, Subject
from validation.model.base import Model
from validation.model.facts import Count, Name, Positive, once
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion


class World(Model):
    """One job of elastic-ai-train. images_per_s: of each step but the first, which pays for what is done once. losses:
    of each step. weights_sha256: of the weights at its end.
    """

    name: Name
    turn: Count
    gpus: Count = Field(ge=1)
    images_per_s: tuple[Positive, ...] = Field(min_length=1)
    losses: tuple[Positive, ...] = Field(min_length=2)
    weights_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class WorldsFacts(Trained):
    """Jobs in the order in which they ran. batch: images of a step on each GPU. client: where the program ran."""

    type: Literal["remote-worlds"] = "remote-worlds"
    client: Name
    servers: tuple[Name, ...] = Field(min_length=1)
    device: Name
    batch: Count = Field(ge=1)
    inputs: Count
    hidden: Count
    steps: Count = Field(ge=2)
    worlds: tuple[World, ...] = Field(min_length=1)

    @field_validator("worlds")
    @classmethod
    def _worlds_once(cls, worlds: tuple[World, ...]) -> tuple[World, ...]:
        return once(worlds, "name", "turn")

    def names(self) -> tuple[str, ...]:
        """Each name once, in the order of the first turn."""
        return tuple(dict.fromkeys(world.name for world in self.worlds))

    def of(self, name: str) -> list[World]:
        """The jobs of that name."""
        return [world for world in self.worlds if world.name == name]

    def differing(self) -> list[str]:
        """The jobs that computed something else than the first on as many GPUs, in words: these share each batch in the
        same way, wherever they are."""
        first: dict[int, World] = {}
        found = []
        for world in self.worlds:
            known = first.setdefault(world.gpus, world)
            if (world.losses, world.weights_sha256) != (known.losses, known.weights_sha256):
                found.append(f"turn {world.turn}, {world.name}")
        return found


# ----------------------------------------------------------------------------------------------------------------------
# Trainings on several GPUs: over more and more servers (remoting-scale), and in layouts (remoting-layout).


Report = Mapping[str, Any]
Wanted = Mapping[str, int]  # a job's name -> its GPUs


def metric_of(name: str) -> str:
    """`images_per_s_L2R2`."""
    return f"images_per_s_{name}"


def scale(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`images_per_s_NAME`: one sample for each step but the first of each turn; `differing_runs`: how many jobs
    computed something else than the first on as many GPUs.
    """
    raw = doc["facts"]
    servers = tuple(map(str, raw["servers"]))
    expect(params, "servers", servers, "scaling: servers")
    gpus = [int(count(value, "scaling: GPUs of a server")) for value in raw["gpus"]]
    if len(gpus) != len(servers) or not servers or not all(gpus):
        raise ParseError(f"scaling: {number_of(len(gpus), 'number')} of GPUs for {number_of(len(servers), 'server')}")
    wanted = {ONE: 1, **{f"servers-{many}": sum(gpus[:many]) for many in prefixes(len(servers))}}
    reports = _reports(doc["stdout"], wanted, params, "scaling")
    return _parsed(raw, servers, reports, params, "scaling")


def layout(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """The same of layouts, whose GPUs must be those of the servers that each layout names."""
    raw = doc["facts"]
    expect(params, "server", raw["server"], "layouts: server")
    expect(params, "other", raw["other"], "layouts: other server")
    gpus, other = int(count(raw["gpus"], "layouts: GPUs")), str(raw["other"])
    if not gpus:
        raise ParseError("layouts: on no GPU")
    wanted = dict.fromkeys(layouts(gpus, other), gpus)
    reports = _reports(doc["stdout"], wanted, params, "layouts")
    own, others = ([str(uuid) for uuid in raw[key]] for key in ("own", "others"))
    for (turn, name), report in reports.items():
        mine = [device["uuid"] for device in report["devices"]]
        there = sum(uuid in own for uuid in mine), sum(uuid in others for uuid in mine)
        half = gpus // 2
        expected = (half, half) if "L" in name and "R" in name else (0, gpus) if "R" in name else (gpus, 0)
        if there != expected:
            raise ParseError(f"layouts: turn {turn}, {name}: {there[0]} own GPUs and {there[1]} of the other server")
        if name.startswith("N") and report["servers"]:
            raise ParseError(f"layouts: turn {turn}, {name}: its GPUs were reached through an engine")
    return _parsed(raw, (str(raw["server"]), *([other] if other else [])), reports, params, "layouts")


def _reports(text: str, wanted: Wanted, params: Mapping[str, Scalar], what: str) -> dict[tuple[int, str], Report]:
    """(turn, name) -> its document; ParseError unless all that are wanted are there, each once, on so many GPUs."""
    words = HEADING.split(text)
    if len(words) == 1:
        raise ParseError(f"{what}: no job's output is there")
    if words[0].strip():
        raise ParseError(f"{what}: {short(words[0].strip())} stands before the first job")
    found: dict[tuple[int, str], Report] = {}
    turns = int(words[2])
    for turn, of, name, gpus, output in zip(*(words[at::5] for at in range(1, 6)), strict=True):
        key = (int(turn), name)
        if key in found or int(of) != turns:
            raise ParseError(f"{what}: turn {turn}, {name}: is there twice, or of another number of turns")
        found[key] = json_object(output, f"{what}: turn {turn}, {name}")
        if wanted.get(name) != int(gpus) or found[key]["gpus"] != int(gpus):
            raise ParseError(f"{what}: turn {turn}, {name}: on another number of GPUs than planned")
    expect(params, "turns", turns, f"{what}: turns")
    all_wanted = {(turn, name) for turn in range(1, turns + 1) for name in wanted}
    if set(found) != all_wanted:
        raise ParseError(
            f"{what}: {len(all_wanted & set(found))} of {number_of(len(all_wanted), 'planned job')} are there"
        )
    return found


def _parsed(
    raw: Mapping[str, Any],
    servers: Sequence[str],
    reports: Mapping[tuple[int, str], Report],
    params: Mapping[str, Scalar],
    what: str,
) -> Parsed:
    first = next(iter(reports.values()))
    worlds = []
    for (turn, name), report in reports.items():
        whose = f"{what}: turn {turn}, {name}"
        times, losses = trained(report, whose, int(report["gpus"]), load_of(params))
        if other := [key for key in same_keys(params) if report[key] != first[key]]:
            raise ParseError(f"{whose}: {other[0]} is not that of the first job")
        if report["batch"] * first["gpus"] != first["batch"] * report["gpus"]:
            raise ParseError(f"{whose}: another share of images for each GPU than in the first job")
        rates = [report["batch"] / seconds for seconds in times[1:]]
        world = {"name": name, "turn": turn, "gpus": report["gpus"], "images_per_s": rates, "losses": losses}
        worlds.append({**world, "weights_sha256": report["weights_sha256"]})
    for key in ("steps", "inputs", "hidden"):
        expect(params, key, first[key], f"{what}: {key}")
    batch = first["batch"] // first["gpus"]
    expect(params, "batch", batch, f"{what}: batch")
    if flag(raw["emulated"], "emulated") != flag(first["emulated"], f"{what}: emulated"):
        raise ParseError(f"{what}: pool and program do not agree whether the GPUs are emulated")
    facts = as_facts(
        WorldsFacts,
        {
            **{key: raw[key] for key in ("emulated", "engine", "engine_release", "client")},
            **{key: first[key] for key in ("inputs", "hidden", "steps")},
            **of_load(first, params),
            "servers": list(servers),
            "device": first["devices"][0]["name"],
            "batch": batch,
            "worlds": worlds,
        },
        what,
    )
    samples = [Sample(metric="differing_runs", value=len(facts.differing()), unit="count")]
    samples += [
        Sample(metric=metric_of(world.name), value=rate, unit="images/s")
        for world in facts.worlds
        for rate in world.images_per_s
    ]
    return samples, facts


# --- Judging a training on several GPUs: over more and more servers, and in layouts beside the native one ------------
# That as many GPUs compute the same wherever they are is judged on any device; rates of emulated GPUs, and of virtual
# machines, are shown and judged on nothing.


def _rates(case: Case, job: Measurement, name: str) -> list[float] | str:
    """Of every step that counts, of all attempts, or why there are none to be used."""
    tries = case.tries(job.id)
    found = [s.value for r in tries for s in r.samples if s.metric == metric_of(name) and s.unit == STEPS]
    turns, steps = int(str(job.params.get("turns", 0))), int(str(job.params.get("steps", 0)))
    if not found or len(found) != len(tries) * turns * (steps - 1):
        return f"{job.id}: {name}: not all of {number_of(turns, 'turn')} with {number_of(steps, 'step')} are there"
    return impossible(found, STEPS, "", most_of(case, None, found, STEPS)) or found


def _facts(case: Case, job: Measurement) -> list[WorldsFacts] | str:
    tries = case.tries(job.id)
    facts = [known for result in tries if (known := result.facts_of(WorldsFacts)) is not None]
    if not facts or len(facts) != len(tries) or len({known.names() for known in facts}) != 1:
        return f"{job.id} has a result, but not of these trainings"
    return facts


def _over(case: Case, job: Measurement, name: str, base: str, times: int) -> tuple[Efficiency, int] | str:
    """Rate of a job over `times` that of another, and of how many samples."""
    both = [_rates(case, job, which) for which in (name, base)]
    rates = [each for each in both if not isinstance(each, str)]
    if len(rates) < 2:
        return next(each for each in both if isinstance(each, str))
    return efficiency(rates[0], rates[1], times), min(map(len, rates))


def _summary(found: Efficiency, count: int) -> Summary:
    return Summary(median=found.value, mad=0.0, low=found.low, high=found.high, count=count)


def _about(job: Measurement, words: str = "") -> Subject:
    return Subject.node(job.nodes[0], ", ".join(filter(None, (loaded(job), words))))


def _different(facts: Sequence[WorldsFacts]) -> str:
    """The jobs that computed something else than others on as many GPUs, "" where there are none."""
    wrong = [words for known in facts for words in known.differing()]
    return f"{len(wrong)} trainings computed something else: {'; '.join(wrong[:4])}" if wrong else ""


@method("remote-scale", "a training on more and more GPUs from one client over one GPU, in turns", counts="jobs")
def judge_remote_scale(case: Case, criterion: Criterion) -> list[Judgement]:
    """Rate over more and more GPUs, over as many times that of one: reported. The same GPUs compute the same in each
    turn: that is judged."""
    judged: list[Judgement] = []
    for job in case.serving(criterion):
        subject = _about(job)
        gone = unusable(case, criterion, subject, (job.id,), None)
        if gone is not None:
            judged.append(gone)
            continue
        facts = _facts(case, job)
        if isinstance(facts, str):
            judged.append(judgement(criterion, subject, "not-measured", "missing-metric", facts, [job.id]))
            continue
        if wrong := _different(facts):
            judged.append(judgement(criterion, subject, "fail", "not-equal", wrong, [job.id]))
            continue
        emulated = "GPUs are emulated: " if any(known.emulated for known in facts) else ""
        base, *more = facts[0].names()
        for name in more:
            gpus = facts[0].of(name)[0].gpus
            about = _about(job, f"{number_of(gpus, 'GPU')}, {name.replace('-', ' ')}")
            over = _over(case, job, name, base, gpus)
            if isinstance(over, str):
                judged.append(judgement(criterion, about, "not-measured", "missing-metric", over, [job.id]))
                continue
            found, count = over
            text = f"{found.rate:.4g} / ({gpus} x {found.single:.4g} images/s) = {found.value:.3f}"
            summary, why = _summary(found, count), f"reported: {emulated}{text}"
            judged.append(
                judgement(criterion, about, "not-applicable", "reported", why, [job.id], summary=summary, text=text)
            )
    return judged


@method(
    "remote-layouts",
    "a training on GPUs near and far through the engine over natively, in turns",
    figures=True,
    counts="jobs",
)
def judge_remote_layouts(case: Case, criterion: Criterion) -> list[Judgement]:
    """Each layout over the native one, against the fabric's bound."""
    return [judged for job in case.serving(criterion) for judged in _layouts(case, criterion, job)]


def _layouts(case: Case, criterion: Criterion, job: Measurement) -> list[Judgement]:
    evidence, bound = [job.id], bound_of(case, criterion)
    subject = _about(job)
    gone = unusable(case, criterion, subject, evidence, bound)
    if gone is not None:
        return [gone]
    facts = _facts(case, job)
    if isinstance(facts, str):
        return [judgement(criterion, subject, "not-measured", "missing-metric", facts, evidence)]
    if wrong := _different(facts):
        return [judgement(criterion, subject, "fail", "not-equal", wrong, evidence, bound=bound)]
    names = sorted(facts[0].names(), key=lambda name: ("N" not in name, "R" in name, "L" not in name))
    native, *others = names
    loss, judged = loss_of(case.tries(job.id)), []
    for name in others:
        about = _about(job, name)
        over = _over(case, job, name, native, 1)
        if isinstance(over, str):
            judged.append(judgement(criterion, about, "not-measured", "missing-metric", over, evidence))
            continue
        found, count = over
        text = f"{name} {found.rate:.4g} / {native} {found.single:.4g} images/s = {found.value:.3f}"
        summary = _summary(found, count)
        shown = unjudged(case, criterion, any(k.emulated for k in facts), about, summary, text, evidence)
        if shown is not None:
            judged.append(shown)
        elif bound is None:
            why = f"no bound is known for {case.fabric.name}; {text}"
            judged.append(
                judgement(criterion, about, "not-measured", "no-bound", why, evidence, summary=summary, text=text)
            )
        else:
            made = against(criterion, about, evidence, summary, bound)
            made = made.model_copy(update={"text": text, "reason": f"{made.reason}; {text}"})
            judged.append(too_noisy(made, loss) if explains(loss, made) else made)
    if not job.params.get("other"):
        why = f"{job.nodes[0]} is the only GPU server: nothing is remote"
        judged.append(judgement(criterion, _about(job, "R"), "not-measured", "missing-metric", why, evidence))
    elif facts[0].worlds[0].gpus == 1:
        why = "a server has one GPU: no training is half here and half there"
        judged.append(judgement(criterion, _about(job, "LR"), "not-applicable", "not-applicable", why, evidence))
    return judged
