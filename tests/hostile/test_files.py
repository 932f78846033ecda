"""Odd images, and stores and reports from elsewhere: each is named, and the others get their answers."""

import io
import json
import os
import re
import struct

import numpy as np
import polars as pl
import pytest
from PIL import Image

import robustdeq as rd
from robustdeq.cli.main import main
from robustdeq.report import write_report
from robustdeq.report.formats import as_csv, in_code, in_markdown, in_pipe_table
from robustdeq.report.results.find import _labels
from robustdeq.report.tables.table import Cell, Table
from tests.report.results import two_attacks


@pytest.fixture(scope="module")
def ckpt(tmp_path_factory):
    model = rd.create_model("mdeq-nano")
    model.metadata = {"dataset": "digits", "eps": 0.15}
    folder = tmp_path_factory.mktemp("odd") / "ckpt"
    model.save_pretrained(folder)
    return folder


def encoded(kind, mode="RGB", **options):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def odd_files(folder):
    """Images that no model can read, under names that no terminal should act upon."""
    lab = Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8), "RGB").convert("RGB")
    files = {"cut.png": encoded("PNG")[:60], "cut.gif": encoded("GIF")[:200], "cut.webp": encoded("WEBP")[:40]}
    tiff = bytearray(encoded("TIFF"))
    for place in range(len(tiff) - 12):  # photometric interpretation (tag 262) becomes CIELAB (8)
        if tiff[place : place + 2] == struct.pack("<H", 262):
            tiff[place + 8 : place + 10] = struct.pack("<H", 8)
    files["lab.tiff"] = bytes(tiff)
    files["spider.spi"] = struct.pack(">27f", *[1.0] * 27) + b"\0" * 40
    files["avif.avif"] = b"\0\0\0\x1cftypavif" + bytes(range(60))
    files["esc\x1b[2J.png"] = encoded("PNG")[:50]
    for name, content in files.items():
        (folder / name).write_bytes(content)
    lab.save(folder / "good.png")
    bad = os.fsencode(folder) + b"/latin\xff1.png"
    with open(bad, "wb") as file:
        file.write(encoded("PNG"))
    return [folder / name for name in files], os.fsdecode(bad)


def test_one_odd_image_never_stops_the_others(ckpt, tmp_path, capfd, monkeypatch):
    odd, undecodable = odd_files(tmp_path)
    words = [str(ckpt), str(tmp_path / "good.png"), *map(str, odd), undecodable, str(tmp_path / "good.png")]
    assert main(["predict", *words, "--json"]) == 1
    out, err = capfd.readouterr()
    records = json.loads(out)
    answered = [record for record in records if "error" not in record]
    assert len(records) == len(words) - 1
    assert len(answered) >= 3
    assert err.count("robustdeq: error: ") == len(records) - len(answered)
    assert "\x1b" not in err
    for path in odd[:3]:
        assert str(path) in err
    monkeypatch.chdir(tmp_path)
    assert main(["predict", str(ckpt), "good.png", "esc\x1b[2J.png", os.fsdecode(b"latin\xff1.png"), "good.png"]) == 1
    out, err = capfd.readouterr()
    assert out.count("good.png") == 2
    assert "latin\\udcff1.png" in out
    assert "\x1b" not in out + err


def test_a_terminal_without_bars_gets_ascii_ones(ckpt, tmp_path, monkeypatch):
    odd_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", plain)
    assert main(["predict", str(ckpt), "good.png"]) == 0
    plain.flush()
    shown = plain.buffer.getvalue().decode("ascii")
    assert "good.png" in shown
    assert "\\u" not in shown


@pytest.fixture
def store(tmp_path):
    return two_attacks(tmp_path / "in" / "s")


