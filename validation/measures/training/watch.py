"""Judging what the GPUs of a training were doing meanwhile: of each GPU the worst of all jobs that it took part in."""

from __future__ import annotations

from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import subject_of
from validation.kinds.record import names
from validation.measures.gpu.copies_judge import without_gpus
from validation.measures.gpu.watch import GpuWatch
from validation.measures.gpu.watch_judge import Watched, judge_watched
from validation.measures.training.decoder import DecoderFacts
from validation.measures.training.facts import TrainingFacts
from validation.model import Bound, Judgement, ReasonCode, Subject, VerdictName
from validation.rules.criterion import Criterion

ORDER = {"fail": 0, "not-measured": 1, "pass": 2}


@method("training-watch", "what a sampler beside a training saw of each GPU's clocks, power and heat", counts="GPUs")
def judge_training_watch(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each GPU, by its server and PCI address."""
    found = without_gpus(case, criterion)
    if found:
        return found
    lines = (f"{criterion.bound.words} ({criterion.source})",)
    bound = Bound(metric="clocks", unit="", equal=criterion.bound.words, derivation=lines, source=criterion.source)
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    seen: dict[tuple[str, str], list[tuple[str, GpuWatch | None]]] = {}
    for job in case.serving(criterion):
        gone = unusable(case, criterion, subject_of(job), (job.id,), bound)
        if gone is not None:
            found.append(gone)
            continue
        facts = case.latest[job.id].facts_of(TrainingFacts) or case.latest[job.id].facts_of(DecoderFacts)
        ranks = [] if facts is None else list(zip(facts.hosts, facts.devices, strict=False))
        planned, each = names(job, "hosts"), int(str(job.params["ranks_per_node"]))
        gpus = [
            (at, host if host in case.nodes else planned[at // each], device.gpu)
            for at, (host, device) in enumerate(ranks)
            if device.gpu
        ]
        if facts is None or not gpus:
            why = f"{job.id} trained on no GPU, or does not say on which"
            found.append(judgement(criterion, subject_of(job), "not-measured", missing, why, (job.id,), bound=bound))
            continue
        for at, host, address in gpus:
            watch = facts.watches[at] if at < len(facts.watches) else None
            seen.setdefault((host, address), []).append((job.id, watch))
    for (host, address), looks in sorted(seen.items()):
        verdict, code, why = min(
            (_judge(case, address, id_, watch) for id_, watch in looks), key=_worst
        )  # fmt: skip
        evidence = [id_ for id_, _ in looks]
        about = Subject.node(host, f"GPU {address}")
        found.append(judgement(criterion, about, verdict, code, why, evidence, bound=bound))
    return found


def _worst(one: tuple[VerdictName, ReasonCode, str]) -> tuple[int, bool]:
    return ORDER[one[0]], one[1] == "within-bounds"


def _judge(case: Case, address: str, job: str, watch: GpuWatch | None) -> tuple[VerdictName, ReasonCode, str]:
    verdict, code, why = judge_watched(case, Watched(f"GPU {address}", watch, "", loaded=True))
    return verdict, code, f"{job}: {why}"
