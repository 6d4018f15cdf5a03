"""The page in a real browser: Debian's Chromium, driven through its own protocol. Without one the tests skip."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import neve
from tests.support.report_tables import large_table

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")

OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> neve.Table:
    return large_table(tmp_path_factory.mktemp("large"))


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Return a function that opens a page. A browser message or a request beyond the page fails the test."""
    complaints: list[str] = []
    contexts = []

    def open_(path: Path, width: int = 1280, **options: object) -> Page:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: complaints.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not complaints


def cells(page: Page, caption: str, column: int) -> list[str]:
    """Return a column of a table as displayed."""
    return page.evaluate(
        """([caption, at]) => [...document.querySelectorAll("table")]
            .filter((t) => t.caption.textContent === caption).flatMap((t) => [...t.tBodies[0].rows])
            .map((r) => r.cells[at].dataset.v ?? r.cells[at].textContent)""",
        [caption, column],
    )


def head(page: Page, caption: str, name: str):
    return page.locator(f"div[aria-label={caption!r}]").get_by_role("button", name=name, exact=True)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_any_window_in_light_and_dark(open_page: OpenPage, old_page: Path, width: int, scheme: str):
    page = open_page(old_page, width, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 23, 29)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(open_page: OpenPage, old_page: Path, scheme: str):
    """At least 4.5 to 1, as the guidelines for accessibility ask of text."""
    assert open_page(old_page, color_scheme=scheme).evaluate(CONTRAST) == []


def test_tables_sort_by_click_and_by_key(open_page: OpenPage, old_page: Path):
    page = open_page(old_page)
    files = head(page, "Partitions", "Files")
    files.click()
    down = list(map(int, cells(page, "Partitions", 2)))
    assert down == sorted(down, reverse=True) and len(set(down)) > 1
    files.focus()
    page.keyboard.press("Enter")
    assert list(map(int, cells(page, "Partitions", 2))) == sorted(down)
    assert page.locator("div[aria-label=Partitions] th[aria-sort=ascending]").count() == 1
    head(page, "Partitions", "Partition").click()
    names = cells(page, "Partitions", 0)
    days = [name for name in names if name.startswith("ts_day=") and "," not in name]
    assert len(days) == 60 and days == sorted(days) and names[0].startswith("id_bucket")


def test_the_map_answers_the_pointer(open_page: OpenPage, old_page: Path):
    page = open_page(old_page)
    tip = page.locator("#tip")
    assert tip.is_hidden()
    page.locator("#m0-0").hover()
    assert "ts_day=2026-01-01" in tip.inner_text() and "8 files" in tip.inner_text()
    page.locator("#m0-3").hover()
    assert "ts_day=2026-01-04" in tip.inner_text()
    page.locator("h1").hover()
    assert tip.is_hidden()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_map_answers_the_keyboard(open_page: OpenPage, old_page: Path, width: int):
    page = open_page(old_page, width)
    chosen = page.get_by_role("listbox").nth(1)
    page.get_by_role("radio").first.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert chosen.get_attribute("aria-activedescendant") == "m1-0"
    for key, expected in (("ArrowRight", "m1-1"), ("End", "m1-119"), ("ArrowRight", "m1-119"), ("Home", "m1-0")):
        page.keyboard.press(key)
        assert chosen.get_attribute("aria-activedescendant") == expected
    page.keyboard.press("ArrowDown")
    below = chosen.get_attribute("aria-activedescendant")
    left, first = (page.locator(f"#{i}").bounding_box() for i in (below, "m1-0"))
    assert below != "m1-0" and left["x"] == first["x"] and left["y"] > first["y"]
    assert page.locator(f"#{below}").get_attribute("aria-label").split(" · ")[0] in page.locator("#tip").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_the_map_changes_what_its_colours_mean(open_page: OpenPage, old_page: Path):
    page = open_page(old_page)
    colour = "getComputedStyle(document.getElementById('m0-0')).backgroundColor"
    by_size = page.evaluate(colour)
    page.get_by_label("deletes", exact=True).check()
    by_deletes = page.evaluate(colour)
    page.get_by_label("what a compaction rewrites").check()
    assert len({by_size, by_deletes, page.evaluate(colour)}) == 3
    assert page.get_by_text("some files rewritten").is_visible() and not page.get_by_text("10 to 30 %").is_visible()


def test_no_value_of_a_table_is_executed(open_page: OpenPage, hostile: neve.Table, tmp_path: Path):
    page = open_page(hostile.report(tmp_path / "hostile.html"))
    page.locator("#m0-0").hover()
    page.wait_for_timeout(100)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth") == 1280


def test_motion_is_reduced_for_those_who_ask(open_page: OpenPage, old_page: Path):
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert open_page(old_page).evaluate(behaviour) == "smooth"
    assert open_page(old_page, reduced_motion="reduce").evaluate(behaviour) == "auto"


def test_a_server_is_asked_for_the_page_alone(browser: Browser, old_page: Path):
    requested_paths: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, code: object = "-", size: object = "-") -> None:
            requested_paths.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(old_page.parent))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/{old_page.name}")
        page.wait_for_timeout(200)
        page.close()
        server.shutdown()
    assert requested_paths == [f"/{old_page.name}"]


def test_a_hundred_thousand_files_are_a_page_that_loads_at_once(open_page: OpenPage, large: neve.Table, tmp_path: Path):
    assert large.inspect.partitions()["file_count"].to_numpy().sum() == 100_000
    started = time.process_time()
    path = large.report(tmp_path / "large.html")
    assert time.process_time() - started < 20  # all threads; a few seconds on a quiet machine
    assert path.stat().st_size < 5 << 20
    page = open_page(path)
    timing = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert 0 < timing < 3000
    assert page.locator(".map i").count() <= 2400
    assert "100,000" in page.locator("#verdict").inner_text()


CONTRAST = """() => {
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const bright = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const found = parse(getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const wrong = new Set();
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest("script, style, #tip, title") || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), isSvg = e instanceof SVGElement;
    const a = bright(parse(isSvg ? style.fill : style.color)), b = bright(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const what = `${e.tagName}.${e.getAttribute("class")} ${e.textContent.slice(0, 30)}`;
    if (ratio < 4.5) wrong.add(`${what}: ${ratio.toFixed(2)}`);
  }
  return [...wrong];
}"""
