"""The network of a node that exists only as a folder: what managers write there, and what they make of it."""

from __future__ import annotations

import ctypes
import getpass
import grp
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.node_modules import ROOT, load
from tests.support.warm import ansible

#: Own mounts, own network: a veth pair per port, the folder's files, and systemd-networkd without D-Bus and udev.
NETWORKD = r"""
set -eu
mount --make-rprivate /
mount -t sysfs -o ro sysfs /sys
root=$1 verdict=$2
shift 2
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/network /run/systemd/netif/links /run/systemd/netif/leases /run/dbus
chown -R systemd-network: /run/systemd/netif
for folder in run etc; do
    mkdir -p "$root/$folder/systemd/network"
    mount --bind "$root/$folder/systemd/network" "/$folder/systemd/network"
done
for port in "$@"; do
    ip link add "${port#-}" type veth peer name "peer-${port#-}"
    [ "$port" != "${port#-}" ] || ip link set "peer-$port" up
done
/lib/systemd/systemd-networkd >"$root/networkd.log" 2>&1 &
for _ in $(seq 40); do
    sleep 0.1
    if ip -4 address show | grep -q -- "$verdict"; then break; fi
done
online=0
/lib/systemd/systemd-networkd-wait-online --timeout=3 2>/dev/null || online=$?
kill %1
ip -json address show
echo ---
ip -json rule show
echo ---
ip -json route show table all
echo ---
echo "[{\"online\": $online}]"
"""


@dataclass(frozen=True)
class Live:
    """What the kernel of such a node has, and whether systemd calls it online."""

    links: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    routes: list[dict[str, Any]]
    online: bool

    def addresses(self, port: str, family: str = "inet") -> list[str]:
        """A port's addresses with prefix length."""
        (link,) = (link for link in self.links if link["ifname"] == port)
        return [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["family"] == family]


def networkd(root: Path, ports: Sequence[str], until: str) -> Live:
    """After systemd-networkd worked with the files below `root`, once `until` is an address. "-port" has no cable."""
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "bash", "-c", NETWORKD, "x", str(root), until, *ports],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    links, rules, routes, online = (json.loads(part or "[]") for part in done.stdout.split("---\n"))
    return Live(links, rules, routes, online[0]["online"] == 0)


def written(root: Path, role: str, entries: Sequence[Mapping[str, Any]], **variables: Any) -> list[Path]:
    """Writes files of a role below `root`, by managed_files and the role's own templates."""
    own = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name}
    files = [{**own, **entry, "path": f"{root}{entry['path']}"} for entry in entries]
    (root / "templates").symlink_to(ROOT / f"roles/{role}/templates")
    task = {"name": "Write", "elastic_ai.toolkit.managed_files": {"files": files}}
    said = {**variables, "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    play = {"hosts": "localhost", "gather_facts": False, "vars": said, "tasks": [task]}
    (root / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    done = ansible("ansible-playbook", str(root / "play.yml"), "-i", "localhost,", "-c", "local")
    assert done.returncode == 0, done.stdout + done.stderr
    return [Path(entry["path"]) for entry in files]


def port_files(root: Path, ports: Sequence[Mapping[str, Any]], manager: str, **variables: Any) -> list[Path]:
    """Writes what role fabric writes for the ports below `root`."""
    entries = load("plugins/plugin_utils/fabric.py").fabric_port_files(ports, [], manager)
    said = {"fabric_mtu": 9000, "__fabric_own_networkd": False, **variables}
    return written(root, "fabric", entries, **said)


def keyfile(path: Path) -> str:
    """A connection as NetworkManager's own library reads and normalizes it, as GVariant's text without types."""
    glib, libnm = ctypes.CDLL("libglib-2.0.so.0"), ctypes.CDLL("libnm.so.0")
    for function in (
        glib.g_key_file_new, libnm.nm_keyfile_read, libnm.nm_connection_to_dbus, glib.g_variant_print
    ):  # fmt: skip
        function.restype = ctypes.c_void_p
    error = ctypes.POINTER(Fault)()
    text, pointer = path.read_bytes(), ctypes.c_void_p
    opened = pointer(glib.g_key_file_new())
    assert glib.g_key_file_load_from_data(opened, text, len(text), 0, ctypes.byref(error)), error.contents.message
    connection = libnm.nm_keyfile_read(opened, b"/", 0, None, None, ctypes.byref(error))
    assert connection, error.contents.message
    read = pointer(connection)
    assert libnm.nm_connection_normalize(read, None, None, ctypes.byref(error)), error.contents.message
    printed = glib.g_variant_print(pointer(libnm.nm_connection_to_dbus(read, 0)), 0)
    return ctypes.string_at(printed).decode().replace("uint32 ", "")


class Fault(ctypes.Structure):
    """GError."""

    _fields_ = (("domain", ctypes.c_uint32), ("code", ctypes.c_int), ("message", ctypes.c_char_p))
