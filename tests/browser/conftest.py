"""A real browser: Debian's Chromium, driven by Playwright. Without one, these tests skip and say so.

`page` fails its test if the page wrote an error to the console, threw, or asked anything of another machine.
REGARD_SCREENSHOTS=folder keeps what `shot` takes, for a person to look at.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-features=OptimizationHints,MediaRouter,Translate",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium here; `make browser` installs it from Debian's packages")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium) -> Iterator[object]:
    """A page of 1280 x 800; `page.set_viewport_size` makes it a telephone."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page, troubles = context.new_page(), []
    page.set_default_timeout(30_000)
    page.on("console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: troubles.append(f"the page threw: {error}"))
    page.on("request", lambda asked: troubles.append(f"asked {asked.url}") if not _here(asked.url) else None)
    page.on("requestfailed", lambda asked: None if _left(asked) else troubles.append(f"no answer from {asked.url}"))
    yield page
    context.close()
    assert not troubles, "; ".join(troubles)


def _left(asked) -> bool:
    """Whether the browser itself gave a request up, as it does with an icon when its page is left."""
    return asked.failure == "net::ERR_ABORTED"


@pytest.fixture
def shot(page, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keep a picture of the page under the name of the test, if REGARD_SCREENSHOTS says where."""
    folder = os.environ.get("REGARD_SCREENSHOTS")

    def take(name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder, f"{request.node.name}-{name}.png"), full_page=True)

    return take


@pytest.fixture
def play(page, tmp_path):
    """Open a player, at a place behind its #."""

    def open_(player, place: str = "") -> None:
        path = Path(tmp_path, "player.html")
        player.save(path)
        page.goto("about:blank")
        page.goto(f"{path.as_uri()}{place}")
        page.wait_for_selector(".bar-top output, .thumbs")

    return open_


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A run behind `regard serve`, with words of several tokens."""
    from tests.serving.servers import in_process, tiny_run  # not before the shape checks are installed

    with in_process(str(tiny_run(tmp_path_factory.mktemp("explorer") / "made")), "--port", "0") as (address, _):
        yield address


def _here(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("file", "data", "blob", "about") or parts.hostname in ("127.0.0.1", "localhost")
