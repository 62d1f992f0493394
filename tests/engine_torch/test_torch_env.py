"""What the tests of the engine `torch` stand on: a torch for processors, in the range of the lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import torch_env

ROOT = Path(__file__).parents[2]


def test_the_tests_have_a_torch_of_the_range_of_the_lock() -> None:
    """Native results are those of the ordinary wheel for processors, of the release that the lock names."""
    least, below = (part[2:] if part.startswith(">=") else part[1:] for part in torch_env.wanted()[5:].split(","))
    asked = [torch_env.python(), "-c", torch_env.ASK]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, env=torch_env.plain_environment())
    version, cuda, _ = done.stdout.split()
    numbers = [int(part) for part in version.partition("+")[0].split(".")]
    assert [int(part) for part in least.split(".")] <= numbers < [int(part) for part in below.split(".")]
    assert cuda == "cpu"


def test_a_python_without_torch_is_refused_by_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine must have is said, instead of every test failing by an import."""
    monkeypatch.setenv(torch_env.GIVEN, sys.executable)
    torch_env.python.cache_clear()
    try:
        with pytest.raises(torch_env.TorchEnvError, match=r"does not import torch .*wheel for processors of torch>="):
            torch_env.python()
    finally:
        torch_env.python.cache_clear()
