#!/usr/bin/python3
"""Largest read request (MaxReadReq) of the adapter behind a network port: set it, and put the former value back.

elastic-ai-read-request set PORT BYTES; elastic-ai-read-request restore PORT. After each reset of the device the setting
is the driver's or the firmware's again, so a unit makes it whenever the port appears. It is in bits 14:12 of Device
Control in the PCI Express capability (PCI Express base specification, 7.5.3.4).
"""

from __future__ import annotations

import sys
from pathlib import Path

CAPABILITIES, DEVICE_CONTROL, EXPRESS = 0x34, 8, 0x10
SYSFS, KEPT = Path("/sys"), Path("/run/elastic-ai/read-request")
SIZES = [128 << code for code in range(6)]
REFUSED = "the kernel did not let MaxReadReq be set (Secure Boot locks it down)"


def functions(port: str, sysfs: Path) -> list[Path]:
    """PCI functions behind a port: its own, or those of the ports below a VLAN or bond."""
    net = sysfs / "class" / "net" / port
    if (net / "device" / "config").exists():
        return [(net / "device").resolve()]
    below = sorted(path.name[len("lower_") :] for path in net.glob("lower_*"))
    return [function for name in below for function in functions(name, sysfs)]


def control(function: Path) -> tuple[int, int]:
    """Where Device Control is in a function's configuration space, and its value."""
    space = (function / "config").read_bytes()
    at = space[CAPABILITIES] & 0xFC if len(space) > 64 else 0
    for _ in range(48):
        if at < 0x40 or at + DEVICE_CONTROL + 2 > len(space):
            break
        if space[at] == EXPRESS:
            where = at + DEVICE_CONTROL
            return where, int.from_bytes(space[where : where + 2], "little")
        at = space[at + 1] & 0xFC
    raise SystemExit(f"{function.name}: no PCI Express capability can be read")


def write(function: Path, size: int) -> int:
    """Set the size in bytes; return the former one. The device must have taken it."""
    where, value = control(function)
    former = 128 << (value >> 12 & 7)
    if former != size:
        try:
            with (function / "config").open("r+b", buffering=0) as config:
                config.seek(where)
                config.write((value & 0x8FFF | SIZES.index(size) << 12).to_bytes(2, "little"))
        except OSError as fault:  # EPERM: the kernel is locked down
            raise SystemExit(f"{function.name}: {REFUSED}: {fault.strerror}") from None
        if 128 << (control(function)[1] >> 12 & 7) != size:
            raise SystemExit(f"{function.name}: {REFUSED}")
    return former


def main(arguments: list[str], sysfs: Path = SYSFS, kept: Path = KEPT) -> None:
    """Set or restore; what a function had before is kept until it is put back."""
    action, port = arguments[:2]
    found = functions(port, sysfs)
    if not found:
        raise SystemExit(f"{port}: no PCI device")
    for function in found:
        record = kept / function.name
        if action == "set":
            former = write(function, int(arguments[2]))
            if not record.exists():
                kept.mkdir(parents=True, exist_ok=True)
                record.write_text(str(former), encoding="ascii")
        elif record.exists():
            write(function, int(record.read_text(encoding="ascii")))
            record.unlink()
    if kept.is_dir() and not any(kept.iterdir()):
        kept.rmdir()


if __name__ == "__main__":
    main(sys.argv[1:])
