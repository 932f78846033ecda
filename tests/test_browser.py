"""The browser of the tests sees what a person would."""

import pytest

PAGE = """<!doctype html><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<button onclick="this.textContent = matchMedia('(prefers-color-scheme: dark)').matches">?</button>
<input type="range" max="8" value="3"><div style="width:500px">wide</div>"""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    page = tmp_path_factory.mktemp("page") / "page.html"
    page.write_text(PAGE)
    return page.as_uri()


def test_clicks_keys_sizes_and_schemes_reach_the_page(browser, address):
    for dark, width in ((False, 1280), (True, 390)):
        with browser.page(address, width=width, dark=dark, touch=width == 390) as page:
            page.click("button")
            assert page.js("document.querySelector('button').textContent") == str(dark).lower()
            assert page.fits() == (width == 1280)
            page.js("document.querySelector('input').focus()")
            page.press("ArrowRight")
            assert page.js("document.querySelector('input').value") == "4"
            assert page.requests == [address]


def test_an_error_in_the_console_fails_the_test(browser, address):
    with pytest.raises(AssertionError, match="boo"), browser.page(address) as page:
        page.js("console.error('boo')")
