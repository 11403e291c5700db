"""A real browser: Debian's Chromium, driven by Playwright. Without one, these tests skip and say so.

`page` fails its test if the page logged an error, threw one, or sent a request to another machine.
REGARD_SCREENSHOTS=folder saves the screenshots of `shot` there.
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
    """A page of 1280 x 800; `page.set_viewport_size` makes it a phone."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page, problems = context.new_page(), []
    page.set_default_timeout(30_000)
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(f"the page threw: {error}"))
    page.on("request", lambda sent: problems.append(f"requested {sent.url}") if not _is_local(sent.url) else None)
    page.on(
        "requestfailed", lambda sent: None if _is_aborted(sent) else problems.append(f"no response from {sent.url}")
    )
    yield page
    context.close()
    assert not problems, "; ".join(problems)


def _is_aborted(sent) -> bool:
    """Whether the browser itself aborted a request, as it does with an icon when its page is left."""
    return sent.failure == "net::ERR_ABORTED"


@pytest.fixture
def shot(page, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Save a screenshot under the name of the test, if REGARD_SCREENSHOTS names a folder."""
    folder = os.environ.get("REGARD_SCREENSHOTS")

    def take(name: str) -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=Path(folder, f"{request.node.name}-{name}.png"), full_page=True)

    return take


@pytest.fixture
def play(page, tmp_path):
    """Open a page with a fragment of its address."""

    def open_page(html_page, fragment: str = "") -> None:
        path = Path(tmp_path, "page.html")
        html_page.save(path)
        page.goto("about:blank")
        page.goto(f"{path.as_uri()}{fragment}")
        page.wait_for_selector(".bar-top output, .thumbs")

    return open_page


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A run behind `regard serve`, with words of several tokens."""
    from tests.serving.servers import in_process, tiny_run  # after the shape checks are installed

    with in_process(str(tiny_run(tmp_path_factory.mktemp("explorer") / "run")), "--port", "0") as (address, _):
        yield address


def _is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("file", "data", "blob", "about") or parts.hostname in ("127.0.0.1", "localhost")
