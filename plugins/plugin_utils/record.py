"""What a run of the roles leaves behind for the validation to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

RECORD = "/etc/elastic-ai/provisioned.json"
LEDGER = ".packages.json"
LISTS = ("stand_ins", "not_applicable", "reboot_required")


def provisioned_record(contents: Mapping[str, str], results: Mapping[str, Any], release: str) -> dict[str, Any]:
    """The record of a node: the roles' results, and their sums: stand-ins, what does not apply, pinned packages.

    contents is what node_state read of the earlier record and of the package ledgers. Roles that did not take part in
    this run keep what the earlier record says of them; a role that was taken away leaves it.
    """
    merged = {**_json(contents, RECORD).get("results", {}), **{role: dict(result) for role, result in results.items()}}
    merged = {role: _ordered(result) for role, result in sorted(merged.items()) if result.get("state") != "absent"}
    pinned: dict[str, str] = {}
    for path in contents:
        if path.endswith(LEDGER):
            pinned.update(_json(contents, path).get("holds", {}))
    return {
        "release": release,
        "results": merged,
        "stand_ins": _union(merged, "stand_ins"),
        "not_applicable": _union(merged, "not_applicable"),
        "pinned": pinned,
    }


def _ordered(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as it is recorded: its lists of sentences in order, for a set's own order differs from run to run.

    Notes are left out: they are printed, and are of what a run found before it changed that.
    """
    return {key: sorted(map(str, value)) if key in LISTS else value for key, value in result.items() if key != "notes"}


def _json(contents: Mapping[str, str], path: str) -> dict[str, Any]:
    text = contents.get(path, "")
    try:
        data = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise AnsibleFilterError(f"{path} is damaged ({error}); remove it and run the play again") from error
    return data if isinstance(data, dict) else {}


def _union(results: Mapping[str, Mapping[str, Any]], key: str) -> list[str]:
    return sorted({str(entry) for result in results.values() for entry in result.get(key, [])})


def ledgers_left(contents: Mapping[str, str]) -> list[str]:
    """Names of the ledgers that still list a package, a hold or a file of some role."""
    left = ("packages", "holds", "files")
    ledgers = [path for path in contents if "/ledger/" in path]
    return [path.rsplit("/", 1)[-1] for path in ledgers if any(_json(contents, path).get(key) for key in left)]
