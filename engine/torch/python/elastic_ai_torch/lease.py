"""What the lease says by environment variables, and which of its devices the program sees."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class LeaseFault(Exception):
    """The lease's variables are not usable; the text says which and why."""


@dataclass(frozen=True)
class Lease:
    """Servers (`host:port`, one entry for each device), the file of their tokens, how operators are sent, and
    what carries them: tcp or verbs."""

    entries: tuple[str, ...]
    token_file: str
    sync: bool
    transport: str = "tcp"

    @staticmethod
    def of(environment: Mapping[str, str]) -> Lease:
        """From the variables that `toolkit run` sets."""
        entries = tuple(e.strip() for e in environment.get("ELASTIC_AI_TORCH_SERVERS", "").split(",") if e.strip())
        return Lease(
            entries,
            environment.get("ELASTIC_AI_TOKEN_FILE", ""),
            environment.get("ELASTIC_AI_TORCH_SYNC") == "1",
            environment.get("ELASTIC_AI_TRANSPORT") or "tcp",
        )

    def tokens(self) -> list[str]:
        """A line of the file for each entry. LeaseFault names the file."""
        if not self.token_file:
            raise LeaseFault("ELASTIC_AI_TOKEN_FILE is not set; start the program with `toolkit run`")
        try:
            lines = Path(self.token_file).read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError) as fault:
            reason = getattr(fault, "strerror", None) or "it is no text of tokens"
            raise LeaseFault(
                f"{self.token_file} (ELASTIC_AI_TOKEN_FILE): {reason}; "
                "the lease may have ended: start the program with `toolkit run`"
            ) from None
        if len(lines) < len(self.entries):
            raise LeaseFault(
                f"{self.token_file} (ELASTIC_AI_TOKEN_FILE) has {len(lines)} tokens for {len(self.entries)} devices; "
                "start the program with `toolkit run`"
            )
        return lines

    def where(self, visible: list[int], tokens: list[str]) -> str:
        """JSON for eat_register: each server once, and for each visible device its server and its number there."""
        servers = list(dict.fromkeys(self.entries))
        first = [self.entries.index(server) for server in servers]
        devices = [[servers.index(self.entries[i]), self.entries[:i].count(self.entries[i])] for i in visible]
        return json.dumps(
            {
                "servers": servers,
                "tokens": [tokens[i] if tokens else "" for i in first],
                "devices": devices,
                "sync": self.sync,
                "timeout_s": 0,
                "transport": self.transport,
            }
        )


def visible_devices(count: int, environment: Mapping[str, str] | None = None) -> list[int]:
    """The devices of CUDA_VISIBLE_DEVICES in its order, by CUDA's rules: a list ends where an entry is no device.

    A number that comes twice leaves none. GPUs are not known by UUID before the connection: LeaseFault.
    """
    variables = os.environ if environment is None else environment
    listed = variables.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return list(range(count))
    if listed.startswith(("GPU-", "MIG-")):
        raise LeaseFault(f"CUDA_VISIBLE_DEVICES={listed}: name a lease's GPUs by number, 0 to {count - 1}, not by UUID")
    visible: list[int] = []
    for entry in listed.split(","):
        number = _leading_number(entry.strip())
        if number < 0 or number >= count:
            break
        if number in visible:
            return []
        visible.append(number)
    return visible


def _leading_number(text: str) -> int:
    """What strtoul reads at the beginning of the text; -1 where there is nothing."""
    digits = text.removeprefix("+")
    end = next((i for i, c in enumerate(digits) if not ("0" <= c <= "9")), len(digits))
    return int(digits[:end]) if end else -1
