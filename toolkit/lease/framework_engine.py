"""What the engines of frameworks (torch, tensorflow) share on both sides: their server runs in the Python that has the
site's framework, and their client is read by the user's own Python. What differs is in each engine's adapter.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.engines import EngineCommand, EngineStart, mps_environment
from toolkit.lease.fields import DamagedDocument, Fields

MIB = 1 << 20
#: Beside `current`, written by role remoting_server: which Python has the server's framework.
SERVER_FILE = "server.json"
#: The role's own environment, where that file is not there.
OWN_PYTHON = "venv/bin/python"


def keeps_part(start: EngineStart) -> str:
    """Memory is held by the server itself, everywhere."""
    return ""


def computing_notes(start: EngineStart) -> list[str]:
    """What its owner ought to know where nothing holds the computing of a part of a GPU."""
    held = start.mps_pipe is not None or all(device.whole or device.mig for device in start.devices)
    return [] if held else ["the part holds for memory; computing is not limited"]


def python_of(engine_dir: Path, engine: str, title: str) -> Path:
    """The Python that has the server's framework. LeaseError where there is none."""
    beside = engine_dir.parent
    try:
        fields = Fields.in_file(beside / SERVER_FILE)
        python = fields.path("python")
        fields.end()
    except FileNotFoundError:
        python = beside / OWN_PYTHON
    except DamagedDocument as fault:
        raise LeaseError(f"{fault}; run site.yml") from None
    if not os.access(python, os.X_OK):
        raise LeaseError(f"{python} is not there, and the engine {engine} runs by its {title}; run site.yml")
    return python


def command(start: EngineStart, python: Path, program: str, more: Sequence[str]) -> EngineCommand:
    """The server with the limit, the token and the clients of the lease, and more words of its own."""
    limits = [d.limit_mib for d in start.devices if d.limit_mib is not None]
    context = max(d.context_bytes for d in start.devices)
    argv = [
        str(python),
        "-I",  # nothing of a folder or a variable that is not the engine's
        str(start.engine_dir / "bin" / program),
        *("--bind", start.address),
        *("--port", str(start.port)),
        *("--port-file", str(start.port_file)),
        *("--token-file", str(start.token_file)),
        *("--allow", ",".join(start.clients)),
        *("--report-fd", "1"),
        *(["--memory-limit", str(min(limits) * MIB), "--context-bytes", str(context)] if limits else []),
        *more,
    ]
    visible = ",".join(d.uuid for d in start.devices)
    return EngineCommand(tuple(argv), {"CUDA_VISIBLE_DEVICES": visible, **mps_environment(start)}, tells_port=True)


def secret(folder: Path) -> Path:
    """The file of the tokens, a line each."""
    return folder / "tokens"


def write_tokens(folder: Path, tokens: Iterable[str]) -> str:
    """A new file that its owner alone may read; its path."""
    with os.fdopen(os.open(secret(folder), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.writelines(f"{token}\n" for token in tokens)
    return str(secret(folder))


def before_others(paths: Mapping[str, str]) -> dict[str, str]:
    """Variables that are lists of paths, with ours before what the user has there."""
    others = {name: os.environ.get(name, "") for name in paths}
    return {name: path + (f":{others[name]}" if others[name] else "") for name, path in paths.items()}