def refused(store, *named):
    """What a report says that refuses the store."""
    with pytest.raises(ValueError, match=r"restore it|do|again|upgrade") as error:
        write_report([store.folder], store.folder.parent.parent / "out")
    assert not (store.folder.parent.parent / "out" / "index.html").exists()
    for text in named:
        assert str(text) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(format="other"), "is not the manifest of a robustdeq store"),
        (lambda m: m.update(format_version=2), "upgrade robustdeq"),
        (lambda m: m.pop("data"), "is incomplete: it has no 'data'"),
        (lambda m: m["data"].update(images="many"), "is damaged: images: 'many' is not int"),
        (lambda m: m.update(shard_size=0), "at least 1"),
        (lambda m: m.update(predictors={"other": m["predictors"]["deployed"]}), "the first predictor is 'other'"),
        (lambda m: m["predictors"]["deployed"].update(deployed_state="99"), "predicts from state '99'"),
        (lambda m: m.update(attacks=[]), "is damaged"),
        (lambda m: m.update(notes=[1]), "notes"),
        (lambda m: m["attacks"].update(x=m["attacks"].pop("pgd-i1-K3-l0.5")), "stands under the name 'x'"),
    ],
)
def test_manifests_of_elsewhere_are_refused_by_a_report_and_named(store, change, said):
    path = store.folder / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    assert said in refused(store, path)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"probes": 5}', b"\xff", b'{"probes": {}, "seconds": "x"}'])
def test_a_damaged_audit_is_named(store, content):
    (store.folder / "audit.json").write_bytes(content)
    refused(store, store.folder / "audit.json", "run the audit again")


@pytest.mark.parametrize("cut", [0, 4, 100, -9])
def test_a_damaged_shard_is_named_by_a_report(store, cut):
    path = store.path("pgd-i1-K3-l0.5", 0)
    path.write_bytes(path.read_bytes()[:cut])
    refused(store, f"{path} is damaged")


def test_rows_that_the_manifest_does_not_know_are_refused(store):
    path = store.path("pgd-i1-K3-l0.5", 0)
    rows = pl.read_parquet(path)
    for changed in (
        rows.with_columns(state=pl.lit("x")),
        rows.with_columns(predictor=pl.lit("other")),
        rows.with_columns(deployed=~pl.col("deployed")),
        rows.with_columns(prediction=pl.lit(None, dtype=pl.Int32)),
    ):
        changed.write_parquet(path)
        refused(store, f"{path} is damaged")


def test_names_and_notes_bring_neither_tags_nor_formulas_into_a_report(tmp_path):
    folder = two_attacks(tmp_path / "in" / "=cmd|' C calc'!A0 <img src=x> $a_{").folder
    content = json.loads((folder / "manifest.json").read_text())
    content["notes"] = ["a\n# heading <script>alert(1)</script> [x](javascript:y) \x1b[2J"]
    content["asked"][0]["command"] = "robustdeq `rm` ``x``"
    (folder / "manifest.json").write_text(json.dumps(content))
    write_report([tmp_path / "in"], tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "<script" not in text
    assert "<img" not in re.sub(r"(`+) .*? \1", "", text)  # code may contain anything
    assert "](javascript" not in text
    assert "\x1b" not in text
    assert "``` robustdeq `rm` ``x`` ```" in text
    for file in (tmp_path / "out" / "tables").glob("*.csv"):
        cells = file.read_text().splitlines()
        assert not [line for line in cells if line.startswith(("=", "@", '"='))], file
    assert "<script>alert" not in (tmp_path / "out" / "index.html").read_text()


def test_texts_of_a_table_are_no_formulas_and_its_numbers_stay_numbers():
    row = [Cell("=1+1"), Cell("-2.5", "ours"), Cell("-"), Cell("+ Sec. 3.2"), Cell("@x"), Cell("\tx")]
    line = as_csv(Table("t", "T", tuple("abcdef"), [row])).splitlines()[1]
    assert line.startswith("'=1+1,-2.5,-,+ Sec. 3.2,'@x,'\tx")
    assert in_pipe_table("a|b\nc <b> <= 3") == "a\\|b c &lt;b> <= 3"
    assert in_markdown("![x](y)") == "![x]\\(y)"
    assert in_code("a`b") == "`` a`b ``"


def test_labels_are_printable(tmp_path):
    folder = tmp_path / "a\x1b[31m\nb"
    folder.mkdir()
    assert _labels([folder]) == {folder: "a\\x1b[31m\\nb"}
