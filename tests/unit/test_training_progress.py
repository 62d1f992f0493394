"""Who looks on while a long training runs says a line when it got on, and disturbs nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from tests.support.site import lab, plan_of, result, results_of, write_results
from toolkit.training_progress import telling_of_training, words
from validation.execute import Launcher
from validation.execute.remote import Output
from validation.measures.training.training_progress_probe import Asked, probe
from validation.model import Plan, Result
from validation.probes.asked import read

LAST = {"epoch": 2, "val_top1": 0.5, "val_top5": 0.9}
TOLD: dict[str, Any] = {
    "epoch": 3, "epochs": 90, "step": 120, "steps": 1251, "images_per_s": 2425.0, "loss": 3.2109, "last": LAST,
    "predicted": {"step_s": 0.2, "images_per_s": 4850.0, "input_images_per_s": 9000.0, "hours": 6.3}, "written": 1.0,
}  # fmt: skip


def test_a_line_has_place_loss_accuracy_and_the_time_left_at_the_rate_of_now() -> None:
    said = words(TOLD)
    assert said.startswith("epoch 3 of 90, step 120 of 1251, loss 3.21, validation top-1 50.0% and top-5 90.0% after 2")
    # (88 epochs x 1251 - 120) steps of 0.2 s, at half the predicted rate
    assert said.endswith("2425 images/s, about 12h13m left")
    assert words({**TOLD, "images_per_s": 0.0, "last": None}) == "epoch 3 of 90, step 120 of 1251, loss 3.21"
    assert words({}) == words({**TOLD, "last": {}, "loss": "x"}) == ""


class Node:
    """A node that answers with what is next, and a launcher that reaches it."""

    ended = True

    def __init__(self, answers: Iterator[Any]) -> None:
        self.answers, self.asked = answers, []

    async def start(self, node: str, probe: list[str]) -> Node:
        self.asked.append((node, read(Asked, probe[-1])))
        return self

    async def finish(self) -> Output:
        told = next(self.answers)
        if isinstance(told, Exception):
            raise told
        return Output(0, (json.dumps({"facts": told}) + "\n").encode(), b"")


def looked_on(run_dir: Path, plan: Plan, node: Node, results: list[Result]) -> list[str]:
    said: list[str] = []
    write_results(run_dir, results)

    async def run() -> None:
        async with telling_of_training(cast(Launcher, node), run_dir, plan, said.append, every_s=0.001):
            await asyncio.sleep(0.3)

    asyncio.run(run())
    return said


def test_it_says_what_is_new_once_and_survives_what_goes_wrong(tmp_path: Path) -> None:
    plan = plan_of(lab(), ["training"], options={"data": "tiny", "alone": 1})
    on = {**TOLD, "written": 2.0, "epoch": 4}
    node = Node(iter([TOLD, OSError("gone"), TOLD, {}, on, on, {**on, "written": 3.0}, {**on, "step": 121}]))
    said = looked_on(tmp_path, plan, node, [])
    assert [line.split(", ")[:2] for line in said] == [
        [f"{plan.measurements[0].id}: epoch 4 of 90", "step 120 of 1251"],
        [f"{plan.measurements[0].id}: epoch 4 of 90", "step 121 of 1251"],
    ], "of what lay there before nothing is said"
    assert node.asked[0] == ("gpu1", Asked(checkpoints="/dev/shm/elastic-ai-train-long"))


def test_it_leaves_the_nodes_alone_while_others_are_measured_and_when_the_training_is_over(tmp_path: Path) -> None:
    plan = plan_of(lab(), ["preflight", "training"], options={"data": "tiny", "alone": 1})
    node = Node(iter([TOLD]))
    assert looked_on(tmp_path, plan, node, []) == []
    trainings = [m for m in plan.measurements if m.kind == "training-long"]
    done = [result(m) for m in trainings] + [r for r in results_of(plan.model_copy(update={"measurements": tuple(
        m for m in plan.measurements if m not in trainings)}))]  # fmt: skip
    assert looked_on(tmp_path, plan, node, done) == []
    assert node.asked == []


def test_a_training_that_keeps_nothing_is_not_looked_at(tmp_path: Path) -> None:
    plan = plan_of(lab(), ["training"])
    (m,) = (m for m in plan.measurements if m.kind == "training-long")
    alone = plan.model_copy(update={"measurements": (m,), "rounds": ((m.id,),)})
    node = Node(iter([TOLD, {**TOLD, "written": 2.0, "step": 121}]))
    assert looked_on(tmp_path, alone, node, []) == []
    assert node.asked == []


def test_the_probe_reads_the_file_or_says_that_there_is_none(tmp_path: Path) -> None:
    assert "progress.json" in str(probe(Asked(str(tmp_path), enter=""))["error"])
    (tmp_path / "progress.json").write_text(json.dumps(TOLD))
    doc = probe(Asked(str(tmp_path), enter=""))
    assert (doc["error"], doc["facts"]["step"]) == (None, 120)
    (tmp_path / "progress.json").write_text("{")
    assert "cannot be read" in str(probe(Asked(str(tmp_path), enter=""))["error"])
