"""The wheel and the sdist hold the whole package, and the wheel runs outside the checkout."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {
    str(path.relative_to(ROOT / "src"))
    for path in (ROOT / "src" / "robustdeq").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist of this checkout."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


@pytest.mark.long
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        entry = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        assert "robustdeq = robustdeq.cli.main:main" in wheel.read(entry).decode()
    assert names == FILES


@pytest.mark.long
def test_the_sdist_holds_the_sources_from_which_the_same_wheel_is_built(built):
    with tarfile.open(built[1]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames()}
    assert {f"src/{name}" for name in FILES} <= names
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.mark.long
def test_the_installed_wheel_runs_outside_the_checkout(built, tmp_path):
    site = tmp_path / "site"
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(built[0])]
    subprocess.run([sys.executable, *pip], check=True, capture_output=True)
    program = "import robustdeq as rd; print(rd.__file__); print(rd.load('cifar10-tiny-trades').model_name)"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    file, model = run.stdout.splitlines()
    assert Path(file).is_relative_to(site)
    assert model == "mdeq-thin"
