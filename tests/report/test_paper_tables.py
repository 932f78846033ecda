"""Tables 1 and 4 to 8, and the differences, as the paper has them."""

import polars as pl

from robustdeq.evaluation import Store
from robustdeq.evaluation.analysis import metrics
from robustdeq.report import find_sources, make_tables
from robustdeq.report.figures import make_figures
from robustdeq.report.figures.along_states import RULE, example, figure_2
from robustdeq.report.formats import as_latex
from robustdeq.report.tables import Table
from tests.report.results import attack, autoattack, grid_attack, grid_of, make_store, two_attacks

PAIRS = ((3, 5), (3, 4), (3, 6), (3, 7), (4, 5), (5, 5), (6, 5))
NOISE = 1e-6 * pl.col("image").cast(pl.Float64)


def table_of(folder, name) -> Table:
    return next(t for t in make_tables(find_sources([folder])) if t.name == name)


def rows_of(table):
    """The rows as they are shown, by column."""
    return [{k: cell.shown for k, cell in zip(table.head, row, strict=True)} for row in table.rows]


def rewrite_entropies(folder, change):
    """Replace the entropies of a store by an expression of the rows."""
    store = Store(folder)
    for name in (None, *store.attacks):
        rows = store.rows(name).drop("attack", strict=False).collect() if name else store.clean().collect()
        store.write(name, 0, rows.with_columns(entropy=change))


def test_the_baseline_as_it_was_published_stands_beneath_its_rerun(tmp_path):
    for name, objective in (("a", "pgdat"), ("b", "trades")):
        two_attacks(tmp_path / name, objective=objective)
    rows = rows_of(table_of(tmp_path, "table-1"))
    assert [r["store"] for r in rows] == ["a", "-", "b"]
    shown = [rows[1][key] for key in ("method", "clean", "paper: clean", "paper: PGD", "paper: AA")]
    assert shown == ["baseline, Yang et al. 2022 as published", "-", "79.67", "47.12", "48.37"]
    two_attacks(tmp_path / "trades alone" / "b")
    assert [r["store"] for r in rows_of(table_of(tmp_path / "trades alone", "table-1"))] == ["b"]


def test_autoattack_on_fewer_images_has_their_number_beside_it_and_makes_the_union_a_bound(tmp_path):
    specs = grid_attack(1, 1, 1.0) | autoattack("aa-ready", limit=5)
    make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0, 7], "aa-ready": [0, 1]}, specs=specs)
    (row,) = rows_of(table_of(tmp_path, "table-1"))
    shown = [row[key] for key in ("PGD", "AA", "PGD, AA", "union")]
    pgd, both = "<= 80.00, 1 of 36 attacks", "<= 60.00, 5 images"
    assert shown == [pgd, "60.00, 5 images", both, "<= 70.00"]
    assert any(note.startswith("<= marks") for note in table_of(tmp_path, "table-1").notes)
    # PGD over all images is lower: what AutoAttack would leave of the others is unknown
    make_store(tmp_path / "s", {"pgd-i1-K1-l1": [0, *range(5, 10)], "aa-ready": [0, 1]}, specs=specs)
    (row,) = rows_of(table_of(tmp_path, "table-1"))
    assert row["PGD"] == row["PGD, AA"] == "<= 40.00, 1 of 36 attacks"


def test_a_difference_over_fewer_images_has_their_number_beside_it(tmp_path):
    specs = grid_of(2) | autoattack("aa-ready", limit=5)
    for name, states, broken in (("base", "final", [0, 1]), ("rand", "random", [0])):
        make_store(tmp_path / name, dict.fromkeys(specs, broken), specs=specs, states=states)
    (row,) = rows_of(table_of(tmp_path, "differences"))
    assert row["images"] == "10"
    assert row["AA"].startswith("+20.00 [")
    assert row["AA"].endswith("], 5 images")
    assert row["union"].endswith("], 5 images")
    assert not row["PGD"].endswith("images")


