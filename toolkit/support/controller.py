"""What the controller itself knows of a node: its entry in the inventory, its BMC, and secrets that must not go out."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.deploy.site_state import SiteState
from toolkit.inventory_source import read_source
from toolkit.support.package import Package
from validation.base.errors import ToolkitError
from validation.base.secret_words import secret_name
from validation.execute.remote import Output, Remote, is_report
from validation.measures.hardware.plan import DEADLINE_S
from validation.model import Node

BMC_FILES = {
    "events": "the BMC's log of hardware events (SEL)", "parts": "the BMC's inventory of parts",
    "firmware": "the BMC's inventory of firmware", "sensors": "the BMC's sensors", "power": "power, by the BMC",
    "bios": "settings of the BIOS, by the BMC",
}  # fmt: skip
_SPARED_S = 15.0
_FOLDERS = ("PWD", "OLDPWD")
"""Variables of the shell that have a folder, and the name of a password."""
_SHORT_NAME = re.compile(r"(?:^|_)(?:pass|pw|psk)$", re.IGNORECASE)
"""Names of secrets besides the usual ones: Ansible's own `ansible_become_pass` is one."""
_OF_DIGITS = re.compile(r"(?:password|passwd|passphrase|(?:^|_)pass|pwd|(?:^|_)pw|secret)$", re.IGNORECASE)
"""Names whose value is a secret though it is a number. Others have a time or a size: `token_lifetime_s`."""


def known_secrets(inventory: Path, node: str) -> tuple[list[str], str]:
    """Values of the node's variables whose names are those of secrets, vaults resolved, and of this environment; and
    why those of the node are not known, "" where they are.

    Of the node alone: a site of thousands has as many, and each is looked for in each file.
    """
    found, fault = [value for name, value in os.environ.items() if name not in _FOLDERS and _secret(name)], ""
    found = [value for value in found if not _is_place(value)]
    try:
        host = read_source(inventory, ["*"]).hosts[node]
        found += _secret_values(host.values, False)
        closed = [name for name in host.unresolved if _secret(name)]
        fault = f"Ansible cannot resolve {', '.join(closed)} here" if closed else ""
    except ToolkitError as error:
        fault = str(error)
    return sorted(set(found)), fault


def _secret_values(value: object, secret: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            if isinstance(part, int) and not isinstance(part, bool) and _OF_DIGITS.search(str(name)):
                yield str(part)
            yield from _secret_values(part, secret or _secret(str(name)))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _secret_values(part, secret)
    elif secret and isinstance(value, str) and not _is_place(value):
        yield value


def _secret(name: str) -> bool:
    return secret_name(name) or _SHORT_NAME.search(name) is not None


def _is_place(value: str) -> bool:
    """Whether it is where a secret is, not the secret."""
    try:
        return Path(value).is_file() or (value.startswith("/") and Path(value).exists())
    except (OSError, ValueError):  # longer than any name of a file, as a key is
        return False


@dataclass(frozen=True)
class BmcAnswer:
    """What a BMC reported. `fault`: why it reported nothing; `declared`: the inventory has one."""

    declared: bool
    found: Mapping[str, Any]
    fault: str = ""


async def ask_bmc(node: Node, site: str) -> BmcAnswer:
    """Ask the BMC of a node, by the probe that `toolkit validate` has for it; it runs on this machine."""
    if node.bmc is None:
        return BmcAnswer(False, {}, "no BMC is configured for this node (host variable bmc)")
    asked = json.dumps({"nodes": [node.name], "deadline_s": DEADLINE_S})
    remote = await Remote.here(node.name, ["--deadline-s", f"{DEADLINE_S + _SPARED_S:g}", "bmc", asked], site)
    try:
        output = await remote.finish()
    finally:
        if not remote.ended:
            await remote.stop()
    return _answered(node, output)


def _answered(node: Node, output: Output) -> BmcAnswer:
    documents = [one for one in output.documents() if is_report(one)]
    if not documents:
        return BmcAnswer(True, {}, output.last_words or f"its probe ended with status {output.returncode}")
    if documents[-1].get("error"):
        return BmcAnswer(True, {}, str(documents[-1]["error"]))
    try:
        found = json.loads(documents[-1]["stdout"])[node.name]
    except (ValueError, KeyError, TypeError):
        return BmcAnswer(True, {}, "its answer cannot be read")
    if not isinstance(found, dict) or "error" in found:
        return BmcAnswer(True, {}, str(found.get("error")) if isinstance(found, dict) else "its answer cannot be read")
    return BmcAnswer(True, found)


def pack_bmc(package: Package, node: Node, answer: BmcAnswer) -> None:
    """What the BMC reported, one file for each kind of thing, or why there is none."""
    if answer.fault:
        package.unread("bmc", answer.fault)
        return
    where = f"Redfish of the BMC at {node.bmc.address}" if node.bmc else "BMC"
    for key, words in BMC_FILES.items():
        if answer.found.get(key):
            package.add(f"bmc/{key}.json", json.dumps(answer.found[key], indent=2) + "\n", f"{words}: {where}")
    rest = {key: value for key, value in answer.found.items() if key not in BMC_FILES and key != "default_password"}
    package.add("bmc/bmc.json", json.dumps(rest, indent=2) + "\n", f"the server and its controller: {where}")
    for one in answer.found.get("missing") or ():
        if isinstance(one, dict):
            package.unread(f"bmc: {one.get('what')}", str(one.get("why")))


def pack_records(package: Package, inventory: Path, node: Node) -> None:
    """The node's entry in the inventory, and the record of the site's deployments on this machine."""
    entry = node.model_dump(mode="json", exclude={"ssh": True, "bmc": {"user"}})
    package.add("controller/node.json", json.dumps(entry, indent=2) + "\n", f"inventory {inventory.name}: {node.name}")
    built = SiteState(inventory).read_built()
    if built.deployments:
        text = built.model_dump_json(indent=2) + "\n"
        package.add("controller/deployments.json", text, "this machine's record of the site's deployments")
    else:
        package.unread("controller/deployments.json", "this machine has no record of a deployment of the site")
