"""The running configuration of SmartFabric OS10."""

from __future__ import annotations

from toolkit.switches.config import Port, Said
from toolkit.switches.keys import numbers
from toolkit.switches.lines import Line, block

_TRUST, _QUEUES = "trust-map dscp {name}", "qos-map traffic-class {name}"
_PFC, _OUT = "service-policy input type network-qos {name}", "service-policy output type queuing {name}"
_MODE = "priority-flow-control mode on"


def _number(kind: str, use: Line, heads: dict[str, Line]) -> int | None:
    """The queue or group of the class that a line `class NAME` names; None where that matches nothing."""
    matches = block(heads, f"class-map type {kind} {use.values[0]}", use).below
    return next((int(line.values[0]) for line in matches if line.form), None)


def ports(blocks: list[Line]) -> list[Port]:
    """The ports of a configuration; SwitchFault where one names a block that is not there."""
    heads = {one.text: one for one in blocks}
    whole = heads["system qos"].below if "system qos" in heads else []
    faces = [one for one in blocks if one.form.startswith("interface ") and one.values[0].startswith("ethernet")]
    return [_port(face, heads, whole) for face in faces]


def _bundled(port: Port, heads: dict[str, Line]) -> None:
    """A member without an MTU of its own has that of its bundle."""
    if port.channel is not None and port.mtu is None:
        bundle = block(heads, f"interface port-channel{port.channel.value}", port.channel.line)
        port.mtu = next((Said(int(one.values[0]), one) for one in bundle.below if one.form == "mtu {mtu}"), None)


def _port(face: Line, heads: dict[str, Line], whole: list[Line]) -> Port:
    port = Port(face.values[0], face)

    def used(form: str) -> Line | None:
        """The port's own line of a form, else that of the whole switch."""
        return next((line for line in [*face.below, *whole] if line.form == form), None)

    for line in face.below:
        match line.form:
            case "shutdown":
                port.down = line
            case "mtu {mtu}":
                port.mtu = Said(int(line.values[0]), line)
            case "channel-group {channel} mode {word}":
                port.channel = Said(int(line.values[0]), line)
                port.lacp = line.values[1] in ("active", "passive")
            case "flowcontrol receive {word}" | "flowcontrol transmit {word}" if line.values[0] == "on":
                port.pause.append(line)
    _bundled(port, heads)
    trust, queues, pfc, out = map(used, (_TRUST, _QUEUES, _PFC, _OUT))
    if trust:
        for line in block(heads, f"trust dscp-map {trust.values[0]}", trust).below:
            if line.form:
                port.dscp.update(dict.fromkeys(numbers(line.values[1]), Said(int(line.values[0]), line)))
    if queues:
        for line in block(heads, queues.text, queues).below:
            if line.form:
                port.queue.update(dict.fromkeys(numbers(line.values[1]), Said(int(line.values[0]), line)))
    mode = any(line.text == _MODE for line in face.below)
    if pfc and mode:
        _flow_control(block(heads, f"policy-map type network-qos {pfc.values[0]}", pfc), heads, port)
    if out:
        _queuing(block(heads, f"policy-map type queuing {out.values[0]}", out), heads, port)
    lacking = {"dscp": (trust, _TRUST), "queue": (queues, _QUEUES), "pfc": (pfc, _PFC)}
    port.lacking = {what: form.removesuffix(" {name}") for what, (line, form) in lacking.items() if line is None}
    if not mode:
        port.lacking["pfc"] = _MODE
    return port


def _flow_control(policy: Line, heads: dict[str, Line], port: Port) -> None:
    for one in policy.below:
        if not one.form or not one.has("pause"):
            continue
        group = _number("network-qos", one, heads)
        for line in one.below:
            for priority in numbers(line.values[0]) if line.form.startswith("pfc-cos") else ():
                port.pfc[priority] = line
                if group is not None and group in port.queue:
                    port.paused[priority] = Said(port.queue[group].value, line)


def _queuing(policy: Line, heads: dict[str, Line], port: Port) -> None:
    for one in policy.below:
        queue = _number("queuing", one, heads) if one.form else None
        for line in one.below if queue is not None else ():
            assert queue is not None
            if line.text == "priority":
                port.strict[queue] = line
            elif line.text == "random-detect ecn":
                port.ecn[queue] = line
            elif line.form == "random-detect {name}":
                marks = [mark for mark in block(heads, f"wred {line.values[0]}", line).below
                         if mark.text == "random-detect ecn"]  # fmt: skip
                if marks:
                    port.ecn[queue] = marks[0]
                else:
                    port.dropped[queue] = line
