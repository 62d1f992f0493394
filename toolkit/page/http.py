"""What every answer has, and how a form is read."""

from __future__ import annotations

import asyncio
import secrets
import urllib.parse
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

#: Addresses of the page are below this path, and browsers send its cookies to no other. Cookies go by the name of a
#: machine and not by the port, and notebook servers of JupyterHub (`/user/NAME/`), which are programs of their users,
#: may have the same name.
BASE = "/pool"
MOST_BYTES, READ_S = 8192, 10.0

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
#: A report carries its styles and its script; in a sandbox it is of no origin, and reads nothing of this page.
REPORT_CSP = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "font-src data:; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Headers:
    """Puts HEADERS on each answer that does not set them itself."""

    def __init__(self, app: Any) -> None:
        """app: an ASGI application."""
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer."""

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message["headers"]}
                more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in there]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


TWICE = (
    "Your browser sent a cookie of this page twice: another service of this name or of its domain set one. Delete the "
    "cookies of this domain in the browser, then log in again, and report it to the administrator of this page."
)


class Once:
    """Refuses a request that has one of the page's cookies more than once: which of them is the page's is not known."""

    def __init__(self, app: Any, names: Collection[str]) -> None:
        """app: an ASGI application; names: of the cookies."""
        self._app, self._names = app, names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, or refuse with status 400."""
        sent = [value for name, value in scope.get("headers", ()) if name == b"cookie"]
        given = Counter(one.partition("=")[0].strip() for one in b";".join(sent).decode("latin-1").split(";"))
        if any(given[name] > 1 for name in self._names):
            await PlainTextResponse(TWICE, 400)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


async def form_of(request: Request) -> Mapping[str, str] | None:
    """The fields of a form; None for what is none, is too long or too slow, or comes from a page of another site."""
    if not from_here(request) or not request.headers.get("content-type", "").startswith(
        "application/x-www-form-urlencoded"
    ):
        return None
    body = b""

    async def read() -> bool:
        nonlocal body
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                return False
        return True

    try:
        if not await asyncio.wait_for(read(), READ_S):
            return None
        return dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))
    except (ValueError, TimeoutError, asyncio.TimeoutError):
        return None


def from_here(request: Request) -> bool:
    """Whether a page of this site sent it, as far as the browser says."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host', '')}":
        return False
    return site in (None, "same-origin", "none")


def cookie(answer: Response, name: str, value: str | None) -> None:
    """Set a cookie that scripts and other sites do not get; None takes it back."""
    kept = f"Path={BASE}/; Secure; HttpOnly; SameSite=Strict"
    words = f"{name}={value}; {kept}" if value is not None else f"{name}=; Max-Age=0; {kept}"
    answer.headers.append("set-cookie", words)


def page(words: str, status: int = 200) -> HTMLResponse:
    """A page of HTML."""
    return HTMLResponse(words, status_code=status)


def token() -> str:
    """A new secret."""
    return secrets.token_urlsafe(32)


__all__ = ["BASE", "CSP", "HEADERS", "REPORT_CSP", "Headers", "Once", "cookie", "form_of", "from_here", "page", "token"]
