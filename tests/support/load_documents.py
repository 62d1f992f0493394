"""A lab's documents of trainings by a framework, and sites whose inventory gives them its engine."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from validation.measures.remoting.train import HEADING
from validation.model import Topology

Report = dict[str, Any]
Change = Callable[[int, str, int, Report], object]


class Recorded:
    """One of tests/data."""

    def __init__(self, name: str) -> None:
        record = json.loads((Path(__file__).parents[1] / "data" / name).read_text())
        self.params: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record["params"].items()}
        self._document = record["document"]

    def document(self, change: Change = lambda *_: None, **facts: Any) -> Any:
        """The lab's, with some job's report changed."""
        made = copy.deepcopy(self._document)
        words = HEADING.split(made["stdout"])
        lines = []
        for turn, of, way, batch, text in zip(*(words[at::5] for at in range(1, 6)), strict=True):
            report = json.loads(text)
            change(int(turn), way, int(batch), report)
            lines.append(f"== turn {turn} of {of}: {way} {batch}\n{json.dumps(report)}\n")
        return {**made, "stdout": "".join(lines), "facts": {**made["facts"], **facts}}


def of_job(turn: int, way: str, batch: int, **changes: Any) -> Change:
    """Changes the report of one job."""
    return lambda *who: who[3].update(changes) if who[:3] == (turn, way, batch) else None


def with_engine(topology: Topology, *frameworks: str) -> Topology:
    """The same site, whose inventory gives it the engines of these frameworks."""
    given = {f"{one}_engine": True for one in frameworks}
    nodes = tuple(node.model_copy(update=given) for node in topology.nodes)
    return topology.model_copy(update={"nodes": nodes})
