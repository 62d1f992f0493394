"""Who is logged in. In memory: a restart of the page ends all sessions."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

COOKIE, FORM_COOKIE = "__Secure-elastic-ai-session", "__Secure-elastic-ai-form"
SESSION_S = 8 * 3600
MOST, MOST_EACH = 5000, 10


@dataclass(frozen=True)
class Session:
    """A user who logged in. ticket: for the helper of logins; form: what the user's forms carry."""

    user: str
    ticket: str
    form: str
    until: float


class Sessions:
    """All that are open. Times are of a clock that nobody sets."""

    def __init__(self) -> None:
        """None is open."""
        self._open: dict[str, Session] = {}

    def begin(self, user: str, ticket: str, now: float) -> tuple[str, Session]:
        """A new one, with the value of its cookie. The oldest of the user, or of all, goes where there are too many."""
        self._open = {name: one for name, one in self._open.items() if one.until > now}
        mine = [name for name, one in self._open.items() if one.user == user]
        for name in [
            *mine[: max(0, len(mine) - MOST_EACH + 1)],
            *list(self._open)[: max(0, len(self._open) - MOST + 1)],
        ]:
            self._open.pop(name, None)
        name = secrets.token_urlsafe(32)
        session = Session(user, ticket, secrets.token_urlsafe(32), now + SESSION_S)
        self._open[name] = session
        return name, session

    def find(self, name: str, now: float) -> Session | None:
        """The session of a cookie; None where there is none (any more)."""
        found = self._open.get(name)
        return found if found is not None and found.until > now else None

    def end(self, name: str) -> None:
        """Log out."""
        self._open.pop(name, None)


def same(given: str, known: str) -> bool:
    """Whether a form carries what it must; "" never does."""
    return bool(known) and hmac.compare_digest(given.encode("utf-8", "replace"), known.encode())
