"""What the packet filter of a node refuses by default, read from its rules; firewalld and ufw are role firewall's.

A base chain of hook input that ends with drop or reject lets in what its own rules accept. Read are accepted networks
and interfaces. A rule that accepts under further conditions, or by another chain, is not followed: it makes the chain
unsure, of which preflight says a note and refuses nothing.
"""

from __future__ import annotations

import ipaddress
import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from typing import Any

Runner = Callable[..., Any]
Json = dict[str, Any]

#: Statements of a rule that decide nothing.
QUIET = {"counter", "log", "comment"}
REFUSING = {"drop", "reject"}
LOGGING = {"log", "nflog"}
SSH = 22
#: The chain of iptables-nft, as nft calls it.
OF_IPTABLES = "ip filter INPUT"
#: Connections that are there already, protocols without ports, and the other IP: no new connection of the site's nodes.
ANSWERS = {"established", "related"}
SIGNALS = {"icmp", "icmpv6", "ipv6-icmp", "igmp"}
OTHER_IP = {"ipv6", "ip6"}
#: Matches of iptables that say nothing without the options that follow them.
BY_OPTIONS = {"comment", "tcp", "udp", "icmp", "conntrack", "state", "multiport", "iprange", "limit"}


def read_filters(run: Runner) -> list[Json]:
    """The chains that refuse by default: chain, networks, interfaces, and whether ports or other chains let in more."""
    nft, iptables = shutil.which("nft"), shutil.which("iptables")
    found = _read(run, ["nft", "-j", "list", "ruleset"], of_nft) if nft else []
    own = [chain for chain in found if chain["chain"] == OF_IPTABLES and chain["unsure"]]
    if iptables and (own or not nft):
        # nft lists the matches of iptables by their names alone; iptables itself has their options
        by_options = _read(run, ["iptables", "-S", "INPUT"], of_iptables)
        if not nft or [chain["unsure"] for chain in by_options] == [False]:
            return by_options + [chain for chain in found if chain not in own]
    return found


def _read(run: Runner, command: list[str], parse: Callable[[str], list[Json]]) -> list[Json]:
    code, out, _ = run(command)
    if code != 0:
        return []
    try:
        return parse(out)
    except Exception as error:  # rules of a form that nobody has seen yet: a note, and no failed module
        fault = f"{type(error).__name__}: {error}"
        return [{"chain": shlex.join(command), "networks": [], "interfaces": [], "unsure": True, "unread": fault}]


def of_nft(text: str) -> list[Json]:
    """From the JSON of `nft -j list ruleset`, which has the chains of iptables-nft too."""
    try:
        entries = json.loads(text)["nftables"]
    except (ValueError, KeyError, TypeError):
        return []
    rules: dict[tuple[str, str, str], list[list[Any]]] = {}
    for entry in entries:
        rule = entry.get("rule")
        if rule:
            rules.setdefault((rule["family"], rule["table"], rule["chain"]), []).append(rule.get("expr") or [])
    found = []
    for entry in entries:
        chain = entry.get("chain") or {}
        if chain.get("hook") != "input" or chain.get("type") != "filter" or chain["family"] not in ("ip", "inet"):
            continue
        if chain["table"] == "firewalld":
            continue
        read = _chain([_rule(one) for one in rules.get((chain["family"], chain["table"], chain["name"]), [])],
                      str(chain.get("policy", "accept")))  # fmt: skip
        if read:
            found.append({"chain": f"{chain['family']} {chain['table']} {chain['name']}", **read})
    return found


def of_iptables(text: str) -> list[Json]:
    """From `iptables -S INPUT`."""
    rules, policy = [], "accept"
    for line in text.splitlines():
        words = shlex.split(line)
        if words[:2] == ["-P", "INPUT"]:
            policy = words[2].lower()
        elif words[:2] == ["-A", "INPUT"]:
            rules.append(_option_rule(words[2:]))
    read = _chain(rules, policy)
    return [{"chain": "iptables INPUT", **read}] if read else []


def _empty() -> Json:
    """A rule. `more`: it has further conditions. `narrow`: it is not about new connections by IPv4."""
    rule: Json = {"verdict": "", "target": "", "networks": [], "interfaces": [], "ports": []}
    return {**rule, "more": False, "narrow": False}


def _option_rule(words: list[str]) -> Json:
    rule = _empty()
    for negated, option, values in _options(words):
        value = values[0] if values else ""
        states = {name.lower() for name in value.split(",")}
        if option in ("-j", "-g"):
            verdict = value.lower()
            known = verdict in {*REFUSING, "accept"} and option == "-j"
            rule["verdict"] = verdict if known else "" if verdict in LOGGING else "other"
            rule["target"] = value
            break  # what follows is how the target does it
        if option == "--comment" or (option == "-m" and value in BY_OPTIONS):
            continue
        if negated:
            rule["more"] = True
        elif option == "-s":
            _add_networks(rule, [value])
        elif option == "-i":
            _add_interfaces(rule, [value])
        elif option in ("--dport", "--dports"):
            rule["ports"] += value.split(",")
        elif (option == "-p" and value in SIGNALS) or (option in ("--ctstate", "--state") and states <= ANSWERS):
            rule["narrow"] = True
        else:
            rule["more"] = True
    return rule


