"""Path MTU from iputils ping with do-not-fragment: the largest IP packet that was answered, one byte more not being."""

from __future__ import annotations

import re
from collections.abc import Mapping

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, plain
from validation.measures.fabric.path_mtu_probe import TOO_LONG, headers_bytes
from validation.model import Sample, Scalar
from validation.probes import ProbeDoc

MAX_IP_PACKET_BYTES = 65535
OLD_IPV6_SHORT_BYTES = 20
"""How much too little probes of former releases report over IPv6, whose header they took for one of IPv4."""

_COMMAND = re.compile(r"^\$ (ping .*)$", re.MULTILINE)


def _answered(command: str, said: str) -> tuple[int, bool]:
    size = re.search(r" -s (\d+) ", command)
    if size is None or "-M do" not in command:
        raise ParseError(f"ping: not a do-not-fragment probe of a stated size: {command}")
    end = re.search(r"^(\d+) packets transmitted, (\d+) received,.*time \d+ms$", said, re.MULTILINE)
    if end is None:
        raise ParseError("ping: its output is cut before the statistics")
    replies = re.findall(rf"^{int(size[1]) + 8} bytes from (?!.*\(DUP!\))", said, re.MULTILINE)
    if len(replies) != int(end[2]):
        raise ParseError(f"ping: {end[2]} answers counted, {len(replies)} of the right size shown")
    return int(size[1]) + headers_bytes(command.split()[-1]), int(end[2]) > 0


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`path_mtu_bytes`, one sample. The limit must be shown from both sides: this size passed, the next did not."""
    text = doc["stdout"]
    commands = list(_COMMAND.finditer(text))
    if not commands:
        raise ParseError("ping: no command in its output")
    ends = [m.start() for m in commands[1:]] + [len(text)]
    tried: dict[int, bool] = {}
    for match, end in zip(commands, ends, strict=True):
        size, answered = _answered(match[1], text[match.end() : end])
        tried[size] = tried.get(size, False) or answered
    passed = [size for size, answered in tried.items() if answered]
    if not passed:
        raise ParseError(f"ping: no answer, not even to {number_of(min(tried), 'byte')}")
    found = max(passed)
    local = {int(m) for m in re.findall(TOO_LONG, text)}
    if tried.get(found + 1) is not False and found not in local and found != MAX_IP_PACKET_BYTES:
        raise ParseError(f"ping: {number_of(found, 'byte')} passed, but {found + 1} was not tried")
    planned = params.get("mtu")
    old = OLD_IPV6_SHORT_BYTES if ":" in commands[0][1].split()[-1] else 0
    if isinstance(planned, int) and not {planned, planned + old} & set(tried):
        raise ParseError(f"ping: the planned size of {number_of(planned, 'byte')} was not tried")
    if "path_mtu_bytes" in doc["facts"] and doc["facts"]["path_mtu_bytes"] not in (found, found - old):
        raise ParseError(
            f"ping: {number_of(found, 'byte')} in its output, {doc['facts']['path_mtu_bytes']} reported by the probe"
        )
    facts = plain(doc["facts"])
    if "path_mtu_bytes" in facts:
        facts["path_mtu_bytes"] = found
    return [Sample(metric="path_mtu_bytes", value=float(found), unit="bytes")], facts
