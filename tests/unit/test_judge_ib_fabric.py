"""InfiniBand: contradictions and part views do not pass (D13), healthy real fabrics do not fail (D14, D22)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ib_documents import CLEAN, ERRORS, SITE, TEXTS, document, read, verdict_on
from tests.support.rdma_case import LOADED, results
from tests.support.site import criterion, plan_of, result, verdict_of
from validation.kinds.parsing import ParseError
from validation.measures.rdma.ib_fabric import IbErrors, IbPort

PORTS = TEXTS["ibnetdiscover-ports"]


def two(first: dict[str, str], second: dict[str, str]) -> dict[str, Any]:
    """The probe's document of a node that asked through two ports."""
    docs = [document(**first), document(**second)]
    whole = {**docs[0], "stdout": docs[0]["stdout"] + docs[1]["stdout"]}
    whole["facts"] = {"interfaces": ["ib0", "ib1"], "devices": ["mlx5_0/1", "mlx5_1/1"]}
    return whole


def judged(*readings: dict[str, Any], **how: Any) -> Any:
    """pf.ibfabric's judgement of it, as `verdict_on` takes it."""
    (judgement,) = criterion(verdict_on(*readings, **how), "pf.ibfabric").judgements
    return judgement


def listed(*changes: tuple[str, str]) -> dict[str, Any]:
    text = PORTS
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return document(ibnetdiscover=text)


# --- D13: what contradicts itself, or was not looked at ---------------------------------------------------------------


def test_d13_the_two_ends_of_a_link_must_agree() -> None:
    """The adapter says 4x EDR, the switch 1x SDR: the first line won."""
    found = judged(listed(("SW     4  2 0xb8599f0300fc0000 4x EDR", "SW     4  2 0xb8599f0300fc0000 1x SDR")))
    assert found.verdict == "not-measured"
    assert "runs at 4x EDR or 1x SDR" in found.reason


@pytest.mark.parametrize("line", [PORTS.splitlines()[1], PORTS.splitlines()[8]])
def test_d13_a_link_of_one_direction_is_refused(line: str) -> None:
    assert "gpu2" in line
    with pytest.raises(ParseError, match="the other end"):
        read(listed((line + "\n", "")))


def test_d13_a_port_that_stands_there_twice_is_refused() -> None:
    line = PORTS.splitlines()[1] + "\n"
    for again in (line, line.replace("4x EDR", "1x EDR")):
        with pytest.raises(ParseError, match="twice"):
            read(listed((line, line + again)))


@pytest.mark.parametrize(
    ("summary", "words"),
    [
        (("4 nodes checked", "1 nodes checked"), "checked 1 of at least 4 nodes"),
        (("11 ports checked", "1 ports checked"), "checked 1 of 11 ports"),
        (("11 ports checked", "10 ports checked"), "checked 10 of 11 ports"),
    ],
)
def test_d13_error_counters_of_a_part_of_the_fabric_are_no_clean_fabric(summary: tuple[str, str], words: str) -> None:
    found = judged(document(CLEAN.replace(*summary)))
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert words in found.reason


def test_d13_bad_nodes_without_bad_ports_are_refused() -> None:
    with pytest.raises(ParseError, match="2 bad nodes"):
        read(document(CLEAN.replace("0 bad nodes", "2 bad nodes")))


def test_d13_equal_lines_of_two_nodes_with_one_name_stay_two() -> None:
    both = ERRORS.replace(
        "\n## Summary: 4 nodes checked, 2 bad",
        'Errors for "gpu2 mlx5_0"\n   GUID 0xb8599f0300aa0001 port 1: [SymbolErrorCounter == 12]\n'
        "\n## Summary: 4 nodes checked, 3 bad",
    ).replace("2 ports have errors", "3 ports have errors")
    facts = read(document(both))
    assert len(facts["errors"]) == facts["ib_error_ports"] == 3


@pytest.mark.parametrize(
    "name", ["SymbolErrorCounter == 0x1f", "SymbolErrorCounter = 12", "SymbolErrorCounter == many"]
)
def test_d13_a_counter_that_cannot_be_read_is_refused(name: str) -> None:
    with pytest.raises(ParseError, match="counter"):
        read(document(ERRORS.replace("SymbolErrorCounter == 12", name)))


OTHER_SM = TEXTS["sminfo"].replace("0xb8599f0300aa0001", "0xb8599f0300ac0001").replace("sm lid 1", "sm lid 3")


def test_d13_two_masters_of_one_fabric_fail() -> None:
    assert judged(two({}, {})).verdict == "pass"
    found = judged(two({}, {"sminfo": OTHER_SM}))
    assert found.verdict == "fail"
    assert "2 masters" in found.reason


