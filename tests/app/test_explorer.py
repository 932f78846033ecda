"""The explorer in a real browser, driven by clicks: choose, attack, defend, follow the link."""

import io
import shutil
from urllib.parse import unquote, urlencode

import numpy as np
import pytest
from PIL import Image

from robustdeq.app.case import Case
from robustdeq.app.catalogue import Catalogue
from robustdeq.app.look import look
from robustdeq.app.page import export
from robustdeq.app.server import Explorer
from robustdeq.cli.arguments.checkpoint import resolve
from robustdeq.cli.arguments.deploy import deployed
from tests.app.conftest import serving
from tests.examples.scripts import EXAMPLES

DIGITS = "digits-nano-trades-random"
pytestmark = pytest.mark.long

READY = "document.body.dataset.turn && document.getElementById('busy').hidden && !document.querySelector('#view.old')"
DRAWN = "document.getElementById('view').innerHTML"
MARKS = "[...document.querySelectorAll('.charts .at')].map((e) => e.getAttribute('transform')).join()"
SAVED = "document.getElementById('save').href"
"""The page to save, which arrives after the view."""


def settled(page, turn=None):
    """Wait for the view that follows `turn`; returns its own turn."""
    page.wait(f"({READY}) && document.body.dataset.turn != {str(turn)!r}")
    return page.js("document.body.dataset.turn")


def text(page, selector):
    return page.js(f"document.querySelector({selector!r}).textContent")


def test_choose_attack_slide_defend_and_follow_the_link_to_the_same_picture(browser, address):
    with browser.page(f"http://{address}/") as page:
        turn = settled(page)
        page.wait("document.querySelectorAll('#thumbs img').length == 10")
        page.click("#thumbs button", 3)
        turn = settled(page, turn)
        assert "test%3A3" in page.js("location.hash")
        page.click("[data-name=defence] [value=none]")
        turn = settled(page, turn)
        assert page.js("document.querySelectorAll('.wide .cell.defended').length") == 0
        page.click("[data-name=attack] [value=apgd]")
        turn = settled(page, turn)
        assert "APGD" in text(page, "#python")
        page.click("[data-name=defence] [value=entropy]")
        turn = settled(page, turn)
        assert page.js("document.querySelectorAll('.wide .cell.defended').length") == 9

        before = page.js(MARKS)
        page.js("document.getElementById('slider').focus()")
        page.press("ArrowLeft")
        assert text(page, "#now") == "z[7]"
        assert all(a != b for a, b in zip(before.split(",t"), page.js(MARKS).split(",t"), strict=True))
        page.click(".wide .cell.clean", 2)
        assert text(page, "#now") == "z[3]"
        page.click(".wide .cell.clean", 7)
        assert page.js(MARKS) == before

        page.wait(SAVED)
        shown, link = page.js(DRAWN), page.js("document.getElementById('permalink').href")
    with browser.page(link) as page:
        settled(page)
        page.wait(SAVED)
        assert page.js(DRAWN) == shown
        assert {url.split("/")[2] for url in page.requests if not url.startswith("data:")} == {address}
        page.js("document.getElementById('slider').focus()")
        for _ in range(3):
            page.press("ArrowLeft")
        marks, link = page.js(MARKS), page.js("document.getElementById('permalink').href")
        assert page.js("location.href") == link
    with browser.page(link) as page:
        turn = settled(page)
        assert (text(page, "#now"), page.js(MARKS)) == ("z[5]", marks)
        page.click("[data-name=attack] [value=pgd]")
        settled(page, turn)
        assert text(page, "#now") == "z[5]"  # so that two attacks are compared at the same state


def test_the_page_to_save_is_that_of_the_view_even_if_an_earlier_one_comes_later(browser, address):
    delayed = """const real = fetch; let first = true;
        window.late = 0;
        window.fetch = (path, asked) => path !== "export" || !first ? real(path, asked) : (first = false, real(path, asked)
            .then((a) => new Promise((done) => setTimeout(() => { done(a); setTimeout(() => { window.late = 1; }, 300); }, 4000))));
    """  # noqa: E501
    with browser.page(f"http://{address}/") as page:
        turn = settled(page)
        page.js(delayed)
        page.wait("document.querySelectorAll('#thumbs img').length == 10")
        page.click("#thumbs button", 3)
        turn = settled(page, turn)
        page.click("[data-name=attack] [value=none]")
        settled(page, turn)
        page.wait("window.late == 1")
        assert '"attack": "none"' in unquote(page.js("document.getElementById('save').href"))


def test_on_a_phone_nothing_scrolls_sideways_in_either_scheme(browser, address, tmp_path):
    looked = look(Case(model=DIGITS, image="test:7", steps=3, defence_steps=2), Catalogue([DIGITS], resolve), deployed)
    exported = export(looked, tmp_path).as_uri()
    for dark, url in ((False, f"http://{address}/"), (True, f"http://{address}/"), (False, exported), (True, exported)):
        with browser.page(url, width=390, height=800, dark=dark, touch=True) as page:
            if url != exported:
                settled(page)
                page.js("document.querySelector('.controls').open = true")
            page.js("document.querySelector('.again').open = true")
            assert page.fits()
            assert page.js("getComputedStyle(document.querySelector('.strip.tall')).display") == "block"
            ink, ground = (page.js(f"getComputedStyle(document.{where}).{what}") for where, what in (
                ("querySelector('.chart text.bold')", "fill"), ("documentElement", "backgroundColor")))  # fmt: skip
            bright = [sum(map(int, colour[4:-1].split(","))) for colour in (ink, ground)]
            assert (bright[0] > 600 and bright[1] < 150) if dark else (bright[0] < 200 and bright[1] > 700)


