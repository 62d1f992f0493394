"""Whether a running container keeps its GPUs when systemd reads its units anew: asked before and after such a reload.

A container manager that lets systemd write the container's device rules loses what it gave beside them at the next
`systemctl daemon-reload`, which every installation of a package does (NVIDIA/nvidia-container-toolkit, issue 48). The
container is of the training image, has no network, ends by itself, and is taken away however this ends.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.probes import ProbeDoc, smi
from validation.probes.smi import listed
from validation.probes.tool import Ran, document, run_tool

TRAINING = "elastic-ai-training"  # the training container, whose image is on the node
DEVICES = "nvidia.com/gpu=all"
CDI = ("/etc/cdi", "/var/run/cdi")
TOOL_TIMEOUT_S = 20.0
LEAVE_S = 10.0  # to take the container away


@dataclass
class Asked:
    """What is asked of this probe."""

    lives_s: int = 60  # after which the container ends by itself
    container: str = TRAINING
    cdi: str = ""  # folder of the CDI specifications; "": where they usually are


def _say(*command: str) -> str:
    """What a tool prints when it succeeds, else ""."""
    ran = run_tool(command, timeout_s=TOOL_TIMEOUT_S)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def specified(folders: tuple[str, ...]) -> bool:
    """Whether any specification names GPUs of NVIDIA's."""
    for path in (path for folder in folders for path in Path(folder).glob("*") if path.suffix in (".yaml", ".json")):
        if "nvidia.com/gpu" in path.read_text(errors="replace"):
            return True
    return False


def look(name: str) -> dict[str, Any]:
    """GPUs that a program in the container sees, and what it says where it sees none."""
    ran = run_tool(["docker", "exec", name, "nvidia-smi", "-L"], timeout_s=TOOL_TIMEOUT_S)
    gpus = len(listed(ran.stdout)) if ran.returncode == 0 else 0
    return {
        "gpus": gpus,
        "said": "" if gpus else (ran.stderr or ran.stdout).strip()[-200:] or f"status {ran.returncode}",
    }


def leave(name: str) -> bool:
    """Take the container away, also while this program is being stopped; whether it is still there."""
    for command in (
        ["docker", "rm", "--force", name],
        ["docker", "ps", "--all", "--quiet", "--filter", f"name={name}"],
    ):
        try:
            ran = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=LEAVE_S,
                check=False,
                env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
            )
        except (OSError, subprocess.TimeoutExpired):
            return True
    return ran.returncode != 0 or bool(ran.stdout.strip())


def collect(args: Asked) -> dict[str, Any]:
    """As GpuContainerFacts."""
    toolkit, host = _say("nvidia-ctk", "--version").splitlines(), smi.run("-L")
    found: dict[str, Any] = {
        "type": "gpu-container",
        "docker": _say("docker", "version", "--format", "{{.Server.Version}}"),
        "toolkit": toolkit[0] if toolkit else "",
        "cgroups": _say("docker", "info", "--format", "{{.CgroupDriver}} v{{.CgroupVersion}}"),
        "host": len(listed(host.stdout)) if host.returncode == 0 else 0,
        "image": _say("docker", "inspect", "--format", "{{.Image}}", args.container),
        "unmade": "",
        "before": None,
        "after": None,
        "left": False,
    }
    found["unmade"] = (
        "no Docker" if not found["docker"]
        else "no NVIDIA container toolkit that answers" if not found["toolkit"]
        else "no training container, whose image would be taken" if not found["image"]
        else "no CDI specification of GPUs" if not specified((args.cdi,) if args.cdi else CDI)
        else ""
    )  # fmt: skip
    if not found["unmade"]:
        _ask(found, f"elastic-ai-gpu-container-{os.getpid()}", args.lives_s)
    return found


def _ask(found: dict[str, Any], name: str, lives_s: int) -> None:
    """Fill in what was seen before and after the reload."""
    own = ["--rm", "--name", name, "--network", "none", "--pull", "never", "--stop-timeout", "1"]
    command = ["docker", "run", "--detach", *own, "--device", DEVICES, "--entrypoint", "sleep", found["image"]]
    try:
        ran = run_tool([*command, str(lives_s)], timeout_s=TOOL_TIMEOUT_S)
        if ran.returncode:
            found["before"] = {"gpus": 0, "said": f"it did not start: {ran.stderr.strip()[-200:]}"}
            return
        found["before"] = look(name)
        ran = run_tool(["systemctl", "daemon-reload"], timeout_s=TOOL_TIMEOUT_S)
        if ran.returncode:
            found["unmade"] = f"systemctl daemon-reload: {ran.stderr.strip()[-200:] or f'status {ran.returncode}'}"
            return
        found["after"] = look(name)
    finally:
        found["left"] = leave(name)


def probe(args: Asked) -> ProbeDoc:
    """Ask before and after. That there is nothing to be asked is a finding and no failure of this probe."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts = collect(args)
        return Ran(["gpu-container"], 0, json.dumps(facts, indent=1, sort_keys=True), ""), facts, None

    return document(
        "gpu-container", "docker", measure, lambda ran: str(json.loads(ran.stdout or "{}").get("docker", ""))
    )
