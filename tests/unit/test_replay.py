"""The replay of requests against a pool and against divided GPUs, by cases that were worked out by hand."""

from __future__ import annotations

import random

import pytest

from validation.analysis.replay import RecordedRequest, enough, gain, peak, replay, shares, siloed

GPU = 4  # parts of a GPU in these cases


def asked(arrived_s: int, held_s: int, gpus: float = 1, group: str = "a") -> RecordedRequest:
    return RecordedRequest(arrived_s, held_s, round(gpus * GPU), group)


def test_who_came_first_goes_first_and_nobody_passes() -> None:
    # one GPU: 0-10, then 10-15, then 15-16; arrivals 0, 1 and 2
    outcome = replay([asked(0, 10), asked(1, 5), asked(2, 1)], 1, GPU)
    assert outcome.waits_s == (0, 9, 13)
    assert (outcome.first_s, outcome.last_s, outcome.held) == (0, 16, 1.0)
    # two GPUs: the one that wants both waits for both, and the small one behind it waits with it
    outcome = replay([asked(0, 10), asked(1, 5, 2), asked(2, 1)], 2, GPU)
    assert outcome.waits_s == (0, 9, 13)
    # 10 + 5 x 2 + 1 GPU-seconds of 2 x 16
    assert outcome.held == pytest.approx(21 / 32)


def test_what_ends_at_a_moment_is_free_in_it() -> None:
    assert replay([asked(0, 5), asked(5, 5)], 1, GPU).waits_s == (0, 0)


def test_parts_share_a_gpu_where_the_least_is_left_that_suffices() -> None:
    # 3/4 and 1/4 share the first; 1/2 takes the second, 1/2 beside it; a whole GPU waits until one is empty
    half, quarter = [asked(0, 10, 0.5), asked(0, 20, 0.5)], [asked(0, 5, 0.75), asked(0, 7, 0.25)]
    outcome = replay([*quarter, *half, asked(1, 1)], 2, GPU)
    assert outcome.waits_s == (0, 0, 0, 0, 6)
    # 1/4 goes to the 1/4 that is left of the first, not to the empty one: the whole GPU need not wait
    assert replay([quarter[0], quarter[1], asked(1, 1)], 2, GPU).waits_s == (0, 0, 0)
    # 3/4 and 1/2 have a GPU each; 1/4 goes beside the 3/4, so that another 1/2 finds its place beside the 1/2
    assert replay([asked(0, 10, part) for part in (0.75, 0.5, 0.25, 0.5)], 2, GPU).waits_s == (0, 0, 0, 0)
    # one GPU and a half take two, and leave half of one
    assert replay([asked(0, 9, 1.5), asked(0, 9, 0.5), asked(0, 1, 0.25)], 2, GPU).waits_s == (0, 0, 9)


def test_more_than_there_is_begins_nowhere() -> None:
    outcome = replay([asked(0, 5, 3), asked(0, 5)], 2, GPU)
    assert (outcome.refused, outcome.waits_s, outcome.work_gpu_s) == (1, (0,), 5)
    assert replay([], 2, GPU).held == 0


def test_shares_follow_what_was_held_and_leave_nobody_without() -> None:
    # 8 GPUs, one for each of three groups, five by 60 : 30 : 10 = 3, 1.5, 0.5; the odd one to the larger remainder,
    # and of equal remainders to the first name
    work = [asked(0, 60, 1, "a"), asked(0, 30, 1, "b"), asked(0, 10, 1, "c")]
    assert shares(work, 8) == {"a": 4, "b": 3, "c": 1}
    assert shares(work, 3) == {"a": 1, "b": 1, "c": 1}
    assert shares(work, 2) is None
    assert shares([], 2) is None


