"""The engine `torch` with a real torch: a server on loopback for all tests of a run; what breaks one has its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.torch_engine import Server

LINES: list[str] = []
"""What the tests counted; printed at the end, where they passed too."""


@pytest.fixture(scope="session")
def torch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one thread; each program is a session of its own."""
    from tests.support import torch_engine

    with torch_engine.server(tmp_path_factory.mktemp("torch-server")) as one:
        yield one


@pytest.fixture
def counted() -> list[str]:
    """A line that is appended here stands at the end of the test run."""
    return LINES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LINES:
        terminalreporter.section("PyTorch by the engine torch: counts")
        for line in LINES:
            terminalreporter.write_line(line)
