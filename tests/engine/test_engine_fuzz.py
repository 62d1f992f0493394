"""A client with a token that means harm, under AddressSanitizer and UndefinedBehaviorSanitizer, on the wire."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.support.engine_fuzz import LAST_OP, Honest, assert_equal, attack, honest, until
from tests.support.engine_fuzz_lanes import attack_lanes
from tests.support.engine_run import MIB, Server, describe, sanitized, server
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
LIMIT, CONTEXT = 8 * MIB, 300_032
CASES = 90
LANE_CASES = 25
LONG_S = 120.0
SETTLED_S = 10.0
ENDS = (0, 1)  # of a connection's process: its client went, or broke the protocol


def findings(folder: Path) -> str:
    """What the sanitizers said, but that an emulated device runs a kernel's threads as fibres."""
    said = "".join(path.read_text() for path in folder.glob("found.*"))
    return "".join(line for line in said.splitlines(keepends=True) if "doesn't fully support makecontext" not in line)


def attacked(folder: Path, seeds: Iterable[int], case: Callable[[Server, int], set[int]]) -> tuple[int, set[int]]:
    """All cases against one lease beside another; how many there were, and the operations that succeeded somewhere."""
    folder.mkdir(exist_ok=True)
    devices = describe(folder, 64 * MIB, context_bytes=CONTEXT)
    limits = ["--memory-limit", str(LIMIT), "--context-bytes", str(CONTEXT)]
    log = {"ASAN_OPTIONS": f"log_path={folder}/found:detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    count, done = 0, set[int]()
    with (
        server(folder / "a", *limits, devices=devices, programs=sanitized, **log) as lease,
        server(folder / "b", *limits, devices=devices, programs=sanitized, **log) as other,
        honest(lease) as beside,
        honest(other) as neighbour,
    ):
        for seed in seeds:
            try:
                done |= case(lease, seed)
                for one, at in ((beside, lease), (neighbour, other)):
                    one.check()
                    settled(at, one)
            except Exception as fault:
                raise AssertionError(f"seed {seed}: {fault}\n{findings(folder)}") from fault
            count += 1
        ends = {event["status"] for event in lease.events() if event["event"] == "gone"}
    assert ends <= set(ENDS), f"a connection's process ended with {ends}"
    assert not findings(folder), findings(folder)
    return count, done


def settled(server: Server, client: Honest) -> None:
    """The accounts agree; on a busy machine the process of a client that went may end a moment later."""
    end = time.monotonic() + SETTLED_S
    while True:
        try:
            return assert_equal(server, client.told())
        except AssertionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.05)


def requests(server: Server, seed: int) -> set[int]:
    """A case of the session's first connection."""
    return attack(server, seed, LIMIT)


def lanes(server: Server, seed: int) -> set[int]:
    """A case of its data connections."""
    attack_lanes(server, seed)
    return set()


def assert_all(done: set[int]) -> None:
    """A fuzzer all whose requests of a kind are refused tries little."""
    assert not set(range(1, LAST_OP + 1)) - done


def test_accounts_survive_a_hostile_client(tmp_path: Path) -> None:
    """Memory of a lease, contexts, streams and events are what the driver counts, whatever a client sends."""
    count, done = attacked(tmp_path, range(CASES), requests)
    assert count == CASES
    assert_all(done)


def test_a_hostile_client_of_data_connections(tmp_path: Path) -> None:
    """Chunks of no copy, missing, twice or cut off end the client's own process, and change nothing else."""
    assert attacked(tmp_path, range(LANE_CASES), lanes)[0] == LANE_CASES


@pytest.mark.rest
def test_accounts_survive_a_hostile_client_for_longer(tmp_path: Path) -> None:
    """As above, with other seeds, for minutes."""
    count, done = attacked(tmp_path, until(LONG_S, 1_000_000), requests)
    assert count > CASES
    assert_all(done)
    assert attacked(tmp_path / "lanes", until(LONG_S / 4, 1_000_000), lanes)[0] > LANE_CASES


def test_the_sanitizers_are_there(tmp_path: Path) -> None:
    """Without them the other tests would find half."""
    program = sanitized() / "bin/elastic-ai-refserver"
    assert b"__asan_init" in program.read_bytes()
    assert b"__ubsan_handle" in program.read_bytes()
