"""One program natively on a GPU server, from a client through the engine, and there on a part: the same program by the
same command each time, and what it leaves of the client: packages, kernel, modules, driver.

The program is told on its command line and reads that back from the kernel, so that nothing has to be copied: what
`/proc/self/cmdline` says is what ran. It copies data to its GPU and back. Natively is `toolkit run --where server`.

`stdout`: {"before": STATE, "after": STATE, "packages": DIFFERENCES, "runs": [{"way", ...}, ...]}; STATE: {"packages":
{"count", "sha256"}, "kernel", "modules", "driver"}. `facts`: server, part, emulated, engine, engine_release.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.probes import ProbeDoc, remoting
from validation.probes.tool import Ran, document, run_tool

#: Argument: bytes. `words`: its command line as the kernel has it. `library`: the driver library that it found.
#: `told_bytes`: memory of its GPU, or part, as its lease says.
PROGRAM = """
import ctypes, hashlib, json, os, random, sys
words = open("/proc/self/cmdline", "rb").read().split(b"\\0")[:-1]
cuda, size = ctypes.CDLL("libcuda.so.1"), int(sys.argv[1])
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit("%s: CUDA error %d" % (name, code))
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
sent = random.Random(7).getrandbits(8 * size).to_bytes(size, "little")
back = ctypes.create_string_buffer(size)
call("cuMemcpyHtoD_v2", memory, sent, ctypes.c_size_t(size))
call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(size))
maps = [line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line]
print(json.dumps({
    "program_sha256": hashlib.sha256(words[2]).hexdigest(),
    "command_sha256": hashlib.sha256(b"\\0".join(words)).hexdigest(), "words": len(words),
    "sent_sha256": hashlib.sha256(sent).hexdigest(), "back_sha256": hashlib.sha256(back.raw).hexdigest(),
    "library": os.path.realpath(maps[0]),
    "told_bytes": sum(gpu["memory_bytes"] for gpu in json.loads(os.environ["ELASTIC_AI_GPUS"])),
}))
"""
WAYS: tuple[str, ...] = ("native", "remote", "part")
_LISTINGS = (
    ("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}:${Architecture} ${Version}\n"),
    ("rpm", "-qa", "--queryformat", "%{NAME}.%{ARCH} %{EPOCH}:%{VERSION}-%{RELEASE}\n"),
)
_MODULES = Path("/proc/modules")
_DRIVER = Path("/sys/module/nvidia/version")
_CONTAINER = ("/run/systemd/container", "/.dockerenv", "/run/.containerenv")
_TOLD = 20  # packages that are named where they changed


@dataclass
class Asked:
    """What is asked of this probe."""

    server: str  # GPU server
    part: str  # of a GPU: 1/2
    size_bytes: int  # that the program copies


def command(size_bytes: int) -> list[str]:
    """The program, however it is run."""
    return ["python3", "-c", PROGRAM, str(size_bytes)]


def listing() -> list[str]:
    """Installed packages with their versions, a line each, sorted; Unmet where no package manager lists them."""
    for words in _LISTINGS:
        ran = run_tool([*words], remoting.WAIT_S)
        if ran.returncode == 0 and ran.stdout.strip():
            return sorted(ran.stdout.splitlines())
    raise remoting.Unmet("no package manager lists this client's packages (dpkg-query, rpm)")


def state(packages: list[str]) -> dict[str, Any]:
    """Of this client: its packages in short, kernel, modules that are loaded, version of a GPU driver ("": none)."""
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()
    loaded = _MODULES.read_text(encoding="utf-8") if _MODULES.exists() else ""  # of a kernel that loads none
    modules = sorted(line.split()[0] for line in loaded.splitlines())
    driver = _DRIVER.read_text(encoding="utf-8").strip() if _DRIVER.exists() else ""
    summed = {"count": len(packages), "sha256": digest}
    return {"packages": summed, "kernel": os.uname().release, "modules": modules, "driver": driver}


def differences(before: list[str], after: list[str]) -> list[str]:
    """Packages that were removed or came, with - and +; a changed one is both."""
    gone, came = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    return [*(f"- {line}" for line in gone), *(f"+ {line}" for line in came)][:_TOLD]


def contained() -> bool:
    """Whether the kernel is not this client's own."""
    return any(Path(mark).exists() for mark in _CONTAINER)


def measure_ways(args: Asked) -> str:
    """All three, between two looks at the client; Unmet with the way where one did not run."""
    whole = ["-n", "1", "-l", args.server]
    options = {
        "native": ["--where", "server", "--folder", "/", *whole],
        "remote": ["--where", "client", "--no-kernels", *whole],
        "part": ["--where", "client", "--no-kernels", *whole, "-p", args.part],
    }
    packages = listing()
    before, runs = state(packages), []
    for way in WAYS:
        ran = run_tool([remoting.COMMAND, "run", *options[way], "--", *command(args.size_bytes)], remoting.WAIT_S)
        if ran.returncode:
            raise remoting.Unmet(f"{way}: {remoting.said(ran)}")
        runs.append({"way": way, **remoting.answer(ran, way)})
    later = listing()
    after = state(later)
    if contained() and (other := sorted(set(before["modules"]) ^ set(after["modules"]))):
        raise remoting.Unmet(f"kernel modules of this container's host changed meanwhile: {', '.join(other[:4])}")
    changed = differences(packages, later)
    return json.dumps({"before": before, "after": after, "packages": changed, "runs": runs})


def probe(args: Asked) -> ProbeDoc:
    """What ran each way, and the client before and after."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"server": args.server, "part": args.part, **remoting.engine()}
        words = [remoting.COMMAND, "run"]
        try:
            facts["emulated"] = any(gpu["emulated"] for gpu in remoting.gpus_of([args.server]))
            return Ran(words, 0, measure_ways(args), ""), facts, None
        except remoting.Unmet as fault:
            return Ran(words, 0, "", ""), facts, str(fault)

    return document("remoting-unchanged", remoting.COMMAND, measure, lambda _: remoting.engine()["engine_release"])
