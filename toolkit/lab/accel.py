"""How this machine runs virtual machines: KVM where it works, emulation (TCG) where it does not.

That is found out by booting a kernel. The device file tells nothing: on virtual machines it is often there, and can be
opened, and yet no guest ever starts on it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from toolkit.errors import LabError
from toolkit.lab.nodes import QEMU
from toolkit.lab.spec import cache_root
from toolkit.lab.vmimage import VmImage

PROBE_DEADLINE_S = 6.0  # with KVM the word is there within one second
WORD = "elastic-ai-guest-runs"  # said by files/vm-init


@dataclass(frozen=True)
class Acceleration:
    """What machines run on, and why not on KVM ("" when they do)."""

    name: Literal["kvm", "tcg"]
    why: str

    def describe(self) -> str:
        """One line for the user."""
        return "KVM" if self.name == "kvm" else f"emulation (TCG), which is slow; KVM is not used: {self.why}"


def accelerate(image: VmImage, say: Callable[[str], None], ask: Callable[[VmImage], str] | None = None) -> Acceleration:
    """What this machine has; found out once per boot of it, by `ask` (refusal), and remembered in the lab's cache."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    memory = cache_root() / "kvm.json"
    try:
        known = json.loads(memory.read_text())
        if known["boot"] == boot:
            return Acceleration(known["name"], known["why"])
    except (OSError, ValueError, KeyError):
        pass  # never asked, or not by this version
    say("checking whether KVM boots a kernel here")
    why = (ask or refusal)(image)
    found = Acceleration("tcg" if why else "kvm", why)
    memory.write_text(json.dumps({"boot": boot, **asdict(found)}))
    return found


def refusal(
    image: VmImage, device: Path = Path("/dev/kvm"), deadline_s: float = PROBE_DEADLINE_S, qemu: str = QEMU
) -> str:
    """Why KVM cannot run the image's kernel; "" when it did."""
    if not device.exists():
        return f"there is no {device}"
    # Ends with this process: a guest that hangs in KVM would stay for ever.
    args = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        qemu,
        "-M",
        "q35",
        "-accel",
        "kvm",
        "-cpu",
        "host",
        "-m",
        "256",
        "-nodefaults",
        "-no-user-config",
    ]
    args += ["-display", "none", "-no-reboot", "-serial", "stdio", "-kernel", str(image.kernel)]
    args += ["-initrd", str(image.initrd), "-append", "console=ttyS0 quiet lab.probe"]
    try:
        done = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline_s, check=False)
        said, complaint = done.stdout, done.stderr.decode(errors="replace").strip()
        silent = f"the guest kernel on {device} ended without a word"
    except FileNotFoundError as e:
        raise LabError(f"{qemu} is not installed") from e
    except subprocess.TimeoutExpired as e:
        said, complaint = e.stdout or b"", ""
        silent = f"no guest kernel started on {device} within {deadline_s:g} s"
    if WORD.encode() in said:
        return ""
    if not complaint:
        return silent
    # "qemu-system-x86_64: ../path/kvm.c:3183: what happened": where in qemu's source is nobody's business here.
    return "qemu says: " + re.sub(r"^\S+: (\S+\.c:\d+: )?", "", complaint.splitlines()[-1])
