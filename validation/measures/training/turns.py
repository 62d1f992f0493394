"""Short trainings in turns: each job's output under its heading, which the parser of the short job reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from validation.analysis.denial import explains, loss_of
from validation.analysis.scaling import average_rate, efficiency
from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.attempts import too_noisy
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import STEPS, against, impossible, most_of, where
from validation.kinds.parsing import Parsed, ParseError, short
from validation.kinds.record import names
from validation.kinds.trained import NO_MPIRUN, config_of, words_of
from validation.measures.training import parse as training_parse
from validation.measures.training.facts import Cores, Layout, RankDevice, TrainingFacts, Turn, TurnsFacts
from validation.measures.training.nccl_log import nccl_path
from validation.measures.training.training_turns_probe import HEADING
from validation.model import Bound, Judgement, Measurement, Sample, Scalar, Subject
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion


def metric_of(way: str) -> str:
    """`images_per_s_2x4` of `2x4`."""
    return "images_per_s_" + way.replace("-", "_")


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`images_per_s_WAY` of the whole job, one sample for each measured step of each turn of that way."""
    planned = params.get("ways")
    ways = tuple(map(str, planned)) if isinstance(planned, tuple | list) else ()
    outputs, logs = _parts(doc["stdout"]), _parts(doc["stderr"])
    if not outputs or set(outputs) < set(logs):
        raise ParseError("training in turns: no job's output is there, or less than of the logs")
    turns: list[Turn] = []
    jobs: list[TrainingFacts] = []
    devices: dict[RankDevice, None] = {}
    for (turn, of, way), stdout in outputs.items():
        if of != params.get("turns", of) or (ways and way not in ways):
            raise ParseError(f"training in turns: turn {turn} of {of}, {short(way)}, was not planned")
        part = cast(ProbeDoc, {**doc, "stdout": stdout, "stderr": logs.get((turn, of, way), ""), "facts": {}})
        one, made = _turn(part, params, turn, way)
        turns.append(made)
        jobs.append(one)
        devices |= dict.fromkeys(one.devices)
    first = jobs[0]
    found = TurnsFacts(
        turns=tuple(turns), python=first.python, torch=first.torch, horovod=first.horovod, framework=first.framework,
        devices=tuple(devices),
    )  # fmt: skip
    _whole(found, int(str(params.get("turns", 1))), ways or found.ways())
    return [
        Sample(metric=metric_of(turn.way), value=rate, unit="images/s") for turn in turns for rate in turn.images_per_s
    ], found


def _parts(text: str) -> dict[tuple[int, int, str], str]:
    """(turn, of how many, way) -> output of its job."""
    words = HEADING.split(text)
    found: dict[tuple[int, int, str], str] = {}
    for turn, of, way, output in zip(words[1::4], words[2::4], words[3::4], words[4::4], strict=True):
        if (key := (int(turn), int(of), way)) in found:
            raise ParseError(f"training in turns: two jobs are turn {turn}, {short(way)}")
        found[key] = output
    return found


def _turn(doc: ProbeDoc, params: Mapping[str, Scalar], turn: int, way: str) -> tuple[TrainingFacts, Turn]:
    asked = dict(params)
    if layout := Layout.of(way):
        asked |= {"ranks_per_node": layout.each, "ranks": layout.ranks}
    report = training_parse.report_of(doc)
    said = short(str(report.get("cannot", "")))
    if said:
        return training_parse.without_rates(doc, report, asked), Turn(way=way, turn=turn, cannot=said)
    samples, facts = training_parse.parse(doc, asked)
    if not isinstance(facts, TrainingFacts):  # which the parser gives
        raise ParseError("training in turns: a job without facts")
    path = nccl_path(doc["stdout"] + "\n" + doc["stderr"], facts.hosts)
    across = [channel.gdr for channel in path.channels if channel.across]
    return facts, Turn(
        way=way,
        turn=turn,
        images_per_s=tuple(s.value for s in samples if s.metric == "images_per_s"),
        ranks=facts.world_size,
        nodes=len(set(facts.hosts)),
        carriers=facts.carriers,
        gpudirect=any(across) if across else None,
        input_s=facts.input_s,
        source=facts.source,
        workers=facts.workers,
        launcher=facts.launcher,
    )


