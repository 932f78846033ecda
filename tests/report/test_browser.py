"""The report in a real browser, on a desk and on a phone. Skipped where no browser is installed."""

import os
import re
import subprocess
import sys

import pytest

from robustdeq.cli.main import main
from robustdeq.evaluation import Store, metrics
from robustdeq.evaluation.analysis.statistics import bootstrap_difference
from robustdeq.report import write_report
from tests.report.results import attack, autoattack, grid_attack, make_store, two_attacks

pytestmark = pytest.mark.long

SIZES = pytest.mark.parametrize("width", [1280, 390])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A report of three models: one with images and a defence, one under AutoAttack, one without dynamics."""
    found = tmp_path_factory.mktemp("browser")
    two_attacks(found / "defended", keep=True, defended=True)
    specs = grid_attack(1, 1, 1.0) | attack("square", "black-box", attack="square") | autoattack("aa-ready", limit=8)
    broken = {"pgd-i1-K1-l1": [0], "square": [3], "aa-ready": [0, 1, 2]}
    make_store(found / "attacked", broken, specs=specs, states="random")
    make_store(
        found / "plain", {"pgd-direct": [1]}, specs=attack("pgd-direct", "ready"), dynamic=False, objective="pgdat"
    )
    write_report([found / "defended", found / "attacked", found / "plain"], found / "out")
    return found


@pytest.fixture(scope="module")
def index(folder):
    return (folder / "out" / "index.html").as_uri()


def numbers(page, card, row):
    """The large numbers of a row of a card, by their names."""
    cells = f"document.querySelectorAll('#card-{card} tbody tr.large')[{row}].cells"
    text = "[c.dataset.measure, c.querySelector('b').textContent, c.querySelector('i')?.textContent ?? '']"
    return {name: (value, interval) for name, value, interval in page.js(f"[...{cells}].map(c => {text})")}


def said(share):
    return f"{100 * share.value:.1f}", f"{100 * share.low:.1f}\N{EN DASH}{100 * share.high:.1f}"


@SIZES
def test_the_first_screen_has_the_numbers_of_the_stores(browser, folder, index, width):
    with browser.page(index, width=width, height=844) as page:
        attacked, defended = (Store(folder / name) for name in ("attacked", "defended"))
        found = numbers(page, "attacked", 0)
        assert found["clean"] == said(metrics.clean_accuracy(attacked))
        assert found["strongest attack"] == said(metrics.paper_minimum(attacked, ["pgd-i1-K1-l1", "square"]))
        assert found["AutoAttack"] == said(metrics.aa_accuracy(attacked)["aa-ready"])
        assert found["union"][0] == "50.0"  # of the first 8 images, on which AutoAttack was run, 0 to 3 are broken
        own, base = (metrics.outcomes(defended, predictor=name)[0].all(axis=1) for name in ("deployed", "base"))
        assert numbers(page, "defended", 1)["union"] == said(metrics.union_accuracy(defended))
        gain = bootstrap_difference(base, own)
        assert f"{100 * gain.value:+.1f} points" in page.js(
            "document.querySelector('#card-defended .verdict').textContent"
        )
        # the most robust model stands first, and its numbers are visible without scrolling
        assert page.js("document.querySelector('.card').id") == "card-attacked"
        assert page.js("document.querySelector('.card b').getBoundingClientRect().bottom") < 844
        assert "attacked has the highest robust accuracy of 3 models" in page.js(
            "document.querySelector('.lead').textContent"
        )


@SIZES
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_without_errors_or_requests_in_both_schemes(browser, folder, width, dark):
    pages = sorted((folder / "out").glob("*.html"))
    assert len(pages) == 5  # the index, three models, their images
    for path in pages:
        with browser.page(path.as_uri(), width=width, dark=dark, touch=width == 390) as page:
            page.js("document.querySelectorAll('details').forEach(d => { d.open = true })")
            assert page.fits(), path.name
            assert [url for url in page.requests if not url.startswith("data:")] == [path.as_uri()]
            ink, ground = page.js(
                "(s => [s.color, s.backgroundColor].map(c => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)))"
                "(getComputedStyle(document.body))"
            )
            assert (ground < 150 and ink > 600) if dark else (ground > 700 and ink < 150)


def test_a_table_opens_by_keyboard_and_sorts_by_a_click(browser, index):
    with browser.page(index) as page:
        page.js("document.querySelector('#table-1 summary').focus()")
        page.press("Enter")
        assert page.js("document.querySelector('#table-1').open")
        column = page.js("[...document.querySelectorAll('#table-1 thead th')].findIndex(h => h.textContent == 'PGD')")
        values = (
            f"[...document.querySelectorAll('#table-1 tbody tr')].map(r => r.cells[{column}].firstChild.textContent)"
        )
        for order in ("descending", "ascending"):
            page.click("#table-1 thead button", column)
            assert page.js(f"document.querySelectorAll('#table-1 thead th')[{column}].ariaSort") == order
            # a bound such as "<= 90.00, 1 of 36 attacks" is sorted by its number
            found = [float(re.search(r"[\d.]+", value)[0]) for value in page.js(values) if value != "-"]
            assert found == sorted(found, reverse=order == "descending")
            assert len(set(found)) > 1


def test_filters_by_model_and_by_attack_leave_the_rows_that_match(browser, index):
    with browser.page(index) as page:
        shown = "[...document.querySelectorAll('{} tbody tr')].filter(r => !r.hidden).map(r => r.cells[0].textContent)"
        page.js("document.querySelectorAll('.sheet').forEach(d => { d.open = true })")
        assert "defended" in page.js(shown.format("#table-1"))
        page.click(".chip input[value=defended]")
        assert page.js("document.querySelector('#card-defended').hidden")
        assert page.js("document.querySelector('.chart.wide [data-models=defended]').hasAttribute('hidden')")
        assert not {"defended", "defended (base)"} & set(page.js(shown.format("#table-1")))
        page.click(".chip input[value=defended]")
        assert not page.js("document.querySelector('#card-defended').hidden")
        page.choose("#attack", "square")
        attacks = (
            "[...document.querySelectorAll('#attacks tbody tr')].filter(r => !r.hidden).map(r => r.dataset.attack)"
        )
        assert page.js(attacks) == ["square"]


@SIZES
def test_where_a_number_comes_from_is_told_by_touch_and_by_keyboard(browser, index, width):
    with browser.page(index, width=width, touch=width == 390) as page:
        told = "document.querySelector('#source').textContent"
        page.click("#card-attacked tr.large td")
        assert page.js(told).startswith("store attacked: clean; predictor deployed")
        page.press("Escape")
        assert page.js(told) == ""
        page.js("document.querySelector('#card-attacked td[tabindex]').focus()")
        page.press("ArrowRight")
        page.press("Enter")
        assert page.js(told).startswith("store attacked: all attacks but AutoAttack")


def test_a_broken_image_is_shown_clean_attacked_and_defended_with_its_change(browser, index):
    with browser.page(index) as page:
        first = "document.querySelector('#broken ~ .pictures .picture')"
        words = page.js(f"[...{first}.querySelectorAll('.readings th')].map(e => e.textContent)")
        assert words == ["clean", "attacked", "defended"]
        assert page.js(f"[...{first}.querySelectorAll('img')].map(e => e.naturalWidth)") == [8, 8, 8]
        assert page.js(f"{first}.querySelector('svg').getAttribute('aria-label')").startswith(
            "Entropy of the prediction"
        )


def test_the_command_prints_a_pdf_and_opens_the_page(browser, folder, tmp_path):
    probe, opened = tmp_path / "probe", tmp_path / "opened"
    probe.write_text(f'#!/bin/sh\nprintf %s "$1" > "{opened}.new" && mv "{opened}.new" "{opened}"\n')
    probe.chmod(0o755)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "robustdeq.cli.main", "report", str(folder / "plain"), "--out", str(out)]
    environment = os.environ | {"BROWSER": f"{probe} %s"}
    run = subprocess.run([*command, "--format", "pdf", "--open"], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (out / "report.pdf").read_bytes().startswith(b"%PDF-")
    assert opened.read_text() == (out / "index.html").as_uri()


def test_a_pdf_without_a_browser_is_refused_in_one_line_before_any_work(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["report", str(folder / "plain"), f"--out={tmp_path / 'out'}", "--format=pdf"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "--format pdf needs Chromium" in line
    assert not (tmp_path / "out").exists()
