"""What stands outermost: every request is counted and timed, and how many are open is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Container

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serving._metrics import Metrics


class Counted:
    """Count requests by route and status; while the server stops, ask clients to close their connections."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: Container[str], stopping: Callable[[], bool]) -> None:
        self.app, self.metrics, self.routes, self.stopping = app, metrics, routes, stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.stopping():
                    MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        self.metrics.open += 1
        try:
            await self.app(scope, receive, sending)
        finally:
            self.metrics.open -= 1
            self.metrics.answered(self._route(scope), _method(scope), status, time.perf_counter() - began)

    def _route(self, scope: Scope) -> str:
        """A name out of few: clients choose paths, and a number for each would fill the memory."""
        found = getattr(scope.get("route"), "path", None) or scope["path"]
        return found if found in self.routes else "other"


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in ("GET", "POST") else "other"
