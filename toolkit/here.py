"""This machine as a site of one node: what `toolkit validate --here` finds of it before it plans anything.

Nothing here asks for rights: what this user may not read is not known. Addresses and devices are those of Linux.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import ipaddress
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from toolkit.engine import local_build
from toolkit.errors import BuildError
from toolkit.loudness import progress
from validation.base.counting import number_of
from validation.model import Found, Node, Port, SshTarget, Topology
from validation.probes import gpulibs, pcie, virtualisation
from validation.probes.rdma_ports_sysfs import represented

SYSFS, PROC, DEV = Path("/sys"), Path("/proc"), Path("/dev")
ROOT = Path(__file__).resolve().parents[1]
TORCH_TIMEOUT_S = 30.0  # a Python on a network file system takes seconds to start
DRIVER_TIMEOUT_S = 60.0  # a driver that is not kept loaded starts all GPUs of a node for it
_TORCH = "import importlib.metadata as m; print(m.version('torch'))"  # imports nothing of it
#: In a process of its own, for a broken driver hangs or ends whoever asks it. It is the input of that process, so that
#: whoever looks for probes by their command line finds none before they run.
_DRIVER = """
import ctypes, json, sys
sys.path.insert(0, sys.argv[1])
from validation.probes.cuda import LIBRARY
from validation.nvml import Nvml, NvmlError, Unaskable
said = {"emulated": False, "gpus": 0, "trouble": "", "unasked": False}
try:
    with Nvml() as nvml:
        said.update(emulated=nvml.emulated, gpus=nvml.count())
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as fault:
        said["trouble"] = f"{LIBRARY} cannot be loaded: {fault}"
except NvmlError as fault:
    said.update(trouble=str(fault), unasked=isinstance(fault, Unaskable))
print(json.dumps(said))
"""
_LINKS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from validation.probes.shaped_link import looked
print(json.dumps(looked()))
"""
LINK_TIMEOUT_S = 60.0
_CUDA = "import torch; print(torch.cuda.device_count())"
CUDA_TIMEOUT_S = 120.0  # torch from a cold disk
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B  # linux/sockios.h


def topology_here() -> Topology:
    """This machine as the only node, with what it shows of itself."""
    name, cards = node_name(socket.gethostname()), pcie.collect([], SYSFS)
    gpus = [str(card["address"]) for card in cards if card["what"] == "gpu"]
    torch, python = find_torch(interpreters())
    driver = ask_driver()
    emulated = not gpus and driver.emulated
    if not driver.emulated and driver.gpus and (not gpus or virtualisation.detect()[1]):
        gpus = gpus[: driver.gpus]  # the buses show a container its host's GPUs, or, as in gVisor, none: NVML knows
    count, trouble = len(gpus), gpu_trouble(gpus) or library_trouble(gpus, driver)
    if driver.unasked:
        trouble = driver.trouble
    elif not gpus and driver.gpus:
        count = driver.gpus
        trouble = "" if emulated else file_trouble() or driver.trouble
    found = Found(user=user(), gpus=count, gpu_trouble=trouble, torch=torch, torch_python=python, emulated=emulated)
    node = Node(
        name=name,
        groups=("gpu_servers",) if count else ("machines",),
        ssh=SshTarget(host="localhost", user=found.user),
        ports=ports(),
        slots=max(1, count),
    )
    return Topology(site=name, nodes=(node,), here=found)


def with_engine(topology: Topology) -> Topology:
    """The same with the engines' programs, built where they are missing, and with what links can be made."""
    found = topology.here
    assert found is not None
    if not found.gpus or found.gpu_trouble:
        return topology
    try:
        engine: dict[str, str] = {"engine": str(local_build.programs())}
    except BuildError as fault:
        engine = {"engine_trouble": str(fault)}
    engine |= _torch_engine(found)
    links = {"link_trouble": "a process that tries them ends"}
    command = [sys.executable, "-I", "-", str(ROOT)]
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LINK_TIMEOUT_S, cwd="/", input=_LINKS
        )
        said = json.loads(ran.stdout)
        links = {"link_trouble": said["trouble"], "delay_by": said["delay_by"]}
    return topology.model_copy(update={"here": found.model_copy(update={**engine, **links})})