def test_d13_two_fabrics_have_a_master_each() -> None:
    rail = PORTS.replace("0xb8599f0300", "0xb8599f0400")
    facts = read(two({}, {"sminfo": OTHER_SM.replace("0xb8599f0300", "0xb8599f0400"), "ibnetdiscover": rail}))
    assert facts["subnets"] == 2
    assert judged(two({}, {"sminfo": OTHER_SM, "ibnetdiscover": rail})).verdict == "pass"


def test_d13_what_one_port_sees_otherwise_than_another_contradicts_it() -> None:
    slow = PORTS.replace("0xb8599f0300ab0001 4x EDR", "0xb8599f0300ab0001 1x EDR")
    slow = slow.replace("SW     4  2 0xb8599f0300fc0000 4x EDR", "SW     4  2 0xb8599f0300fc0000 1x EDR")
    assert judged(two({}, {"ibnetdiscover": slow})).verdict == "not-measured"


def test_asked_through_no_port_is_not_asked() -> None:
    doc = {**document(), "stdout": "", "facts": {"interfaces": [], "devices": []}}
    with pytest.raises(ParseError, match="no port"):
        read(doc)


def test_a_result_without_facts_is_not_fine() -> None:
    plan = plan_of(SITE, LOADED[:1], "ib-edr")
    (m,) = (m for m in plan.measurements if m.kind == "ib-fabric")
    found = [*results(SITE, plan, mtu=4092), result(m)]
    (one,) = criterion(verdict_of(SITE, plan, found, fabric="ib-edr"), "pf.ibfabric").judgements
    assert (one.verdict, one.reason_code) == ("not-measured", "missing-metric")


@pytest.mark.parametrize(
    "facts",
    [
        {"subnet_managers": ()},
        {"links": ()},
        {"errors": (IbErrors(port=IbPort(node="x", guid="0x1", number=1), counters={"SymbolErrorCounter": 12}),)},
        {"unanswered": 1},
        {"subnets": 0},
        {"ports_checked": 0},
    ],
    ids=str,
)
def test_odd_facts_are_not_fine(facts: dict[str, Any]) -> None:
    assert judged(document(), **facts).verdict != "pass"


# --- D14: what is healthy passes, and what is not asked for is reported -----------------------------------------------

AGGREGATION = (
    "CA     9  1 0xb8599f0300ee0001 4x HDR - SW     4  7 0xb8599f0300fc0000 ( 'Aggregation Node' - 'SB7800 edr1' )\n"
    "SW     4  7 0xb8599f0300fc0000 4x HDR - CA     9  1 0xb8599f0300ee0001 ( 'SB7800 edr1' - 'Aggregation Node' )\n"
)
IDLE7 = next(line + "\n" for line in PORTS.splitlines() if line.startswith("SW     4  7"))


@pytest.mark.parametrize(
    ("rate_gbps", "fabric", "written", "verdict"),
    [
        (100, "ib-edr", "4x EDR", "pass"),
        (100, "ib-edr", "2x HDR", "pass"),
        (100, "ib-edr", "1x NDR", "pass"),
        (200, "ib-hdr", "2x NDR", "pass"),
        (200, "ib-hdr", "4x HDR", "pass"),
        (400, "ib-ndr", "4x NDR", "pass"),
        (800, "ib-xdr", "4x XDR", "pass"),
        (800, "ib-xdr", "4x NDR", "fail"),
        (56, "ib-fdr", "4x FDR", "pass"),
        (100, "ib-edr", "1x HDR", "fail"),
        (100, "ib-edr", "4x QDR", "fail"),
        (200, "ib-hdr", "4x EDR", "fail"),
        (56, "ib-fdr", "4x FDR10", "fail"),
        (100, "ib-edr", "4x HDR", "fail"),
        (100, "ib-edr", "4x ???", "not-measured"),
    ],
)
def test_d14_width_times_speed_is_the_rate(rate_gbps: float, fabric: str, written: str, verdict: str) -> None:
    found = judged(listed(("4x EDR", written)), rate_gbps=rate_gbps, fabric=fabric)
    assert found.verdict == verdict, found.reason


