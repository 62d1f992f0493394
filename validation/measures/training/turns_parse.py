"""Short trainings in turns: each job's output under its heading, which the parser of the short job reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, short
from validation.measures.training import parse as training_parse
from validation.measures.training.facts import Layout, RankDevice, TrainingFacts, Turn, TurnsFacts
from validation.measures.training.nccl_log import nccl_path
from validation.measures.training.training_turns_probe import HEADING
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc


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
