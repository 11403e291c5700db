"""A server that no client can occupy, and that stops without losing a response."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.serving.app import ServerState

__all__ = ["Connection", "GracefulServer", "run_server"]

DRAIN_SECONDS = 0.3  # in which late requests are still refused with 503
KEEP_ALIVE_SECONDS = 75  # of a connection without requests; proxies often count on 60
CLIENT_SECONDS = 20  # for the header of a request, and without progress in reading a response
CLOSE_SECONDS = 5  # at the end, for clients that do not read their responses
MAX_CONNECTIONS = 4_000
NUM_ACCEPTED = 16  # connections that are accepted at once; more wait in the kernel
NUM_RESERVED = 96  # file descriptors that are left for files, and for connections that are accepted or closed


class Connection(H11Protocol):
    """A connection that ends if its client keeps the server waiting, for a request or with an unread response.

    If there are too many, those that have waited for the longest time end, so that there is room for new ones.
    """

    waiting_since, num_unsent = 0.0, 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for the connection."""
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        if len(self.connections) > max_connections():
            waiting = [one for one in self.connections if isinstance(one, Connection) and one.is_waiting]
            for one in sorted(waiting, key=lambda one: one.waiting_since)[: len(waiting) // 10 + 1]:
                one.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether it is the client's turn to send or to read."""
        is_asking = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
        return is_asking or self.transport.get_write_buffer_size() > 0

    def check(self, now: float) -> None:
        """End the connection if its client takes too long; uvicorn ends those without a request.

        Args:
            now: time of the event loop
        """
        before, self.num_unsent = self.num_unsent, self.transport.get_write_buffer_size()
        is_idle = self.timeout_keep_alive_task is not None
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self.num_unsent < before or ((is_idle or is_answering) and not self.num_unsent):
            self.waiting_since = now
        if now - self.waiting_since > CLIENT_SECONDS:
            self.abort()

    def abort(self) -> None:
        """End the connection without waiting for its client."""
        self.connections.discard(self)
        self.transport.abort()


def max_connections() -> int:
    """As many connections as leave file descriptors for everything else."""
    limit = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else -1  # no limit, or Windows
    return MAX_CONNECTIONS if limit < 0 else max(min(limit - NUM_RESERVED, MAX_CONNECTIONS), NUM_ACCEPTED)


class GracefulServer(uvicorn.Server):
    """After a signal, it answers what it has accepted and refuses what still arrives with 503; then it closes.

    Closing at once would lose requests that were sent on an open connection a moment before.

    Args:
        app: what `build_app` returns
    """

    def __init__(self, app: FastAPI) -> None:
        self.state: ServerState = app.state.server
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            http=Connection,
            ws="none",
            backlog=NUM_ACCEPTED,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=CLOSE_SECONDS,
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop accepting requests."""
        self.state.is_stopping = True
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and check all connections every second."""
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(1024)
        self._check_connections()

    def _check_connections(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.check(loop.time())
        loop.call_later(1, self._check_connections)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the requests that were accepted, then close."""
        self.state.is_stopping = True
        deadline = time.monotonic() + self.state.limits.timeout + CLOSE_SECONDS
        while self.state.num_active and time.monotonic() < deadline and not self.force_exit:
            await asyncio.sleep(0.02)
        await asyncio.sleep(DRAIN_SECONDS)
        for reader in list(self.state.readers):
            reader.cancel()
        asyncio.get_running_loop().call_later(CLOSE_SECONDS - 1, self._abort_connections)
        await super().shutdown(sockets)

    def _abort_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def run_server(app: FastAPI, listener: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM, which both end the process normally.

    Args:
        app: what `build_app` returns
        listener: a socket that listens
    """
    server = GracefulServer(app)
    if threading.current_thread() is threading.main_thread():
        # Before uvicorn listens to it, and after: it raises the signal again when it has stopped.
        signal.signal(signal.SIGTERM, server.handle_exit)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
