"""What must hold of each page at each size: it fits, and letters can be read."""

from __future__ import annotations

import re

from tests.browsing import Page

# Width of the window, and whether it is dark at first; both are looked at.
SIZES = [(1280, False), (400, True)]


def assert_looks_good(page: Page, *, width: int, dark: bool) -> None:
    """It fits and can be read, in light and in dark."""
    first = ground(page)
    assert_fits(page)
    assert_readable(page)
    page.size(width, 900, dark=not dark)
    scheme = "light" if dark else "dark"
    page.wait(f"document.documentElement.dataset.scheme === '{scheme}'")
    assert ground(page) != first
    assert_readable(page)


def assert_fits(page: Page) -> None:
    """Nothing is wider than the window, no chart wider than its card."""
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    wide = (
        "[...document.querySelectorAll('.plot .main-svg')].filter((one) => "
        "one.getBoundingClientRect().right > "
        "one.closest('.card').getBoundingClientRect().right + 1).length"
    )
    assert page.run(wide) == 0
    cut = (
        "[...document.querySelectorAll('.legend button')].filter((one) => "
        "one.getBoundingClientRect().right > innerWidth).length"
    )
    assert page.run(cut) == 0


def assert_readable(page: Page) -> None:
    """Letters of text, legends and axes differ enough from the card behind them."""
    card = _colour(page, ".card", "backgroundColor")
    for what, name in (
        ("h3", "color"), (".soft", "color"), (".legend button", "color"),
        (".plot .xtick text", "fill"), (".plot .ytick text", "fill"),
    ):  # fmt: skip
        letters = _colour(page, what, name)
        assert _contrast(letters, card) >= 4.5, (what, letters, card)


def ground(page: Page) -> str:
    return str(page.run("getComputedStyle(document.body).backgroundColor"))


def _colour(page: Page, what: str, name: str) -> tuple[float, float, float]:
    style = f"getComputedStyle(document.querySelector('{what}')).{name}"
    red, green, blue = map(float, re.findall(r"[\d.]+", page.run(style))[:3])
    return red, green, blue


def _contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Return the contrast ratio of two colours, as WCAG 2 defines it."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(rgb: tuple[float, ...]) -> float:
    parts = [part / 255 for part in rgb]
    red, green, blue = (
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
