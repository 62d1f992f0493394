#!/usr/bin/python3
"""This node for Prometheus: units, drift, addresses, PCIe errors, pauses and more of its ports; by node-exporter.

    node_metrics.py --output FILE.prom [--interval S] [--once] [--root /]

Runs as root: not everybody reads what roles have written. Nothing is changed. Needs there.py beside it, by which
`toolkit status` looks for drift, too, and validation/: name servers are asked as the acceptance asks them. What a node
does not have (AER, ethtool, RDMA) has no figures.
"""

import ipaddress
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import there
from textfile import run_command

from validation.probes import node_state

ROOT = Path(os.environ.get("ELASTIC_AI_NODE_ROOT", "/"))  # / but in tests
DRIFT_S = 300.0  # files are summed up and packages asked for; twenty times the cost of all else
MOST_UNITS = 20
NAMES_S = 2.0  # a name server that is well answers at once; one that is slow is asked again by the next reading
#: What a node cannot do its work without, where it is enabled.
UNITS = ("nvidia-fabricmanager", "nvidia-persistenced", "mariadb", "mysqld", "slurmdbd", "slurmctld", "slurmd", "munge",
         "chrony", "chronyd", "docker", "sssd")  # fmt: skip
SHOWN = ("Id", "ActiveState", "UnitFileState", "ConditionResult", "ConditionTimestamp")
SEVERITIES = {"correctable": "TOTAL_ERR_COR", "nonfatal": "TOTAL_ERR_NONFATAL", "fatal": "TOTAL_ERR_FATAL"}
#: Counters of the card or of soft-RoCE by which packets were sent again. Source: rdma-core's and the kernel's names.
RESENT = ("packet_seq_err", "out_of_sequence", "local_ack_timeout_err", "implied_nak_seq_err", "rnr_nak_retry_err",
          "rcvd_seq_err", "completer_retry_err")  # fmt: skip
#: Of `ethtool -S`: frames by which a port was told to wait, or told others; how long it waited (mlx5); storms.
FRAMES = re.compile(r"(rx|tx)_(?:prio\d+_pause|pfc_ena_frames_pri\d+|pause_frames|pause_ctrl_phy|priority_\d+_xoff\S*)")
WAITED = re.compile(r"rx_prio\d+_pause_duration")
STORMS = re.compile(r"\w*pause_storm\w*")
#: Libraries without which a driver's programs do not start.
LIBRARIES = ("libcuda.so*", "libnvidia-*.so*", "libnccl.so*")
FOLDERS = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")
#: Bridges of containers and machines, tunnels and channels to cards have the same address on every node.
INNER = re.compile(r"lo|veth.*|docker.*|br-.*|virbr.*|tap.*|tun.*|tmfifo.*|idrac|usb.*|cni.*|podman.*|lxc.*")
HELP = {
    "elastic_ai_unit_active": "1 where an enabled unit runs, 0 where it does not.",
    "elastic_ai_unit_failed": "1 for each unit that has failed.",
    "elastic_ai_units_failed": "Units that have failed.",
    "elastic_ai_drift": "Pinned packages and written files that are others than as deployed, or gone.",
    "elastic_ai_reboot_waits": "Reasons for which a reboot waits.",
    "elastic_ai_pcie_errors": "PCIe errors (AER) of a device since the node's start, by severity.",
    "elastic_ai_port_pause_frames": "Pause frames of a port since its driver was loaded, by direction.",
    "elastic_ai_port_paused_seconds": "How long a port was told to wait, all priorities together.",
    "elastic_ai_port_pause_storms": "Pause storms that the port's card has seen.",
    "elastic_ai_rdma_resent": "Packets of RDMA that were lost, late or sent again, by the card's counters.",
    "elastic_ai_address": "1 for each IPv4 address of a port of this node.",
    "elastic_ai_name_server_answers": "1 where a name server answers, 0 where none of the node's does.",
    "elastic_ai_libraries_empty": "Libraries of the GPU driver that are empty.",
}


def units(ask):
    """Samples of the units that a node needs, and of those that have failed."""
    samples = []
    named = [f"{name}.service" for name in UNITS]
    said = ask(["systemctl", "show", f"--property={','.join(SHOWN)}", *named])
    seen = set()
    for block in (said or "").split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        name = fields.get("Id", "").removesuffix(".service")
        if not name or name in seen or fields.get("UnitFileState") not in ("enabled", "enabled-runtime"):
            continue
        seen.add(name)
        if fields.get("ConditionResult") == "no" and fields.get("ConditionTimestamp"):
            continue  # it was asked whether it is to run here, and it is not: nvidia-persistenced without a GPU
        runs = fields.get("ActiveState") in ("active", "reloading", "activating")
        samples.append(("elastic_ai_unit_active", {"unit": name}, int(runs)))
    said = ask(["systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager"])
    if said is not None:
        failed = [line.split()[0].removesuffix(".service") for line in said.splitlines() if line.strip()]
        samples.append(("elastic_ai_units_failed", {}, len(failed)))
        samples += [("elastic_ai_unit_failed", {"unit": name}, 1) for name in failed[:MOST_UNITS]]
    return samples


