"""Parts of a GPU: exact where they can be, said where they are rounded, refused where they cannot be kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.lease import SHARDS_PER_GPU, LeaseError
from toolkit.lease.fraction import memory_limit_mib, parse_part, part_for_memory, rounded, thread_percentage


@pytest.mark.parametrize(
    ("text", "shards", "shown"),
    [
        ("1/7", 720, "1/7"),
        ("5/20", 1260, "1/4"),
        ("0.75", 3780, "3/4"),
        (".5", 2520, "1/2"),
        ("1", 5040, "1"),
        ("1.", 5040, "1"),
        *((f"1/{n}", 5040 // n, f"1/{n}") for n in (*range(2, 11), 12, 14, 15, 16, 20)),
    ],
)
def test_exact_parts(text: str, shards: int, shown: str) -> None:
    part = parse_part(text)
    assert (part.shards, part.text, part.note) == (shards, shown, "")


def test_a_rounded_part_is_said_and_never_more_than_asked_for() -> None:
    part = parse_part("1/11")
    assert (part.shards, part.note) == (458, "1/11 of a GPU is 458.18 of 5040 shards: you get 458 (0.0909)")
    assert parse_part("1/3", 140).note == "1/3 of a GPU is 46.67 of 140 shards: you get 46 (0.329)"


def test_no_smaller_number_of_shards_keeps_these_parts() -> None:
    wanted = (*range(2, 11), 12, 14, 15, 16, 20)
    assert next(n for n in range(1, SHARDS_PER_GPU + 1) if not any(n % part for part in wanted)) == SHARDS_PER_GPU


def test_the_role_counts_as_the_commands_do() -> None:
    role = Path(__file__).parents[2] / "roles/slurm/defaults/main.yml"
    assert yaml.safe_load(role.read_text())["slurm_shards_per_gpu"] == SHARDS_PER_GPU


def test_what_is_rounded_of_memory_and_sms_is_said() -> None:
    assert rounded(720, 5040, 256, None) == ["1/7 of 256 MiB is 36.57 MiB: you get 36"]
    assert rounded(2520, 5040, 256, 132) == []
    assert rounded(720, 5040, 143_771, 132) == [
        "1/7 of 143771 MiB is 20538.71 MiB: you get 20538",
        "1/7 of 132 SMs is 18.86: MPS rounds that up as the GPU needs it",
    ]


@pytest.mark.parametrize("text", ["0", "0.0", "1.5", "3/2", "half", "", "1/0", "-0.5", "1/6000", "nan", "1e-1", "50%"])
def test_no_parts(text: str) -> None:
    with pytest.raises(LeaseError) as refused:
        parse_part(text)
    assert f"-p {text}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_pool_of_whole_gpus_has_no_parts() -> None:
    assert parse_part("1", 0).whole
    with pytest.raises(LeaseError, match="whole GPUs only"):
        parse_part("0.5", 0)


@given(st.integers(1, SHARDS_PER_GPU), st.integers(16, 200_000))
def test_parts_of_a_gpu_never_sum_above_it(shards: int, gpu_mib: int) -> None:
    count = SHARDS_PER_GPU // shards
    assert count * memory_limit_mib(gpu_mib, shards, SHARDS_PER_GPU) <= gpu_mib


@given(st.integers(1, 80_000))
def test_a_part_for_memory_holds_it_and_no_smaller_one_does(wanted: int) -> None:
    part = part_for_memory(wanted, 80_000)
    assert memory_limit_mib(80_000, part.shards, part.of) >= wanted
    assert part.shards == 1 or memory_limit_mib(80_000, part.shards - 1, part.of) < wanted


@settings(deadline=None)
@given(st.integers(1, 79_000), st.integers(1, 999 << 20))
def test_a_part_for_memory_leaves_it_beside_a_context(wanted: int, context_bytes: int) -> None:
    part = part_for_memory(wanted, 80_000, context_bytes=context_bytes)
    assert (memory_limit_mib(80_000, part.shards, part.of) << 20) - context_bytes >= wanted << 20
    assert "of them for a program's context" in part.note or not part.note


def test_more_memory_than_a_gpu_has() -> None:
    with pytest.raises(LeaseError, match="256 MiB each"):
        part_for_memory(257, 256)
    with pytest.raises(LeaseError, match="256 MiB each, 1 of them for a program's context"):
        part_for_memory(256, 256, context_bytes=1)


def test_what_mps_is_told() -> None:
    assert [thread_percentage(s, 140) for s in (20, 35, 105, 140)] == ["14.2857", "25", "75", "100"]
