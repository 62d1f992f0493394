"""The emulated BMCs of a lab: one for each node, in the management network, with what stands in their documents.

A BMC describes the node that it belongs to as far as that node shows itself: model, memory modules and BIOS of a
virtual machine. The rest is constructed. `serve.py` answers from the files that this module writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolkit.errors import LabError
from toolkit.lab.bmc import bmcfaults
from toolkit.lab.bmc.constructed import CHASSIS, SYSTEM, Kind, server, tag
from toolkit.lab.spec import LabSpec, NodeSpec, read_faults

USER = "acceptance"
PORT = 443
CERTIFICATE, KEY, PASSWORD = "bmc.pem", "bmc.key", "bmc-password"
BIOS_VERSION = "2.7.4"
VM_MODEL = "Standard PC (Q35 + ICH9, 2009)"
"""The machine type of qemu's q35, as its firmware reports it to the guest (DMI product name)."""
CONTAINER_MODEL = "systemd-nspawn"
DAYS = 365
LOOK_S = 0.25
"""How often the BMCs look for other documents."""


def folder(spec: LabSpec) -> Path:
    """Where a lab keeps the documents, certificate and password of its BMCs; root's alone."""
    return spec.dir / "bmc"


def address(spec: LabSpec, node: NodeSpec) -> str:
    """IPv4 address of a node's BMC, in the management network."""
    return f"10.77.{spec.index}.{100 + node.number}"


def dimm(node: NodeSpec) -> str:
    """Serial number of a machine's memory module, by its DMI and its BMC."""
    return f"D{node.number:04d}001"


def smbios(node: NodeSpec) -> list[str]:
    """qemu's words for what a machine's DMI shows, the same with and without BMCs."""
    module = f"type=17,loc_pfx=DIMM,manufacturer=Emulated,serial={dimm(node)},part=LAB"
    return [
        *("-smbios", f"type=0,vendor=Emulated,version={BIOS_VERSION}"),
        *("-smbios", f"type=1,serial={tag(node.number)}"),
        *("-smbios", module),
    ]


def documents(spec: LabSpec, node: NodeSpec, memory_mib: int) -> dict[str, dict[str, Any]]:
    """What a node's BMC answers, by path. `memory_mib`: of a machine's one memory module."""
    model = VM_MODEL if node.kind == "vm" else CONTAINER_MODEL
    kind = Kind(model, 16, BIOS_VERSION, "7.20.60.50", "", 0, 1, 1600)
    docs = server(node.number, kind, node.name)
    docs[f"{SYSTEM}/Memory/DIMM.Socket.A1"] |= {"SerialNumber": dimm(node), "CapacityMiB": memory_mib, "Model": "RAM"}
    # virtual cards and disks are in no slot; emulated GPUs are libraries, which the driver's own tools do not show
    for path in (f"{SYSTEM}/EthernetInterfaces", f"{CHASSIS}/NetworkAdapters", f"{SYSTEM}/Storage"):
        docs[path] = {**docs[path], "Members": [], "Members@odata.count": 0}
    return docs


def write(spec: LabSpec, node: NodeSpec, memory_mib: int, clean: bool = False) -> None:
    """Write what a node's BMC answers, with the fault that is planted there unless `clean`, in force `LOOK_S` later."""
    docs, later = documents(spec, node, memory_mib), {}
    kind = read_faults(spec).get(node.name)
    if not clean and kind in bmcfaults.BMC_FAULTS:
        later = bmcfaults.BMC_FAULTS[kind].spoil(docs)
    path = folder(spec) / f"{node.name}.json"
    new = path.with_suffix(".new")
    starts = spec.name if node.kind != "vm" else ""  # a machine's start is seen by nobody outside
    told = {"address": address(spec, node), "docs": docs, "later": later, "lab": starts, "power": spec.name}
    new.write_text(json.dumps(told))
    new.replace(path)


def remove(spec: LabSpec, node: NodeSpec) -> None:
    """Take a node's BMC away. When this returns it starts its node no more, not in the middle of a power cycle
    either."""
    with switching(folder(spec)):
        (folder(spec) / f"{node.name}.json").unlink(missing_ok=True)


def there(spec: LabSpec, node: NodeSpec) -> bool:
    """Whether the node has a BMC still."""
    return (folder(spec) / f"{node.name}.json").is_file()


@contextlib.contextmanager
def switching(home: Path) -> Iterator[None]:
    """Nobody else starts a node by its BMC meanwhile, or takes a BMC away. Without BMCs there is nothing to wait for;
    who is killed holds it no more."""
    try:
        handle = (home / "switching.lock").open("w")
    except FileNotFoundError:
        yield
        return
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def prepare(spec: LabSpec, memory_mib: int) -> None:
    """Make password, certificate and documents of a lab's BMCs. LabError without openssl."""
    home = folder(spec)
    home.mkdir(mode=0o700, parents=True)
    if shutil.which("openssl") is None:
        raise LabError("emulated BMCs need openssl for their certificate; install it with: apt-get install openssl")
    (home / PASSWORD).write_text(secrets.token_urlsafe(18))
    (home / PASSWORD).chmod(0o600)
    every = ",".join(f"IP:10.77.{spec.index}.{100 + number}" for number in range(1, 61))  # also of those that join
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", str(DAYS), "-subj", "/CN=emulated BMCs of a lab", "-addext", f"subjectAltName={every}"]
    made = subprocess.run(
        [*words, "-keyout", str(home / KEY), "-out", str(home / CERTIFICATE)], capture_output=True, text=True
    )
    if made.returncode != 0:
        raise LabError(f"openssl could not make the certificate of the BMCs: {made.stderr.strip()[-200:]}")
    for node in spec.nodes:
        write(spec, node, memory_mib)


def variable(spec: LabSpec, node: NodeSpec, private: Path) -> Mapping[str, str]:
    """The host variable `bmc` of a node. private: the folder of an inventory with the password and certificate."""
    return {
        "address": address(spec, node),
        "user": USER,
        "password": f"{{{{ lookup('ansible.builtin.file', '{private / PASSWORD}') }}}}",
        "ca": str(private / CERTIFICATE),
    }


def copy_into(spec: LabSpec, private: Path) -> list[Path]:
    """Copy password and certificate into an inventory's folder; the copies."""
    copies = [Path(shutil.copy(folder(spec) / name, private / name)) for name in (CERTIFICATE, PASSWORD)]
    copies[1].chmod(0o600)
    return copies