def test_table_4_has_the_defended_model_with_both_methods_beside_the_paper(tmp_path):
    specs = {}
    for i, k in PAIRS:
        pgd = grid_attack(i, k, 0.5)
        options = pgd[f"pgd-i{i}-K{k}-l0.5"].spec.oracle_options
        specs |= pgd | attack(
            f"apgd-i{i}-K{k}-l0.5", "table4", attack="apgd", oracle="unrolled", oracle_options=options
        )
    specs |= attack("square", "audit", attack="square", options={}, oracle="direct")
    broken = {name: [0, 1] if name.startswith("apgd") else [0] for name in specs}
    make_store(tmp_path / "s", broken, specs=specs, depth=8, defended=True, states="random")
    rows = {r["search"]: r for r in rows_of(table_of(tmp_path, "table-4"))}
    assert {r["method"] for r in rows.values()} == {"+ Sec. 3.2 & 3.3"}
    assert [rows["apgd, ours"][f"({i}, {k})"] for i, k in PAIRS] == ["80.00"] * 7
    assert (rows["pgd, ours"]["(3, 5)"], rows["pgd, paper"]["(3, 5)"]) == ("90.00", "(55.18)")
    assert rows["square, ours"]["no pair"] == "90.00"


def test_square_on_the_survivors_of_others_has_no_accuracy_for_table_4(tmp_path):
    specs = grid_attack(3, 5, 0.5)
    options = specs["pgd-i3-K5-l0.5"].spec.oracle_options
    specs |= attack("apgd-i3-K5-l0.5", "table4", attack="apgd", oracle="unrolled", oracle_options=options)
    specs |= attack("square-survivors", "audit", attack="square", options={}, oracle="direct", survivors="deployed")
    make_store(tmp_path / "s", {name: [0] for name in specs}, specs=specs, depth=8)
    assert [r["search"] for r in rows_of(table_of(tmp_path, "table-4"))] == ["pgd, ours", "apgd, ours"]


def test_table_5_is_a_matrix_of_t_f_by_r(tmp_path):
    also = [("main", "paper", 2, 10), ("a", "paper", 1, 1), ("b", "paper", 1, 10), ("other", "released", 2, 10)]
    two_attacks(tmp_path / "s", also=also, saves=[2, 5], states="random")
    table = table_of(tmp_path, "table-5")
    assert [name for name in table.head if "R = " in name] == ["R = 1", "R = 10", "paper: R = 1", "paper: R = 10"]
    keys = ("store", "variant", "T_f", "R = 1", "R = 10", "paper: R = 1", "paper: R = 10")
    assert [tuple(r[key] for key in keys) for r in rows_of(table)] == [
        ("s", "paper along the sign", "1", "70.00", "70.00", "(54.67)", "(55.07)"),
        ("s", "paper along the sign", "2", "-", "70.00", "(54.15)", "(55.18)"),
    ]  # one setting of a variant alone is no matrix


def test_entropies_in_full_precision_do_not_tie_and_rounded_ones_say_so(tmp_path):
    two_attacks(tmp_path / "s", whole=True)
    rewrite_entropies(tmp_path / "s", 1.23 + NOISE + 1e-5 * pl.col("state").eq("1"))
    (row,) = rows_of(table_of(tmp_path, "table-6-7"))
    assert row["ties, mean"] == "100.00"  # clean and attacked are the same here
    assert not metrics.entropies_are_rounded(Store(tmp_path / "s"))
    rewrite_entropies(tmp_path / "s", (1.0 + 0.1 * pl.col("image") + 0.01 * pl.col("state").eq("1")).round_sig_figs(3))
    table = table_of(tmp_path, "table-6-7")
    assert any("three significant digits: s." in note for note in table.notes)


def test_an_entropy_that_differs_in_the_sixth_digit_counts_as_lower(tmp_path):
    store = two_attacks(tmp_path / "s")
    rewrite_entropies(tmp_path / "s", 1.23 + NOISE)
    rows = store.clean().collect()
    store.write(None, 0, rows.with_columns(entropy=pl.col("entropy") - 1e-5))
    change = metrics.entropy_change(Store(tmp_path / "s"))
    assert (change["share"].min(), change["ties"].max()) == (1.0, 0.0)


