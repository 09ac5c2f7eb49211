"""Headless Chromium on the dashboard's pages, as a user has them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# The graph of a run is drawn with WebGL, which without a GPU takes all the processors there are.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-3d-apis", "--disable-dev-shm-usage"]
PATIENCE_MS = 240_000


@contextmanager
def browser_page(url: str) -> Iterator[Any]:
    """A page of the dashboard at `url`; needs the package playwright, and no browser of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        size: Any = {"width": 1200, "height": 760}
        page = browser.new_page(base_url=url, viewport=size, color_scheme="light", reduced_motion="reduce")
        page.set_default_timeout(PATIENCE_MS)
        try:
            yield page
        except Exception as error:
            error.add_note(f"The page {page.url} says:\n{page.inner_text('body')}")
            raise
        finally:
            browser.close()


def fill_editor(page: Any, text: str) -> None:
    """Put `text` of several lines into the page's editor; again where a menu that closes has taken the focus back."""
    editor = page.locator(".cm-content").first
    while text.splitlines()[1] not in editor.inner_text():
        editor.click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(text)
        page.wait_for_timeout(500)


def press(page: Any, button: Any, request: str) -> None:
    """Press what sends `request`, again where SQLite was locked, as somebody would who reads the message."""
    status = 503
    while status == 503:
        with page.expect_response(lambda response: response.url.endswith(request)) as answer:
            button.click()
        status = answer.value.status
    assert answer.value.ok, answer.value.text()


def look(page: Any, directory: Path, name: str) -> None:
    """Keep a picture of what is seen now."""
    page.wait_for_timeout(1500)  # what slides or fades in
    directory.mkdir(exist_ok=True)
    page.screenshot(path=directory / f"{name}.png", animations="disabled")