def _whole(found: TurnsFacts, turns: int, ways: tuple[str, ...]) -> None:
    """ParseError unless each way has all of its turns, or said why it has none."""
    for way in ways:
        mine = [turn for turn in found.turns if turn.way == way]
        cannot = any(turn.cannot for turn in mine)
        if not mine or (not cannot and len(mine) != turns):
            raise ParseError(f"training in turns: {len(mine)} of {number_of(turns, 'turn')} of {short(way)} are there")
    if not any(turn.images_per_s for turn in found.turns):
        raise ParseError("training in turns: no way could be taken")


# ----------------------------------------------------------------------------------------------------------------------
# Judging trainings that were taken in several ways in turns: the ratio of two ways, with its interval. What a way is
# called is what was asked for. Where the log can tell whether it was taken (RDMA, TCP, GPUDirect), it must, or
# nothing is compared.


KNEE = 0.95
"""Share of the fastest rate that is enough: from the knee on more processors bring less than the rest. Ours."""
SHOWS_RDMA = "vgg16"
"""Of published networks the one whose rate depends on the transport: horovod pull request 44."""

Proof = Callable[[Turn], str]
"""Why a turn was not what its way says, in words; "" where the log proves that it was."""


def _subject(job: Measurement, words: str) -> Subject:
    trained = words_of(job)
    return where(names(job, "hosts"), f"{words}, {trained}" if trained else words)


def _proved(_: Turn) -> str:
    return ""


def _facts(case: Case, criterion: Criterion, job: Measurement, subject: Subject) -> list[TurnsFacts] | Judgement:
    """What every attempt found out; a judgement where one cannot be used."""
    gone = unusable(case, criterion, subject, (job.id,), None)
    if gone is not None:
        return gone
    found = [facts for result in case.tries(job.id) if (facts := result.facts_of(TurnsFacts)) is not None]
    if len(found) != len(case.tries(job.id)):
        why = f"{job.id} has a result, but no turns in it"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id])
    return found


def _rates(case: Case, job: Measurement, facts: Sequence[TurnsFacts], way: str, proof: Proof) -> list[float] | str:
    """Images/s of all steps of a way, of all attempts, or why there are none to be used."""
    turns, steps = int(str(job.params["turns"])), int(str(job.params["steps"]))
    for each in facts:
        cannot = [turn.cannot for turn in each.turns if turn.way == way and turn.cannot]
        if cannot:
            return f"{way}: {cannot[0]}"
        mine = each.of(way)
        if len(mine) != turns or any(len(turn.images_per_s) != steps for turn in mine):
            return f"{job.id}: of {way} not all of {number_of(turns, 'turn')} with {number_of(steps, 'step')} are there"
        told = [why for turn in mine if (why := proof(turn))]
        if told:
            return f"{way}: {told[0]}"
    rates = [rate for result in case.tries(job.id) for rate in result.values(metric_of(way))]
    wrong = impossible(rates, STEPS, "", most_of(case, None, rates, STEPS)) if rates else "no samples"
    return f"{way}: {wrong}" if wrong else rates


def _ratio(
    case: Case,
    criterion: Criterion,
    job: Measurement,
    subject: Subject,
    ways: tuple[str, str],
    proofs: tuple[Proof, Proof] = (_proved, _proved),
    judged: bool = True,
    more: str = "",
    times: int = 1,
) -> Judgement:
    """The first way over the second, against the criterion's bound where there is one and it is to be judged.

    `times`: how many times the ranks of the second the first has.
    """
    facts = _facts(case, criterion, job, subject)
    if isinstance(facts, Judgement):
        return facts
    first, second = (_rates(case, job, facts, way, proof) for way, proof in zip(ways, proofs, strict=True))
    if isinstance(first, str) or isinstance(second, str):
        why = first if isinstance(first, str) else str(second)
        return judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id])
    found = efficiency(first, second, times)
    count = min(len(first), len(second))
    summary = Summary(median=found.value, mad=0.0, low=found.low, high=found.high, count=count)
    count_of = f"{times} x " if times > 1 else ""
    text = f"{ways[0]} {found.rate:.4g} images/s / {count_of}{ways[1]} {found.single:.4g} = {found.value:.3f}"
    text += f"; {more}" if more else ""
    if criterion.bound.value is None or not judged:
        why = f"reported, not judged: {text}"
        return judgement(
            criterion, subject, "not-applicable", "reported", why, [job.id], summary=summary, text=text
        )  # fmt: skip
    if case.virtual and criterion.rehearsal.judge == "not-judged":
        why = f"{criterion.rehearsal.why}: {text}, not judged"
        return judgement(
            criterion, subject, "not-measured", "virtual", why, [job.id], summary=summary, text=text
        )  # fmt: skip
    words = f"{criterion.bound.words} ({criterion.source})"
    bound = Bound(
        metric=f"{criterion.id}_ratio", unit="ratio", floor=criterion.bound.value, derivation=(words,),
        source=criterion.source,
    )  # fmt: skip
    result = against(criterion, subject, [job.id], summary, bound)
    result = result.model_copy(update={"text": text, "reason": f"{result.reason}; {text}"})
    loss = loss_of(case.tries(job.id))
    return too_noisy(result, loss) if explains(loss, result) else result


