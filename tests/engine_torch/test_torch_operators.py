"""Torch's own samples of operators, by the engine and on the processor: every value read, compared by its bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.torch_sweep import LISTS, faults, known, sweep

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

MOST = {"forward": 0.006, "backward": 0.012, "out": 0.02, "inplace": 0.0, "errors": 0.03}
"""The part of the operators that may be on the list of a way. The aim is 0.005 forward and backward."""
LEAST = {"forward": 680, "backward": 520, "out": 330, "inplace": 150, "errors": 200}
WAYS = ("forward", "backward", "out", "inplace", "errors")
KINDS = ("float64", "float16", "bfloat16", "complex64", "int64", "uint8", "bool")


@pytest.mark.parametrize("way", WAYS)
def test_operators_give_what_the_processor_gives(way: str, torch_server: Server, counted: list[str]) -> None:
    """All samples of all operators: results, gradients, `out=`, in place, and the class of what is refused."""
    swept = sweep(way, torch_server)
    counted.append(swept.line())
    assert swept.ran() > LEAST[way]
    path = LISTS / f"operators_{way}.txt"
    assert not faults(path, swept.failed(), set(swept.results))
    assert len(known(path)) <= MOST[way] * swept.ran()


@pytest.mark.rest
@pytest.mark.parametrize("kind", KINDS)
def test_operators_of_other_kinds_of_numbers(kind: str, torch_server: Server, counted: list[str]) -> None:
    """The same forward and backward with the other kinds of numbers, the first three samples of each operator."""
    for way in ("forward", "backward"):
        if way == "backward" and kind in ("int64", "uint8", "bool"):
            continue
        swept = sweep(way, torch_server, "--kind", kind, "--samples", "3")
        counted.append(f"{kind}: {swept.line()}")
        assert swept.ran() > 100
        assert not faults(LISTS / f"operators_{way}_{kind}.txt", swept.failed(), set(swept.results))
