"""How much one request may ask for, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What is more than this is refused in one sentence; the model has limits of its own, such as max_length.

        body            bytes of a request
        characters      characters of one text
        texts           texts of one request
        beam            translations kept side by side
        pixels          pixels of one image
        points          queries, and keys, of the playground
        waiting         texts of all requests that may wait for the model; then 429
        requests        requests that may be open at once; then 429
        seconds         from the arrival of a request to its answer; then 504
        together        texts of several requests that are computed as one batch
        pause           seconds that a batch waits for one more to join it
        looks           looks that are kept to be looked at again
        look_bytes      bytes that they may have together

    `regard serve` goes by the defaults.
    """

    body: int = 1_000_000
    characters: int = 20_000
    texts: int = 64
    beam: int = 16
    pixels: int = 20_000_000
    points: int = 64
    waiting: int = 256
    requests: int = 512
    seconds: float = 60.0
    together: int = 64
    pause: float = 0.005
    looks: int = 32
    look_bytes: int = 512_000_000
