from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from report import html, run
from tests.report import recorded


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run; tests don't write into it."""
    return recorded.bench(tmp_path_factory.mktemp("runs") / "bench")


def page_of(folder: Path) -> str:
    found = run.load(folder)
    return html.render(found, run.load_samples(folder))


@pytest.fixture(scope="session")
def page(bench: Path) -> str:
    return page_of(bench)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium: the system's, else playwright's own."""
    from playwright.sync_api import Error, sync_playwright

    path = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        try:
            launched = playwright.chromium.launch(executable_path=path, args=options)
        except Error as problem:
            message = f"no Chromium ({str(problem).splitlines()[0]}): apt-get install chromium, or playwright install chromium"
            if os.environ.get("CI"):
                pytest.fail(message)
            pytest.skip(message)
        yield launched
        launched.close()
