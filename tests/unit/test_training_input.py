"""Real pictures of the short training: which processors read them, what is read, and in which order."""

from __future__ import annotations

import importlib.util
import itertools
import tempfile

import pytest

from validation.probes import train_input
from validation.probes.train_data import pixels
from validation.probes.train_input import FewProcessors, endless, make_pictures, share_of


def test_each_rank_has_an_equal_share_of_a_nodes_processors() -> None:
    allowed = [0, 1, 2, 3, 8, 9, 10, 11]
    assert [share_of(0, local, 4, allowed) for local in range(4)] == [[0, 1], [2, 3], [8, 9], [10, 11]]
    assert share_of(1, 3, 4, allowed) == [10]
    assert share_of(0, 2, 3, [0, 1]) == [0], "more ranks than processors: they share them"
    with pytest.raises(FewProcessors, match="8 for 4 ranks of a node, 3 for each"):
        share_of(3, 0, 4, allowed)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, (0, 1)),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, (3, 4)),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (1, 2)),
    ],
    ids=["alone", "mpirun", "torchrun"],
)
def test_the_launcher_tells_which_rank_of_the_node_this_is(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], found: tuple[int, int]
) -> None:
    for name in ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert train_input.place() == found


@pytest.mark.parametrize("pillow", [True, False])
def test_pictures_of_its_own_are_read_as_those_of_files(monkeypatch: pytest.MonkeyPatch, pillow: bool) -> None:
    if pillow:
        pytest.importorskip("PIL")
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(train_input, "MADE", 9)
    with tempfile.TemporaryFile() as opened:
        made = make_pictures(opened, 8)
        found = [made.read(at) for at in range(len(made))]
    assert [label for _, label in found] == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert found[0][0] != found[8][0], "noise of its own"
    assert {data[:2] for data, _ in found} == {b"\xff\xd8" if pillow else b"P6"}
    wide, high, dark = pixels(found[0][0])
    assert (wide, high) == ((500, 375) if pillow else (250, 187))
    bright = pixels(found[7][0])[2]
    assert sum(dark) / len(dark) == pytest.approx(40, abs=8)
    assert sum(bright) / len(bright) == pytest.approx(210, abs=8)


def test_batches_go_on_from_one_epoch_to_the_next_in_an_order_of_the_ranks_own() -> None:
    first = list(itertools.islice(endless(5, 2, seed=0), 5))
    assert [epoch for batch in first for epoch, _ in batch] == 5 * [0] + 5 * [1]
    assert sorted(number for batch in first for _, number in batch) == sorted(2 * list(range(5)))
    assert first != list(itertools.islice(endless(5, 2, seed=1), 5))