@method("layouts", "one world on several nodes over the same on one, in turns", figures=True, counts="jobs")
def judge_layouts(case: Case, criterion: Criterion) -> list[Judgement]:
    """One world on several nodes over the same on one, for each number of nodes."""
    found = []
    for job in case.serving(criterion):
        one, *several = names(job, "ways")
        for way in several:
            found.append(_ratio(case, criterion, job, _subject(job, f"{way} beside {one}"), (way, one)))
    return found


@method("worlds", "larger worlds over one rank, in turns", figures=True, counts="jobs")
def judge_worlds(case: Case, criterion: Criterion) -> list[Judgement]:
    """Scaling efficiency of each larger world over one rank, of jobs that were taken in turns."""
    found = []
    for job in case.serving(criterion):
        one, *larger = [layout for way in names(job, "ways") if (layout := Layout.of(way))]
        for way in larger:
            subject = _subject(job, f"{way} beside {one}")
            found.append(_ratio(case, criterion, job, subject, (str(way), str(one)), times=way.ranks))
    return found


@method("twin", "torchrun over mpirun, in turns", counts="jobs")
def judge_twin(case: Case, criterion: Criterion) -> list[Judgement]:
    """torchrun and torch's own all-reduce over mpirun and what the image has with it, on all nodes.

    Not applicable to an image without mpirun: a site may choose one, and would else never be accepted.
    """
    found = []
    for job in case.serving(criterion):
        whole = [way for way in names(job, "ways") if Layout.of(way)][-1]
        subject, ways = _subject(job, "torchrun beside mpirun"), ("torchrun", whole)
        facts = _facts(case, criterion, job, subject)
        mine = [] if isinstance(facts, Judgement) else [turn for each in facts for turn in each.of(whole)]
        if mine and all(turn.launcher == "torchrun" for turn in mine):
            why = f"{whole}: {NO_MPIRUN}, so torchrun launched it"
            found.append(judgement(criterion, subject, "not-applicable", "not-applicable", why, [job.id]))
        else:
            found.append(_ratio(case, criterion, job, subject, ways, (_proved, _by_mpirun)))
    return found


def _by_mpirun(turn: Turn) -> str:
    return f"{NO_MPIRUN}, so torchrun launched it" if turn.launcher == "torchrun" else ""


def _on_rdma(turn: Turn) -> str:
    other = [str(c) for c in turn.carriers if not c.rdma]
    if other:
        return f"{'; '.join(other)}: not the fabric's RDMA"
    return "" if turn.carriers else "the log does not tell what MPI or NCCL took between the nodes"


def _on_tcp(turn: Turn) -> str:
    other = [str(c) for c in turn.carriers if c.rdma]
    if other:
        return f"{'; '.join(other)}: TCP was asked for"
    return "" if turn.carriers else "the log does not tell what MPI or NCCL took between the nodes"


@method("over-tcp", "RDMA over TCP in turns, each proved by the logs", figures=True, counts="jobs")
def judge_over_tcp(case: Case, criterion: Criterion) -> list[Judgement]:
    """RDMA over TCP on the same nodes, each proved by the log; judged of the network that shows it, on GPUs."""
    return [
        _ratio(
            case, criterion, job, _subject(job, "RDMA beside TCP"), ("rdma", "tcp"), (_on_rdma, _on_tcp),
            judged=case.virtual or (config_of(job)[0] == SHOWS_RDMA and job.params.get("device") == "gpu"),
        )
        for job in case.serving(criterion)
    ]  # fmt: skip


def _direct(turn: Turn) -> str:
    if turn.gpudirect is None:
        return "NCCL's log does not tell of its connections between the nodes"
    return "" if turn.gpudirect else "NCCL took no GPUDirect RDMA, says its log (see pf.gpudirect, pf.numa)"


def _indirect(turn: Turn) -> str:
    if turn.gpudirect is None:
        return "NCCL's log does not tell of its connections between the nodes"
    return "NCCL took GPUDirect RDMA all the same, says its log" if turn.gpudirect else ""


