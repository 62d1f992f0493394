"""Whose error it was that ended the work of a process on all GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from validation.probes.gpu_spoilt import suspect


def cell(what: str, source: int | None, target: int | None, error: str = "") -> dict[str, Any]:
    return {"what": what, "source": source, "target": target, **({"error": error} if error else {})}


@pytest.mark.parametrize(
    ("cells", "untaken", "found"),
    [
        ([cell("h2d", None, 0), cell("peer", 0, 1)], set(), None),
        ([cell("h2d", None, 0), cell("local", 0, 0, "214"), cell("peer", 0, 1, "214")], set(), (0, "214")),
        ([cell("peer", 0, 1), cell("peer", 0, 2, "214"), cell("peer", 0, 3, "214")], set(), (2, "214")),
        ([cell("peer", 0, 1, "taken"), cell("peer", 0, 2, "719")], {1}, (2, "719")),
        ([cell("peer", 0, 1, "taken")], {1}, None),
        ([cell("peer", 0, 1, "700"), cell("sync", 0, 0, "700")], set(), (0, "700")),
    ],
)  # fmt: skip
def test_the_first_error_of_a_turn_is_its_gpus_and_of_a_pair_the_others(
    cells: list[dict[str, Any]], untaken: set[int], found: tuple[int, str] | None
) -> None:
    assert suspect(0, cells, untaken) == found
