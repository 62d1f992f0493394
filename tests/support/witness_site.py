"""A site that a witness takes apart: what is watched of it follows from what the witness answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.site import healthy, lab, plan_of, write_run
from toolkit.handover.witnessing import Talk
from validation.measures.witness.witnessed import Line
from validation.model import Topology
from validation.model.witness import Sense, WitnessTest
from validation.rules.witness import built_in

Change = tuple[Sense, str, str, str]
OWN = WitnessTest.model_validate(
    {"id": "ups", "title": "One UPS off", "node": "gpu2", "do": "Switch off the UPS of {node}", "undo": "Switch it on",
     "loses": "nothing", "seen_by": ["bmc"], "seen_within_s": 1, "back_within_s": 1}
)  # fmt: skip


class Rack:
    """`acts`: for each answer of the witness, what it changes in the site. None ends the answers."""

    def __init__(self, answers: Sequence[str | None], acts: Sequence[Sequence[Change]]) -> None:
        self.answers, self.acts = list(answers), list(acts)
        self.said: list[str] = []
        self.now: dict[tuple[Sense, str, str], str] = {
            **{("node", name, ""): "answers" for name in ("head", "client1", "gpu1", "gpu2")},
            **{("link", name, "fab0"): "up" for name in ("gpu1", "gpu2")},
            ("slurm", "gpu1", ""): "serves",
            ("bmc", "gpu1", "power supply 1"): "OK",
            ("bmc", "gpu2", "power supply 1"): "OK",
        }
        self.tell: Callable[[Line], None] = lambda _: None

    def put(self, sense: Sense, node: str, what: str, value: str) -> None:
        self.now[sense, node, what] = value
        self.tell(Line(at=time.time(), sense=sense, node=node, what=what, value=value))

    @contextmanager
    def watching(self, tell: Callable[[Line], None]) -> Iterator[Rack]:
        self.tell = tell
        for (sense, node, what), value in list(self.now.items()):
            self.put(sense, node, what, value)
        yield self
        self.tell = lambda _: None

    def ready(self) -> bool:
        return True

    def ask(self, words: str) -> str:
        self.said.append(words)
        answer, act = self.answers.pop(0), self.acts.pop(0) if self.acts else ()
        if answer is None:
            raise EOFError
        for change in act:
            self.put(*change)
        return answer

    @property
    def talk(self) -> Talk:
        return Talk(self.said.append, self.ask)


def short_list() -> tuple[WitnessTest, ...]:
    """The built-in list, which waits for a second at most."""
    return tuple(test.model_copy(update={"seen_within_s": 1.0, "back_within_s": 1.0}) for test in built_in())


def run_with_tests(folder: Path, *own: WitnessTest) -> Path:
    """A run of the lab with suite witness, of which the looks at the nodes are measured."""
    topology: Topology = lab().model_copy(update={"witness": own})
    plan = plan_of(topology, ("preflight", "witness"))
    others = [healthy(m) for m in plan.measurements if m.kind != "witness"]
    return write_run(folder / plan.run, topology, plan, others, judged=False)
