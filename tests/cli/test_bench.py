"""`robustdeq bench`."""

import json

import pytest
import torch

import robustdeq as rd
from robustdeq.cli.main import main


def test_bench_core_writes_records_of_ours_beside_plain(tmp_path, capsys):
    file = tmp_path / "deep" / "bench.json"
    assert main(["bench", "core", "--models", "mdeq-nano", "--batch", "2", "--rounds", "1", "--json", str(file)]) == 0
    records = json.loads(file.read_text())
    assert [r["name"] for r in records] == ["f", "solve N=8"]
    for record in records:
        assert record["model"] == "mdeq-nano"
        assert record["speedup"] == pytest.approx(record["plain"] / record["ours"])
        assert {"hardware", "versions", "commit"} <= record["environment"].keys()
    assert "mdeq-nano" in capsys.readouterr().out


def test_a_benchmark_says_how_far_single_rounds_lie_apart():
    from robustdeq.cli.bench.measure import beside_plain

    record = beside_plain([1.0, 2.0, 4.0, 1.0], [2.5, 4.0, 20.0, 3.0], batch=10)
    assert (record["ours"], record["plain"], record["speedup"]) == (0.1, 0.25, 2.5)
    assert record["speedup_quartiles"] == pytest.approx([2.375, 2.75, 3.5])  # of 2.5, 2, 5 and 3
    assert "speedup_quartiles" not in beside_plain([1.0, 2.0], [3.0, 4.0], batch=1)


def test_bench_counts_the_multiply_adds_of_mdeq_large(monkeypatch):
    from robustdeq.cli.bench.measure import multiply_adds
    from robustdeq.models.kernels import winograd

    def count():
        f, z0 = model.begin(torch.rand(1, 3, 32, 32))
        f(z0)  # weights and their transforms are computed at the first call
        return multiply_adds(lambda: f(z0))

    with torch.no_grad():
        model = rd.create_model("mdeq-large").eval()
        tiled = count()
        monkeypatch.setattr(winograd, "ROWS", 10**9)
        direct = count()
    assert direct / 1e9 == pytest.approx(0.41, abs=0.005)  # METHOD.md: about 0.41 GMAC per f per image
    # of one image only the 16 tiles of scale 1 are enough: patches in, products, tiles out, for 64 -> 320 and 320 -> 64
    tiles = 16 * 36 * (36 * 64 + 64 * 320 + 16 * 320 + 36 * 320 + 320 * 64 + 16 * 64)
    assert direct - tiled == 2 * 9 * 64 * 320 * 16 * 16 - tiles