@method("gdr", "with GPUDirect over without, in turns, proved by NCCL's log", figures=True, counts="jobs")
def judge_gpudirect_turns(case: Case, criterion: Criterion) -> list[Judgement]:
    """With GPUDirect RDMA over without it, each proved by NCCL's log."""
    return [_gpudirect(case, criterion, job) for job in case.serving(criterion)]


def _gpudirect(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    """Where NCCL by itself takes none there is nothing to compare: adapter and GPU are far from each other, or a module
    is missing, which pf.gpudirect and tr.ncclpath judge.
    """
    subject = _subject(job, "with GPUDirect beside without")
    facts = _facts(case, criterion, job, subject)
    if isinstance(facts, Judgement):
        return facts
    if all((turns := each.of("gdr-on")) and all(turn.gpudirect is False for turn in turns) for each in facts):
        why = "NCCL took no GPUDirect RDMA on these nodes, says its log (see pf.gpudirect and pf.numa)"
        return judgement(criterion, subject, "not-applicable", "not-applicable", why, [job.id])
    return _ratio(case, criterion, job, subject, ("gdr-on", "gdr-off"), (_direct, _indirect))


@method("input", "images of files over synthetic ones, in turns", figures=True, counts="jobs")
def judge_input(case: Case, criterion: Criterion) -> list[Judgement]:
    """Images of files over synthetic ones on the device."""
    return [
        _ratio(
            case, criterion, job, _subject(job, "files beside synthetic"), ("real", "synthetic"),
            more=_waited(case, job),
        )
        for job in case.serving(criterion)
    ]  # fmt: skip


def _waited(case: Case, job: Measurement) -> str:
    """What was read, and how long a step waits for it."""
    result = case.usable(job.id)
    facts = result.facts_of(TurnsFacts) if result else None
    turns = facts.of("real") if facts else ()
    if not turns or turns[-1].input_s is None:
        return ""
    last = turns[-1]
    images = int(str(job.params["batch"])) * last.ranks
    step, waits = images / average_rate(last.images_per_s), last.input_s or 0.0
    return (
        f"a step of {step * 1e3:.4g} ms waits {waits * 1e3:.4g} ms ({waits / step:.0%}) for images; {last.source}; "
        f"{number_of(last.workers, 'process')} of each rank"
    )


@method("cores", "images/s over processors of each rank, and the knee", figures=True, counts="jobs")
def judge_cores(case: Case, criterion: Criterion) -> list[Judgement]:
    """Images/s over processors of each rank, and the least number that has `KNEE` of the fastest rate."""
    return [_cores(case, criterion, job) for job in case.serving(criterion)]


def _cores(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject = _subject(job, "processors of each rank")
    facts = _facts(case, criterion, job, subject)
    if isinstance(facts, Judgement):
        return facts
    rates, cannot = {}, []
    asked = {cores for way in names(job, "ways") if (cores := Cores.of(way))}
    for cores in sorted(asked):
        found = _rates(case, job, facts, str(cores), _proved)
        if isinstance(found, str):
            cannot.append(found)
        else:
            rates[cores.each] = average_rate(found)
    if len(rates) < 2:
        why = "; ".join([f"one number of processors makes no curve: {', '.join(map(str, rates)) or 'none'}", *cannot])
        if all(any(t.way == str(n) and t.cannot for t in facts[-1].turns) for n in asked if n.each not in rates):
            return judgement(criterion, subject, "not-applicable", "not-applicable", why, [job.id])
        return judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id])
    knee = knee_of(rates)
    text = ", ".join(f"{each}: {rate:.4g} images/s" for each, rate in sorted(rates.items()))
    most = max(rates)
    shown = f"{knee} of a rank's processors give {KNEE:.0%} of the fastest rate ({text})"
    if knee == most:
        shown = f"no knee up to {most} processors of a rank ({text})"
    shown += f"; {'; '.join(cannot)}" if cannot else ""
    value = Summary(median=float(knee), mad=0.0, low=float(knee), high=float(knee), count=len(rates))
    why = f"reported, not judged: {shown}"
    return judgement(criterion, subject, "not-applicable", "reported", why, [job.id], summary=value, text=shown)


def knee_of(rates: dict[int, float]) -> int:
    """The least number of processors whose rate is `KNEE` of the fastest; ValueError where there is none."""
    most = max(rates.values())
    return min(cores for cores, rate in rates.items() if rate >= KNEE * most)
