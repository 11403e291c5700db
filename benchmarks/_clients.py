"""Clients with little overhead: plain HTTP over asyncio, so that the server is what is measured."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Tally:
    """The results of requests: seconds by status, and the number of requests without an answer."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)

    def add(self, status: int, seconds: float) -> None:
        self.seconds.setdefault(status, []).append(seconds)

    def count(self, status: int = 200) -> int:
        return len(self.seconds.get(status, ()))

    def total(self) -> int:
        return sum(map(len, self.seconds.values())) + self.lost.total()

    def percentile(self, share: float, *statuses: int) -> float:
        """In milliseconds; of some statuses, or of all."""
        chosen = statuses or tuple(self.seconds)
        ordered = sorted(value for status in chosen for value in self.seconds.get(status, ()))
        return 1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")

    def __str__(self) -> str:
        answers = ", ".join(f"{len(seconds)} x {status}" for status, seconds in sorted(self.seconds.items()))
        lost = f"; without an answer: {dict(self.lost)}" if self.lost else ""
        return f"{answers}{lost}"


@dataclass
class Client:
    """A client that sends its next request as soon as it has the answer to the last one."""

    address: str
    texts: Sequence[str]
    tally: Tally
    pause: Callable[[int], float] = lambda status: 0.0
    first: float = 0.0  # seconds before the first request

    async def run(self, is_running: Callable[[], bool]) -> None:
        parts = urlsplit(self.address)
        host, port = parts.hostname or "127.0.0.1", parts.port or 80
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        await asyncio.sleep(self.first)
        for text in itertools.cycle(self.texts):
            if not is_running():
                break
            began, sent = time.perf_counter(), False
            try:
                if streams is None or streams[0].at_eof():  # closed between two requests
                    streams = await asyncio.open_connection(host, port)
                sent = True
                status, stays = await send_request(*streams, json.dumps({"inputs": [text]}).encode())
            except (OSError, asyncio.IncompleteReadError):
                self.tally.lost["reset" if sent else "refused"] += 1
                streams = None
                if not sent:
                    break  # the server is gone
                continue
            self.tally.add(status, time.perf_counter() - began)
            if status == 503:
                break  # the server is stopping
            if not stays:
                streams[1].close()
                streams = None
            if (rest := self.pause(status)) > 0:
                await asyncio.sleep(rest)
        if streams is not None:
            streams[1].close()


async def send_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> tuple[int, bool]:
    """The status of an answer, and whether the connection stays open; the answer is read completely."""
    head = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(answer.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    content = await reader.readexactly(length)
    status = int(answer[9:12])
    if status == 200:
        json.loads(content)
    return status, b"connection: close" not in answer


async def run_clients(clients: Sequence[Client], seconds: float) -> float:
    """Run all clients for some seconds; returns the time until the last answer."""
    began = time.perf_counter()
    until = began + seconds
    await asyncio.gather(*(client.run(lambda: time.perf_counter() < until) for client in clients))
    return time.perf_counter() - began


async def start_dummy_server(size: int) -> asyncio.Server:
    """A server without a model, which answers every request at once with `size` bytes."""
    answer = b'{"predictions":[]%s}' % (b" " * size)
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
                writer.write(response)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)
