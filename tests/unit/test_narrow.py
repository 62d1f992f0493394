"""A job of many nodes that fails is narrowed down to the bad ones, by few jobs, and nobody else is named."""

from __future__ import annotations

import random

import pytest

from validation.analysis.group_tests import CONFIRMATIONS, Narrowing, narrow


def names(count):
    return [f"n{i}" for i in range(count)]


def one_of(bad):
    return lambda job: not bad & set(job)


@pytest.mark.parametrize(
    ("count", "bad", "most_jobs", "most_rounds"),
    [
        (232, 5, 55, 12),
        (232, 0, 28, 3),
        (232, 1, 30, 9),
        (1000, 5, 80, 12),
        (60, 5, 42, 12),
        (8, 2, 14, 7),
        (4, 1, 6, 5),
    ],
)
def test_all_bad_nodes_and_no_other_by_few_jobs(count, bad, most_jobs, most_rounds):
    """232 nodes: the published figures of NVIDIA's cluster-readiness-engine are 55 jobs with 5 bad, 28 with none."""
    for seed in range(100 if count < 500 else 20):
        faulty = set(random.Random(seed).sample(names(count), bad))
        found = narrow(names(count), one_of(faulty))
        assert set(found.bad) == faulty
        assert not found.unsettled
        assert not faulty & set(found.good)
        assert len(found.good) == count - bad
        assert found.jobs <= most_jobs
        assert found.rounds <= most_rounds


def test_each_is_confirmed_with_different_nodes_that_are_good():
    faulty = {"n3", "n17", "n101"}
    found = narrow(names(232), one_of(faulty))
    for node, helpers in found.bad.items():
        assert len(set(helpers)) == len(helpers) == CONFIRMATIONS
        assert not {node, *faulty} & set(helpers)
        assert node in found.words
        assert all(helper in found.words for helper in helpers)


def test_the_jobs_of_a_round_have_no_node_in_common_and_none_is_of_one_node_alone():
    for seed in range(30):
        faulty = set(random.Random(seed).sample(names(50), 6))
        narrowing = Narrowing(names(50))
        while jobs := narrowing.jobs():
            used = [n for job in jobs for n in job]
            assert len(used) == len(set(used))
            assert all(len(job) >= 2 for job in jobs)
            narrowing.tell({job: not faulty & set(job) for job in jobs})
        assert set(narrowing.outcome().bad) == faulty


def test_a_fault_that_all_share_names_nobody():
    found = narrow(names(16), lambda job: False)
    assert found.nobody_good
    assert not found.bad
    assert "what all nodes share" in found.words


def test_most_are_bad_and_two_good_ones_are_still_found():
    faulty = set(names(8)) - {"n1", "n6"}
    found = narrow(names(8), one_of(faulty))
    assert not set(found.bad) - faulty
    assert not faulty & set(found.good)


def test_what_fails_once_and_never_again_names_nobody():
    for seed in range(100):
        generator, left = random.Random(seed), [1]

        def works(job, generator=generator, left=left):
            if left[0] and generator.random() < 0.1:
                left[0] = 0
                return False
            return True

        found = narrow(names(40), works)
        assert not found.bad
        assert set(found.good) == set(names(40))


def test_a_fault_of_two_nodes_together_is_not_blamed_on_one():
    """They are under one switch, say: each is well with everybody else."""
    found = narrow(names(40), lambda job: not {"n3", "n13"} <= set(job), groups=[names(40)[:20], names(40)[20:]])
    assert not found.bad
    assert any({"n3", "n13"} <= set(group) for group in found.unsettled)
    assert "not settled" in found.words


def test_a_job_that_fails_only_at_full_size_is_said_to():
    found = narrow(names(40), lambda job: len(job) < 30)
    assert not found.bad
    assert "only at full size" in found.words


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_jobs_that_fail_by_chance_name_nobody_but_the_bad(share):
    """A bad node always fails, a good job now and then. Two independent jobs have to fail before one is named."""
    wrong = missed = 0
    for seed in range(200):
        generator = random.Random(seed)
        faulty = set(generator.sample(names(64), 2))
        found = narrow(names(64), lambda job, g=generator, bad=faulty: not bad & set(job) and g.random() >= share)
        wrong += len(set(found.bad) - faulty)
        missed += bool(faulty - set(found.bad))
        assert not faulty & set(found.good)
    assert missed == 0
    assert wrong <= (0.1 if share == 0.1 else 0) * 200


@pytest.mark.parametrize("groups", [[["n0", "n1"]], [["n0", "n1"], ["n1", "n2"]], [["n0", "n1", "n2", "n9"]]])
def test_groups_that_are_not_all_nodes_once_are_refused(groups):
    with pytest.raises(ValueError, match="groups"):
        Narrowing(names(3), groups)


def test_a_node_named_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        Narrowing(["a", "a"])


def test_no_node_needs_no_job():
    assert narrow([], lambda job: False).jobs == 0