def _torch_engine(found: Found) -> dict[str, str]:
    """The engine for the torch that was found, or why there is none."""
    if not found.torch:
        return {"torch_engine_trouble": "no Python here has PyTorch; activate an environment that has it"}
    if not found.emulated and not _sees_gpus(found.torch_python):
        return {"torch_engine_trouble": f"PyTorch {found.torch} of {found.torch_python} finds no GPU"}
    progress(f"engine: that for PyTorch {found.torch}, which is built the first time (minutes)")
    try:
        return {"torch_engine": str(local_build.torch_programs(found.torch_python))}
    except BuildError as fault:
        return {"torch_engine_trouble": str(fault).splitlines()[0]}


def _sees_gpus(python: str) -> bool:
    """Whether the torch of that Python can use one."""
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        ran = subprocess.run(
            [python, "-c", _CUDA], capture_output=True, text=True, check=False, timeout=CUDA_TIMEOUT_S, cwd="/",
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return int(ran.stdout) > 0
    return False


def said_of_links(topology: Topology) -> list[str]:
    """What was found for remoting, one line each."""
    found = topology.here
    assert found is not None
    if not found.gpus or found.gpu_trouble:
        return []
    if found.engine_trouble:
        return [f"engine: none: {found.engine_trouble}"]
    if found.link_trouble:
        links = f"on loopback, rate and delay by a relay; no network namespaces: {found.link_trouble}"
    else:
        delay = "delay by netem" if found.delay_by == "netem" else "delay by a relay (this kernel has no netem)"
        links = f"between network namespaces, rate by tbf, {delay}"
    torch = found.torch_engine or f"none, {found.torch_engine_trouble}"
    return [f"engine: the reference engine, {found.engine}", f"engine for PyTorch: {torch}", f"links: {links}"]


def node_name(hostname: str) -> str:
    """The host's own name without its domain, safe as a file name."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", hostname.partition(".")[0]).strip("-") or "here"


def user() -> str:
    """Who runs this: the name, or the number where nothing has a name for it, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.geteuid())


def ports(sysfs: Path = SYSFS) -> tuple[Port, ...]:
    """Network ports with a card of their own that are up and have an address (IPv4)."""
    found = []
    for path in sorted((sysfs / "class" / "net").glob("*")):
        try:
            up = (path / "operstate").read_text().strip() == "up"
        except OSError:
            continue
        card = pcie.function_of(path.name, sysfs) is not None and not represented(path.name, sysfs)
        if up and card and (address := _address(path.name)) is not None:
            found.append(Port(interface=path.name, address=str(address.ip), prefix=address.network.prefixlen))
    return tuple(found)


def _address(interface: str) -> ipaddress.IPv4Interface | None:
    asked = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            address, mask = (
                socket.inet_ntoa(fcntl.ioctl(any_socket, call, asked)[20:24])
                for call in (_SIOCGIFADDR, _SIOCGIFNETMASK)
            )
        except OSError:
            return None
    return ipaddress.IPv4Interface(f"{address}/{mask}")


def gpu_trouble(gpus: Sequence[str], sysfs: Path = SYSFS, proc: Path = PROC, dev: Path = DEV) -> str:
    """Why this user cannot use the GPUs at these PCI addresses; "" where he can, or where there is none."""
    if not gpus:
        return ""
    driver = sysfs / "bus" / "pci" / "devices" / gpus[0] / "driver"
    bound = driver.resolve().name if driver.exists() else ""
    if not (proc / "driver" / "nvidia" / "version").exists():
        whose = f"{bound} has the first of them" if bound and bound != "nvidia" else "none is loaded"
        return f"no NVIDIA driver: {whose}; install the driver, or load it: modprobe nvidia"
    known = len(list((proc / "driver" / "nvidia" / "gpus").glob("*")))
    if known < len(gpus):
        return f"the NVIDIA driver has {known} of {number_of(len(gpus), 'GPU')}; look at dmesg for NVRM and Xid"
    return file_trouble(len(gpus), dev)


