"""Sources of the engine `torch` include what they use, so that they compile where g++ cannot keep PyTorch's headers."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import torch_env
from toolkit.engine import torch_build


@pytest.mark.rest
def test_every_source_compiles_without_the_headers_that_are_read_before() -> None:
    """A build where g++ does not take back the headers that it has read (a kernel that gives it another address)."""
    torch = torch_build.ask(str(torch_env.python()))
    command = [*torch_build.cxx(torch, ()), "-fsyntax-only"]
    sources = sorted(torch_build.TORCH.rglob("*.cc"))

    def fault(source: Path) -> str:
        return subprocess.run([*command, source], capture_output=True, text=True, check=False).stderr

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(sources, pool.map(fault, sources), strict=True))
    assert len(sources) > 50
    assert {source.name: words for source, words in found.items() if words} == {}