def _options(words: list[str]) -> Iterator[tuple[bool, str, list[str]]]:
    """The options of a rule: whether negated, name and values. A comment may look like an option."""
    rest = list(words)
    while rest:
        negated = rest[0] == "!"
        option, rest = rest[int(negated)], rest[int(negated) + 1 :]
        values = [rest.pop(0)] if option == "--comment" and rest else []
        while rest and not rest[0].startswith(("-", "!")):
            values.append(rest.pop(0))
        yield negated, option, values


def _values(right: Any) -> list[str] | None:
    """Names, numbers and networks of a match; None where they are elsewhere, as in a named set."""
    if isinstance(right, dict) and "set" in right:
        right = right["set"]
    if isinstance(right, list):
        parts = [_values(one) for one in right]
        return None if any(part is None for part in parts) else [name for part in parts for name in part or ()]
    if isinstance(right, dict) and "prefix" in right:
        return [f"{right['prefix']['addr']}/{right['prefix']['len']}"]
    if isinstance(right, dict) and "range" in right:
        return ["-".join(str(end) for end in right["range"])]
    if isinstance(right, (str, int)) and not str(right).startswith("@"):
        return [str(right)]
    return None


def _rule(statements: list[Any]) -> Json:
    """A rule as of_iptables has it."""
    rule = _empty()
    for statement in statements:
        if not isinstance(statement, dict) or not statement:  # nft has no JSON for it, as for a chain without a name
            rule |= {"verdict": rule["verdict"] or "other", "more": True}
            continue
        kind, content = next(iter(statement.items()))
        content = content if isinstance(content, dict) else {}
        if kind == "match":
            _match(rule, content)
        elif kind == "xt":
            name = str(content.get("name", "")).lower()
            if content.get("type") == "target":
                rule["verdict"] = name if name in REFUSING else rule["verdict"] if name in LOGGING else "other"
            elif content.get("type") == "match":
                rule["more"] = rule["more"] or name != "comment"
            else:  # older nft names neither: a match or a target
                rule |= {"verdict": rule["verdict"] or "other", "more": True}
        elif kind in {*REFUSING, "accept"}:
            rule["verdict"] = kind
        elif kind in ("jump", "goto"):
            rule |= {"verdict": "other", "target": str(content.get("target", ""))}
        elif kind not in QUIET:
            rule |= {"verdict": rule["verdict"] or "other", "more": True}
    return rule


def _match(rule: Json, content: Json) -> None:
    left, values = content.get("left"), _values(content.get("right"))
    left = left if isinstance(left, dict) else {}
    payload, meta, connection = left.get("payload") or {}, left.get("meta") or {}, left.get("ct") or {}
    if content.get("op") not in ("==", "in") or values is None:
        rule["more"] = True
    elif payload.get("protocol") in {*SIGNALS, *OTHER_IP}:
        rule["narrow"] = True
    elif payload.get("field") == "saddr":
        _add_networks(rule, values)
    elif meta.get("key") in ("iifname", "iif"):
        _add_interfaces(rule, values)
    elif payload.get("field") == "dport":
        rule["ports"] += values
    elif meta.get("key") in ("nfproto", "protocol"):
        rule["narrow"] = rule["narrow"] or set(values) <= OTHER_IP
    elif meta.get("key") == "l4proto" or payload.get("field") == "protocol":
        narrow = set(values) <= SIGNALS
        rule |= {"narrow": rule["narrow"] or narrow, "more": rule["more"] or not narrow}
    elif connection.get("key") == "state" and set(values) <= ANSWERS:
        rule["narrow"] = True
    else:
        rule["more"] = True


def _add_networks(rule: Json, texts: list[str]) -> None:
    for text in texts:
        ends = text.split("-")
        try:
            if len(ends) == 2:
                first, last = (ipaddress.IPv4Address(end) for end in ends)
                rule["networks"] += [str(part) for part in ipaddress.summarize_address_range(first, last)]
            else:
                rule["networks"].append(str(ipaddress.IPv4Network(text, strict=False)))
        except ValueError:  # the address of a port, or what nobody has seen yet
            rule["more"] = True


def _add_interfaces(rule: Json, names: list[str]) -> None:
    """Names with a wildcard, which nft writes as `*` and iptables as `+`, are not held against the node's ports."""
    rule["interfaces"] += [name for name in names if not name.endswith(("*", "+"))]
    rule["more"] = rule["more"] or any(name.endswith(("*", "+")) for name in names)


def _chain(rules: list[Json], policy: str) -> Json:
    """What a chain lets in, {} where it lets in all."""
    networks: list[str] = []
    interfaces: list[str] = []
    unsure = False
    for rule in rules:
        bare = not any(rule[name] for name in ("networks", "interfaces", "ports", "more", "narrow"))
        own = set(rule["interfaces"]) == {"lo"} and not rule["more"]
        if rule["verdict"] == "accept" and bare:
            return {}
        if rule["verdict"] in REFUSING and bare:
            policy = "drop"
            break
        if rule["verdict"] == "other":
            if rule["target"].startswith("ufw"):
                return {}
            unsure = True
        elif rule["verdict"] != "accept" or rule["narrow"] or own:
            continue
        elif rule["ports"]:
            unsure = unsure or set(rule["ports"]) != {str(SSH)}
        elif rule["more"] or (rule["networks"] and rule["interfaces"]):
            unsure = True
        else:
            networks += rule["networks"]
            interfaces += rule["interfaces"]
    if policy not in REFUSING:
        return {}
    return {"networks": networks, "interfaces": interfaces, "unsure": unsure}