def file_trouble(gpus: int | None = None, dev: Path | None = None) -> str:
    """Why this user cannot use the driver's device files, of so many GPUs; None: as many as there are, where there is
    one at all (other ways lead to a GPU than by these files). "" where he can.
    """
    dev = dev or DEV
    nodes = [dev / "nvidiactl", *sorted(dev.glob("nvidia[0-9]*"))]
    if gpus is None:
        if not nodes[0].exists():
            return ""
        gpus = len(nodes) - 1
    there = sum(node.exists() for node in nodes)
    if there < 1 + gpus or not nodes[0].exists():
        return (
            f"{there} of {1 + gpus} device files are in {dev}; nvidia-modprobe -c 0 "
            "-u makes them, and a container has those that it was started with (--gpus all)"
        )
    if not (uvm := dev / "nvidia-uvm").exists():
        return (
            f"{uvm} is missing, without which CUDA does not start (error 999): modprobe nvidia_uvm, or nvidia-modprobe "
            "-u -c 0 makes it; a container has the files that it was started with (--gpus all)"
        )
    closed = [str(node) for node in (*nodes, uvm) if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        return f"this user cannot open {', '.join(closed)}; run as a user who can, or correct the permissions"
    return ""


class Driver(NamedTuple):
    """What the driver's libraries say: whether their devices are emulated, how many there are, and what is wrong.

    unasked: they are there, and this Python has nothing to ask NVML by.
    """

    emulated: bool
    gpus: int
    trouble: str
    unasked: bool = False


def ask_driver(timeout_s: float = DRIVER_TIMEOUT_S) -> Driver:
    """Load NVML and libcuda, and have NVML count the GPUs."""
    command = [sys.executable, "-I", "-", str(ROOT)]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout_s, cwd="/", input=_DRIVER
        )
        said = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        return Driver(False, 0, f"NVML did not answer within {timeout_s:g} s; look at dmesg for NVRM and Xid")
    except (OSError, ValueError):
        return Driver(False, 0, "a process that asks the driver's libraries ends; look at dmesg for NVRM and Xid")
    return Driver(bool(said["emulated"]), int(said["gpus"]), str(said["trouble"]), bool(said["unasked"]))


def library_trouble(gpus: Sequence[str], driver: Driver, proc: Path = PROC) -> str:
    """Why the driver's libraries cannot be used although its kernel module is loaded; "" where they can."""
    if not gpus or not driver.trouble:
        return ""
    try:
        loaded = gpulibs.module((proc / "driver" / "nvidia" / "version").read_text(errors="replace"))
    except OSError:
        loaded = None
    of = f"kernel module {loaded['version']} is loaded" if loaded else "the kernel module is loaded"
    return (
        f"{of}, but: {driver.trouble}; the driver's libraries have to be there, of the same version (in a container: "
        "start it with --gpus all)"
    )


def interpreters() -> list[str]:
    """Where a torch may be: this Python, those of active environments, those on the path, the usual ones of images."""
    named = [os.environ.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    found = [
        sys.executable,
        *(f"{folder}/bin/python" for folder in named if folder),
        *(path for name in ("python3", "python") if (path := shutil.which(name))),
        "/usr/bin/python3",
        "/opt/conda/bin/python",
    ]
    return [path for path in dict.fromkeys(found) if os.access(path, os.X_OK)]


def find_torch(candidates: Sequence[str]) -> tuple[str, str]:
    """Version and interpreter of the first torch that one of these has; ("", "") where none has one."""
    for python in candidates:
        try:
            ran = subprocess.run(
                [python, "-c", _TORCH], capture_output=True, text=True, check=False, timeout=TORCH_TIMEOUT_S, cwd="/",
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
            continue
        if ran.returncode == 0 and ran.stdout.strip():
            return ran.stdout.split()[0], python
    return "", ""


def said(topology: Topology) -> list[str]:
    """What was found and what it cannot do, one line each, for whoever runs it."""
    found, node = topology.here, topology.nodes[0]
    assert found is not None
    none = "GPUs: none on its PCI buses"
    none = none if found.gpu_trouble else f"{none}, and none by NVML; nothing of GPUs is measured"
    gpus = f"GPUs: {found.gpus}" if found.gpus else none
    gpus += ", emulated: they prove no rate" if found.emulated else ""
    return [
        f"this machine: {node.name}, as user {found.user}"
        + (f"; ports {', '.join(p.interface for p in node.ports)}" if node.ports else ""),
        f"{gpus}, not measured: {found.gpu_trouble}" if found.gpu_trouble else gpus,
        f"torch: {found.torch} of {found.torch_python}" if found.torch else "torch: none found",
        "no inventory: nothing is declared of this machine, so nothing is owed and nothing is accepted",
    ]
