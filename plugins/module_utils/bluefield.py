"""Whether a BlueField is a network adapter of this host, or its own processors own the ports (DPU mode)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

Runner = Callable[[list[str]], "tuple[int, str, str]"]

#: Physical functions by PCI id; see `nics` of stacks/compatibility.yml.
DEVICES = ("0xa2d2", "0xa2d6", "0xa2d9", "0xa2dc", "0xa2df")
#: Of mstflint, which role ofed installs, and of NVIDIA's own tools.
PROGRAMS = ("mstconfig", "mlxconfig")
#: A setting's default, current value and value of the next boot, each as NAME(number).
SETTING = re.compile(r"\b(INTERNAL_CPU_\w+)\s+(\S+)\s+(\S+)\s+(\S+)")


def mode_of(text: str) -> str:
    """`dpu`, `nic`, or "" where the settings are not in the text, from `mstconfig -e query`.

    A BlueField is an adapter where its processors are separated from the ports (INTERNAL_CPU_MODEL 0, BlueField-2) or
    do not work on what passes them (INTERNAL_CPU_OFFLOAD_ENGINE 1, BlueField-3). Source: BlueField DPU modes of
    operation, NVIDIA; sriov-network-operator issue 816 reads the same settings.
    """
    now = {name: current for name, _, current, _ in SETTING.findall(text)}
    model, engine = now.get("INTERNAL_CPU_MODEL", ""), now.get("INTERNAL_CPU_OFFLOAD_ENGINE", "")
    if not model and not engine:
        return ""
    return "nic" if model.endswith("(0)") or engine.endswith("(1)") else "dpu"


def read_bluefields(run: Runner, there: Callable[[str], object], sysfs: Path) -> dict[str, str]:
    """By network interface of a BlueField: `dpu`, `nic`, or "" where it could not be read, as without the program."""
    program = next((name for name in PROGRAMS if there(name)), "")
    found, asked = {}, dict[str, str]()
    for link in sorted((sysfs / "class/net").glob("*/device")):
        try:
            device = (link / "device").read_text(encoding="ascii").strip()
        except OSError:
            continue
        if device in DEVICES:
            address = link.resolve().name
            if program and address not in asked:
                code, out, _ = run([program, "-d", address, "-e", "query"])
                asked[address] = mode_of(out) if code == 0 else ""
            found[link.parent.name] = asked.get(address, "")
    return found
