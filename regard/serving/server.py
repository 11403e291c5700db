"""A server that stops without losing a response."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from regard.serving.app import ServerState

__all__ = ["GracefulServer", "run_server"]

DRAIN_SECONDS = 0.3  # in which late requests are still refused with 503
KEEP_ALIVE_SECONDS = 75  # of a connection without requests; proxies often count on 60
CLOSE_SECONDS = 5  # for clients that do not read their responses


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
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=CLOSE_SECONDS,
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop accepting requests."""
        self.state.is_stopping = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the requests that were accepted, then close."""
        self.state.is_stopping = True
        deadline = time.monotonic() + self.state.limits.timeout + CLOSE_SECONDS
        while self.state.num_active and time.monotonic() < deadline and not self.force_exit:
            await asyncio.sleep(0.02)
        await asyncio.sleep(DRAIN_SECONDS)
        await super().shutdown(sockets)


def run_server(app: FastAPI, listener: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM, which both end the process normally.

    Args:
        app: what `build_app` returns
        listener: a socket that listens
    """
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal again after it has stopped; by then all requests are answered.
        signal.signal(signal.SIGTERM, lambda *_: None)
    with contextlib.suppress(KeyboardInterrupt):
        GracefulServer(app).run(sockets=[listener])
