"""GPUDirect Storage: files written from and read into the memory of this node's first GPU by NVIDIA's gdsio.

Without its fallback: where cuFile cannot go directly it copies by way of the host and gdsio calls that GPUD, too, so
that is switched off (in a copy of the site's cufile.json, and by its variables), and gdsio fails instead. nvidia-fs
counts what went through it; since CUDA 12.8 cuFile can go without that module.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from validation.probes.tool import Ran, last_line, run_tool

OPS = {"write": 1, "read": 0}
"""gdsio's number of each; the files are written first."""
OVER_S = 60.0
GPUS = Path("/proc/driver/nvidia/gpus")
STATS = Path("/proc/driver/nvidia-fs/stats")
SETTINGS = Path("/etc/cufile.json")
CUDA = Path("/usr/local")
COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
COUNTED = re.compile(r"^(Read|Write)s\s*:\s*n=(\d+)", re.MULTILINE)


def gdsio() -> str:
    """Where the tool is; "" where it is not."""
    found = shutil.which("gdsio")
    if found:
        return found
    places = [CUDA / "cuda", *sorted(CUDA.glob("cuda-*"), reverse=True)]
    tools = (place / "gds/tools/gdsio" for place in places)
    return next((str(tool) for tool in tools if tool.is_file()), "")


def settings(folder: Path) -> Path | None:
    """The site's settings without the fallback, written into a folder; None where they cannot be read."""
    try:
        text = SETTINGS.read_text() if SETTINGS.exists() else "{}"
        found = json.loads(COMMENT.sub(lambda match: match[1] or "", text))
        found["properties"] = {**found.get("properties", {}), "allow_compat_mode": False, "force_compat_mode": False}
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    path = folder / "cufile.json"
    path.write_text(json.dumps(found))
    return path


def environment(folder: Path) -> dict[str, str]:
    """Of gdsio, whose log goes into the folder."""
    env = {**os.environ, "CUFILE_ALLOW_COMPAT_MODE": "false", "CUFILE_FORCE_COMPAT_MODE": "false",
           "CUFILE_LOGFILE_PATH": str(folder / "cufile.log")}  # fmt: skip
    mine = None if "CUFILE_ENV_PATH_JSON" in env else settings(folder)
    return env if mine is None else {**env, "CUFILE_ENV_PATH_JSON": str(mine)}


def counted() -> dict[str, int] | None:
    """How many requests nvidia-fs has carried; None where the module is not loaded, or does not count."""
    try:
        text = STATS.read_text()
    except OSError:
        return None
    return {way.lower(): int(number) for way, number in COUNTED.findall(text)} or None


def _wrong(ran: Ran) -> str:
    if ran.returncode == 0 and "Throughput:" in ran.stdout:
        return ""
    said = last_line(ran.stderr) or last_line(ran.stdout) or "it printed nothing"
    module = "" if STATS.exists() else "; nvidia-fs is not loaded"
    return f"gdsio, without its fallback, ended with {ran.returncode}: {said[:200]}{module}"


def measure(folder: Path, threads: int, file_bytes: int, seconds: int) -> dict[str, Any]:
    """Each of OPS: what gdsio printed, and what nvidia-fs counted meanwhile. `error`: why there is none."""
    tool = gdsio()
    if not tool:
        return {"error": "there is no gdsio on this node (package gds-tools of NVIDIA)"}
    if not GPUS.is_dir() or not any(GPUS.iterdir()):
        return {"error": "the NVIDIA driver shows no GPU here"}
    data, own = folder / "gds", folder / "gds-settings"
    for path in (data, own):
        path.mkdir()
    env, done = environment(own), dict[str, Any]()
    for name, number in OPS.items():
        before = counted()
        words = [tool, "-D", str(data), "-d", "0", "-w", str(threads), "-s", f"{file_bytes >> 20}M", "-i", "1M",
                 "-x", "0", "-I", str(number), "-T", str(seconds)]  # fmt: skip
        ran, after = run_tool(words, seconds + OVER_S, env), counted()
        nvfs = None if before is None or after is None else after.get(name, 0) - before.get(name, 0)
        done[name] = {"error": _wrong(ran), "stdout": ran.stdout[:4000], "nvfs": nvfs, "command": words}
        if done[name]["error"]:
            break
    return {"error": "", "tool": tool, "ops": done}
