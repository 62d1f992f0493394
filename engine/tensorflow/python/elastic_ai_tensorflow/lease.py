"""What the lease says by environment variables."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The names under which client and server are known to TensorFlow; no machine has them, and no packet goes to them.
SERVER_ADDRESS, CLIENT_ADDRESS, PORT = "127.84.70.1", "127.84.70.2", 1
#: As the server's door.
WIRE = 1


class LeaseFault(Exception):
    """The lease cannot be used; the text is a sentence."""


@dataclass(frozen=True)
class Gpu:
    """One of the lease's, as `toolkit run` tells it."""

    name: str
    capability: str
    emulated: bool


@dataclass(frozen=True)
class Lease:
    """Where its server is, the file of its token, and its GPUs in their order."""

    address: str
    port: int
    token_file: str
    gpus: tuple[Gpu, ...]

    @staticmethod
    def of(environment: Mapping[str, str] | None = None) -> Lease:
        """From the variables that `toolkit run` sets. LeaseFault says which of them is not right."""
        given = os.environ if environment is None else environment
        where = given.get("ELASTIC_AI_TENSORFLOW_SERVERS", "")
        address, _, port = where.rpartition(":")
        if not address or not port.isdigit():
            raise LeaseFault(
                f"ELASTIC_AI_TENSORFLOW_SERVERS={where}: no server of one lease; start the program with `toolkit run`"
            )
        try:
            told: list[dict[str, Any]] = json.loads(given.get("ELASTIC_AI_GPUS", "") or "[{}]")
            gpus = [
                Gpu(str(one.get("name", "GPU")), str(one.get("capability", "")), bool(one.get("emulated")))
                for one in told
            ]
        except (ValueError, AttributeError, TypeError):
            raise LeaseFault("ELASTIC_AI_GPUS is damaged; start the program with `toolkit run`") from None
        return Lease(address, int(port), given.get("ELASTIC_AI_TOKEN_FILE", ""), tuple(gpus))

    @property
    def emulated(self) -> bool:
        """Whether the server's TensorFlow computes on its processor, which has no device of kind GPU."""
        return any(gpu.emulated for gpu in self.gpus)

    def token(self) -> str:
        """LeaseFault where the file is not there: the lease has ended."""
        try:
            return Path(self.token_file).read_text(encoding="ascii").split("\n")[0]
        except (OSError, UnicodeDecodeError) as fault:
            raise LeaseFault(
                f"{self.token_file} (ELASTIC_AI_TOKEN_FILE): {getattr(fault, 'strerror', None) or 'no text'}; the "
                "lease may have ended: start the program with `toolkit run`"
            ) from None


def release() -> str:
    """Of the engine that this file belongs to."""
    try:
        return str(json.loads((Path(__file__).resolve().parents[2] / "engine.json").read_text())["release"])
    except (OSError, ValueError, KeyError):
        return "unknown"