def test_d14_links_that_nobody_declared_are_reported_and_not_judged() -> None:
    found = judged(listed((IDLE7, AGGREGATION)), nodes_checked=5)
    assert found.verdict == "not-measured", "one port more was listed than was checked"
    more = CLEAN.replace("4 nodes", "5 nodes").replace("11 ports", "12 ports")
    found = judged(
        {**listed((IDLE7, AGGREGATION)), "stdout": listed((IDLE7, AGGREGATION))["stdout"].replace(CLEAN, more)}
    )
    assert found.verdict == "pass", found.reason
    assert "reported, not judged: 1 other link: 4x HDR" in found.reason
    for line in ("CA     9  1 0xb8599f0300ee0001 1x SDR", "SW     4  7 0xb8599f0300fc0000 1x SDR"):
        assert line.replace("1x SDR", "4x HDR") in AGGREGATION
    slow = listed((IDLE7, AGGREGATION.replace("4x HDR", "1x SDR")))
    slow["stdout"] = slow["stdout"].replace(CLEAN, more)
    found = judged(slow)
    assert found.verdict == "pass"
    assert "1x SDR" in found.reason


def errors(*lines: str) -> str:
    """ibqueryerrors' output with these ports: `GUID PORT COUNTER VALUE`."""
    text = ""
    for line in lines:
        guid, port, name, value = line.split()
        text += f'Errors for {guid} "some node"\n   GUID {guid} port {port}: [{name} == {value}]\n'
    n = len(lines)
    text += f"\n## Summary: 4 nodes checked, {n} bad nodes found\n"
    return text + f"##          11 ports checked, {n} ports have errors beyond threshold\n"


GPU2, ITS_SWITCH_PORT, ELSEWHERE = "0xb8599f0300ab0001 1", "0xb8599f0300fc0000 2", "0xb8599f0300fc0000 7"


def test_d14_errors_of_ports_that_nobody_declared_are_reported() -> None:
    found = judged(document(errors(f"{ELSEWHERE} SymbolErrorCounter 900")))
    assert found.verdict == "pass"
    assert "SymbolErrorCounter 900" in found.reason
    for port in (GPU2, ITS_SWITCH_PORT):
        assert judged(document(errors(f"{port} SymbolErrorCounter 900"))).verdict == "fail"


def test_d14_a_reboot_counts_as_a_link_that_went_down_and_is_no_fault() -> None:
    found = judged(document(errors(f"{ITS_SWITCH_PORT} LinkDownedCounter 14")))
    assert found.verdict == "pass"
    assert "LinkDownedCounter 14" in found.reason


def test_d14_the_fabric_is_asked_again_after_the_load_and_only_growth_counts() -> None:
    plan = plan_of(SITE, LOADED, "ib-edr")
    assert [m.id for m in plan.measurements if m.kind == "ib-fabric"] == ["ib-fabric.gpu1", "ib-fabric-after.gpu1"]
    assert plan.measurements.index(plan.measurement("ib-fabric-after.gpu1")) > max(
        i for i, m in enumerate(plan.measurements) if m.suite == "transport"
    )
    old = document(errors(f"{GPU2} SymbolErrorCounter 900", f"{ITS_SWITCH_PORT} LinkDownedCounter 14"))
    found = judged(old, old)
    assert found.verdict == "pass", found.reason
    assert "SymbolErrorCounter 900" in found.reason
    for port, name in ((GPU2, "SymbolErrorCounter"), (ITS_SWITCH_PORT, "LinkDownedCounter")):
        grown = document(errors(f"{GPU2} SymbolErrorCounter 900", f"{ITS_SWITCH_PORT} LinkDownedCounter 14"))
        value = {"SymbolErrorCounter": 900, "LinkDownedCounter": 14}[name]
        grown["stdout"] = grown["stdout"].replace(f"{name} == {value}", f"{name} == {value + 3}")
        found = judged(old, grown)
        assert found.verdict == "fail", port
        assert f"{name} +3" in found.reason
    new = document(errors(f"{GPU2} SymbolErrorCounter 12"))
    assert judged(document(), new).verdict == "fail"


def test_d14_counters_that_fell_or_stick_say_nothing_of_the_run() -> None:
    old = document(errors(f"{GPU2} SymbolErrorCounter 900"))
    for last in (document(), document(errors(f"{GPU2} SymbolErrorCounter 800"))):
        found = judged(old, last)
        assert found.verdict == "not-measured"
        assert "fell" in found.reason
    for name, most in (("SymbolErrorCounter", 65535), ("LinkDownedCounter", 255)):
        stuck = document(errors(f"{GPU2} {name} {most}"))
        assert judged(stuck, stuck).verdict == "not-measured"
    elsewhere = document(errors(f"{ELSEWHERE} SymbolErrorCounter 65535"))
    assert judged(elsewhere, elsewhere).verdict == "pass"


def test_d14_a_link_that_trained_down_during_the_run_is_found() -> None:
    found = judged(document(), document(ibnetdiscover=TEXTS["ibnetdiscover-ports-degraded"]))
    assert found.verdict == "fail"
    assert "runs at 1x EDR at the end of the run" in found.reason
