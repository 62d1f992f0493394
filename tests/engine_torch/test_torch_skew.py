"""Client and server with minor releases of torch that differ by one: they share names and overloads of operators."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import torch_engine
from tests.support.torch_sweep import sweep

OTHER = "ELASTIC_AI_TORCH_OTHER"
MOST = 0.02
"""The part of the operators that may fail: those that one of the two lacks, or computes otherwise."""

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def other_python() -> Path:
    """A Python whose torch is one minor release away from the tests'."""
    if not os.environ.get(OTHER):
        pytest.skip(f"this machine has no torch of another release: {OTHER} names no Python")
    return Path(os.environ[OTHER])


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_a_server_of_the_release_beside(way: str, other_python: Path, tmp_path: Path, counted: list[str]) -> None:
    """Every sample of every operator, against the client's own processor."""
    engine = torch_engine.built(python=other_python)
    with torch_engine.server(tmp_path, engine=engine, python=other_python) as one:
        swept = sweep(way, one)
    failed = swept.failed()
    counted.append(f"another release of torch on the server: {swept.line()}; failed: {failed}")
    assert swept.ran() > 500
    assert len(failed) <= MOST * swept.ran(), failed
