"""What every request passes: counting, then the checks of host, origin, token and size."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import socket
import time
from collections.abc import AsyncIterator, Callable, Container, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard._version import __version__
from regard.errors import RequestError
from regard.serving.schemas import error_response

if TYPE_CHECKING:
    from regard.serving.app import ServerState

__all__ = ["Metrics", "MetricsMiddleware", "SecurityMiddleware", "is_allowed_host"]

PUBLIC_PATHS = ("/v1/health/live", "/v1/health/ready")  # without a token, for those who supervise the server
MAX_DISCARDED = 16_000_000  # bytes of a body that is too large: read, so that its sender reads the response
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)

# Browsers run, show and request only what this server sends, and no other page can frame it.
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Metrics:
    """The metrics of one application for Prometheus, in a registry of its own.

    Args:
        num_queued: the number of inputs that wait for the model

    Example:
        >>> metrics = Metrics(lambda: 0)
        >>> metrics.count_request("/v1/predict", "POST", 200, 0.2)
        >>> [line for line in metrics.to_text().splitlines() if line.startswith("regard_requests_total")]
        ['regard_requests_total{method="POST",route="/v1/predict",status="200"} 1.0']
    """

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, num_queued: Callable[[], float]) -> None:
        self.registry = registry = CollectorRegistry()
        self.num_open = 0
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        labels = ["route", "method", "status"]
        self._requests = counter("regard_requests", "Responses by route, method and status", labels)
        help = "Time from a request to the end of its response"
        self._durations = histogram("regard_request_duration_seconds", help, ["route"], buckets=DURATIONS)
        self._batches = histogram("regard_batch_size", "Inputs that were computed together", buckets=BATCH_SIZES)
        self._tokens = counter("regard_tokens", "Tokens of inputs and outputs", ["direction"])
        gauge("regard_queued_inputs", "Inputs that are not computed").set_function(num_queued)
        gauge("regard_requests_in_progress", "Open requests").set_function(lambda: self.num_open)
        Info("regard", "Version of regard", registry=registry).info({"version": __version__})
        ProcessCollector(registry=registry)

    def count_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a response.

        Args:
            route: one of few, as each has numbers of its own
            method: GET, POST or other
            status: of the response
            seconds: since the request
        """
        self._requests.labels(route, method, str(status)).inc()
        self._durations.labels(route).observe(seconds)

    def count_batch(self, size: int) -> None:
        """Count a batch by its number of inputs."""
        self._batches.observe(size)

    def count_tokens(self, counts: Mapping[str, int]) -> None:
        """Count tokens by direction: input, output."""
        for direction, count in counts.items():
            self._tokens.labels(direction).inc(count)

    def to_text(self) -> str:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry).decode()


class MetricsMiddleware:
    """Counts every request; while the server stops, it asks clients to close their connections.

    Args:
        app: the application
        state: its metrics, and whether the server stops
        routes: the paths that are counted by name
    """

    def __init__(self, app: ASGIApp, state: ServerState, routes: Container[str]) -> None:
        self.app, self.state, self.metrics, self.routes = app, state, state.metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started_at, status = time.perf_counter(), 500

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.state.is_stopping:
                    MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        self.metrics.num_open += 1
        try:
            await self.app(scope, receive, send_counted)
        finally:
            self.metrics.num_open -= 1
            method = scope["method"] if scope["method"] in ("GET", "POST") else "other"
            self.metrics.count_request(self._route(scope), method, status, time.perf_counter() - started_at)

    def _route(self, scope: Scope) -> str:
        """One of few names: clients choose paths, and a metric for each would fill the memory."""
        path: str = scope["route"].path if "route" in scope else scope["path"]
        return path if path in self.routes else "other"


