"""RoCE settings of a port as the node has them, and the memory that a user may lock. Nothing is written.

What RDMA-CM marks its traffic with stands in configfs (Linux, Documentation/ABI/testing/configfs-rdma_cm); priorities,
their flow control and the DSCP map are the port's DCB settings; ECN of DCQCN and a port's traffic class are files of
NVIDIA's driver. What a port or kernel has not is None, with the reason in `unread`.
"""

from __future__ import annotations

import json
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from validation.probes.rdma_ports_sysfs import SYSFS, read
from validation.probes.tool import group, run_tool

CONFIGFS = Path("/sys/kernel/config")
POLICY = Path("/etc/elastic-ai/roce.json")
USER = "nobody"
TIMEOUT_S = 20.0
DRIVERS = re.compile(
    r"^\s*(\w*(?:pause|discard|out_of_buffer|link_down|crc_err|fcs_err|symbol_err|len_err|fragments|jabbers)\w*)\s*:"
    r"\s*(\d+)\s*$",
    re.MULTILINE,
)
POLICY_KEYS = ("roce_mode", "tos", "trust", "dscp_prio", "pfc")


def policy(path: Path = POLICY) -> dict[str, Any] | None:
    """What provisioning wants of RoCE ports; None where it never spoke of them."""
    try:
        wanted = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return {key: wanted[key] for key in POLICY_KEYS if key in wanted} if isinstance(wanted, dict) else None


@contextmanager
def _cm_port(device: str, port: int, configfs: Path) -> Iterator[Path | str]:
    """configfs's folder of a device's port, or why there is none. A folder made for reading goes again."""
    root = configfs / "rdma_cm"
    if not root.is_dir():
        yield "configfs has no rdma_cm (is the module rdma_cm loaded?)"
        return
    folder = root / device
    made = not folder.is_dir()
    try:
        if made:
            folder.mkdir()
    except OSError as error:
        yield f"{folder}: {error.strerror}"
        return
    try:
        yield folder / "ports" / str(port)
    finally:
        if made:
            folder.rmdir()


def marks(device: str, port: int, configfs: Path = CONFIGFS) -> dict[str, Any]:
    """RoCE version and type of service that RDMA-CM gives connections by default."""
    found: dict[str, Any] = {"roce_mode": None, "tos": None, "unread": []}
    with _cm_port(device, port, configfs) as folder:
        if isinstance(folder, str):
            found["unread"].append(f"RDMA-CM's defaults: {folder}")
            return found
        found["roce_mode"] = read(folder / "default_roce_mode") or None
        tos = read(folder / "default_roce_tos")
        found["tos"] = int(tos) if tos.isdigit() else None
        if None in (found["roce_mode"], found["tos"]):
            found["unread"].append(f"RDMA-CM's defaults: {folder} lacks them")
    return found


def _dcb(part: str, interface: str) -> dict[str, Any] | str:
    ran = run_tool(["dcb", "-j", part, "show", "dev", interface], timeout_s=TIMEOUT_S)
    if ran.returncode != 0:
        return " ".join((ran.stderr or ran.stdout).split()) or f"exit status {ran.returncode}"
    try:
        found = json.loads(ran.stdout)
    except ValueError as error:
        return f"dcb printed no JSON ({error})"
    return found if isinstance(found, dict) else "dcb printed no JSON object"


def dcb(interface: str) -> dict[str, Any]:
    """Trust (DSCP where the map has an entry, as the kernel's mlx5 driver sees it), DSCP map and PFC priorities."""
    pfc = _dcb("pfc", interface)
    app = _dcb("app", interface) if not isinstance(pfc, str) else {}
    if not isinstance(pfc, str) and "prio_pfc" not in pfc:
        pfc = "it reports no priorities"
    found: dict[str, Any] = {"trust": None, "dscp_prio": None, "pfc": None, "unread": []}
    if isinstance(pfc, str):
        found["unread"].append(f"PFC and DSCP trust: the device of {interface} has no DCB (dcb: {pfc})")
        return found
    found["pfc"] = [prio for prio, on in enumerate(pfc["prio_pfc"]) if on]
    if isinstance(app, str):
        found["unread"].append(f"DSCP trust: the device of {interface} has no table of it (dcb: {app})")
        return found
    table = app.get("dscp_prio") or []
    pairs = table.items() if isinstance(table, dict) else table  # both forms are seen
    found["dscp_prio"] = {str(dscp): prio for dscp, prio in sorted((int(dscp), prio) for dscp, prio in pairs)}
    found["trust"] = "dscp" if found["dscp_prio"] else "pcp"
    return found


def pause(interface: str) -> dict[str, bool] | None:
    """Global pause of a port, whether it is on; None where the driver has none."""
    ran = run_tool(["ethtool", "-a", interface], timeout_s=TIMEOUT_S)
    rx, tx = group(r"^RX:\s+(on|off)", ran.stdout), group(r"^TX:\s+(on|off)", ran.stdout)
    return {"rx": rx == "on", "tx": tx == "on"} if ran.returncode == 0 and rx and tx else None


def driver_counters(interface: str) -> dict[str, int]:
    """The driver's counters of pause frames and storms, lack of buffers and link errors (`ethtool -S`), by their names.

    Some names of mlx5 (en_stats.c) end in a blank.
    """
    ran = run_tool(["ethtool", "-S", interface], timeout_s=TIMEOUT_S)
    return {m[1]: int(m[2]) for m in DRIVERS.finditer(ran.stdout)}


def roce(interface: str, device: str, port: int, sysfs: Path = SYSFS, configfs: Path = CONFIGFS) -> dict[str, Any]:
    """All RoCE settings of a port."""
    found = {**marks(device, port, configfs), "pause": pause(interface)}
    priorities = dcb(interface)
    unread = [*found["unread"], *priorities["unread"]]
    traffic_class = read(sysfs / "class" / "infiniband" / device / "tc" / str(port) / "traffic_class")
    number = group(r"(\d+)\s*$", traffic_class)
    ecn = None
    folder = sysfs / "class" / "net" / interface / "ecn"
    if (folder / "roce_np").is_dir() and priorities["pfc"]:
        files = [folder / end / "enable" / str(prio) for end in ("roce_np", "roce_rp") for prio in priorities["pfc"]]
        ecn = all(read(path) == "1" for path in files)
    return {
        **found,
        **priorities,
        "traffic_class": int(number) if number else None,
        "ecn": ecn,
        "unread": unread,
    }


def _limit(text: str, unit: int) -> int | None:
    if text.strip() == "unlimited":
        return -1
    return int(text) * unit if text.strip().isdigit() else None


def memlock() -> dict[str, Any]:
    """Bytes that a new session of an ordinary user may lock, -1 = unlimited, None = could not be told.

    Root may open such a session for `nobody`, through PAM and its limits; anybody else looks at the own session.
    Root's own limit says nothing: the kernel does not hold it against CAP_IPC_LOCK (drivers/infiniband/core/umem.c).
    """
    if os.geteuid() == 0:
        ran = run_tool(["runuser", "-u", USER, "--", "sh", "-c", "ulimit -l"], timeout_s=TIMEOUT_S)
        value = _limit(ran.stdout, 1024) if ran.returncode == 0 else None
        why = "" if value is not None else f"runuser -u {USER}: {ran.failure or ran.stdout.strip()}"
        return {"bytes": value, "user": USER, "unread": why}
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return {"bytes": -1 if soft == resource.RLIM_INFINITY else soft, "user": f"uid {os.geteuid()}", "unread": ""}
