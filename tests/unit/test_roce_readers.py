"""Readers of mlnx_qos, dcb and ethtool where a driver does not tell everything, or the tool words it otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.node_modules import load
from validation.measures.node import inventory_scan_probe
from validation.probes import rdma_ports_qos
from validation.probes.tool import Ran

roce: Any = load("roles/roce/files/elastic_ai_roce.py")

ETS = {
    "prio_tc": [0, 0, 0, 1, 0, 0, 2, 0],
    "tsa": {"0": "ets", "1": "ets", "2": "strict"},
    "bandwidth_percent": {"0": 50, "1": 50},
}
#: As role roce wants it: classes are called as their priorities.
POLICY = {
    "trust": "dscp", "dscp_prio": {"26": 3, "48": 6}, "pfc": [3], "pause": {"rx": False, "tx": False},
    "ets": {"prio_tc": [0, 0, 0, 3, 0, 0, 6, 0], "tsa": {"0": "ets", "3": "ets", "6": "strict"},
            "bandwidth_percent": {"0": 50, "3": 50}},
}  # fmt: skip
BUFFERS = "Buffers commands are not supported on your system\n"
RATES = "Rate limit is not supported on your system!\n"
TRUST = "Priority trust state: dscp\ndscp2prio mapping:\n\tprio:3 dscp:26,\n\tprio:6 dscp:48,\n"
PFC = (
    "Cable len: 0\nPFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n"
    "\tenabled     0   0   0   1   0   0   0   0   \n"
)
CLASSES = (
    ("ets, bw: 50%", (0, 1, 2, 4, 5, 7)),
    ("ets, bw: 50%", (3,)),
    ("strict", (6,)),
)


def ets_lines(before: str = "", numbers: tuple[int, ...] = (0, 1, 2)) -> str:
    return "".join(
        before.format(number) + head + "\n" + "".join(f"\t priority:  {prio}\n" for prio in members)
        for number, (head, members) in zip(numbers, CLASSES, strict=True)
    )


TEXT = BUFFERS + RATES + "DCBX mode: OS controlled\n" + TRUST + PFC + ets_lines()


def test_a_driver_without_rate_limits_has_its_classes_in_their_order() -> None:
    found = roce.parse_mlnx_qos(TEXT)
    assert (found["trust"], found["dscp_prio"], found["pfc"]) == ("dscp", {"26": 3, "48": 6}, [3])
    assert found["ets"] == ETS


SPELLED = {
    "with rates": ets_lines("tc: {} ratelimit: unlimited, tsa: "),
    "with a rate": ets_lines("tc: {} ratelimit: 10.0 Gbps, tsa: "),
    "without the rate": ets_lines("tc: {} tsa: "),
    "numbered as the policy": ets_lines("tc: {} ratelimit: unlimited, tsa: ", (0, 3, 6)),
    "bare": ets_lines(),
}


@pytest.mark.parametrize("case", SPELLED)
def test_classes_are_compared_by_what_they_do(case: str) -> None:
    found = roce.parse_mlnx_qos(TRUST + PFC + SPELLED[case])
    port = object.__new__(roce.Port)
    port.missing = []
    assert port.differences({**found, "pause": POLICY["pause"]}, POLICY) == []


@pytest.mark.parametrize(
    "classes",
    [
        ets_lines().replace("bw: 50%\n\t priority:  3", "bw: 40%\n\t priority:  3"),
        ets_lines().replace("strict", "ets, bw: 0%"),
        ets_lines().replace("\t priority:  2\n", "").replace("\t priority:  3\n", "\t priority:  2\n\t priority:  3\n"),
    ],
)
def test_other_classes_differ(classes: str) -> None:
    found = roce.parse_mlnx_qos(TRUST + PFC + classes)
    port = object.__new__(roce.Port)
    (drift,) = port.differences({**found, "pause": POLICY["pause"]}, POLICY)
    assert (drift["what"], drift["is"], drift["wanted"]) == ("ets", found["ets"], POLICY["ets"])


#: Each optional part of the output, and what is not known without it.
LACKING = {
    "trust": ("Priority trust mode is not supported on your system\n" + PFC + ets_lines(), {"trust": None, "pfc": [3]}),
    "classes": (TRUST + PFC + "ETS is not supported on your system\n", {"ets": None, "trust": "dscp", "pfc": [3]}),
    "length of the cable": (TRUST + PFC.replace("Cable len: 0\n", "") + ets_lines(), {"pfc_delay": 0, "ets": ETS}),
    "map": (TRUST.partition("dscp2prio")[0] + PFC + ets_lines(), {"trust": "dscp", "dscp_prio": {}}),
    "pfc": (TRUST + "PFC is not supported on your system\n" + ets_lines(), {"pfc": None, "trust": "dscp", "ets": ETS}),
}


@pytest.mark.parametrize("case", LACKING)
def test_one_part_that_is_not_told_leaves_the_others(case: str) -> None:
    text, wanted = LACKING[case]
    found = roce.parse_mlnx_qos(text)
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    "text", ["", TRUST, "PFC configuration:\n", TRUST + PFC + ets_lines().replace("\t priority:  4\n", "")]
)
def test_what_is_not_understood_is_no_reading(text: str) -> None:
    with pytest.raises(ValueError, match="mlnx_qos"):
        roce.parse_mlnx_qos(text)


def port_of(monkeypatch: pytest.MonkeyPatch, said: dict[str, tuple[int, str]]) -> Any:
    """A port whose tools say this, by their first words; the others are not installed."""

    def run(*words: str) -> tuple[int, str, str]:
        for begin, (code, out) in said.items():
            if " ".join(words).startswith(begin):
                return code, out, "" if code == 0 else "not supported"
        return 127, "", f"{words[0]}: not there"

    tools = {begin.split()[0] for begin in said}
    monkeypatch.setattr(roce, "run", run)
    monkeypatch.setattr(roce.shutil, "which", lambda name: name if name in tools else None)
    return roce.Port("fab0", POLICY)


@pytest.mark.parametrize("case", ["trust", "classes"])
def test_what_is_not_told_is_not_lossless(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    port = port_of(monkeypatch, {"mlnx_qos": (0, LACKING[case][0])})
    now = {**port.read_dcb(), "pause": POLICY["pause"]}
    verdict, why = port.verdict(now, port.differences(now, POLICY))
    assert verdict is None
    assert "mlnx_qos does not tell" in why


def test_a_port_without_flow_control_is_not_lossless(monkeypatch: pytest.MonkeyPatch) -> None:
    port = port_of(monkeypatch, {"mlnx_qos": (0, LACKING["pfc"][0])})
    now = {**port.read_dcb(), "pause": POLICY["pause"]}
    assert port.verdict(now, []) == (False, "mlnx_qos does not tell priority flow control of fab0")


DCB = {
    "pfc": {"prio_pfc": [False, False, False, True, False, False, False, False], "delay": 0},
    "ets": {
        "prio_tc": [0, 0, 0, 1, 0, 0, 2, 0],
        "tc_tsa": ["ets", "ets", "strict", *["ets"] * 5],
        "tc_bw": [50, 50, *[0] * 6],
    },
    "app": {"dscp_prio": [[26, 3], [48, 6]]},
}


def dcb_says(**changed: Any) -> dict[str, tuple[int, str]]:
    parts: dict[str, Any] = {**DCB, **changed}
    return {
        f"dcb -j {part} show": (1, "") if value is None else (0, json.dumps(value)) for part, value in parts.items()
    }


def test_the_kernels_tool_is_asked_where_the_other_is_not_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    port = port_of(monkeypatch, {"mlnx_qos": (0, "something new\n"), **dcb_says()})
    found = port.read_dcb()
    assert (found["trust"], found["pfc"], found["ets"], port.tool) == ("dscp", [3], ETS, "dcb")


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({"ets": None}, {"pfc": [3], "trust": "dscp", "ets": None}),
        ({"app": None}, {"pfc": [3], "trust": None, "ets": ETS}),
        ({"ets": {"willing": False}}, {"pfc": [3], "trust": "dscp", "ets": None}),
        ({"app": {}}, {"pfc": [3], "trust": "pcp", "dscp_prio": {}}),
        ({"app": {"dscp_prio": {"26": 3}}}, {"trust": "dscp", "dscp_prio": {"26": 3}}),
        ({"pfc": None}, {"pfc": None, "trust": None, "ets": None}),
    ],
)
def test_dcb_loses_one_part_alone(monkeypatch: pytest.MonkeyPatch, changed: Any, wanted: dict[str, Any]) -> None:
    port = port_of(monkeypatch, dcb_says(**changed))
    found = port.read_dcb()
    assert {key: found[key] for key in wanted} == wanted
    assert bool(port.missing) is (None in wanted.values())


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, {"pfc": [3], "trust": "dscp"}),
        ({"app": None}, {"pfc": [3], "trust": None, "dscp_prio": None}),
        ({"pfc": {"pfc_cap": 8}}, {"pfc": None, "trust": None}),
    ],
)
def test_the_probe_of_the_acceptance_loses_one_part_alone(
    monkeypatch: pytest.MonkeyPatch, changed: Any, wanted: dict[str, Any]
) -> None:
    said = dcb_says(**changed)

    def run_tool(command: list[str], **_: Any) -> Ran:
        code, out = said[" ".join(command[:4])]
        return Ran(command, code, out, "")

    monkeypatch.setattr(rdma_ports_qos, "run_tool", run_tool)
    found = rdma_ports_qos.dcb("fab0")
    assert {key: found[key] for key in wanted} == wanted
    assert bool(found["unread"]) is (None in wanted.values())


MODES = "\tSupported link modes:   25000baseCR/Full\n\t                        400000baseCR4/Full\n"


@pytest.mark.parametrize(
    "behind",
    [
        "\tSupported pause frame use: Symmetric\n", "\tSupports auto-negotiation: Yes\n", "",
        "\tAdvertised link modes:  800000baseCR8/Full\n", "\tSpeed: 400000Mb/s\n",
    ],
)  # fmt: skip
def test_the_fastest_mode_needs_no_line_behind_it(behind: str) -> None:
    assert inventory_scan_probe.fastest_mbit(f"Settings for fab0:\n{MODES}{behind}") == 400_000
    assert (
        inventory_scan_probe.fastest_mbit(f"Settings for fab0:\n\tSupported link modes:   Not reported\n{behind}")
        is None
    )


@pytest.mark.parametrize("table", [{"26": 3, "8": 1}, [[26, 3], [8, 1]]])
def test_the_probe_reads_both_forms_of_the_dscp_map(monkeypatch: pytest.MonkeyPatch, table: object) -> None:
    said = {"pfc": {"prio_pfc": [False, False, False, True]}, "app": {"dscp_prio": table}}
    monkeypatch.setattr(rdma_ports_qos, "_dcb", lambda part, _: said[part])
    found = rdma_ports_qos.dcb("ens1")
    assert (found["dscp_prio"], found["trust"], found["pfc"]) == ({"8": 1, "26": 3}, "dscp", [3])
