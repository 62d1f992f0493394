"""InfiniBand's own tools and their criterion, on what the tools print on a simulated fabric (tests/data/infiniband)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ib_documents import CLEAN, ERRORS, SITE, TEXTS, document, read, verdict_on
from tests.support.site import criterion, plan_of
from validation.kinds.parsing import ParseError

DEGRADED, UNLINKED = TEXTS["ibnetdiscover-ports-degraded"], TEXTS["ibnetdiscover-ports-unlinked"]


def test_the_fabric_is_read_whole() -> None:
    facts = read(document())
    (manager,) = facts["subnet_managers"]
    assert (manager.state, manager.lid, manager.guid, manager.priority) == ("MASTER", 1, "0xb8599f0300aa0001", 14)
    link = facts["links"][0]
    assert (str(link.here), str(link.there), link.rate) == (
        "gpu3 mlx5_0 port 1 0xb8599f0300ac0001", "SB7800 edr1 port 3 0xb8599f0300fc0000", "4x EDR",
    )  # fmt: skip
    assert (link.rates[0].lanes, link.rates[0].speed) == (4, "EDR")
    assert len(facts["links"]) == 8  # each link once, and five ports with nothing behind them
    assert facts["ib_links"] == 3
    assert (facts["nodes"], facts["ports"], facts["nodes_checked"], facts["ports_checked"]) == (4, 11, 4, 11)
    assert facts["links"][2].there is None
    assert facts["errors"] == ()


def test_errors_are_read_with_their_port_and_the_sum_of_a_switch_is_no_port() -> None:
    assert [(str(e.port), e.counters) for e in read(document(ERRORS))["errors"]] == [
        ("gpu2 mlx5_0 port 1 0xb8599f0300ab0001", {"SymbolErrorCounter": 12}),
        ("SB7800 edr1 port 2 0xb8599f0300fc0000", {"SymbolErrorCounter": 37, "LinkDownedCounter": 2}),
    ]
    extended = ERRORS.replace("[SymbolErrorCounter == 12]", "[SymbolErrorCounter == 12 (12.000)] [PortRcvErrors == 3]")
    assert read(document(extended))["errors"][0].counters == {"SymbolErrorCounter": 12, "PortRcvErrors": 3}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sminfo": "sminfo: iberror: failed: query\n"}, "no subnet manager"),
        ({"ibnetdiscover": ""}, "report is empty"),
        ({"ibnetdiscover": "SW     4  1 0xb8599f0300fc0000 4x\n"}, "cannot be read"),
        ({"errors": CLEAN[:60]}, "no summary"),
        ({"errors": ERRORS.replace("12 ports checked, 2 ports", "12 ports checked, 3 ports")}, "3 ports with errors"),
        ({"errors": CLEAN.replace("11 ports checked", "0 ports checked")}, "checked no port"),
    ],
)
def test_output_that_is_cut_or_foreign_is_refused(changes: dict[str, str], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        read(document(**changes))


def test_a_healthy_fabric_passes_and_says_on_what_it_was_tested() -> None:
    verdict = verdict_on(document())
    assert [c.id for c in verdict.criteria if c.verdict == "fail"] == []
    for id_ in ("pf.ibfabric", "pf.rdmaport", "pf.memlock", "pf.mtu"):
        assert criterion(verdict, id_).verdict == "pass", criterion(verdict, id_).reason
    assert criterion(verdict, "pf.lossless").verdict == "not-applicable"
    found = criterion(verdict, "pf.ibfabric").judgements[0]
    assert "3 links, 0 ports with errors" in found.reason
    assert "tested on recordings of a simulated fabric only, never on InfiniBand hardware" in found.reason


@pytest.mark.parametrize(
    ("doc", "words"),
    [
        (document(ERRORS), "errors: gpu2 mlx5_0 port 1 0xb8599f0300ab0001: SymbolErrorCounter 12"),
        (
            document(ibnetdiscover=DEGRADED),
            "link gpu2 mlx5_0 port 1 0xb8599f0300ab0001 - SB7800 edr1 port 2 0xb8599f0300fc0000 runs at 1x EDR",
        ),
        (document(sminfo=TEXTS["sminfo"].replace("3 SMINFO_MASTER", "2 SMINFO_STANDBY")), "not master: STANDBY"),
    ],
)
def test_a_fault_of_the_fabric_is_found(doc: dict[str, Any], words: str) -> None:
    verdict = verdict_on(doc)
    assert [c.id for c in verdict.criteria if c.verdict == "fail"] == ["pf.ibfabric"]
    assert words in criterion(verdict, "pf.ibfabric").reason


def test_a_declared_port_without_a_link_is_named() -> None:
    found = criterion(verdict_on(document(ibnetdiscover=UNLINKED)), "pf.ibfabric")
    assert found.verdict == "fail"
    assert found.judgements[0].reason == "gpu3/fab0 (0xb8599f0300ac0001) has no link in the fabric"


def test_queries_that_no_port_answered_withhold_the_pass() -> None:
    doc = document(CLEAN.replace("## Suppressed", "##          1 PMA query failures\n## Suppressed"))
    found = criterion(verdict_on(doc), "pf.ibfabric")
    assert found.verdict == "not-measured"
    assert "1 queries for error counters were not answered" in found.reason


def test_ethernet_has_no_subnet_manager() -> None:
    assert not any(m.kind == "ib-fabric" for m in plan_of(SITE, ["preflight"], "roce40").measurements)