def test_two_departments_that_work_by_turns() -> None:
    # a wants both GPUs' worth in the first ten seconds, b in the second ten: the pool serves each with both; with one
    # of its own, each waits 10 s for the second half of its work
    turns = [asked(0, 10, 1, "a"), asked(0, 10, 1, "a"), asked(10, 10, 1, "b"), asked(10, 10, 1, "b")]
    won = gain(turns, 2, GPU)
    assert won is not None
    assert won.pool.waits_s == (0, 0, 0, 0)
    assert won.pool.held == 1.0
    assert won.each == {"a": 1, "b": 1}
    assert won.divided.waits_s == (0, 10, 0, 10)
    assert won.divided.mean_s == 5
    assert won.divided.held == pytest.approx(40 / (2 * 30))
    assert won.groups == {"a": (0, 5), "b": (0, 5)}
    # no waiting takes two for each: four GPUs, half of their time empty
    assert won.silos_each == {"a": 2, "b": 2}
    assert (won.silos.gpus, won.silos.mean_s, won.silos.held) == (4, 0, 0.5)
    # one GPU for all: 0-10, 10-20, 20-30, 30-40: waits 0, 10, 10, 20; more than 5 on average, so two are needed
    assert replay(turns, 1, GPU).mean_s == 10
    assert won.smaller.gpus == 2


def test_a_large_request_has_no_place_in_a_small_share() -> None:
    large = [asked(0, 10, 4, "a"), asked(20, 40, 1, "b"), asked(20, 40, 1, "b")]
    won = gain(large, 4, GPU)
    assert won is not None
    assert won.each == {"a": 2, "b": 2}
    assert (won.divided.refused, won.pool.refused) == (1, 0)
    assert won.groups["a"] == (0, None)  # nothing of it could begin
    assert won.silos_each["a"] == 4


def test_one_group_alone_has_nobody_to_share_with() -> None:
    assert gain([asked(0, 1), asked(0, 1)], 4, GPU) is None
    assert gain([asked(0, 1, 9), asked(0, 1, 1, "b")], 4, GPU) is None  # what fits nowhere is in neither


def test_how_many_gpus_are_enough() -> None:
    three = [asked(0, 10), asked(0, 10), asked(0, 10)]
    assert peak(three, GPU) == 3
    assert peak([asked(0, 5), asked(5, 5, 2)], GPU) == 2
    assert enough(three, 0, GPU) == 3
    # two GPUs: waits 0, 0, 10, on average 3.33
    assert enough(three, 4, GPU) == 2
    assert enough(three, 3, GPU) == 3
    assert enough(three, 10, GPU) == 1


def test_percentiles_of_waiting() -> None:
    outcome = replay([asked(0, 1) for _ in range(20)], 1, GPU)
    assert outcome.waits_s == tuple(range(20))
    assert (outcome.percentile_s(95), outcome.percentile_s(50), outcome.percentile_s(100)) == (18, 9, 19)
    assert replay([], 1, GPU).percentile_s(95) == 0


@pytest.mark.parametrize("seed", range(20))
def test_no_gpu_is_ever_held_twice_and_the_order_is_kept(seed: int) -> None:
    drawn = random.Random(seed)
    asked_for = [
        RecordedRequest(
            drawn.randrange(500), drawn.randrange(60), drawn.choice([1, 2, 3, 4, 4, 6, 8]), drawn.choice("abc")
        )
        for _ in range(80)
    ]
    ordered = sorted(asked_for, key=lambda r: r.arrived_s)
    for gpus in (2, 3, 7):
        outcome = replay(asked_for, gpus, GPU)
        begins = [r.arrived_s + wait for r, wait in zip(ordered, outcome.waits_s, strict=True)]
        assert begins == sorted(begins)
        for now in begins:
            there = sum(r.parts for r, begin in zip(ordered, begins, strict=True) if begin <= now < begin + r.held_s)
            assert there <= gpus * GPU
    assert replay(asked_for, peak(asked_for, GPU), GPU).mean_s == 0
    each = shares(asked_for, 9)
    assert each is not None
    assert sum(each.values()) == 9
    assert siloed(asked_for, each, GPU).work_gpu_s == sum(r.held_s * r.parts for r in asked_for) / GPU
