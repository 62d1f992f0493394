"""What trains where remoting is measured: elastic-ai-train by the site's first engine, or an ordinary PyTorch program
(torch_load.py) by the engine torch; its command line on a client, and natively on a GPU server.

A load is the program's options that say what it trains (`--network resnet50 ...`); none: elastic-ai-train.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence

from validation.probes import PROGRAM_FOLDER, remoting
from validation.probes.tool import run_tool

PROGRAM, TORCH_PROGRAM = "elastic-ai-train", "torch_load"
ON_SERVER = "/usr/lib/elastic-ai/lease-server/bin/train"  # role remoting_server installs it
ENGINE = "torch"
PYTHONS = ("python", "python3")
ASKS_S = 60.0
#: A program of several files, given as text: those before the last are what it imports.
_BOOT = """
import sys, types
texts, sys.argv[1:] = sys.argv[1:4], sys.argv[4:]
sys.modules["validation"] = types.ModuleType("validation")
sys.modules["validation.probes"] = probes = types.ModuleType("validation.probes")
for name, text in zip(("torch_keep", "torch_networks"), texts):
    module = types.ModuleType(name)
    setattr(probes, name, module)
    module.SOURCE = text
    exec(compile(text, name, "exec"), module.__dict__)
exec(compile(texts[2], "torch_load", "exec"), {"__name__": "__main__", "SOURCE": texts[2]})
"""
#: On a GPU server: by the Python whose PyTorch the engine's servers have (toolkit/lease/engines/torch.py).
_START = """
import json, os, sys
for place in ("/opt/elastic-ai/engine/beside/torch", "/opt/elastic-ai/engine"):
    try:
        python = json.load(open(place + "/server.json"))["python"]
    except FileNotFoundError:
        python = place + "/venv/bin/python"
    if os.access(python, os.X_OK):
        os.execv(python, [python, "-I", "-c", *sys.argv[1:]])
sys.exit("this server has no Python with the engine's PyTorch")
"""


def tool_of(load: Sequence[str]) -> str:
    """What the documents of that load say who made them."""
    return TORCH_PROGRAM if load else PROGRAM


def wish(load: Sequence[str]) -> list[str]:
    """Words of a lease by the load's engine."""
    return ["--engine", ENGINE] if load else []


def facts(load: Sequence[str]) -> dict[str, str]:
    """Engine and release on this client, for the record."""
    return remoting.engine(engine_of(load))


def engine_of(load: Sequence[str]) -> str:
    """The engine of a load, "" for the site's first one."""
    return ENGINE if load else ""


def network_of(load: Sequence[str]) -> str:
    """What it trains, "" of elastic-ai-train."""
    return load[list(load).index("--network") + 1] if "--network" in load else ""


def python() -> str:
    """This client's Python with PyTorch; Unmet where there is none."""
    for name in PYTHONS:
        path = shutil.which(name)
        if path and run_tool([path, "-c", "import importlib.util as u; raise SystemExit(not u.find_spec('torch'))"],
                             ASKS_S).returncode == 0:  # fmt: skip
            return path
    raise remoting.Unmet(f"no Python of this client has PyTorch ({', '.join(PYTHONS)}), which the engine torch needs")


def here(load: Sequence[str]) -> list[str]:
    """The program on this client, for `toolkit run`."""
    return [python(), str(PROGRAM_FOLDER / f"{TORCH_PROGRAM}.py"), *load] if load else [PROGRAM]


def for_others(load: Sequence[str]) -> list[str]:
    """The same for somebody who may not read this folder: its text is in the command line."""
    return [python(), "-c", _BOOT, *_texts(), *load] if load else [PROGRAM]


def _texts() -> list[str]:
    names = ("torch_keep", "torch_networks", TORCH_PROGRAM)
    return [(PROGRAM_FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in names]


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
    for emulated ones, as their engine does with one thread."""
    if not load:
        return [f"CUDA_VISIBLE_DEVICES={','.join(uuids)}", ON_SERVER]
    alone = ["OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1"] if emulated else [f"CUDA_VISIBLE_DEVICES={','.join(uuids)}"]
    stands = ["--processor", ",".join(uuids)] if emulated else []
    return [*alone, "/usr/bin/python3", "-I", "-c", _START, _BOOT, *_texts(), *load, *stands]


def documents(text: str) -> list[str]:
    """The lines of JSON among what a program printed; that it was ready is none."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return [line for line in lines if "ready" not in json.loads(line)]
