"""What stands before the application: whom it answers, how much it reads, and what it tells browsers to keep to."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serving._errors import error

# Nothing but what this server itself sends is run, shown or asked, and no other page can frame it.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuse what was sent to another name, by another site's page, or is too large; put headers on the rest."""

    def __init__(self, app: ASGIApp, host: str, body: int) -> None:
        self.app, self.host, self.body = app, host, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, answer = Headers(scope=scope), _with_headers(send)
        if not allowed(headers.get("host", ""), self.host):
            await error(421, "wrong_host", "This server does not answer to that name.")(
                scope, receive, answer
            )
        elif not _same_site(headers):
            await error(403, "other_site", "Pages of other sites may not use this server.")(
                scope, receive, answer
            )
        else:
            body = await self._read(headers, receive)
            if body is None:
                sentence = f"The request is too large; at most {self.body:,} bytes are read."
                await error(413, "too_large", sentence)(scope, receive, answer)
            else:
                await self.app(scope, _again(body, receive), answer)

    async def _read(self, headers: Headers, receive: Receive) -> list[Message] | None:
        """The whole request, or None if it is too large: what is small enough to be kept can be read at once."""
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > self.body:
            return None
        found: list[Message] = []
        left, more = self.body, True
        while more:
            message = await receive()
            found.append(message)
            left -= len(message.get("body", b""))
            more = message.get("more_body", False)
            if left < 0:
                return None
        return found


def _again(messages: list[Message], then: Receive) -> Receive:
    """Messages that were read, to be read by another."""
    waiting = iter(messages)

    async def receive() -> Message:
        for message in waiting:
            return message
        return await then()

    return receive


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def allowed(header: str, host: str) -> bool:
    """Whether a request was meant for us: the name in its Host header is ours.

    A page elsewhere can let its own name point at this machine (DNS rebinding); then the name is not ours. Bound to
    every address (0.0.0.0), any address will do, as an address is not a name that somebody can redirect.

    >>> allowed("localhost:8000", "127.0.0.1"), allowed("evil.example:8000", "127.0.0.1")
    (True, False)
    >>> allowed("192.168.1.7:8000", "0.0.0.0"), allowed("evil.example", "0.0.0.0")
    (True, False)
    """
    try:
        name = (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name in ("localhost", "127.0.0.1", "::1", host.lower()):
        return True
    return _everywhere(host) and (_is_address(name) or name == socket.gethostname().lower())


def _everywhere(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same_site(headers: Headers) -> bool:
    """Browsers say with Origin whose page asks; programs mostly send none."""
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")
