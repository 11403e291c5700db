"""What stands before the application: whom it answers, how much it reads, and what it tells browsers to keep to."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import RequestError
from regard.serving._errors import error_response
from regard.serving._served import Served

OPEN = ("/v1/health/live", "/v1/health/ready")  # to those who look after the server, token or not
PASSED = 16_000_000  # bytes of a body that is too large, let pass so that its sender hears so

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
    """Refuse what was sent to another name, by another site's page, without the token, too much or too large.

    What is served says whether a request can be taken in now; nothing of a body is parsed before it was asked.
    """

    def __init__(self, app: ASGIApp, host: str, token: str | None, served: Served) -> None:
        self.app, self.host, self.served, self.limits = app, host, served, served.limits
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), scope["path"]
        try:
            self._let_in(headers, path)
            body = await self._read(headers, receive)
            if (closed := self.served.door(path)) is not None:
                raise closed
        except RequestError as refusal:
            await error_response(refusal)(scope, receive, _with_headers(send))
            return
        self.served.under_way += 1
        try:
            await self.app(scope, _again(body, receive), _with_headers(send))
        finally:
            self.served.under_way -= 1

    def _let_in(self, headers: Headers, path: str) -> None:
        if not allowed(headers.get("host", ""), self.host):
            raise RequestError(421, "wrong_host", "This server does not answer to that name.")
        if not _same_site(headers):
            raise RequestError(403, "other_site", "Pages of other sites may not use this server.")
        if self.token is not None and path.startswith("/v1/") and path not in OPEN:
            kind, _, given = headers.get("authorization", "").partition(" ")
            # In the same time for every wrong token, so that none can be guessed letter by letter.
            right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self.token)
            if kind.lower() != "bearer" or not right:
                told = "This server asks for a token, in the header Authorization: Bearer TOKEN."
                raise RequestError(401, "no_token", told, {"WWW-Authenticate": "Bearer"})

    async def _read(self, headers: Headers, receive: Receive) -> list[Message]:
        """The whole request: what is small enough to be kept can be read at once."""
        if "content-length" not in headers and "transfer-encoding" not in headers:
            return []
        announced = headers.get("content-length", "0")
        large = announced.isdecimal() and int(announced) > self.limits.body
        try:
            found = None if large else await asyncio.wait_for(self._whole(receive), self.limits.seconds)
            if found is not None:
                return found
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_let_pass(receive, PASSED), 1)
        except asyncio.TimeoutError:
            late = f"The request did not come within {self.limits.seconds:g} seconds."
            raise RequestError(408, "too_slow", late, {"Connection": "close"}) from None
        told = f"The request is too large; at most {self.limits.body:,} bytes are read."
        raise RequestError(413, "too_large", told, {"Connection": "close"})

    async def _whole(self, receive: Receive) -> list[Message] | None:
        found: list[Message] = []
        left, more = self.limits.body, True
        while more:
            message = await receive()
            found.append(message)
            left -= len(message.get("body", b""))
            more = message.get("more_body", False)
            if left < 0:
                return None
        return found


async def _let_pass(receive: Receive, most: int) -> None:
    """Read on without keeping it: a client that is still sending would not hear why it is refused."""
    while most > 0:
        message = await receive()
        most -= len(message.get("body", b""))
        if not message.get("more_body", False):
            return


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
    try:
        return origin is None or urlsplit(origin).netloc == headers.get("host")
    except ValueError:  # such as http://[
        return False
