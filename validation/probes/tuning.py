"""How a node's kernel and services are set: frequency, idle states, memory, locked memory, and who else sets them.

From sysfs and procfs, the files that role tuning writes, systemd and the profile of tuned. Linux,
Documentation/ABI/testing/sysfs-devices-system-cpu and admin-guide/pm (cpufreq, cpuidle, PM QoS).
"""

from __future__ import annotations

import configparser
import platform
import re
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from validation.probes.rdma_ports_sysfs import read
from validation.probes.tool import group, run_tool

SYSCTLS = "etc/sysctl.d/90-elastic-ai.conf"
MANAGER = "etc/systemd/system.conf.d/90-elastic-ai.conf"
UNIT = "etc/systemd/system/elastic-ai-governor.service"
SERVICES = ("slurmd", "docker", "containerd")
#: Of tuned 2.15 and later, and before; a site's own profiles win.
PROFILES = ("etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned")
TIMEOUT_S = 10.0
DEEPEST = 5  # includes of profiles: those of tuned itself are three deep


def governors(root: Path) -> dict[str, Any]:
    """Governors and energy preferences of all frequency policies."""
    policies = sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*"))
    found = Counter(name for policy in policies if (name := read(policy / "scaling_governor")))
    energy = {read(policy / "energy_performance_preference") for policy in policies} - {""}
    return {
        "governors": [{"name": name, "policies": count} for name, count in sorted(found.items())],
        "energy": sorted(energy),
    }


def idle(root: Path) -> dict[str, Any]:
    """Idle states that are on, the deepest last; the first of them polls and is none."""
    latency: dict[str, int] = {}
    processors: Counter[str] = Counter()
    for state in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpuidle/state[0-9]*"):
        name, wait = read(state / "name"), read(state / "latency")
        if name and wait.isdigit() and read(state / "disable") in ("0", ""):
            latency[name] = max(latency.get(name, 0), int(wait))
            processors[name] += 1
    states = [{"name": n, "latency_us": us, "processors": processors[n]} for n, us in latency.items()]
    return {
        "idle_driver": read(root / "sys/devices/system/cpu/cpuidle/current_driver"),
        "idle": sorted(states, key=lambda state: (state["latency_us"], state["name"])),
        "latency_limit_us": _latency_limit_us(root / "dev/cpu_dma_latency"),
    }


def _latency_limit_us(device: Path) -> int | None:
    """What PM QoS holds processors to; None for who may not read it (root may), and where there is none.

    The kernel answers with a signed number of 32 bits. Whoever has it open asks for nothing by that.
    """
    try:
        with device.open("rb", buffering=0) as handle:
            said = handle.read(4)
    except OSError:
        return None
    return max(struct.unpack("=i", said)[0], 0) if len(said) == 4 else None


def _number(path: Path) -> int | None:
    text = read(path)
    return int(text) if text.isdigit() else None


def _words(text: str) -> str:
    return " ".join(text.split())


def _path_of(name: str) -> str:
    """As sysctl reads it: the first separator decides which of . and / separates, and the other is part of names."""
    first = next((sign for sign in name if sign in "./"), ".")
    return name if first == "/" else name.translate({ord("."): "/", ord("/"): "."})


def sysctls(root: Path) -> list[dict[str, Any]] | None:
    """What role tuning wrote down, beside what the kernel has; None where it wrote nothing."""
    try:
        text = (root / SYSCTLS).read_text(errors="replace")
    except FileNotFoundError:
        return None
    found = []
    for line in text.splitlines():
        name, equals, wanted = line.partition("=")
        name = name.strip()
        if not equals or not re.fullmatch(r"\w[\w./-]*", name):
            continue
        path = root / "proc/sys" / _path_of(name)
        now = _words(path.read_text(errors="replace")) if path.exists() else None
        found.append({"name": name, "wanted": _words(wanted), "found": now})
    return found


def profile_governors(root: Path, profile: str, depth: int = 0) -> list[str]:
    """Governors that a profile of tuned tries, in order: its own, else those of the profile that it includes."""
    if depth > DEEPEST or not re.fullmatch(r"[\w.-]+", profile):
        return []
    file = next((f for folder in PROFILES if (f := root / folder / profile / "tuned.conf").is_file()), None)
    if file is None:
        return []
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, inline_comment_prefixes=("#",))
    parser.read_string(file.read_text(errors="replace"))
    own = parser.get("cpu", "governor", fallback="") or ""
    if own and "$" not in own:
        return [name.strip() for name in own.split("|") if name.strip()]
    for included in re.split(r"[\s,;]+", parser.get("main", "include", fallback="") or ""):
        if below := profile_governors(root, included, depth + 1):
            return below
    return []


def _active(unit: str) -> str:
    return run_tool(["systemctl", "is-active", unit], timeout_s=TIMEOUT_S).stdout.strip()


def services(root: Path, names: Sequence[str] = SERVICES) -> list[dict[str, Any]]:
    """How much memory each of these that runs may lock, by its own process."""
    found = []
    for name in names:
        pid = run_tool(["systemctl", "show", name, "--property=MainPID", "--value"], timeout_s=TIMEOUT_S).stdout.strip()
        limit = group(r"^Max locked memory\s+(\S+)", read(root / "proc" / pid / "limits")) if pid.isdigit() else ""
        if limit and pid != "0":
            found.append({"service": name, "memlock_bytes": int(limit) if limit.isdigit() else None})
    return found


def tuned(root: Path) -> dict[str, Any]:
    """Whether tuned runs, with which profiles, and what these set."""
    state = _active("tuned")
    profiles = read(root / "etc/tuned/active_profile").split() if state == "active" else []
    chosen = [found for profile in profiles if (found := profile_governors(root, profile))]
    return {
        "tuned": state,
        "tuned_profile": " ".join(profiles),
        "tuned_governors": chosen[-1] if chosen else [],  # of several profiles the last wins
    }


def collect(root: Path = Path("/")) -> dict[str, Any]:
    """All of it, as Tuning."""
    found: dict[str, Any] = {"governors": [], "machine": platform.machine(), "irqbalance": _active("irqbalance")}
    unread = []
    parts = (governors, idle, tuned, lambda at: {"sysctls": sysctls(at)}, lambda at: {"services": services(at)})
    for part in parts:
        try:
            found.update(part(root))
        except (OSError, ValueError, configparser.Error) as fault:
            unread.append(f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]}")
    manager, unit = read(root / MANAGER), read(root / UNIT)
    return {
        **found,
        "governor_unit": group(r"^Description=CPU frequency governor (\S+)$", unit),
        "memlock_wanted": group(r"^DefaultLimitMEMLOCK=(\S+)$", manager),
        "numa_balancing": _number(root / "proc/sys/kernel/numa_balancing"),
        "zone_reclaim": _number(root / "proc/sys/vm/zone_reclaim_mode"),
        "huge_pages": group(r"\[(\w+)\]", read(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        "unread": "; ".join(unread),
    }
