"""The server of engine torch: operators of this machine's PyTorch on its devices, for the clients of a lease.

The parent imports torch and waits at the door; it never touches a device. Each connection that shows the token gets a
child, which opens the device and speaks typed values only (shared/wire.h): no pickle, no code of a client's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn

NAME = "elastic-ai-torchserver"
#: Beside this package: the libraries and the list of operators.
LIB = Path(__file__).resolve().parent.parent
#: account.h and cuda_memory.h
MOST_SESSIONS = 128


def fail(words: str, code: int = 2) -> NoReturn:
    """Ends with a sentence."""
    print(f"{NAME}: {words}", file=sys.stderr)
    raise SystemExit(code)


def release() -> str:
    """Of the engine that this file belongs to."""
    try:
        return str(json.loads((LIB.parent / "engine.json").read_text())["release"])
    except (OSError, ValueError, KeyError):
        return "unknown"