def test_an_exported_page_needs_no_server_and_asks_no_network(browser, tmp_path):
    looked = look(Case(model=DIGITS, image="test:7", steps=3, defence_steps=2), Catalogue([DIGITS], resolve), deployed)
    url = export(looked, tmp_path).as_uri()
    with browser.page(url) as page:
        page.js("document.getElementById('slider').focus()")
        page.press("ArrowLeft")
        assert text(page, "#now") == "z[7]"
        assert page.js("getComputedStyle(document.querySelector('.live')).display") == "none"
        assert [u for u in page.requests if not u.startswith("data:")] == [url]
        assert page.js("location.hash") == "#at=7"
    with browser.page(f"{url}#at=3") as page:
        assert text(page, "#now") == "z[3]"


def test_an_attack_and_a_defence_of_one_s_own_are_chosen_with_their_options(browser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("my_attacks.py", "my_defences.py"):
        shutil.copy(EXAMPLES / "extend" / name, tmp_path)
    code = {"attack": "my_attacks:MIFGSM", "defence": "my_defences:Sharpen"}
    explorer = Explorer(Catalogue([DIGITS], resolve, code=code), deployed, tmp_path / "kept")
    with (
        serving(explorer, Case(model=DIGITS, image="test:7", **code)) as address,
        browser.page(f"http://{address}/") as page,
    ):
        turn = settled(page)
        assert "With Sharpen" in text(page, "#view") or "Sharpen " in text(page, ".lead")
        assert page.js("document.querySelector('[name=\"attack.decay\"]').placeholder") == "1.0"
        page.choose("[name='attack.decay']", "3/4")
        turn = settled(page, turn)
        assert "my_attacks.MIFGSM(rd.Linf(0.15), seed=0, decay=0.75)" in text(page, "#python")
        page.choose("[name='defence.radius']", "much")
        turn = settled(page, turn)
        assert text(page, "#problem") == "--defence my_defences:Sharpen: radius: expected a number, got much"
        page.click("[data-name=attack] [value=pgd]")
        turn = settled(page, turn)
        assert "attack.decay" not in unquote(page.js("location.hash"))
        page.click("[data-name=defence] [value=none]")
        settled(page, turn)
        assert page.js("document.getElementById('problem').hidden")
        assert page.js("document.querySelector('[name=\"defence.radius\"]').closest('[data-when]').hidden")


def test_an_emptied_field_has_its_default_again(browser, address):
    with browser.page(f"http://{address}/#" + urlencode({"model": DIGITS, "image": "test:7", "steps": 3})) as page:
        turn = settled(page)
        page.choose("[name=steps]", "")
        settled(page, turn)
        assert page.js("document.getElementById('problem').hidden")
        assert "steps" not in page.js("location.hash")
        assert page.js("document.forms[0].elements.steps.value") == "10"


def test_a_digit_is_drawn_an_image_uploaded_and_a_wrong_file_gets_a_sentence(browser, address, tmp_path):
    with browser.page(
        f"http://{address}/#" + urlencode({"model": DIGITS, "attack": "none", "defence": "none"})
    ) as page:
        turn = settled(page)
        page.click("#pen")
        page.js("document.getElementById('canvas').scrollIntoView({block: 'center'})")
        left, top = page.js(
            "(() => { const b = document.getElementById('canvas').getBoundingClientRect(); return [b.x, b.y] })()"
        )
        for kind, x, y in (("mousePressed", 96, 30), ("mouseMoved", 96, 100), ("mouseReleased", 96, 160)):
            place = {"x": left + x, "y": top + y, "button": "left", "clickCount": 1}
            page.send("Input.dispatchMouseEvent", {"type": kind, **place})
        page.click("#use")
        turn = settled(page, turn)
        assert "data%3Aimage%2Fpng" in page.js("location.hash")
        drawn = page.js("document.querySelector('#view img').src")

        (tmp_path / "photo.png").write_bytes(picture())
        upload(page, tmp_path / "photo.png")
        settled(page, turn)
        assert page.js("document.querySelector('#view img').src") != drawn
        (tmp_path / "wrong.png").write_text("no image")
        upload(page, tmp_path / "wrong.png")
        page.wait("!document.getElementById('problem').hidden")
        assert text(page, "#problem") == "wrong.png is not an image, or of a kind that cannot be read"


def test_long_work_shows_progress_and_can_be_cancelled(browser, address):
    case = {"model": DIGITS, "image": "test:7", "attack": "apgd", "oracle": "exact", "steps": 1000}
    with browser.page(f"http://{address}/#" + urlencode(case)) as page:
        page.wait("!document.getElementById('busy').hidden && document.getElementById('bar').value > 0")
        page.click("#cancel")
        page.wait("!document.getElementById('problem').hidden")
        assert text(page, "#problem") == "Cancelled."


def upload(page, path):
    root = page.send("DOM.getDocument")["root"]["nodeId"]
    node = page.send("DOM.querySelector", {"nodeId": root, "selector": "#file"})["nodeId"]
    page.send("DOM.setFileInputFiles", {"files": [str(path)], "nodeId": node})


def picture():
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()
