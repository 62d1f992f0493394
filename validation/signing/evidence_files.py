"""A signed run in the formats of others: its parts as CycloneDX, its verdict as an in-toto statement. Pure.

Both are made of what the report is made of, so that the same run always gives the same bytes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from validation.model import VerdictDoc
from validation.model.listed_parts import NOUNS, ListedPart, ServerParts
from validation.report.documents import RunDocuments
from validation.report.summary import verdict_of

BOM, STATEMENT = "bom.cdx.json", "verdict.intoto.json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
RESULTS = {"passed": "PASSED", "failed": "FAILED", "incomplete": "WARNED"}
"""What in-toto calls an outcome: of an incomplete run it has no better word than a warning."""
_NAMESPACE = uuid.UUID("6f6b3a4e-0b35-5a53-9d0e-3e1e0f3c8d11")
_MODEL = "model not read"


def written(document: Mapping[str, Any]) -> bytes:
    """As it is in its file."""
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def bill_of_materials(documents: RunDocuments) -> dict[str, Any]:
    """Servers and their parts as CycloneDX 1.6: each part is a component of its server."""
    info = documents.info
    said = {"sign_off": verdict_of(documents).sign_off, "run": info.run, "site": info.site}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'{info.site} {info.run}')}",
        "version": 1,
        "metadata": {
            "timestamp": info.created,
            "tools": {"components": [{"type": "application", "name": "Elastic AI Toolkit",
                                      "version": info.toolkit_version}]},
            "component": {"type": "platform", "bom-ref": f"site {info.site}", "name": info.site},
            "properties": _properties(said),
        },
        "components": [_server(server) for server in documents.parts],
        "dependencies": [{"ref": f"site {info.site}", "dependsOn": [server.node for server in documents.parts]}],
    }  # fmt: skip


def _properties(said: Mapping[str, str | None]) -> list[dict[str, str]]:
    return [{"name": f"elastic-ai:{key}", "value": value} for key, value in said.items() if value]


def _server(server: ServerParts) -> dict[str, Any]:
    unread = "; ".join(f"{NOUNS[one.kind]}: {', '.join(one.why)}" for one in server.read if one.why and not one.by)
    said = {"node": server.node, "service_tag": server.service_tag, "gpu_driver": server.driver, "not_read": unread,
            "emulated": "true" if server.emulated else None}  # fmt: skip
    found = {
        "type": "device",
        "bom-ref": server.node,
        "name": server.model or _MODEL,
        "properties": _properties(said),
        "components": [_part(server.node, number, part) for number, part in enumerate(server.parts)],
    }
    return found if server.parts else {key: value for key, value in found.items() if key != "components"}


def _part(node: str, number: int, part: ListedPart) -> dict[str, Any]:
    said = {"kind": part.kind, "serial": part.serial, "slot": part.place, "part_number": part.part_number,
            "firmware": part.firmware, "macs": " ".join(part.macs), "read_by": " ".join(part.by)}  # fmt: skip
    found: dict[str, Any] = {"type": "device", "bom-ref": f"{node} {part.kind} {number}", "name": part.model or _MODEL}
    return {**found, "description": NOUNS[part.kind], "properties": _properties(said)}


def verdict_statement(documents: RunDocuments, manifest_sha256: str) -> dict[str, Any]:
    """The verdict about the files of a run, which its manifest names, by in-toto's predicate of test results."""
    verdict, info = verdict_of(documents), documents.info
    by = _by_verdict(verdict)
    rules = {"name": "rules", "digest": {"sha256": documents.rules.sha256}}
    begun = [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in sorted(info.documents.items())]
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": f"{info.run}/MANIFEST.sha256", "digest": {"sha256": manifest_sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "result": RESULTS[verdict.outcome],
            "configuration": [rules, *begun],
            "passedTests": by["pass"],
            "warnedTests": [*by["waived"], *by["not-measured"]],
            "failedTests": by["fail"],
        },
    }


def _by_verdict(verdict: VerdictDoc) -> dict[str, Sequence[str]]:
    names = ("pass", "waived", "not-measured", "fail")
    return {name: [one.id for one in verdict.criteria if one.verdict == name] for name in names}
