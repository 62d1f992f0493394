"""What a node runs in: hardware, a virtual machine, a container. By systemd where it is there, else by what these show.

Images of containers come without systemd. What cannot be told is `unknown`, which is never taken for hardware.
"""

from __future__ import annotations

from pathlib import Path

from validation.probes.tool import group, run_tool

TIMEOUT_S = 10.0
ROOT = Path("/")
#: file -> kind of container, by the names of systemd-detect-virt(1)
MARKS = {
    ".dockerenv": "docker",
    "run/.containerenv": "podman",
    "run/systemd/container": "container-other",
    "run/secrets/kubernetes.io": "container-other",  # of a pod
    "var/run/secrets/kubernetes.io": "container-other",
    ".singularity.d": "container-other",  # Apptainer and SingularityCE
}
X86 = ("GenuineIntel", "AuthenticAMD")


def detect() -> tuple[str, bool]:
    """Its kind, as systemd-detect-virt names it (`none`: hardware), and whether it is a container."""
    # systemd-detect-virt exits with 1 for "none", so without --quiet its exit status says nothing
    ran = run_tool(["systemd-detect-virt"], timeout_s=TIMEOUT_S)
    if ran.stdout.strip():
        container = run_tool(["systemd-detect-virt", "--quiet", "--container"], timeout_s=TIMEOUT_S).returncode == 0
        return ran.stdout.strip(), container
    return by_marks(ROOT)


def by_marks(root: Path) -> tuple[str, bool]:
    """The same without systemd: marks of containers, then the bit by which a hypervisor tells x86 that it is there."""
    for name, kind in MARKS.items():
        if (root / name).exists():
            return kind, True
    said = group(r"(?:^|\0)(container=\w|KUBERNETES_SERVICE_HOST=)", _text(root / "proc/1/environ"))
    if said:
        return "container-other", True
    # Enroot's, containerd's and CRI-O's containers have no mark; a machine without a disk may have such a root too
    if group(r"^\d+ \d+ \S+ \S+ / .* - ((?:fuse-?)?overlay\S*|fuse\.fuse-overlayfs|squashfs) ",
             _text(root / "proc/self/mountinfo")):  # fmt: skip
        return "unknown", False
    processor = _text(root / "proc/cpuinfo")
    if group(r"^flags\s*:.*\b(hypervisor)\b", processor):
        return "vm-other", False
    return ("none" if group(r"^vendor_id\s*:\s*(\S+)", processor) in X86 else "unknown"), False


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
