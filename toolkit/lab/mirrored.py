"""A lab whose nodes reach nothing but a mirror (toolkit mirror): it is served in the lab's own network, and what nodes
send elsewhere is dropped and counted.

Run as `python -m toolkit.lab.mirrored NETNS ADDRESS PORT FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from toolkit.errors import LabError
from toolkit.lab.sh import run
from toolkit.lab.spec import LabSpec
from toolkit.mirror import manifest, serving

PORT = 8080
TABLE = "air_gap"
#: To every node of the lab, and to no other machine; beside the lab's own networks no address is anybody's.
_RULES = """\
table inet {table} {{
  set tried {{ type ipv4_addr; flags dynamic; size 1024; counter; }}
  chain watch {{
    type filter hook prerouting priority -300; policy accept;
    iifname "br-mgmt" ip daddr != {{ 10.77.{index}.0/24, 10.78.{index}.0/24, 224.0.0.0/4, 255.255.255.255 }} \
add @tried {{ ip daddr }} drop
  }}
}}
"""


def refuse_unusable(folder: Path) -> None:
    """LabError for a mirror that nobody signed, or that was changed in its list; its files are not read here."""
    signed = manifest.read(folder, None)
    if not signed.good:
        raise LabError(f"--mirror {folder}: its signature is not good: {signed.words}")


def url(spec: LabSpec) -> str:
    """Where the lab's nodes find the mirror."""
    return f"http://10.77.{spec.index}.1:{PORT}"


def deny(spec: LabSpec) -> None:
    """Drop and count what nodes send to anywhere outside of the lab. There is no way out besides."""
    inside = ["nsenter", f"--net=/run/netns/{spec.switch_ns}", "--"]
    run([*inside, "nft", "-f", "-"], stdin=_RULES.format(table=TABLE, index=spec.index))


def denied(spec: LabSpec) -> dict[str, int]:
    """Packets that were dropped, by the address that a node wanted to reach."""
    inside = ["nsenter", f"--net=/run/netns/{spec.switch_ns}", "--"]
    said = json.loads(run([*inside, "nft", "-j", "list", "set", "inet", TABLE, "tried"]).stdout)
    found: dict[str, int] = {}
    for entry in said["nftables"]:
        for one in (entry.get("set") or {}).get("elem", []):
            element = one["elem"]
            found[str(element["val"])] = int(element["counter"]["packets"])
    return found


def variables(spec: LabSpec) -> dict[str, Any]:
    """What mirror.yml has for this lab."""
    folder = Path(spec.mirror)
    signed = manifest.read(folder, None)
    text = serving.variables(folder, serving.read_plan(folder), signed.said.get("packages-key", ""), url(spec))
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def serve(address: str, port: int, folder: Path) -> None:
    """Answer the nodes, in whose network this process is."""
    names = manifest.read(folder, None).manifest
    with serving.Server(serving.Place(address, port), folder, names) as server:
        server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
