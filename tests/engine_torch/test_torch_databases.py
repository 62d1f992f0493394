"""Torch's databases of modules and optimisers by the engine, and settings that decide what an operator gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import torch_engine
from tests.support.torch_sweep import LISTS, faults, sweep

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

LEAST = {"modules": 105, "optimizers": 14}
PROGRAM = torch_engine.PROGRAMS / "database_sweep.py"


@pytest.mark.parametrize("way", list(LEAST))
def test_modules_and_optimisers_give_what_the_processor_gives(
    way: str, torch_server: Server, counted: list[str]
) -> None:
    """Forward and backward in both modes; steps in every implementation."""
    swept = sweep(way, torch_server, program=PROGRAM)
    counted.append(swept.line())
    assert swept.ran() >= LEAST[way]
    assert not faults(LISTS / f"{way}.txt", swept.failed(), set(swept.results))


def test_modules_by_a_server_like_a_gpu(tmp_path: Path, counted: list[str]) -> None:
    """New memory full of NaN, late results, convolutions with other strides: the same values."""
    with torch_engine.server(tmp_path, "--like-cuda", "3") as strict:
        swept = sweep("modules", strict, "--samples", "6", program=PROGRAM)
    counted.append(f"like CUDA: {swept.line()}")
    assert swept.ran() >= LEAST["modules"]
    assert not faults(LISTS / "modules.txt", swept.failed(), set(swept.results))
