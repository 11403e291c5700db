"""How much one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What is more than this is refused in one sentence; the model has limits of its own, such as max_length.

    body            bytes of a request
    characters      characters of one text
    texts           texts of one request
    beam            translations kept side by side
    points          queries, and keys, of the playground
    waiting         requests that may wait for the model
    looks           looks that are kept to be looked at again
    look_bytes      bytes that they may have together
    """

    body: int = 1_000_000
    characters: int = 20_000
    texts: int = 64
    beam: int = 16
    points: int = 64
    waiting: int = 64
    looks: int = 32
    look_bytes: int = 512_000_000
