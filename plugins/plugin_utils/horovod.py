"""Who takes part in distributed training, and package sources for its image."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.sources import OFF
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.sources import fields as fields_of

#: Where all that an image needs comes from: Debian's main; Ubuntu has Open MPI and perftest in universe.
COMPONENTS = ("main", "universe")


LOCKS = Path(__file__).resolve().parents[2] / "roles" / "horovod" / "files" / "locks"
"""Lists of the SHA-256 of every wheel that pip may take, by the releases they were made for."""


def training_lock(wanted: Sequence[str], named: str = "", kind: str = "") -> dict[str, str]:
    """The list for these requirements (`torch==2.14.1`): its path on the controller, and its own SHA-256; "" where none
    is there. `named`: the site's own list, which counts alone; AnsibleFilterError where that cannot be read."""
    path = Path(named) if named else LOCKS / f"{'_'.join(word.replace('==', '-') for word in wanted)}{kind}.lock"
    try:
        return {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    except OSError as fault:
        if named:
            raise AnsibleFilterError(f"horovod_lock{kind.replace('.', '_')}: {named}: {fault.strerror}") from None
        return {"path": "", "sha256": ""}


def training_digests(names: Iterable[str], hostvars: Mapping[str, Any], record: str, reference: str) -> list[str]:
    """The digests that these hosts have on record for an image that is named by its tag."""
    found = set()
    for name in names:
        text = ((hostvars[name].get("horovod_node") or {}).get("contents") or {}).get(record)
        try:
            noted = json.loads(text or "{}")
        except ValueError:
            continue
        if noted.get("reference") == reference and str(noted.get("digest") or "").startswith("sha256:"):
            found.add(str(noted["digest"]))
    return sorted(found)


def training_pinned(reference: str, digests: Sequence[str]) -> str:
    """An image by its digest, in the place of its tag; of several digests that of the same repository."""
    bare = re.sub(r":[^:/@]*$", "", reference.partition("@")[0])
    for digest in sorted(digests, key=lambda one: not one.startswith(f"{bare}@")):
        return f"{bare}@{digest.rpartition('@')[2]}"
    raise AnsibleFilterError(
        f"no digest is known of {reference}, so no two nodes would surely have the same image: push it to a registry, "
        "and name it by its digest in horovod_image"
    )


def training_servers(names: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Hosts that take part, sorted: all but those of which the inventory says horovod_state absent."""
    return [name for name in sorted(names) if hostvars[name].get("horovod_state", "present") == "present"]


def training_with_gpus(names: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether one of these hosts has GPUs by its bill of materials: training then needs an image for them."""
    return any(int((hostvars[name].get("bom") or {}).get("gpu_count") or 0) > 0 for name in names)


def training_addresses(names: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Address that training reaches each host by: that of its first fabric port, else the one that Ansible uses."""

    def address(name: str) -> str:
        own = hostvars[name]
        ports = own.get("fabric_ports") or []
        return str(ports[0]["address"] if ports else own.get("ansible_host", name)).split("/")[0]

    return [address(name) for name in names]


def training_over_rdma(names: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether training goes over RDMA: the first fabric port of each host has it by the inventory.

    That is an InfiniBand port, or an Ethernet port of a host with `roce_enabled` or `ofed_soft_roce`; never one that is
    declared TCP-only (`rdma: false`).
    """

    def has_rdma(own: Mapping[str, Any]) -> bool:
        port = next(iter(own.get("fabric_ports") or []), {})
        roce = any(boolean(own.get(name, False), strict=False) for name in ("roce_enabled", "ofed_soft_roce"))
        return bool(port) and port.get("rdma", True) and (port.get("link_layer") == "infiniband" or roce)

    found = [has_rdma(hostvars[name]) for name in names]
    return bool(found) and all(found)


def _suites(words: list[str], codename: str, wanted: str) -> list[str]:
    """Of `words` the suites of `codename` that every mirror has, with that name replaced; Ubuntu lists its backports
    beside them."""
    known = re.compile(re.escape(codename) + r"(-updates|-security)?")
    found = (known.fullmatch(word.rstrip("/")) for word in words)
    return [wanted + (match.group(1) or "") for match in found if match]


def _stanza(text: str, codename: str, wanted: str) -> str:
    fields = fields_of(text.splitlines(), ":")
    suites = _suites(fields.get("suites", "").split(), codename, wanted)
    if not suites or "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in OFF:
        return ""
    key = fields.get("signed-by", "").strip()
    components = [one for one in COMPONENTS if one in fields.get("components", "").split()]
    if not components or "uris" not in fields or (key and not key.startswith("/")):
        return ""
    lines = ["Types: deb", f"URIs: {' '.join(fields['uris'].split())}", f"Suites: {' '.join(suites)}"]
    lines.append(f"Components: {' '.join(components)}")
    return "\n".join([*lines, f"Signed-By: {' '.join(key.split())}"] if key else lines)


def _one_line(line: str, codename: str, wanted: str) -> str:
    match = re.fullmatch(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+(.+?)\s*(?:#.*)?", line.strip())
    if match is None:
        return ""
    components = [one for one in COMPONENTS if one in match.group(4).split()]
    suites = _suites([match.group(3)], codename, wanted)
    signed = re.search(r"signed-by=\"?(/[^\s\"]+)", match.group(1) or "", re.IGNORECASE)
    if not suites or not components:
        return ""
    lines = ["Types: deb", f"URIs: {match.group(2)}", f"Suites: {suites[0]}"]
    lines.append(f"Components: {' '.join(components)}")
    return "\n".join([*lines, f"Signed-By: {signed.group(1)}"] if signed else lines)


def apt_sources_for(files: Mapping[str, str], codename: str, wanted: str) -> str:
    """deb822 sources of `wanted` at the mirrors that serve `codename` to this node; components main, universe."""
    found: list[str] = []
    for path, text in sorted(files.items()):
        if path.endswith(".sources"):
            plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
            found += [_stanza(part, codename, wanted) for part in re.split(r"\n\s*\n", plain)]
        elif path.endswith(".list"):
            found += [_one_line(line, codename, wanted) for line in text.splitlines()]
    stanzas = list(dict.fromkeys(stanza for stanza in found if stanza))
    if not stanzas:
        raise AnsibleFilterError(
            f"no package source of this node serves {codename}, so none is known for {wanted}; "
            "set horovod_base to an image, or horovod_image to a ready one"
        )
    return "\n\n".join(stanzas) + "\n"
