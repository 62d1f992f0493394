"""What `toolkit lease request` is told, checked before anything is asked of anybody."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolkit.lease import LeaseError
from toolkit.lease.lease_request import LeaseWish, omit

#: For how long GPUs are kept where nobody says it.
DEFAULT_S = 3600


@dataclass(frozen=True)
class KeepRequest:
    """A wish for GPUs that stay for longer than a program; the other fields are the command's options of these names.
    static, client, user: a server that grants it without Slurm, the machine that is to use it, and whose it is there.
    """

    wish: LeaseWish
    inventory: Path | None = None
    static: str | None = None
    client: str | None = None
    user: str | None = None
    no_wait: bool = False
    as_json: bool = False

    @classmethod
    def checked(cls, **options: Any) -> KeepRequest:
        """The request that a command's options are. LeaseError where they contradict each other."""
        request = cls(wish=LeaseWish.taken_from(options), **options)
        if request.static is not None:
            request._check_static()
        elif request.client or request.user:
            raise LeaseError("--client and --user are for --static: a lease of the pool is its requester's")
        elif request.inventory is not None:
            raise LeaseError("request leases on the machine that uses them; -i is for --static")
        return request

    def _check_static(self) -> None:
        wish = self.wish
        given: dict[str, object] = {
            "-m": wish.memory_mib,
            "--apart": wish.apart,
            "--up-to": wish.up_to,
            "-l": wish.servers,
            "--class": wish.gpu_class,
            "--no-wait": self.no_wait,
        }
        omit("--static", "grants parts of different GPUs of one server, without Slurm", given)
        if not self.client or not self.user:
            raise LeaseError("--static needs --client and --user: who is to use it, and where")
        if not re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", self.user):
            raise LeaseError(f"--user {self.user}: not a user's name")
        if wish.count < 1:
            raise LeaseError(f"-n {wish.count}: request at least 1 GPU")

    @property
    def timed(self) -> LeaseWish:
        """The wish, with a time."""
        return self.wish if self.wish.seconds is not None else replace(self.wish, seconds=DEFAULT_S)