def test_table_8_has_its_unrollings_in_every_format(tmp_path):
    two_attacks(tmp_path / "s", whole=True, defended=True, states="random", depth=2)
    table = table_of(tmp_path, "table-8")
    assert "60.00, K_a 3" in {cell.shown for row in table.rows for cell in row}
    assert "(55.65, K_a 8)" in {cell.shown for row in table.rows for cell in row}
    assert r"60.00, K\_a 3 & " in as_latex(table)


def test_figure_2c_shows_the_image_whose_entropy_rises_by_the_median():
    def frame(entropies, **columns):
        images = list(range(len(entropies)))
        return pl.DataFrame({"image": images, "deployed": True, "entropy": entropies, **columns})

    clean = frame([1.0] * 6, correct=[True, True, True, True, False, True])
    attacked = frame([1.9, 1.1, 1.5, 1.7, 1.6, 1.4], success=[True, True, True, True, True, False])
    assert example(clean, attacked) == 2  # rises of 0.9, 0.1, 0.5, 0.7; the lower of the two in the middle
    assert example(clean, attacked.with_columns(success=False)) is None
    assert example(clean, attacked.with_columns(entropy=float("nan"))) is None


def test_figure_2_says_which_image_it_shows_beside_the_mean(tmp_path):
    two_attacks(tmp_path / "s")
    figure = next(f for f in make_figures(find_sources([tmp_path])) if f.name == "figure-2-s")
    assert "on average from 0.10 to 0.20 nats clean and from 0.60 to 0.70 under pgd-ready" in figure.alt
    assert f"of image 1 from 0.10 to 0.20 and from 0.60 to 0.70. {RULE}" in figure.alt
    for word in ("clean", "attacked"):
        assert f"image 1, {word}" in figure.svg
        assert f"mean, {word}" in figure.svg


def test_figure_3b_shows_the_spread_over_images_of_one_model_in_one_figure(tmp_path):
    also = [("entropy-sign", "paper"), ("entropy-released", "released")]
    two_attacks(tmp_path / "s", whole=True, also=also, saves=[2, 5])
    two_attacks(tmp_path / "fewer", whole=True, also=also[:1], saves=[2], images=8)  # the same predictor
    (figure,) = [f for f in make_figures(find_sources([tmp_path])) if f.name.startswith("figure-3b")]
    assert figure.name == "figure-3b-s"
    assert "median, quartiles, and the middle nine tenths of the images. Mean: s (entropy-sign, oblivious) -0.200" in (
        figure.alt
    )
    assert figure.svg.count("oblivious)</text>") == 2


def test_figure_5_goes_by_state_for_the_defended_predictor_too(tmp_path):
    two_attacks(tmp_path / "s", whole=True, also=[("entropy-sign", "paper")], saves=[2, 5])
    figures = {f.name: f for f in make_figures(find_sources([tmp_path])) if f.name.startswith("figure-5")}
    assert list(figures) == ["figure-5-s", "figure-5-s--entropy-sign--oblivious-"]
    ends = "lambda 0.5, state 1: 60.0 (K_a 3); lambda 0.5, state 2: 90.0 (K_a 1); lambda 1, state 1: 90.0 (K_a 1)"
    assert f"a line joins the strongest: {ends}" in figures["figure-5-s"].alt
    assert "lambda 0.5, state 1: 70.0 (K_a 3)" in figures["figure-5-s--entropy-sign--oblivious-"].alt
    assert "state i that is attacked" in figures["figure-5-s"].svg


def test_figure_2_is_drawn_where_no_image_is_broken(tmp_path, undrawn):
    make_store(tmp_path / "s", {"pgd-i1-K1-l1": []}, specs=grid_attack(1, 1, 1.0))
    assert figure_2(find_sources([tmp_path]).main[0]) is not None
