"""What a lease's Slurm job says of itself: one line of JSON in the job's comment."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from toolkit.lease.fields import Fields

MARK = "elastic-ai-lease"
ENDED = "elastic-ai-lease-ended"
MAX_CLIENTS = 8
ENGINE_NAME = r"[a-z][a-z0-9-]{0,30}"
_NAME, _MOST = r"[A-Za-z0-9._-]{1,64}", 10**9


@dataclass(frozen=True)
class JobComment:
    """Written by the user, so nothing in it may give more than the job's own resources.

    clients: IPv4 addresses that may connect. mode: `run` ends with its client, `hold` with its time. ttl_s: seconds,
    0 where only Slurm's limit holds. memory_mib: a lower memory limit than the part's, 0 for none. parts: how many jobs
    the lease is of, 0 where nobody says. where: whether its program runs on its client, with an engine, or on the
    server itself. engine: which one, "" for the site's first. up_to: shards of each GPU with which it may compute while
    nobody else has them, 0 for no more than the part.
    """

    clients: tuple[str, ...]
    host: str
    mode: Literal["run", "hold"] = "run"
    what: str = ""
    ttl_s: int = 0
    memory_mib: int = 0
    parts: int = 0
    where: Literal["client", "server"] = "client"
    engine: str = ""
    up_to: int = 0

    def text(self) -> str:
        """The job's comment. Without an engine's name and a ceiling it is as every release reads it."""
        told = asdict(self)
        for key in ("engine", "up_to"):
            if not told[key]:
                del told[key]
        return json.dumps({MARK: 1, **told}, separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> JobComment:
        """The request in a job's comment; DamagedDocument for anything that is not exactly one. Of an older client it
        has no parts and no where, and of a site with one engine no engine."""
        fields = Fields.of(text, "the lease's comment")
        if fields.number(MARK) != 1:
            fields.refuse(MARK, "is none that is known here")
        clients = fields.addresses("clients")
        if not 1 <= len(clients) <= MAX_CLIENTS:
            fields.refuse("clients", f"are {len(clients)}, and 1 to {MAX_CLIENTS} may be")
        comment = cls(
            clients=clients,
            host=fields.text("host", _NAME),
            mode="hold" if fields.text("mode", "run|hold") == "hold" else "run",
            what=fields.text("what", r"[A-Za-z0-9 ./x]{0,40}"),
            ttl_s=fields.number("ttl_s", most=_MOST),
            memory_mib=fields.number("memory_mib", most=_MOST),
            parts=fields.number("parts", most=_MOST) if fields.has("parts") else 0,
            where="server" if fields.has("where") and fields.text("where", "client|server") == "server" else "client",
            engine=fields.text("engine", ENGINE_NAME) if fields.has("engine") else "",
            up_to=fields.number("up_to", most=_MOST) if fields.has("up_to") else 0,
        )
        fields.end()
        return comment


def ended_text(why: str) -> str:
    """A lease's job's AdminComment, written by its server: why the server ended it."""
    return json.dumps({ENDED: why})


def ended_reason(text: str) -> str:
    """Why the server ended the lease; "" where it did not."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return str(data.get(ENDED, "")) if isinstance(data, dict) else ""


def is_lease_comment(comment: str) -> bool:
    """Whether a comment claims to be a lease's."""
    return comment.startswith('{"' + MARK + '":')