def drift(root, ask):
    """Samples of what is other than as deployed; none of a node without a record of its deployment."""
    record = there._json(root / there.RECORD)
    if not record:
        return []
    files, packages = there.files(root), there.packages(record, there.installed(ask) if record.get("pinned") else {})
    found = {"files": files, **({"packages": packages} if packages["read"] else {})}
    return [("elastic_ai_drift", {"what": what}, len(one["odd"]) + one.get("more", 0)) for what, one in found.items()]


def _number(path, word=""):
    """The number in a file of sysfs, behind a word where there are several; None where there is none."""
    try:
        found = re.search(rf"^{word}\s*(\d+)\s*$", path.read_text(), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        return None
    return int(found[1]) if found else None


def pcie(root):
    """Samples of every device that reports its errors."""
    samples = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        for severity, word in SEVERITIES.items():
            count = _number(device / f"aer_dev_{severity}", word)
            if count is not None:
                labels = {"address": device.name, "severity": severity}
                samples.append(("elastic_ai_pcie_errors", labels, count))
    return samples


def pauses(root, ask):
    """Samples of every network port with a card of its own, by its driver's counters."""
    samples = []
    for net in sorted((root / "sys/class/net").glob("*")):
        if not (net / "device").exists() or (net / "device/physfn").exists():
            continue
        said = ask(["ethtool", "-S", net.name])
        counts = dict(re.findall(r"^\s*([\w.]+)\s*:\s*(\d+)\s*$", said or "", re.MULTILINE))
        for way in ("rx", "tx"):
            found = [int(n) for name, n in counts.items() if (m := FRAMES.fullmatch(name)) and m[1] == way]
            if found:
                labels = {"device": net.name, "direction": way}
                samples.append(("elastic_ai_port_pause_frames", labels, sum(found)))
        for metric, names, unit in (("paused_seconds", WAITED, 1e6), ("pause_storms", STORMS, 1)):
            found = [int(number) for name, number in counts.items() if names.fullmatch(name)]
            if found:
                samples.append((f"elastic_ai_port_{metric}", {"device": net.name}, sum(found) / unit))
    return samples


def resent(root):
    """Samples of every RDMA port whose card counts what it sends again."""
    samples = []
    for port in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        found = [_number(port / "hw_counters" / name) for name in RESENT]
        if any(count is not None for count in found):
            labels = {"device": port.parents[1].name, "port": port.name}
            samples.append(("elastic_ai_rdma_resent", labels, sum(count or 0 for count in found)))
    return samples


def addresses(root, ask):
    """Samples of the addresses of ports, by which others reach this node."""
    try:
        links = json.loads(ask(["ip", "-json", "-4", "addr"]) or "[]")
    except ValueError:
        links = []
    samples = []
    for link in links:
        name = str(link.get("ifname", ""))
        inner = [root / "sys/class/net" / name / one for one in ("bridge", "tun_flags")]
        if not name or INNER.fullmatch(name) or any(path.exists() for path in inner):
            continue
        for one in link.get("addr_info", ()):
            address = str(one.get("local", ""))
            if one.get("scope") == "global" and not ipaddress.ip_address(address).is_link_local:
                samples.append(("elastic_ai_address", {"device": name, "address": address}, 1))
    return samples


def names(root, answers=node_state.answers):
    """A sample of the node's name servers; none where it has none."""
    try:
        found = node_state.servers((root / "etc/resolv.conf").read_text(errors="replace"))
    except OSError:
        found = []
    if not found:
        return []
    with ThreadPoolExecutor(len(found)) as together:
        said = list(together.map(lambda server: answers(server, limit_s=NAMES_S), found))
    return [("elastic_ai_name_server_answers", {}, int(any(said)))]


def libraries(root):
    """A sample of the driver's libraries; none of a node without."""
    folders = [root / name for name in FOLDERS]
    for file in sorted((root / "etc/ld.so.conf.d").glob("*.conf")):
        lines = (line.strip() for line in file.read_text(errors="replace").splitlines())
        folders += [root / line.lstrip("/") for line in lines if line.startswith("/")]
    found = {path.resolve() for folder in folders for pattern in LIBRARIES for path in folder.glob(pattern)}
    sizes = [path.stat().st_size for path in found if path.is_file()]
    return [("elastic_ai_libraries_empty", {}, sizes.count(0))] if sizes else []


class Reading:
    """All of it; drift only now and then."""

    def __init__(self, root=ROOT, ask=there._ran, clock=time.monotonic):
        """ask: runs a command, and gives what it prints or None."""
        self.root, self.ask, self.clock = root, ask, clock
        self.due, self.drifted = 0.0, []

    def __call__(self):
        """(samples, what went wrong or None)."""
        if self.clock() >= self.due:
            self.drifted, self.due = drift(self.root, self.ask), self.clock() + DRIFT_S
        waits = len(list((self.root / there.WAITS).glob("*")))
        samples = [*units(self.ask), *self.drifted, ("elastic_ai_reboot_waits", {}, waits), *pcie(self.root)]
        samples += [*pauses(self.root, self.ask), *resent(self.root), *addresses(self.root, self.ask)]
        return [*samples, *libraries(self.root), *names(self.root)], None


if __name__ == "__main__":
    raise SystemExit(run_command(__doc__, HELP, Reading()))
