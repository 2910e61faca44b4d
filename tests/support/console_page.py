"""The console as a page in a browser: opening it, and what tests ask it."""

from __future__ import annotations

import pytest
from tests.support.chromium import CHROMIUM, Browser, Page
from tests.support.console_client import TOKEN, ConsoleClient

IN_CHROMIUM = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
"""The marks of tests that need the browser."""
IS_LIVE = "document.querySelector('#connection').textContent === 'live'"
TOTAL = "Number(document.querySelector('#lanes').dataset.total)"


def open_console(browser: Browser, client: ConsoleClient) -> Page:
    """Open the console as its command says, and return it once it shows the table."""
    page = browser.open(f"http://127.0.0.1:{client.port}/#token={TOKEN}")
    page.wait_for(IS_LIVE)
    return page


def picture_of(page: Page) -> str:
    """Return what is drawn on the canvas of the timeline."""
    return str(page.run("document.querySelector('#lanes').toDataURL()"))
