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
    from regard.serving import application
    from regard.serving._limits import Limits

    limits = Limits(body=20_000, characters=2_000, texts=3, beam=6, points=10, looks=3)
    with (
        in_thread(application(translator, about={"run": "tiny", "recipe": "reverse"}, limits=limits)) as address,
        httpx.Client(base_url=address, timeout=30) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def playground():
    """A server without a model."""
    from regard.serving import application

    with in_thread(application()) as address, httpx.Client(base_url=address, timeout=30) as client:
        yield client
