"""Gateways, tables and IPv6 of fabric ports: what they mean, what preflight refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.node_modules import load

routing: Any = load("plugins/plugin_utils/routing.py")


def reasons(*ports: dict[str, Any]) -> list[str]:
    named = [{"interface": f"fab{number}", **port} for number, port in enumerate(ports)]
    return list(routing.routing_reasons({}, {"fabric_ports": named}))


def test_a_port_with_a_table_answers_by_itself_and_leaves_the_default_route_alone() -> None:
    port = {"address": "10.80.0.31/24", "gateway": "10.80.0.1", "routes": ["10.80.0.0/16"], "table": 101}
    assert routing.port_routes(port) == {
        "routes": [
            {"to": "10.80.0.0/16", "via": "10.80.0.1", "table": ""},
            {"to": "10.80.0.0/24", "via": "", "table": 101},
            {"to": "0.0.0.0/0", "via": "10.80.0.1", "table": 101},
        ],
        "rules": [{"from": "10.80.0.31", "table": 101, "priority": 1000}],
    }
    assert routing.port_routes({"address": "10.80.0.31/24"}) == {"routes": [], "rules": []}


FITTING = [
    {"address": "10.80.0.31/24"},
    {"address": "10.80.0.0/31", "gateway": "10.80.0.1", "table": 101},
    {"address": "10.80.0.31/24", "gateway": "10.80.0.1", "routes": ["10.80.0.0/16"], "address6": "fd00:80::31/64"},
]


@pytest.mark.parametrize("port", FITTING)
def test_ports_of_leaf_and_spine_fit(port: dict[str, Any]) -> None:
    assert reasons(port) == []


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"gateway": "10.80.1.1", "table": 101}, "gateway 10.80.1.1 is no other address of its network 10.80.0.0/24"),
    ({"gateway": "10.80.0.31", "table": 101}, "gateway 10.80.0.31 is no other address"),
    ({"gateway": "leaf1", "table": 101}, "gateway 'leaf1' is no IPv4 address"),
    ({"gateway": "10.80.0.1"}, "gateway without routes or table"),
    ({"routes": ["10.80.0.0/16"]}, "routes without gateway"),
    ({"gateway": "10.80.0.1", "routes": ["10.80.0.1/16"]}, "route '10.80.0.1/16' is no IPv4 network"),
    ({"gateway": "10.80.0.1", "routes": ["0.0.0.0/0"]}, "would take the management network's traffic"),
    ({"table": 254}, "table 254 belongs to the kernel"),
    ({"address6": "fd00:80::31"}, "lacks its prefix length"),
    ({"address6": "10.0.0.1/24"}, "is no IPv6 address"),
]


@pytest.mark.parametrize(("more", "words"), UNFIT, ids=[words for _, words in UNFIT])
def test_routes_that_cannot_be_are_refused_with_the_port(more: dict[str, Any], words: str) -> None:
    (reason,) = reasons({"address": "10.80.0.31/24", **more})
    assert reason.startswith("fabric port fab0: ")
    assert words in reason


def test_two_rails_in_one_network_need_a_table_each() -> None:
    one, other = {"address": "10.80.0.31/24"}, {"address": "10.80.0.32/24"}
    (reason,) = reasons(one, other)
    assert "fabric ports fab0, fab1 are in one network, 10.80.0.0/24" in reason
    assert len(reasons({**one, "table": 101}, other)) == 1
    assert reasons({**one, "table": 101}, {**other, "table": 102}) == []
    (reason,) = reasons({**one, "table": 101}, {**other, "table": 101})
    assert "fab0, fab1 have the same table 101" in reason
