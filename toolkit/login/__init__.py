"""Passwords of the pool's users, checked for services that run without root.

A service (the page of the pool, the hub of notebooks) is in the group of the socket `SOCKET` and asks at it by
`client.ask`. systemd starts the helper, as root, for each connection; it checks a password by PAM and answers with a
ticket. Whatever the helper does as a user needs that user's ticket, so that the page, if it was taken over, acts for
those alone who logged in within `TICKET_S` and not for everybody. The hub of notebooks has its passwords checked here
alone: it starts servers by sudo, without a ticket, as any user of its groups.

Runs on the head with Python 3.9 and the standard library alone.
"""

from __future__ import annotations

from pathlib import Path

SOCKET = Path("/run/elastic-ai-login.sock")
"""Where the helper answers, to its group."""

GROUP = "elastic-ai-login"
"""Members can ask: the users of services, and no person."""

PAM_SERVICE = "elastic-ai-login"
"""The file of /etc/pam.d by which passwords are checked."""

RUN_DIR = Path("/run/elastic-ai-login")
"""Root's alone: the key of tickets, which passwords failed. Both end with a restart of the machine."""

MOST_BYTES = 16384
"""Of a question and of an answer."""

READ_S = 5.0
"""How long a question may take to arrive."""

TICKET_S = 8 * 3600
"""How long a ticket is good for."""
