"""JUnit files as pytest writes them of the as-built checks, and documents of `toolkit deploy --json`; made here.

Nothing of it was found on a node. What pytest itself wrote stands in tests/data/kinds/as-built.json.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from tests.support.tool_documents import doc
from validation.measures.asbuilt.checks import checks_of
from validation.model.built import Deployment, NodeBuilt

SHA256 = "0" * 64
GPU = ("gpu_servers",)
Ended = Mapping[str, tuple[str, str]]
"""Check -> (failure, error, skipped or stopped, its words); those that are not there passed."""


def junit(node: str, names: Iterable[str], ended: Ended | None = None) -> str:
    """A file of one suite. A `stopped` check is one that ended by another exception than a failed assertion."""
    names, ended = list(names), ended or {}
    tags = [ended[name][0] for name in names if name in ended]
    failures = sum(tag in ("failure", "stopped") for tag in tags)
    suite = Element("testsuite", {
        "name": "pytest", "errors": str(tags.count("error")), "failures": str(failures),
        "skipped": str(tags.count("skipped")), "tests": str(len(names)), "time": "1.2",
        "timestamp": "2026-11-22T10:00:00+00:00", "hostname": "controller",
    })  # fmt: skip
    for name in names:
        file, _, check = name.partition("::")
        classname = f"validation.asbuilt.{file.removesuffix('.py')}"
        case = SubElement(
            suite, "testcase", {"classname": classname, "name": f"{check}[ansible://{node}]", "time": "0"}
        )
        if name in ended:
            tag, words = ended[name]
            if tag == "stopped":
                SubElement(SubElement(case, "properties"), "property", {"name": "could_not_run", "value": words})
            SubElement(case, "failure" if tag == "stopped" else tag, {"message": words}).text = words
    root = Element("testsuites", {"name": "pytest tests"})
    root.append(suite)
    return '<?xml version="1.0" encoding="utf-8"?>' + tostring(root, encoding="unicode")


def checked(node: str, groups: Collection[str] = GPU, spoilt: Ended | None = None, **changes: Any) -> Any:
    """What the probe as-built says of a node whose checks all passed, but for those in `spoilt`."""
    text = junit(node, checks_of(groups), spoilt)
    bad = int(any(tag != "skipped" for tag, _ in (spoilt or {}).values()))
    facts = {"node": node, "checks_sha256": SHA256, "exit": bad}
    return doc("as-built", text, facts, tool="pytest", **changes)


def built(node: str, **changes: Any) -> NodeBuilt:
    """A node on which nothing was to be changed."""
    return NodeBuilt(**{"node": node, "outcome": "ok", "ok": 120, "changed": 0, **changes})


def deployment(nodes: Iterable[NodeBuilt], **changes: Any) -> Deployment:
    """A run of site.yml, in check mode unless said otherwise."""
    values: dict[str, Any] = {
        "inventory": "/site", "who": "anna@controller", "began": "2026-11-22T09:00:00.000+00:00",
        "ended": "2026-11-22T09:07:00.000+00:00", "toolkit_version": "0.1.0", "commit": "c0ffee" + "0" * 34,
        "modified": False, "check": True, "stages": ("base", "training"), "finished": True, "nodes": tuple(nodes),
    }  # fmt: skip
    return Deployment(**{**values, **changes})


def converged(nodes: Iterable[NodeBuilt], changes: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """What the probe converged says."""
    found = deployment(nodes, **(changes or {}))
    bad = int(any(node.outcome != "ok" for node in found.nodes))
    return doc("converged", found.model_dump_json(), {"exit": bad}, tool="toolkit deploy --check", **more)


def said(document: Any) -> dict[str, Any]:
    """The JSON in a document's output."""
    found: dict[str, Any] = json.loads(document["stdout"])
    return found
