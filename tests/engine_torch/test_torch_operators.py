"""Torch's own samples of operators, by the engine and on the processor: every value read, compared by its bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.torch_sweep import LISTS, faults, known, sweep

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

MOST = {"forward": 0.005, "backward": 0.005, "out": 0.003, "inplace": 0.0, "errors": 0.0}
"""The part of the operators that may be on the list of a way, besides those that a sentence refuses (sparse)."""
LEAST = {"forward": 680, "backward": 520, "out": 330, "inplace": 150, "errors": 200}
WAYS = ("forward", "backward", "out", "inplace", "errors")


@pytest.mark.parametrize("way", WAYS)
def test_operators_give_what_the_processor_gives(way: str, torch_server: Server, counted: list[str]) -> None:
    """All samples of all operators: results, gradients, `out=`, in place, and the class of what is refused."""
    swept = sweep(way, torch_server)
    counted.append(swept.line())
    assert swept.ran() > LEAST[way]
    path = LISTS / f"operators_{way}.txt"
    assert not faults(path, swept.failed(), set(swept.results))
    assert len(set(known(path)) - swept.refused()) <= MOST[way] * swept.ran()
