"""The report page as Chromium shows it: silent, alone, within any screen, legible in both color schemes, and on paper."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.probe import sample_probed
from trl_lint.probe.page import page as report
from trl_lint.probe.probed import Probed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

EVERY = [sample_probed.probed, sample_probed.tuned, sample_probed.repaired, sample_probed.hostile, sample_probed.empty]
SECTIONS = ("tried", "gains", "time", "steps", "diffs", "failures", "machine", "notes", "reading")

# WCAG 2: for each run of text its contrast with what is painted behind it; those below 4.5 are returned.
FAINT = """() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = parse(c).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                       return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
                        if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  const faint = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || e.closest('svg')) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    const contrast = (a + .05) / (b + .05);
    if (contrast < 4.5) faint.push(`${contrast.toFixed(2)} ${e.tagName}.${e.className} ${walker.currentNode.data.trim()}`);
  }
  return faint;
}"""
# The colors of what is drawn need 3 to 1 against the page.
DRAWN = """() => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                       return .2126 * r + .7152 * g + .0722 * b; };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll('rect:not(.warming)')].map(e => getComputedStyle(e).fill).filter((c, i, all) => all.indexOf(c) === i)
    .filter(c => { const [a, b] = [light(c), paper].sort((x, y) => y - x); return (a + .05) / (b + .05) < 3; });
}"""
CLIPPED = """() => [...document.querySelectorAll('.value, td, tbody th, .verdict, .compared p, .multiple p')]
  .filter(e => e.getClientRects().length && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline').map(e => e.textContent)"""


@contextmanager
def opened(browser: Browser, folder: Path, probed: Probed, **known: Any) -> Iterator[Page]:
    """The page in a tab of its own, which must stay silent and ask for nothing but itself."""
    file = folder / "report.html"
    file.write_text(report(probed), "utf-8")
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **known})
    tab = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: said.append(dialog.message))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(file.as_uri())
    yield tab
    assert said == []
    assert asked == [file.as_uri()]
    context.close()


@pytest.mark.parametrize("made", EVERY)
def test_it_fits_any_screen(browser: Browser, tmp_path: Path, made: Callable[[], Probed]) -> None:
    with opened(browser, tmp_path, made()) as tab:
        for width in (320, 360, 600, 720, 900, 1024, 1280):
            tab.set_viewport_size({"width": width, "height": 800})
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            assert tab.evaluate(CLIPPED) == [], width


def test_all_sections_show_without_javascript(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, sample_probed.probed(), java_script_enabled=False) as tab:
        for section in SECTIONS:
            assert tab.locator(f"#{section} h2").is_visible()
        assert tab.locator("svg.bar").count() > 30
        assert tab.locator("svg.steps").first.bounding_box()["width"] > 100  # type: ignore[index]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_legible_in_both_schemes(browser: Browser, tmp_path: Path, scheme: str) -> None:
    with opened(browser, tmp_path, sample_probed.probed(), color_scheme=scheme) as tab:
        assert tab.evaluate(FAINT) == []
        assert tab.evaluate(DRAWN) == []


def test_the_dark_scheme_is_dark(browser: Browser, tmp_path: Path) -> None:
    shown = {}
    for scheme in ("light", "dark"):
        with opened(browser, tmp_path, sample_probed.probed(), color_scheme=scheme) as tab:
            shown[scheme] = tab.evaluate(
                "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
            )
    assert sum(map(int, re.findall(r"\d+", shown["light"][0]))) > 700
    assert sum(map(int, re.findall(r"\d+", shown["dark"][0]))) < 120
    assert shown["light"][1] != shown["dark"][1]


def test_bars_are_as_long_as_their_numbers(browser: Browser, tmp_path: Path) -> None:
    found = sample_probed.probed()
    with opened(browser, tmp_path, found) as tab:
        for tried, compared in zip(
            [t for t in found.tried if t.verdict.ratio],
            tab.locator("#gains figure").first.locator(".compared").all(),
            strict=True,
        ):
            before, after = (compared.locator(f"rect.{side}").bounding_box()["width"] for side in ("as-is", "fixed"))  # type: ignore[index]
            assert after / before == pytest.approx(tried.verdict.ratio, rel=0.02)


def test_a_screen_reader_meets_a_table_on_a_phone_too(browser: Browser, tmp_path: Path) -> None:
    for width in (360, 1280):
        with opened(browser, tmp_path, sample_probed.probed(), viewport={"width": width, "height": 800}) as tab:
            table = tab.get_by_role("table")
            assert table.get_by_role("rowheader").count() == 9
            assert table.get_by_role("columnheader").count() == 6
            assert tab.get_by_role("img").count() == tab.locator("svg[role=img]").count()


def test_wide_lines_scroll_within_their_block_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, sample_probed.probed(), viewport={"width": 360, "height": 800}) as tab:
        diff = tab.locator("pre.diff").first
        assert diff.evaluate("e => e.scrollWidth > e.clientWidth")
        diff.focus()
        assert diff.evaluate("e => e === document.activeElement")


def test_markup_of_the_users_is_text(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, sample_probed.hostile()) as tab:
        assert tab.locator("script").count() == 0
        assert "</script><script>alert(1)</script> & \"quoted\" 'single' 𝄞🧪" in tab.locator("#failures").inner_text()


def test_it_prints(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, sample_probed.probed(), color_scheme="dark") as tab:
        printed = tab.pdf(format="A4")
        tab.emulate_media(media="print")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert tab.locator("pre.diff").first.evaluate("e => getComputedStyle(e).whiteSpace") == "pre-wrap"
        assert tab.evaluate(FAINT) == []
    assert printed.startswith(b"%PDF-")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 10
