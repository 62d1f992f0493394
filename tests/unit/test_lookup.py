"""Nodes and measurements by their name: found at once in a fleet too, and in the document that is asked."""

from __future__ import annotations

import time

import pytest

from tests.support.site import hardware, lab, plan_of
from validation.model.base import by_name


def test_each_document_finds_its_own_nodes() -> None:
    one = lab()
    renamed = one.model_copy(update={"nodes": tuple(n.model_copy(update={"virtual": "x"}) for n in one.nodes[:1])})
    assert [one.node(n.name) for n in one.nodes] == list(one.nodes)
    assert renamed.node(one.nodes[0].name) is renamed.nodes[0]
    for gone in (one.nodes[1].name, "nobody"):
        with pytest.raises(KeyError):
            renamed.node(gone)
    assert one.node(one.nodes[1].name) is one.nodes[1]
    assert one == lab()
    assert hardware().node(hardware().nodes[0].name) == hardware().nodes[0]


def test_of_equal_names_the_first_is_found() -> None:
    first = lab().nodes[0]
    assert by_name((first, first.model_copy(update={"virtual": "other"})), "name")[first.name] is first


def test_a_measurement_of_a_fleet_is_found_at_once() -> None:
    plan = plan_of(lab())
    one = plan.measurements[0]
    many = plan.model_copy(
        update={"measurements": tuple(one.model_copy(update={"id": f"m{i}"}) for i in range(20_000))}
    )
    begin = time.process_time()
    assert all(many.measurement(f"m{i}").id == f"m{i}" for i in range(15_000, 20_000))
    assert time.process_time() - begin < 1  # one by one these are 87 million comparisons
