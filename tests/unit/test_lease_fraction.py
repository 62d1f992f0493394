"""Parts of a GPU: exact where they can be, said where they are rounded, refused where they cannot be kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.lease import LeaseError
from toolkit.lease.fraction import memory_limit_mib, parse_part, part_for_memory, thread_percentage


@pytest.mark.parametrize(
    ("text", "shards", "shown"),
    [
        ("1/7", 20, "1/7"),
        ("5/20", 35, "1/4"),
        ("0.75", 105, "3/4"),
        (".5", 70, "1/2"),
        ("1", 140, "1"),
        ("1.", 140, "1"),
    ],
)
def test_exact_parts(text: str, shards: int, shown: str) -> None:
    part = parse_part(text)
    assert (part.shards, part.text, part.note) == (shards, shown, "")


def test_a_rounded_part_is_said_and_never_more_than_asked_for() -> None:
    part = parse_part("1/3")
    assert (part.shards, part.note) == (46, "1/3 of a GPU is 46.67 of 140 shards: you get 46 (0.329)")


@pytest.mark.parametrize("text", ["0", "0.0", "1.5", "3/2", "half", "", "1/0", "-0.5", "1/200", "nan", "1e-1", "50%"])
def test_no_parts(text: str) -> None:
    with pytest.raises(LeaseError) as refused:
        parse_part(text)
    assert f"-p {text}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_pool_of_whole_gpus_has_no_parts() -> None:
    assert parse_part("1", 0).whole
    with pytest.raises(LeaseError, match="whole GPUs only"):
        parse_part("0.5", 0)


@given(st.integers(1, 140), st.integers(16, 200_000))
def test_parts_of_a_gpu_never_sum_above_it(shards: int, gpu_mib: int) -> None:
    count = 140 // shards
    assert count * memory_limit_mib(gpu_mib, shards, 140) <= gpu_mib


@given(st.integers(1, 80_000))
def test_a_part_for_memory_holds_it_and_no_smaller_one_does(wanted: int) -> None:
    part = part_for_memory(wanted, 80_000)
    assert memory_limit_mib(80_000, part.shards, 140) >= wanted
    assert part.shards == 1 or memory_limit_mib(80_000, part.shards - 1, 140) < wanted


def test_more_memory_than_a_gpu_has() -> None:
    with pytest.raises(LeaseError, match="256 MiB each"):
        part_for_memory(257, 256)


def test_what_mps_is_told() -> None:
    assert [thread_percentage(s, 140) for s in (20, 35, 105, 140)] == ["14.2857", "25", "75", "100"]
