"""What every request passes: counting, then the checks of host, origin, token and size."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import socket
import time
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from starlette._utils import get_route_path  # the path that is routed: the one to check
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard._version import __version__
from regard.errors import RequestError
from regard.serving.schemas import error_response
from regard.serving.worker import current_client, shutdown_error

if TYPE_CHECKING:
    from regard.serving.app import ServerState

__all__ = ["Metrics", "MetricsMiddleware", "SecurityMiddleware", "is_allowed_host"]

PUBLIC_PATHS = ("/v1/health/live", "/v1/health/ready")  # without a token, for those who supervise the server
DISCARD_SECONDS = 1  # in which the rest of a refused body is read, so that its sender reads the response
CLIENT_LEFT = 499  # in metrics: nobody read the response
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
        started_at, status = time.perf_counter(), 0

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
            status = status or CLIENT_LEFT
        finally:
            self.metrics.num_open -= 1
            method = scope["method"] if scope["method"] in ("GET", "POST") else "other"
            self.metrics.count_request(self._route(scope), method, status or 500, time.perf_counter() - started_at)

    def _route(self, scope: Scope) -> str:
        """One of few names: clients choose paths, and a metric for each would fill the memory."""
        path: str = scope["route"].path if "route" in scope else get_route_path(scope)
        return path if path in self.routes else "other"


class SecurityMiddleware:
    """Refuses requests to another host, of another site's page, without the token, too large, or at overload.

    The body of a request is read after its token was checked, and parsed after the state was asked whether the request
    can be accepted. A request whose client leaves is canceled.

    Args:
        app: the application
        state: limits and admission
        host: the name of the server
        allow_hosts: more names under which it is reached, each with or without a port
        root_path: where a proxy serves the application
        token: requests under /v1/ must send it, if it is not None
    """

    def __init__(
        self, app: ASGIApp, state: ServerState, host: str, allow_hosts: Sequence[str], root_path: str, token: str | None
    ) -> None:
        self.app, self.state, self.limits, self.host, self.root_path = app, state, state.limits, host, root_path
        self.allow_hosts = [name.lower() for name in allow_hosts if name]
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_head, body = scope["method"] == "HEAD", bytearray()
        scope["method"] = "GET" if is_head else scope["method"]
        scope["root_path"] = self.root_path or scope.get("root_path", "")
        current_client.set((scope.get("client") or [""])[0])

        async def send_safely(message: Message) -> None:
            self.state.waiting.discard(id(scope))  # before the client reads it, if it ever does
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._admit(scope, receive, body)
            await self._answer(scope, bytes(body), receive, send_safely)
        except RequestError as refusal:
            await error_response(refusal)(scope, receive, send_safely)
        finally:
            scope["method"] = "HEAD" if is_head else scope["method"]
            self.state.num_body_bytes -= len(body)

    async def _admit(self, scope: Scope, receive: Receive, body: bytearray) -> None:
        """Check a request and read its body."""
        headers, path = Headers(scope=scope), get_route_path(scope)
        self._authorize(headers, path)
        if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
            if scope["method"] == "GET":
                raise RequestError(400, "unexpected_body", "A GET request has no body", {"Connection": "close"})
            if scope["method"] == "POST" and path.startswith("/v1/") and path not in PUBLIC_PATHS:
                await self._read(headers, receive, body)
        if (error := self.state.admission_error(path)) is not None:
            raise error

    def _authorize(self, headers: Headers, path: str) -> None:
        if not is_allowed_host(headers.get("host", ""), self.host, self.allow_hosts):
            message = "This server does not answer to that host name; --allow-host adds one"
            raise RequestError(421, "forbidden_host", message)
        if not self._is_same_origin(headers):
            raise RequestError(403, "forbidden_origin", "Pages of other sites may not use this server")
        if self.token is not None and path.startswith("/v1/") and path not in PUBLIC_PATHS:
            kind, _, token = headers.get("authorization", "").partition(" ")
            # In constant time, so that a token cannot be guessed character by character.
            is_right = hmac.compare_digest(token.strip().encode("utf-8", "replace"), self.token)
            if kind.lower() != "bearer" or not is_right:
                message = "This server requires a token, in the header Authorization: Bearer TOKEN"
                raise RequestError(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})

    def _is_same_origin(self, headers: Headers) -> bool:
        """Browsers send the page's origin; programs mostly send none. A proxy may replace the host."""
        origin = headers.get("origin")
        try:
            return origin is None or urlsplit(origin).netloc in (headers.get("host"), *self.allow_hosts)
        except ValueError:  # such as http://[
            return False

    async def _read(self, headers: Headers, receive: Receive, body: bytearray) -> None:
        """Read the complete body, within the limits of size and time, and not while the server stops."""
        length, task = headers.get("content-length", "0"), asyncio.current_task()
        assert task is not None
        self.state.readers.add(task)
        try:
            is_large = length.isdecimal() and int(length) > self.limits.max_body_bytes
            if not is_large and await asyncio.wait_for(self._read_body(receive, body), self.limits.timeout):
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_discard(receive), DISCARD_SECONDS)
            error = self.state.worker.busy_error()
            if is_large or len(body) > self.limits.max_body_bytes:
                message = f"The request is too large; at most {self.limits.max_body_bytes:,} bytes are read"
                error = RequestError(413, "body_too_large", message)
        except asyncio.TimeoutError:
            message = f"The request did not arrive within {self.limits.timeout:g} seconds"
            error = RequestError(408, "request_timeout", message)
        except asyncio.CancelledError:
            if not self.state.is_stopping:
                raise
            error = shutdown_error()
        finally:
            self.state.readers.discard(task)
        error.headers["Connection"] = "close"
        raise error

    async def _read_body(self, receive: Receive, body: bytearray) -> bool:
        """Whether the complete body was read; it is not if it, or those of all requests, are too large."""
        message: Message = {"more_body": True}
        while message.get("more_body", False):
            message = await receive()
            content = message.get("body", b"")
            body += content
            self.state.num_body_bytes += len(content)
            is_large = len(body) > self.limits.max_body_bytes
            if is_large or self.state.num_body_bytes > self.limits.max_total_body_bytes:
                return False
        return True

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Run the application until it has answered or the client has left."""
        self.state.waiting.add(id(scope))
        self.state.num_active += 1
        left = asyncio.ensure_future(_wait_for_disconnect(receive))
        answer = asyncio.ensure_future(self.app(scope, _replay(body, left), send))
        try:
            await asyncio.wait((answer, left), return_when=asyncio.FIRST_COMPLETED)
            answer.cancel()  # of no effect if it is done
            with contextlib.suppress(asyncio.CancelledError):
                await answer
        finally:
            left.cancel()
            answer.cancel()
            self.state.num_active -= 1
            self.state.waiting.discard(id(scope))


async def _discard(receive: Receive) -> None:
    """Read on: a client that is still sending would not read the response."""
    while (await receive()).get("more_body", False):
        pass


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _replay(body: bytes, left: asyncio.Future[None]) -> Receive:
    """A body that was read, then the end of the connection."""
    messages: list[Message] = [{"type": "http.request", "body": body}]

    async def receive_again() -> Message:
        if messages:
            return messages.pop()
        await asyncio.shield(left)
        return {"type": "http.disconnect"}

    return receive_again


def is_allowed_host(header: str, host: str, others: Sequence[str] = ()) -> bool:
    """Whether the Host header of a request names this server.

    A page elsewhere can let its own name resolve to this machine (DNS rebinding); then the name is not allowed. Bound
    to every address (0.0.0.0), the server accepts any address, because an address cannot be rebound.

    Args:
        header: the Host header
        host: the name that the server listens on
        others: more names, each with or without a port

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
    if name in ("localhost", "127.0.0.1", "::1", host.lower(), *(urlsplit(f"//{one}").hostname for one in others)):
        return True
    address = _parse_address(host)
    is_unspecified = address is not None and address.is_unspecified
    return is_unspecified and (_parse_address(name) is not None or name == socket.gethostname().lower())


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
