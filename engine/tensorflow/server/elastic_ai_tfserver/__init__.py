"""The server of engine tensorflow: a door in front of TensorFlow's own servers, one of these for each session.

TensorFlow's server asks nobody who he is, and does whatever it is told, files included. So the door asks for the
lease's token, and each server runs confined (confine.py): it reaches no file but its own folder and what it is made of,
opens no connection, and listens on a socket file alone (preload/inward.c), to which the door passes bytes on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn

NAME = "elastic-ai-tfserver"
#: Beside this package: the library that is preloaded.
LIB = Path(__file__).resolve().parent.parent
INWARD = LIB / "libelastic_ai_inward.so"
#: The names under which client and server know the server and the client; no machine has them. The port is that which
#: gRPC takes a socket file's socket to have.
ADDRESS, CLIENT, PORT = "127.84.70.1", "127.84.70.2", 1
#: The form of what client and server say to each other at the door; another one is another release.
WIRE = 1


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
