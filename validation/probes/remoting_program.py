"""What trains where remoting is measured: elastic-ai-train by the site's first engine, or an ordinary program of a
framework by the engine of its name (torch_load.py, tf_load.py); its command line on a client, and natively on a GPU
server.

A load is the program's options that say what it trains (`--network resnet50 ...`, and `--framework` where it is not
PyTorch); none: elastic-ai-train.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from validation.probes import PROGRAM_FOLDER, remoting
from validation.probes.tool import run_tool

PROGRAM = "elastic-ai-train"
ON_SERVER = "/usr/lib/elastic-ai/lease-server/bin/train"  # role remoting_server installs it
ENGINE = "torch"  # of the attempts on isolation and memory that a framework's program makes
ASKS_S = 60.0


class Framework(NamedTuple):
    """What programs import, which is the name of its engine, too. program: of these probes, in its file; parts: what
    that imports of them, each after what it needs; pythons: where a client may have the framework; on_processor: the
    environment of a program that computes on the processor which stands in for an emulated GPU.
    """

    name: str
    title: str
    program: str
    parts: tuple[str, ...]
    pythons: tuple[str, ...]
    on_processor: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        """The program, behind what it imports."""
        return [(PROGRAM_FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in (*self.parts, self.program)]


SHARED = ("load_keep", "load_run")
PYTHONS = ("python", "python3")
FRAMEWORKS = {
    one.name: one
    for one in (
        # as its engine does, with one thread
        Framework("torch", "PyTorch", "torch_load", (*SHARED, "torch_networks"), PYTHONS,
                  ("OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1")),
        # of a lab that has both, `python` is PyTorch's
        Framework("tensorflow", "TensorFlow", "tf_load", (*SHARED, "tf_networks"),
                  (*PYTHONS, "/opt/tensorflow/bin/python"), ("CUDA_VISIBLE_DEVICES=-1",)),
    )
}  # fmt: skip
#: A program of several files, given as text: those before the last are what it imports.
_BOOT = """
import sys, types
names = sys.argv[1].split()
texts, sys.argv[1:] = sys.argv[2 : 2 + len(names)], sys.argv[2 + len(names) :]
sys.modules["validation"] = types.ModuleType("validation")
sys.modules["validation.probes"] = probes = types.ModuleType("validation.probes")
for name, text in zip(names[:-1], texts):
    module = types.ModuleType(name)
    setattr(probes, name, module)
    sys.modules["validation.probes." + name] = module
    module.SOURCE = text
    exec(compile(text, name, "exec"), module.__dict__)
exec(compile(texts[-1], names[-1], "exec"), {"__name__": "__main__", "SOURCE": texts[-1]})
"""
#: On a GPU server: by the Python whose framework the engine's servers have (toolkit/lease/engines/).
_START = """
import json, os, sys
for place in ("/opt/elastic-ai/engine/beside/NAME", "/opt/elastic-ai/engine"):
    try:
        python = json.load(open(place + "/server.json"))["python"]
    except FileNotFoundError:
        python = place + "/venv/bin/python"
    if os.access(python, os.X_OK):
        os.execv(python, [python, "-I", "-c", *sys.argv[1:]])
sys.exit("this server has no Python with the TITLE of its engine")
"""


def framework_of(load: Sequence[str]) -> Framework | None:
    """Whose program a load is; None of elastic-ai-train."""
    if not load:
        return None
    return FRAMEWORKS[load[list(load).index("--framework") + 1] if "--framework" in load else ENGINE]


def tool_of(load: Sequence[str]) -> str:
    """What the documents of that load say who made them."""
    framework = framework_of(load)
    return framework.program if framework else PROGRAM


def wish(load: Sequence[str]) -> list[str]:
    """Words of a lease by the load's engine."""
    return ["--engine", engine_of(load)] if load else []


def facts(load: Sequence[str]) -> dict[str, str]:
    """Engine and release on this client, for the record."""
    return remoting.engine(engine_of(load))


def engine_of(load: Sequence[str]) -> str:
    """The engine of a load, "" for the site's first one."""
    framework = framework_of(load)
    return framework.name if framework else ""


def network_of(load: Sequence[str]) -> str:
    """What it trains, "" of elastic-ai-train."""
    return load[list(load).index("--network") + 1] if "--network" in load else ""


def python(framework: Framework = FRAMEWORKS[ENGINE]) -> str:
    """This client's Python with the framework; Unmet where there is none."""
    has = f"import importlib.util as u; raise SystemExit(not u.find_spec({framework.name!r}))"
    for name in framework.pythons:
        path = shutil.which(name)
        if path and run_tool([path, "-c", has], ASKS_S).returncode == 0:
            return path
    words = f"{framework.title} ({', '.join(framework.pythons)}), which the engine {framework.name} needs"
    raise remoting.Unmet(f"no Python of this client has {words}")


def here(load: Sequence[str]) -> list[str]:
    """The program on this client, for `toolkit run`."""
    framework = framework_of(load)
    if framework is None:
        return [PROGRAM]
    return [python(framework), str(PROGRAM_FOLDER / f"{framework.program}.py"), *load]


def for_others(load: Sequence[str]) -> list[str]:
    """The same for somebody who may not read this folder: its text is in the command line."""
    framework = framework_of(load)
    return [python(framework), "-c", *_booted(framework), *load] if framework else [PROGRAM]


def _booted(framework: Framework) -> list[str]:
    return [_BOOT, " ".join((*framework.parts, framework.program)), *framework.texts]


def run_words(engine: str) -> list[str]:
    """`toolkit run` for the programs of an attempt."""
    return [remoting.COMMAND, "run", "--engine", engine] if engine == ENGINE else list(remoting.RUN)


def attempt(engine: str, name: str, *words: str) -> list[str]:
    """The command line of an attempt: by the driver API, or by PyTorch."""
    if engine == ENGINE:
        return [python(), str(PROGRAM_FOLDER / "torch_attempts.py"), name, *words]
    return remoting.attempt(name, *words)


def there(load: Sequence[str], uuids: Sequence[str], emulated: bool) -> list[str]:
    """The program natively on a GPU server, behind `env NAME=VALUE`: on these GPUs, or on the processor that stands in
    for emulated ones, as their engine does."""
    framework, visible = framework_of(load), f"CUDA_VISIBLE_DEVICES={','.join(uuids)}"
    if framework is None:
        return [visible, ON_SERVER]
    alone = framework.on_processor if emulated else [visible]
    stands = ["--processor", ",".join(uuids)] if emulated else []
    start = _START.replace("NAME", framework.name).replace("TITLE", framework.title)
    return [*alone, "/usr/bin/python3", "-I", "-c", start, *_booted(framework), *load, *stands]


def documents(text: str) -> list[str]:
    """The lines of JSON among what a program printed; that it was ready is none."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return [line for line in lines if "ready" not in json.loads(line)]
