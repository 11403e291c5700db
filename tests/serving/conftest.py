"""One tiny Transformer behind HTTP, for all tests of the server."""

import httpx
import pytest
import torch

from tests.serving.servers import in_thread, tiny_translator


@pytest.fixture(scope="session")
def translator():
    torch.manual_seed(0)
    return tiny_translator()


@pytest.fixture(scope="session")
def client(translator):
    from regard.serving import Limits, build_app

    limits = Limits(
        max_body_bytes=20_000, max_characters=2_000, max_inputs=3, max_candidates=6, max_points=10, max_explanations=3
    )
    with (
        in_thread(build_app(translator, about={"run": "tiny", "recipe": "reverse"}, limits=limits)) as address,
        httpx.Client(base_url=address, timeout=30) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def playground():
    """A server without a model."""
    from regard.serving import build_app

    with in_thread(build_app()) as address, httpx.Client(base_url=address, timeout=30) as client:
        yield client
