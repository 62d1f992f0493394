"""What a lease's Slurm job says of itself: one line of JSON in the job's comment."""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from toolkit.lease import LeaseError

MARK = "elastic-ai-lease"
ENDED = "elastic-ai-lease-ended"
MAX_CLIENTS = 8
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class JobComment:
    """Written by the user, so nothing in it may give more than the job's own resources.

    clients: IPv4 addresses that may connect. mode: `run` ends with its client, `hold` with its time. ttl_s: seconds,
    0 where only Slurm's limit holds. memory_mib: a lower memory limit than the part's, 0 for none. parts: how many jobs
    the lease is of, 0 where nobody says. where: whether its program runs on its client, with an engine, or on the
    server itself.
    """

    clients: tuple[str, ...]
    host: str
    mode: Literal["run", "hold"] = "run"
    what: str = ""
    ttl_s: int = 0
    memory_mib: int = 0
    parts: int = 0
    where: Literal["client", "server"] = "client"

    def text(self) -> str:
        """The job's comment."""
        return json.dumps({MARK: 1, **asdict(self)}, separators=(",", ":"))


def _text(data: dict[str, Any], key: str, pattern: str) -> str:
    value = data.get(key, "")
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise LeaseError(f"the lease's comment has no valid {key}")
    return value


def _number(data: dict[str, Any], key: str, limit: int) -> int:
    value = data.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise LeaseError(f"the lease's comment has no valid {key}")
    return value


def ended_text(why: str) -> str:
    """A lease's job's AdminComment, written by its server: why the server ended it."""
    return json.dumps({ENDED: why})


def ended_reason(text: str) -> str:
    """Why the server ended the lease; "" where it did not."""
    try:
        data = json.loads(text)
    except ValueError:
        return ""
    return str(data.get(ENDED, "")) if isinstance(data, dict) else ""


def is_lease_comment(comment: str) -> bool:
    """Whether a comment claims to be a lease's."""
    return comment.startswith('{"' + MARK + '":')


def parse_comment(comment: str) -> JobComment:
    """The request in a job's comment; LeaseError for anything that is not exactly one."""
    try:
        data = json.loads(comment)
    except (ValueError, RecursionError):
        raise LeaseError("the lease's comment is not JSON") from None
    if not isinstance(data, dict) or data.pop(MARK, None) != 1:
        raise LeaseError("the lease's comment is of another release")
    given = data.get("clients")
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_CLIENTS:
        raise LeaseError(f"the lease's comment names no client, or more than {MAX_CLIENTS} addresses")
    try:
        clients = tuple(str(ipaddress.IPv4Address(address)) for address in given)
    except ValueError:
        raise LeaseError("the lease's comment has a client that is not an IPv4 address") from None
    mode: Literal["run", "hold"] = "hold" if _text(data, "mode", "run|hold") == "hold" else "run"
    where: Literal["client", "server"] = "server" if _text(data, "where", "client|server|") == "server" else "client"
    host = _text(data, "host", _NAME.pattern)
    what = _text(data, "what", r"[A-Za-z0-9 ./x]{0,40}")
    numbers = {key: _number(data, key, 10**9) for key in ("ttl_s", "memory_mib", "parts")}
    return JobComment(clients, host, mode, what, **numbers, where=where)
