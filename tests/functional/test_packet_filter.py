"""A packet filter that refuses by default, in rules that the real nft and iptables have loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from tests.support.node_modules import load
from tests.support.preflight_case import NODE, WANTED, preflight, reasons

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace of its own"),
]

filters: Any = load("plugins/module_utils/packet_filter.py")
SITE = ["10.0.0.10/31", "10.78.0.0/24"]
"""Management addresses of the nodes, and the network of a rail."""

INPUT = "table inet filter {{\nchain input {{\ntype filter hook input priority 0; policy drop;\n{}\n}}\n}}\n"
USUAL = 'iifname "lo" accept\nct state established,related accept\ntcp dport 22 accept\n'
#: Rules, and what preflight says: refused, noted or nothing; and the networks that it names.
CASES: dict[str, tuple[str, str, list[str]]] = {
    "drop": (INPUT.format(USUAL), "refused", SITE),
    "drop by a last rule": (
        "table ip filter {\nchain INPUT {\ntype filter hook input priority 0; policy accept;\n"
        "tcp dport 22 accept\ncounter reject\n}\n}\n",
        "refused",
        SITE,
    ),
    "management alone": (INPUT.format(USUAL + "ip saddr 10.0.0.0/16 accept\n"), "refused", SITE[1:]),
    "both": (INPUT.format(USUAL + "ip saddr { 10.0.0.0/16, 10.78.0.0/24 } accept\n"), "", []),
    "by interface": (INPUT.format(USUAL + 'iifname { "eno1", "ens2f0" } accept\n'), "", []),
    "ports": (INPUT.format(USUAL + "tcp dport { 6817-6819, 50000 } accept\n"), "noted", SITE),
    "another chain": (
        "table inet filter {\nchain site {\naccept\n}\nchain input {\ntype filter hook input priority 0; policy drop;\n"
        "jump site\n\n}\n}\n",
        "noted",
        SITE,
    ),
    "open": ("table inet filter {\nchain input {\ntype filter hook input priority 0; policy accept;\n}\n}\n", "", []),
    "forward alone": (
        "table ip filter {\nchain F {\ntype filter hook forward priority 0; policy drop;\n}\n}\n",
        "",
        [],
    ),
    "answers and signals": (
        INPUT.format(
            USUAL
            + "icmp type echo-request accept\nmeta l4proto { icmp, ipv6-icmp } accept\nct state established accept\n"
            "ip6 saddr fe80::/10 accept\nmeta nfproto ipv6 accept\nct state invalid drop\n"
            "tcp dport 22 ct state new accept\n"
        ),
        "refused",
        SITE,
    ),
    "two addresses are one network": (
        INPUT.format(USUAL + "ip saddr { 10.0.0.10, 10.0.0.11 } accept\nip saddr 10.78.0.0-10.78.0.255 accept\n"),
        "",
        [],
    ),
    "drop above a rate, then accept": (
        INPUT.format(USUAL + "limit rate over 9/second drop\nip saddr { 10.0.0.0/16, 10.78.0.0/24 } accept\n"),
        "",
        [],
    ),
    **{
        condition: (INPUT.format(f"{USUAL}{condition} accept\n"), "noted", SITE)
        for condition in (
            "ip saddr 10.0.0.0/8 ct state new",
            "ip saddr 10.0.0.0/8 meta l4proto { tcp, udp }",
            "ip saddr != 192.0.2.0/24",
            "ip saddr 10.0.0.0/8 limit rate 9/second",
            "meta l4proto tcp",
            'iifname { "lo", "en*" }',
            "ct mark 7",
        )
    },
    "a named set": (
        "table inet filter {\nset site { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 }; }\n"
        f"chain input {{\ntype filter hook input priority 0; policy drop;\n{USUAL}ip saddr @site accept\n}}\n}}\n",
        "noted",
        SITE,
    ),
    "a chain without a name": (INPUT.format(USUAL + "ip saddr 10.0.0.0/8 jump { accept; }\n"), "noted", SITE),
    "firewalld": (INPUT.format("").replace("inet filter", "inet firewalld"), "", []),
}


def said(read: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    observed, wanted = {**NODE, "filters": read}, {**WANTED, "site_networks": SITE}
    return preflight.preflight_reasons(observed, wanted), preflight.preflight_notes(observed, wanted)


def nft(rules: str) -> str:
    """What the real nft lists of rules that it has loaded."""
    return subprocess.run(
        ["unshare", "--net", "bash", "-c", "nft -f - && nft -j list ruleset"],
        input=rules, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


@pytest.mark.skipif(shutil.which("nft") is None, reason="needs nft")
@pytest.mark.parametrize("case", CASES)
def test_rules_of_nftables_that_shut_the_site_out_are_named(case: str) -> None:
    rules, kind, networks = CASES[case]
    refused, noted = said(filters.of_nft(nft(rules)))
    assert (len(refused), len(noted)) == (int(kind == "refused"), int(kind == "noted"))
    for sentence in refused + noted:
        assert f"from {', '.join(networks)}" in sentence
        assert "6817 to 6819" in sentence
        cured = rules + sentence.rpartition("too: nft ")[2].replace("'", "") + "\n"
        assert said(filters.of_nft(nft(cured))) == ([], []), cured


def iptables(*rules: str) -> str:
    """What `iptables -S INPUT` lists after these."""
    script = "\n".join([*(f"iptables {rule}" for rule in rules), "iptables -S INPUT"])
    done = subprocess.run(["unshare", "--net", "bash", "-ec", script], capture_output=True, text=True, check=True)
    return done.stdout


def test_rules_of_iptables_are_read_where_there_is_no_nft() -> None:
    ssh = "-A INPUT -p tcp --dport 22 -j ACCEPT"
    refused, _ = said(filters.of_iptables(iptables("-P INPUT DROP", ssh)))
    assert len(refused) == 1
    refused, _ = said(filters.of_iptables(iptables(ssh, "-A INPUT -j REJECT")))
    assert len(refused) == 1
    let_in = ("-A INPUT -s 10.0.0.0/16 -j ACCEPT", "-A INPUT -i ens2f0 -j ACCEPT")
    assert said(filters.of_iptables(iptables("-P INPUT DROP", ssh, *let_in))) == ([], [])
    assert said(filters.of_iptables(iptables(ssh))) == ([], [])


def test_a_recording_without_filters_and_what_is_no_ruleset_are_read_as_none() -> None:
    assert reasons({}, {"site_networks": SITE}) == []
    assert filters.of_nft("Error: syntax") == filters.of_nft("{}") == []


CONNECTIONS = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
ALL = "-s 10.0.0.0/8 -m comment --comment 'the -j DROP of old'"
#: Options of a rule that accepts, and what preflight says.
OPTIONS = {
    ALL: "",
    "-s 10.0.0.0/8 -p tcp": "noted",
    "-s 10.0.0.0/8 -m conntrack --ctstate NEW": "noted",
    "! -s 192.0.2.0/24": "noted",
    "-i en+": "noted",
    "-m iprange --src-range 10.0.0.5-10.78.0.200": "noted",
    "-m socket": "noted",
    "-p icmp": "refused",
    "-i lo": "refused",
    "-m state --state ESTABLISHED": "refused",
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("programs", [("nft", "iptables"), ("iptables",)])
def test_a_rule_of_iptables_with_further_conditions_refuses_no_node(
    options: str, programs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by way of nft, which names conditions without their options, and by iptables alone."""
    if any(shutil.which(program) is None for program in programs):
        pytest.skip(f"needs {' and '.join(programs)}")
    rules = ("-P INPUT DROP", CONNECTIONS, f"-A INPUT {options} -j ACCEPT")
    script = "\n".join([*(f"iptables {rule}" for rule in rules), "iptables -S INPUT", "nft -j list ruleset"])
    out = subprocess.run(["unshare", "--net", "bash", "-ec", script], capture_output=True, text=True, check=True).stdout
    lists, mark, ruleset = out.partition('{"nftables"')
    listed = {"iptables": lists, "nft": mark + ruleset}
    monkeypatch.setattr(filters.shutil, "which", lambda name: name if name in programs else None)
    refused, noted = said(filters.read_filters(lambda command: (0, listed[command[0]], "")))
    kind = "refused" if refused else "noted" if noted else ""
    assert (kind, len(refused + noted)) == (OPTIONS[options], int(bool(kind)))


def ruleset(*statements: Any) -> str:
    where = {"family": "ip", "table": "filter"}
    chain = {**where, "name": "INPUT", "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}
    return json.dumps({"nftables": [{"chain": chain}, {"rule": {**where, "chain": "INPUT", "expr": list(statements)}}]})


@pytest.mark.parametrize(
    "statement", [{"xt": None}, "jump {\n accept\n}", {}, {"match": None}, {"match": {"left": "x"}}]
)
def test_statements_that_nft_has_no_json_for_make_the_chain_unsure(statement: Any) -> None:
    """nft 0.9 writes `xt` as null, and 1.0.6 a chain without a name as its text."""
    refused, noted = said(filters.of_nft(ruleset(statement, {"accept": None})))
    assert (len(refused), len(noted)) == (0, 1)


def test_what_the_parser_cannot_take_apart_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters.shutil, "which", lambda name: name if name == "nft" else None)
    refused, noted = said(filters.read_filters(lambda _: (0, '{"nftables": [7]}', "")))
    assert (len(refused), len(noted)) == (0, 1)
    assert "could not be read (nft -j list ruleset: AttributeError" in noted[0]
