"""From the first request to the last: a server that stops without losing an answer."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import time
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from regard.serving._served import Served

QUIET = 0.3  # seconds in which those who ask too late still hear so
IDLE = 75  # seconds that a connection stays open without a request; those before a server often count on 60
LEAVE = 5  # seconds for those who do not take their answers


class Server(uvicorn.Server):
    """Told to stop, it answers what it has taken in, and refuses what still comes with 503; then it closes.

    Closing at once would lose what was sent on an open connection a moment before.
    """

    def __init__(self, app: FastAPI) -> None:
        self.served: Served = app.state.served
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=LEAVE,
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.served.stopping = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.served.stopping = True
        patience = time.monotonic() + self.served.limits.seconds + LEAVE
        while self.served.under_way and time.monotonic() < patience and not self.force_exit:
            await asyncio.sleep(0.02)
        await asyncio.sleep(QUIET)
        await super().shutdown(sockets)


def serve(app: FastAPI, listener: socket.socket) -> None:
    """Answer until Ctrl-C or SIGTERM, which is an end like any other."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _no_more)  # uvicorn raises the signal again after it has stopped
    with contextlib.suppress(KeyboardInterrupt):
        Server(app).run(sockets=[listener])


def _no_more(*_: Any) -> None:
    """By then everything is answered, and the process ends by itself."""
