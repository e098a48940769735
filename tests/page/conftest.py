"""One browser per test file, one service for all, and tabs whose errors fail the test."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from page_service import DEVICES, Collected, collect_digits, serving
from playwright.sync_api import Browser, Page, Response, expect, sync_playwright

COUNT = 300
PATIENCE = 120_000  # ms until something that should be on the page is there, on a busy machine
TEST_SECONDS = 900

FOLDER = Path(__file__).parent

expect.set_options(timeout=PATIENCE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == FOLDER:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("the page is tested in chromium, which is not installed")
    return found


@pytest.fixture(scope="module")  # playwright's event loop must not be there in other tests
def browser(chromium: str) -> Iterator[Browser]:
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"] if root else []
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    return collect_digits(tmp_path_factory.mktemp("page"), COUNT, epochs=3)


@pytest.fixture(scope="session")
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a service: a cache and jobs of its own, not those of who runs it."""
    folder = tmp_path_factory.mktemp("service")
    return {"DDH_CACHE": str(folder / "cache"), "DDH_STATE": str(folder / "state")}


@pytest.fixture(scope="session")
def address(chromium: str, collected: Collected, own_folders: dict[str, str]) -> Iterator[str]:
    options = ["--model", str(collected.model), "--root", str(collected.root)]
    with serving(collected.index, *options, environment=own_folders) as at:
        yield at


@dataclass
class Watched:
    """What went wrong in a tab, but for the answers that a test expects."""

    expected: set[int] = field(default_factory=set)
    gone: bool = False  # whether the service may be gone for a while
    troubles: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", lambda message: self._console(message.type, message.text))
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("requestfailed", lambda request: self._failed(request.url, request.failure))
        page.on("response", self._answered)

    def _console(self, kind: str, text: str) -> None:
        # Chromium logs every 4xx too; those are judged by _answered.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.troubles.append(f"console: {text}")

    def _failed(self, url: str, failure: str | None) -> None:
        if failure != "net::ERR_ABORTED" and not self.gone:  # what the page itself no longer wants
            self.troubles.append(f"failed: {url} {failure}")

    def _answered(self, answer: Response) -> None:
        if answer.status >= 400 and answer.status not in self.expected:
            self.troubles.append(f"{answer.status}: {answer.request.method} {answer.url}")


@pytest.fixture(params=["wide-light", "wide-dark", "phone-light", "phone-dark"])
def device(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of a tab on every kind of screen, one after the other."""
    name, scheme = request.param.split("-")
    return DEVICES[name] | {"color_scheme": scheme, "reduced_motion": "reduce"}


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open an address in a fresh tab; console errors and failed requests fail the test.

    `expected` are the error statuses that belong to the test, `gone` that the service may be away;
    other options are the context's.
    """
    opened: list[tuple[Page, Watched]] = []

    def open_it(
        address: str, expected: tuple[int, ...] = (), gone: bool = False, **options: Any
    ) -> Page:
        context = browser.new_context(**DEVICES["wide"] | options)
        context.set_default_timeout(PATIENCE)
        page, watched = context.new_page(), Watched(set(expected), gone)
        watched.watch(page)
        opened.append((page, watched))
        page.goto(address)
        return page

    yield open_it
    for page, _ in opened:
        page.context.close()
    troubles = [trouble for _, watched in opened for trouble in watched.troubles]
    assert not troubles, troubles
