"""Logins of the hub: a password of a user of this machine, checked by the helper of logins.

The hub has no root and reads no hashes. The helper counts wrong passwords and makes those who guess wait.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
from typing import Any

from jupyterhub.auth import Authenticator
from password import LoginError, Passwords, TooMany, address_of
from programs import USER
from tornado.web import HTTPError
from traitlets import List, Unicode


def belongs(user: str, users: list[str], groups: list[str]) -> bool:
    """Whether a user of this machine, who is not root, is one of those users or in one of the groups."""
    try:
        found = pwd.getpwnam(user)
        numbers = os.getgrouplist(user, found.pw_gid)
    except (KeyError, OSError):
        return False
    return found.pw_uid != 0 and (user in users or any(_number(name) in numbers for name in groups))


def _number(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return -1


class PoolLogin(Authenticator):
    """By name and password, for some users and members of some groups."""

    groups = List(Unicode(), config=True, help="Groups whose members log in.")
    users = List(Unicode(), config=True, help="Users who log in besides.")

    def __init__(self, **kwargs: Any) -> None:
        """kwargs: of traitlets."""
        super().__init__(**kwargs)
        self._passwords = Passwords()

    def normalize_username(self, username: str) -> str:
        """As it is: names of users have capitals and small letters."""
        return username

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        """The user's name, None where name or password is wrong."""
        user, password = data.get("username", ""), data.get("password", "")
        if not re.fullmatch(USER, user) or not belongs(user, self.users, self.groups) or not 0 < len(password) <= 1024:
            return None
        try:
            answer = await self._passwords.check(user, password, _address(handler))
        except TooMany:
            raise HTTPError(429, "too many logins: try again in a minute") from None
        except LoginError as fault:
            self.log.warning("%s", fault)
            raise HTTPError(503, "passwords cannot be checked now") from None
        if answer.wait_s:
            raise HTTPError(429, f"too many wrong passwords: try again in {answer.wait_s:.0f} s")
        return user if answer.ticket else None


def _address(handler: Any) -> str:
    return address_of(handler.request.headers.get("X-Forwarded-For", ""), handler.request.remote_ip)