@pytest.mark.long
def test_bench_train_has_a_row_for_each_objective_and_its_multiply_adds(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("robustdeq.cli.bench.train.STEPS", 2)
    file = tmp_path / "bench.json"
    assert main(["bench", "train", "--models", "mdeq-nano", "--batch", "1", "--rounds", "1", "--json", str(file)]) == 0
    records = {r["name"]: r for r in json.loads(file.read_text())}
    assert [name for name in records if "carried" not in name] == [
        "pgdat",
        "pgdat + random",
        "trades",
        "trades + random",
    ]
    assert all(
        records[f"{name}, carried J=1"]["f_equivalents"] < records[name]["f_equivalents"]
        for name in ("pgdat", "trades")
    )
    fields = ("objective", "states", "inner", "iterations", "unroll")
    assert {tuple(map(r.get, fields)) for r in records.values()} == {
        (objective, states, *inner)
        for objective in ("pgdat", "trades")
        for states in ("final", "random")
        for inner in (("cold", None, None), ("carried", 1, None), ("carried", 2, None), ("carried", 1, 2))
    }
    shorter = records["trades, carried J=1, unroll 2"]
    assert shorter["f_equivalents"] < records["trades, carried J=1"]["f_equivalents"]
    assert shorter["over_cold"] == pytest.approx(records["trades"]["ours"] / shorter["ours"])
    for r in records.values():
        assert r["samples_per_second"] == pytest.approx(1 / r["ours"])
        assert r["speedup"] == pytest.approx(r["plain"] / r["ours"])
        assert r["speedup"] == pytest.approx(r["speedup_at_peak"] * r["fraction_of_peak"])
    # random states leave half of the solves out; TRADES' clean prediction is computed once, not at every inner step
    assert records["trades + random"]["total_macs"] < records["trades"]["total_macs"]
    assert records["trades"]["macs_speedup"] > 1.1 > records["pgdat"]["macs_speedup"] >= 1.0
    assert "trades + random: in multiply-adds" in capsys.readouterr().out


def test_bench_train_measures_the_rows_that_are_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("robustdeq.cli.bench.train.STEPS", 1)
    monkeypatch.setattr("robustdeq.cli.bench.measure.peak_rate", lambda rounds, say: 1e10)  # see bench core
    file = tmp_path / "bench.json"
    words = ["bench", "train", "--models", "mdeq-nano", "--batch", "1", "--rounds", "1", "--json", str(file), "--rows"]
    assert main([*words, "pgdat;pgdat, carried J=2"]) == 0
    cold, carried = json.loads(file.read_text())
    assert (cold["name"], carried["name"]) == ("pgdat", "pgdat, carried J=2")
    assert carried["over_cold"] == pytest.approx(cold["ours"] / carried["ours"])
    assert main([*words, "standard"]) == 1
    assert "standard are not all rows of bench train: pgdat; " in capsys.readouterr().err


def test_bench_evaluate_measures_autoattack_along_cold_and_carried_gradients(tmp_path, monkeypatch):
    small = {"n_iter": 2, "targets": 1, "n_queries": 1}
    monkeypatch.setattr("robustdeq.cli.bench.autoattack.BUDGETS", small)
    torch.manual_seed(0)
    model = rd.create_model("mdeq-nano", num_classes=10)
    model.metadata = {"eps": 0.001, "dataset": "digits"}
    model.save_pretrained(tmp_path / "nano")
    file = tmp_path / "bench.json"
    words = ["--attack", "autoattack", "--models", str(tmp_path / "nano"), "--images", "40", "--json", str(file)]
    assert main(["bench", "evaluate", *words]) == 0
    cold, carried = json.loads(file.read_text())
    assert (cold["name"], carried["name"]) == ("autoattack", "autoattack, carried J=1")
    assert carried["f_equivalents"] < cold["f_equivalents"]
    assert cold["left"] > 0
    assert carried["over_cold"] == pytest.approx(cold["ours"] / carried["ours"])
    assert cold["samples_per_second"] == pytest.approx(1 / cold["ours"])


def test_bench_defence_says_what_arithmetic_allows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("robustdeq.cli.bench.defence.GRID", [(8, 1)])
    monkeypatch.setattr("robustdeq.cli.bench.measure.peak_rate", lambda rounds, say: 1e10)  # see bench core
    file = tmp_path / "bench.json"
    words = ["bench", "defence", "--models", "mdeq-nano", "--batch", "1", "--rounds", "1", "--json", str(file)]
    assert main(words) == 0
    main_row, other = json.loads(file.read_text())
    assert (main_row["name"], other["name"]) == ("defended T_f=2 R=10", "defended T_f=8 R=1, grid")
    assert [(r["every"], r["steps"], r["grid"]) for r in (main_row, other)] == [(2, 10, False), (8, 1, True)]
    assert main_row["f_equivalents"] > 3 * other["f_equivalents"] > 3 * 8
    assert main_row["samples_per_second"] == pytest.approx(1 / main_row["ours"])
    assert main_row["over_undefended"] == pytest.approx(
        main_row["over_undefended_at_peak"] / main_row["fraction_of_peak"]
    )
    # 40 inner iterations cost more than the solve; plain evaluates all of f in each
    assert main_row["macs_over_undefended"] > 2
    assert main_row["macs_speedup"] > 1.2
    assert "at the machine's peak" in " ".join(capsys.readouterr().out.split())


def test_bench_refuses_to_compile_what_it_does_not_compile(capsys):
    assert main(["bench", "core", "--compile"]) == 1
    assert "--compile is for bench train, not for bench core" in capsys.readouterr().err


def test_bench_refuses_a_model_that_is_not_an_mdeq(capsys):
    assert main(["bench", "--models", "resnet18", "--rounds", "1"]) == 1
    assert "resnet18" in capsys.readouterr().err
