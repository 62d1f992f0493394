"""Two servers whose BMCs and systems agree, of constructed documents; tests spoil one of either."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.site import FACTS, REAL_FACTS, hardware, plan_of, result, results_of, verdict_of
from toolkit.lab.bmc.constructed import server
from validation.model import Bmc, Bom, Measurement, Plan, Result, Topology, VerdictDoc
from validation.model.parts import Part
from validation.probes.redfish import Unread
from validation.probes.redfish_read import Reading

NAMES = ("gpu1", "gpu2")
Docs = dict[str, dict[str, Any]]


class Direct:
    """A session that answers from documents."""

    tls = "TLSv1.3"

    def __init__(self, docs: Docs) -> None:
        self.docs = docs

    def get(self, path: str) -> dict[str, Any]:
        plain, _, query = path.partition("?")
        if plain not in self.docs:
            raise Unread("it has no such resource", absent=True)
        found = self.docs[plain]
        if query:
            found = {**found, "Members": [self.docs[one["@odata.id"]] for one in found["Members"]]}
        return found

    def get_all(self, paths: list[str]) -> list[Any]:
        return [self.get(path) for path in paths]


def reading(docs: Docs, **changes: Any) -> dict[str, Any]:
    """What the probe makes of a BMC's documents."""
    said = Reading(Direct(docs)).all()  # type: ignore[arg-type]
    return {**said, "default_password": False, "address": "10.0.9.1", "seconds": 1.0, **changes}


def host_of(docs: Docs) -> dict[str, Any]:
    """Parts as the node's own system shows them, where it agrees with its BMC."""
    said = reading(docs)
    parts = [Part.model_validate({**one, "macs": tuple(one.get("macs", ()))}) for one in said["parts"]]

    def of(kind: str, **more: Any) -> list[dict[str, Any]]:
        return [
            {"kind": kind, "slot": f"{kind}{n}", "serial": part.serial, "firmware": part.firmware, "macs": part.macs,
             "protocol": part.protocol, **more}
            for n, part in enumerate(parts) if part.kind == kind
        ]  # fmt: skip

    return {
        "serial": said["server"]["service_tag"],
        "bios_version": said["server"]["bios_version"],
        "dimms": of("dimm"),
        "gpus": of("gpu", limit_w=700.0, default_limit_w=700.0, use_percent=0.0),
        "nics": of("nic"),
        "drives": of("drive"),
        "unread": [],
    }


class Rack:
    """The site: documents of each BMC before and after the run, parts of each node, changes of readings."""

    def __init__(self, kind: str = "16G", names: tuple[str, ...] = NAMES) -> None:
        self.names = names
        self.docs = {name: server(number, kind, name) for number, name in enumerate(names, 1)}
        self.after = {name: server(number, kind, name) for number, name in enumerate(names, 1)}
        self.hosts: dict[str, dict[str, Any] | None] = {name: host_of(docs) for name, docs in self.docs.items()}
        self.read: dict[str, dict[str, Any]] = {name: {} for name in names}
        self.bios: dict[str, str] = {}
        self.bom = Bom()
        self.virt = "none"

    @property
    def topology(self) -> Topology:
        bare = hardware(self.names)
        nodes = tuple(
            node.model_copy(
                update={"bom": self.bom, "bmc": Bmc(address=f"10.0.9.{n}", user="acceptance", bios=self.bios),
                        "groups": ("gpu_servers",)}
            )
            for n, node in enumerate(bare.nodes, 1)
        )  # fmt: skip
        return bare.model_copy(update={"nodes": nodes})

    def document(self, m: Measurement) -> dict[str, Any]:
        """The probe's document for a planned reading."""
        docs = self.after if m.id.startswith("bmc-after") else self.docs
        found = {name: reading(docs[name], **self.read[name]) for name in self.names}
        return {"kind": "bmc", "facts": {"nodes": len(found)}, "stdout": json.dumps(found), "returncode": 0,
                "error": None, "command": ["redfish"], "stderr": ""}  # fmt: skip

    def results(self, plan: Plan) -> list[Result]:
        """Healthy results of the plan with these readings."""

        def made(m: Measurement) -> Result | None:
            if m.kind == "facts":
                own = {"virt": self.virt, "parts": self.hosts[m.nodes[0]]}
                return result(m, facts={**FACTS, **REAL_FACTS, **own})
            if m.kind == "bmc":
                from validation.kinds import parse

                samples, facts = parse("bmc", self.document(m), m.params)  # type: ignore[arg-type]
                return result(m, samples, facts=facts)
            return None

        return results_of(plan, made)

    def verdict(self) -> VerdictDoc:
        """What is judged of it."""
        plan = plan_of(self.topology, ("preflight", "transport"))
        return verdict_of(self.topology, plan, self.results(plan))

    def said(self, id_: str) -> Mapping[str, tuple[str, str]]:
        """Node -> verdict and reason of a criterion."""
        found = next(c for c in self.verdict().criteria if c.id == id_)
        return {str(j.subject): (j.verdict, j.reason) for j in found.judgements}


Spoil = Callable[[Rack], None]
