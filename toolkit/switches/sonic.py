"""The running configuration of Enterprise SONiC, as its command line prints it."""

from __future__ import annotations

import re

from toolkit.switches.config import Port, Said
from toolkit.switches.keys import numbers
from toolkit.switches.lines import Line, block

_BUNDLE = re.compile(r"PortChannel ?(\d+)", re.IGNORECASE)
#: A port's map -> the field of `Port` that it fills.
_MAPS = {
    "qos-map dscp-tc {name}": "dscp",
    "qos-map tc-queue {name}": "queue",
    "qos-map tc-pg {name}": "group",
    "qos-map pfc-priority-queue {name}": "paused",
    "qos-map pfc-priority-pg {name}": "group_of",
}
_NEEDED = tuple(form for form in _MAPS if "pg" not in form)


def _pairs(mapped: Line) -> dict[int, Said[int]]:
    """A map's lines, each a list of numbers and the number that they become."""
    made: dict[int, Said[int]] = {}
    for line in mapped.below:
        if line.form:
            made.update(dict.fromkeys(numbers(line.values[0]), Said(int(line.values[1]), line)))
    return made


def _scheduler(policy: Line, port: Port) -> None:
    for queue in policy.below:
        for line in queue.below:
            if queue.form and line.text == "type strict":
                port.strict[int(queue.values[0])] = line


def _wred(policy: Line, queue: int, port: Port, use: Line) -> None:
    marks = [line for line in policy.below if line.text in ("ecn green", "ecn all")]
    if marks:
        port.ecn[queue] = marks[0]
    else:
        port.dropped[queue] = use


def ports(blocks: list[Line]) -> list[Port]:
    """The ports of a configuration; SwitchFault where one names a block that is not there."""
    faces = [one for one in blocks if one.form.startswith("interface ")]
    bundles = {f"interface PortChannel{found[1]}": one for one in faces if (found := _BUNDLE.match(one.values[0]))}
    heads = {**{one.text: one for one in blocks}, **bundles}
    return [_port(one, heads) for one in faces if one.values[0].startswith("Eth")]


def _port(face: Line, heads: dict[str, Line]) -> Port:
    port = Port(face.values[0].replace(" ", ""), face)
    for line in face.below:
        match line.form:
            case "shutdown":
                port.down = line
            case "mtu {mtu}":
                port.mtu = Said(int(line.values[0]), line)
            case "channel-group {channel}":
                port.channel = Said(int(line.values[0]), line)
            case "scheduler-policy {name}":
                _scheduler(block(heads, f"qos {line.text}", line), port)
            case "priority-flow-control priority {priority}":
                port.pfc[int(line.values[0])] = line
            case "queue {queue} wred-policy {name}":
                queue, name = line.values
                _wred(block(heads, f"qos wred-policy {name}", line), int(queue), port, line)
            case form if form in _MAPS:
                head = line.text.replace("qos-map", "qos map", 1)
                setattr(port, _MAPS[form], _pairs(block(heads, head, line)))
    port.lacking = {_MAPS[form]: form.removesuffix(" {name}") for form in _NEEDED if not face.has(form)}
    if port.channel is not None:
        bundle = block(heads, f"interface PortChannel{port.channel.value}", port.channel.line)
        port.lacp = not any(line.text == "mode on" for line in bundle.below) and bundle.values[1:] != ("on",)
        given = [line for line in bundle.below if line.form == "mtu {mtu}"]
        if port.mtu is None and given:
            port.mtu = Said(int(given[0].values[0]), given[0])
    return port