class SecurityMiddleware:
    """Refuses requests to another host, of another site's page, without the token, too large, or at overload.

    The state is asked whether a request can be accepted before anything of its body is parsed.

    Args:
        app: the application
        host: the name of the server
        token: requests under /v1/ must send it, if it is not None
        state: limits and admission
    """

    def __init__(self, app: ASGIApp, host: str, token: str | None, state: ServerState) -> None:
        self.app, self.host, self.state, self.limits = app, host, state, state.limits
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), scope["path"]
        try:
            self._authorize(headers, path)
            body = await self._read(headers, receive)
            if (error := self.state.admission_error(path)) is not None:
                raise error
        except RequestError as refusal:
            await error_response(refusal)(scope, receive, _with_security_headers(send))
            return
        self.state.num_active += 1
        try:
            await self.app(scope, _replay(body, receive), _with_security_headers(send))
        finally:
            self.state.num_active -= 1

    def _authorize(self, headers: Headers, path: str) -> None:
        if not is_allowed_host(headers.get("host", ""), self.host):
            raise RequestError(421, "forbidden_host", "This server does not answer to that host name")
        if not _is_same_origin(headers):
            raise RequestError(403, "forbidden_origin", "Pages of other sites may not use this server")
        if self.token is not None and path.startswith("/v1/") and path not in PUBLIC_PATHS:
            kind, _, token = headers.get("authorization", "").partition(" ")
            # In constant time, so that a token cannot be guessed character by character.
            is_right = hmac.compare_digest(token.strip().encode("utf-8", "replace"), self.token)
            if kind.lower() != "bearer" or not is_right:
                message = "This server requires a token, in the header Authorization: Bearer TOKEN"
                raise RequestError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})

    async def _read(self, headers: Headers, receive: Receive) -> list[Message]:
        """The complete body, within the limit of its size."""
        if "content-length" not in headers and "transfer-encoding" not in headers:
            return []
        length, limit = headers.get("content-length", "0"), self.limits.max_body_bytes
        is_large = length.isdecimal() and int(length) > limit
        try:
            body = None if is_large else await asyncio.wait_for(self._read_body(receive), self.limits.timeout)
            if body is not None:
                return body
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_discard(receive), 1)
        except asyncio.TimeoutError:
            message = f"The request did not arrive within {self.limits.timeout:g} seconds"
            raise RequestError(408, "request_timeout", message, {"Connection": "close"}) from None
        message = f"The request is too large; at most {limit:,} bytes are read"
        raise RequestError(413, "body_too_large", message, {"Connection": "close"})

    async def _read_body(self, receive: Receive) -> list[Message] | None:
        messages: list[Message] = []
        async for message, num_bytes in _iterate_body(receive):
            if num_bytes > self.limits.max_body_bytes:
                return None
            messages.append(message)
        return messages


async def _iterate_body(receive: Receive) -> AsyncIterator[tuple[Message, int]]:
    """The messages of a body, each with the number of bytes so far."""
    num_bytes, is_more = 0, True
    while is_more:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        is_more = message.get("more_body", False)
        yield message, num_bytes


async def _discard(receive: Receive) -> None:
    """Read on: a client that is still sending would not read the response."""
    async for _, num_bytes in _iterate_body(receive):
        if num_bytes >= MAX_DISCARDED:
            return


def _replay(messages: list[Message], receive: Receive) -> Receive:
    """Messages that were read, then those that follow."""
    remaining = iter(messages)

    async def receive_again() -> Message:
        return next(remaining, None) or await receive()

    return receive_again


def _with_security_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers


def is_allowed_host(header: str, host: str) -> bool:
    """Whether the Host header of a request names this server.

    A page elsewhere can let its own name resolve to this machine (DNS rebinding); then the name is not allowed. Bound
    to every address (0.0.0.0), the server accepts any address, because an address cannot be rebound.

    Args:
        header: the Host header
        host: the name that the server listens on

    Example:
        >>> is_allowed_host("localhost:8000", "127.0.0.1"), is_allowed_host("evil.example:8000", "127.0.0.1")
        (True, False)
        >>> is_allowed_host("192.168.1.7:8000", "0.0.0.0"), is_allowed_host("evil.example", "0.0.0.0")
        (True, False)
    """
    try:
        name = (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name in ("localhost", "127.0.0.1", "::1", host.lower()):
        return True
    address = _parse_address(host)
    is_unspecified = address is not None and address.is_unspecified
    return is_unspecified and (_parse_address(name) is not None or name == socket.gethostname().lower())


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _is_same_origin(headers: Headers) -> bool:
    """Browsers send the page's origin; programs mostly send none."""
    origin = headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == headers.get("host")
    except ValueError:  # such as http://[
        return False
