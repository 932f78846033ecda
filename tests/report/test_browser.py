"""The report in a browser: no errors, no horizontal scroll on a phone. Skipped where there is no browser."""

import re
import shutil
import subprocess

import pytest

from robustdeq.report import write_report
from tests.report.results import two_attacks

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PAGE = """<!doctype html><iframe id="f" src="{src}" style="width:390px;height:800px;border:0"></iframe>
<p id="answer"></p><script>
const frame = document.getElementById("f");
frame.onload = () => {{
  const root = frame.contentDocument.documentElement;
  const shown = getComputedStyle(frame.contentDocument.body);
  const ink = frame.contentDocument.querySelector("svg text");
  document.getElementById("answer").textContent = JSON.stringify([root.clientWidth, root.scrollWidth,
    shown.color, shown.backgroundColor, ink ? getComputedStyle(ink).fill : ""]);
}};
</script>"""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser installed (looked for {', '.join(BROWSERS)})")
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    two_attacks(folder / "s", keep=True, defended=True)
    return write_report([folder / "s"], folder / "out")


def visit(browser, url, profile, *flags):
    """The page's DOM after its scripts ran, and what the browser's console said."""
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run", f"--user-data-dir={profile}",
        "--hide-scrollbars", "--allow-file-access-from-files", "--enable-logging=stderr", "--virtual-time-budget=3000",
        "--dump-dom", *flags, url,
    ]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout, [line for line in run.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_a_phone_without_errors_in_both_schemes(browser, report, tmp_path, dark):
    pages = sorted(report.parent.glob("*.html"))
    assert len(pages) == 2
    for page in pages:
        frame = tmp_path / "frame.html"
        frame.write_text(PAGE.format(src=page.as_uri()))
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        dom, console = visit(browser, frame.as_uri(), tmp_path / f"profile-{dark}-{page.stem}", *scheme)
        assert console == []
        answer = re.search(r'id="answer">\[(\d+),(\d+),"rgb\((.*?)\)","rgb\((.*?)\)","rgb\((.*?)\)"\]', dom)
        assert answer, dom[-500:]
        assert (int(answer[1]), int(answer[2])) == (390, 390)
        ink, ground, drawn = (sum(map(int, answer[k].split(","))) for k in (3, 4, 5))
        assert drawn == ink  # figures take the page's colour
        assert (ground < 150 and ink > 600) if dark else (ground > 700 and ink < 150)
