"""What the nodes' controllers (BMCs) say of their servers, by Redfish. stdout = a JSON object, node -> document.

Runs beside the inventory, not on a node. The BMCs are read at the same time, each within its own deadline. Only GET
is used, but for opening and closing the session. The password is taken from the inventory's vault as Ansible resolves
it, else from the variable ELASTIC_AI_BMC_PASSWORD; it is in no output. Facts: `nodes`, how many were read.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.controller import host_variable
from validation.probes.redfish import BMCS_AT_ONCE, Refused, Session, target
from validation.probes.redfish_read import Reading
from validation.probes.tool import Ran, document

#: Passwords that BMCs are delivered with, by the user: Dell's, Supermicro's, of Lenovo and others.
DEFAULTS = {("root", "calvin"), ("ADMIN", "ADMIN"), ("USERID", "PASSW0RD"), ("admin", "admin"), ("admin", "password"),
            ("root", "0penBmc"), ("Administrator", "password"), ("root", "root")}  # fmt: skip


@dataclass
class Asked:
    """What is asked of this probe: which nodes, and how long one BMC may take in seconds."""

    nodes: list[str]
    deadline_s: float = 60.0


def read(given: object, deadline_s: float) -> dict[str, Any]:
    """What one BMC says; `error` where it says nothing that can be used."""
    begin = time.monotonic()
    try:
        bmc = target(given)
        with Session(bmc, deadline_s) as session:
            found = Reading(session).all()
        found["default_password"] = (bmc.user, bmc.password) in DEFAULTS
        found["address"] = bmc.address
        json.dumps(found, allow_nan=False).encode()  # what no document can hold costs this BMC alone, too
    except Refused as fault:
        found = {"error": str(fault)}
    except Exception as fault:  # an answer that nobody thought of costs this BMC alone
        found = {"error": f"its answers could not be read ({type(fault).__name__})"}
    return {**found, "seconds": round(time.monotonic() - begin, 2)}


def probe(asked: Asked) -> ProbeDoc:
    """Read the BMCs."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        command = ["redfish", *asked.nodes]
        try:
            declared = host_variable("bmc")
        except ValueError as fault:
            return Ran(command, 0, "", ""), {}, str(fault)  # no program ran: the reason is the error itself
        with ThreadPoolExecutor(max(1, min(BMCS_AT_ONCE, len(asked.nodes)))) as pool:
            found = dict(
                zip(asked.nodes, pool.map(lambda name: read(declared.get(name), asked.deadline_s), asked.nodes))
            )
        return Ran(command, 0, json.dumps(found, sort_keys=True), ""), {"nodes": len(found)}, None

    return document("bmc", "Redfish", measure, lambda ran: "")
