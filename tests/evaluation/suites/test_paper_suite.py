"""Suite `paper` holds what the paper's tables and figures need."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from torch import nn

from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation import Store, evaluate
from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.store.manifest import AttackRecord, PredictorRecord
from robustdeq.evaluation.suites import read as suites
from robustdeq.evaluation.suites.build import check_buildable
from robustdeq.evaluation.suites.read import make_suite
from robustdeq.evaluation.suites.shipped import TABLE_4
from robustdeq.evaluation.suites.subject import Subject, describe
from robustdeq.evaluation.suites.suite import Context
from robustdeq.threat import Linf
from tests.evaluation.manifests import data, manifest
from tests.evaluation.predictors import EPS, images, small_deq

TRADES_RANDOM = {"objective": "trades", "states": "random"}


def model(steps=8, **metadata):
    deq = small_deq(steps)
    deq.metadata = {**deq.metadata, **metadata}
    return deq


def made(suite, predictor, **options):
    return make_suite(suite, Context(Subject(predictor), Linf(EPS), **options))


def settings(suite):
    """(variant, T_f, R) of the further predictors."""
    parts = {name: d.predictor if isinstance(d, EarlyState) else d for name, d in suite.also.items()}
    return {name: (d.variant, d.every, d.descent.steps) for name, d in parts.items()}


TABLE_5 = {("paper", t, r) for t in (1, 2, 4, 8) for r in (1, 5, 10, 20)}


def test_the_paper_suite_holds_what_each_table_and_figure_needs():
    suite = made("paper", EarlyState(model(**TRADES_RANDOM), state=8))
    named = {spec.name: spec for spec in suite.specs}
    assert Counter(spec.group for spec in suite.specs) == {"ready": 1, "grid": 144, "table4": 8, "autoattack": 1}
    assert {spec.limit for spec in suite.specs if spec.name != "square-1000"} == {None}
    assert all(spec.every_image for spec in suite.specs if spec.group in ("ready", "grid"))  # minima, Tables 6 and 7
    assert named["aa-strongest"].is_standard_autoattack  # Table 1
    assert named["pgd-ready"].diagnostics  # Table 2, Figs. 2 and 3c
    assert suite.keep_images  # Table 3
    pairs = {(o["state"], o["steps"]) for n, s in named.items() if n.startswith("apgd") for o in [s.oracle_options]}
    assert pairs == set(TABLE_4)
    assert named["square-1000"].limit == 1000
    found = settings(suite)
    assert found.pop("entropy-released") == ("released", 2, 10)  # beside entropy-sign: Fig. 3b
    assert (len(found), set(found.values())) == (16, TABLE_5)
    assert {d.state for d in suite.also.values()} == {8}
    assert {d.predictor.descent.radius for d in suite.also.values()} == {EPS}


def test_table_4_is_a_suite_too_that_shares_its_attacks_with_the_grid_and_has_a_square_of_its_own():
    predictor = EarlyState(EntropyReduction(model()), state=8)
    few = {"data": data(200)}
    own, whole = ({s.name: s for s in made(n, predictor, **few).specs} for n in ("table4", "paper"))
    assert len(own) == 2 * len(TABLE_4) + 1
    assert {name: whole[name] for name in own} == own
    assert own["square"].limit is None  # 1,000 are no less than all
    names = [
        {s.name for s in made(name, predictor, data=data(images)).specs if s.attack == "square"}
        for name, images in (("table4", 200), ("table4", 1001), ("audit", 1001))
    ]
    assert names == [{"square"}, {"square-1000"}, {"square-survivors"}]  # different images: one folder may hold all
    with pytest.raises(ValueError, match="needs a model with dynamics"):
        made("table4", nn.Flatten())


def test_where_table_4_has_run_square_the_audit_does_not_run_it_again(tmp_path):
    predictor, store = EarlyState(EntropyReduction(model()), state=8), Store(tmp_path)
    own = next(spec for spec in made("table4", predictor, data=data(200)).specs if spec.name == "square")
    store.write_manifest(manifest([AttackRecord(spec=own, hash=own.hash)]))
    names = {spec.name for spec in made("audit", predictor, data=data(200), store=store).specs}
    assert "square" in names
    assert "square-survivors" not in names


def test_images_are_kept_and_settings_scored_for_the_models_of_the_paper_s_tables():
    both = {"entropy-sign": ("paper", 2, 10), "entropy-released": ("released", 2, 10)}
    for metadata, keep in (
        ({}, False),
        ({"objective": "pgdat", "states": "random"}, False),
        ({"objective": "trades"}, True),
    ):
        suite = made("paper", model(**metadata))
        assert (settings(suite), suite.keep_images) == (both, keep)
    defended = made("paper", EarlyState(EntropyReduction(model(**TRADES_RANDOM)), state=8))
    assert (defended.also, defended.keep_images) == ({}, True)  # its base stands beside it


def test_suite_settings_scores_table_5_on_any_model():
    suite = made("settings", model())
    assert len(suite.specs) == 144
    assert (len(suite.also), set(settings(suite).values())) == (16, TABLE_5)
    short = settings(made("settings", model(3)))  # the others would have no step to act on
    assert (len(short), set(short.values())) == (8, {s for s in TABLE_5 if s[1] <= 2})
    with pytest.raises(ValueError, match="needs a model with dynamics"):
        made("settings", lambda x: x)


def test_an_included_suite_keeps_its_predictors_and_images_unless_told_otherwise(tmp_path):
    file, victim = tmp_path / "own.yaml", model(**TRADES_RANDOM)
    file.write_text("include: [paper]")
    suite = made(file, victim)
    assert (settings(suite), suite.keep_images) == (settings(made("paper", victim)), True)
    file.write_text("{include: [paper], also: {}, keep_images: false}")
    suite = made(file, victim)
    assert (suite.also, suite.keep_images) == ({}, False)


def test_a_union_run_scores_only_the_deployed_predictor_and_keeps_no_images(tmp_path):
    file, victim = tmp_path / "own.yaml", model(**TRADES_RANDOM)
    for suite in ("paper", "transfer"):
        assert made(suite, victim).keep_images
        found = made(suite, victim, union=True)
        assert (found.also, found.keep_images, found.notes) == ({}, False, [suites.DEPLOYED_ONLY])
    assert made("grid", victim, union=True).notes == []
    with pytest.raises(ValueError, match="leave --union away"):
        made("settings", victim, union=True)
    file.write_text("{include: [paper], keep_images: true}")
    found = made(file, victim, union=True)
    assert (found.also, found.keep_images) == ({}, True)
    file.write_text("{include: [quick], also: {often: {every: 1}}}")
    with pytest.raises(ValueError, match=r"own.yaml: also: --union judges the deployed predictor alone"):
        made(file, victim, union=True)


def test_a_suite_may_keep_only_the_grid_attacks_that_were_strongest_in_another_store(tmp_path):
    grid = tmp_path / "grid"
    evaluate(model(2), images(6), suite="grid", out=grid, threat=Linf(EPS), unrollings=(1, 2))
    chosen = metrics.strongest_oracles(Store(grid), 3)
    file = tmp_path / "own.yaml"
    file.write_text(f"{{include: [settings], strongest: {{of: {grid}, count: 3}}}}")
    suite = made(file, model(2))
    assert sorted(oracle_of(spec) for spec in suite.specs) == sorted(chosen)
    assert settings(suite) == settings(made("settings", model(2)))
    assert suite.notes == [
        f"of the grid only the 3 (i, K_a, lambda) that were strongest on what is deployed in {grid}: of any other "
        "predictor their minimum is an upper bound"
    ]
    with pytest.raises(ValueError, match=r"strongest: .*grid has \(i, K_a, lambda\) that this grid has not"):
        made(file, model(1))
    file.write_text(f"{{include: [quick, grid], strongest: {{of: {grid}, count: 3}}}}")
    suite = made(file, EntropyReduction(model(2)), aware=True)
    assert Counter(spec.group for spec in suite.specs) == {"ready": 2, "grid": 3, "grid-aware": 3}
    assert {oracle_of(spec) for spec in suite.specs if spec.in_grid} == set(chosen)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{include: [grid], strongest: 8}", "expected a store and a number"),
        ("{include: [grid], strongest: {of: nowhere}}", "expected a store and a number"),
        ("{include: [grid], strongest: {of: 5, count: 8}}", "expected a store and a number"),
        ("{include: [grid], strongest: {of: nowhere, count: yes}}", "at least 1"),
        ("{include: [grid], strongest: {of: nowhere, count: 0}}", "at least 1"),
        ("{include: [grid], strongest: {of: nowhere, count: 8}}", "nowhere is not a store of results"),
        ("{include: [quick], strongest: {of: nowhere, count: 8}}", "no grid to choose from"),
    ],
)
def test_a_mistake_under_strongest_is_explained(tmp_path, content, words):
    (tmp_path / "own.yaml").write_text(content)
    with pytest.raises(ValueError, match=f"own.yaml: strongest: .*{words}"):
        made(tmp_path / "own.yaml", model(2))


def oracle_of(spec):
    return tuple(spec.oracle_options[key] for key in ("state", "steps", "damping"))


def test_the_suite_of_the_documentation_can_be_made(tmp_path):
    page = (Path(__file__).parents[3] / "docs/extend/suite.md").read_text()
    (tmp_path / "mine.yaml").write_text(page.partition("```yaml")[2].partition("```")[0])
    suite = made(tmp_path / "mine.yaml", model())
    assert [spec.name for spec in suite.specs] == ["pgd-ready", "margin", "third-state", "half-the-radius"]
    assert settings(suite) == {"every-4": ("paper", 4, 2)}
    check_buildable(suite.specs, Subject(model()), seed=0, classes=10)


@pytest.mark.parametrize(
    ("also", "message"),
    [
        ("[a]", "own.yaml: also: expected names, each with settings"),
        ("{a: 3}", "own.yaml: also: expected names, each with settings"),
        ("{a: {evry: 3}}", "own.yaml: also: a cannot be made with {'evry': 3}"),
        ("{a: {variant: released, every: 3}}", "own.yaml: also: a cannot be made with"),
        ("{base: {every: 1}}", "own.yaml: also: 'base' is the undefended model of a defended one: choose another name"),
        ("{deployed: {every: 1}}", "own.yaml: also: 'deployed' is the predictor under evaluation: choose another name"),
    ],
)
def test_further_predictors_that_cannot_be_made_are_refused(tmp_path, also, message):
    (tmp_path / "own.yaml").write_text(f"{{include: [quick], also: {also}}}")
    with pytest.raises(ValueError, match=message):
        made(tmp_path / "own.yaml", model())


def test_table_5_of_one_store_equals_a_store_for_each_setting(tmp_path):
    (tmp_path / "own.yaml").write_text(
        "{include: [grid], also: {often: {every: 1, steps: 3}, seldom: {every: 3, steps: 2, variant: released}}}"
    )
    shown, options = images(8), {"threat": Linf(EPS), "unrollings": (1,)}
    store = evaluate(EarlyState(model(3), state=3), shown, tmp_path / "own.yaml", tmp_path / "all", **options).store
    together = metrics.by_setting(store)
    assert together.select("predictor", "variant", "every", "steps").rows() == [
        ("often", "paper along the sign", 1, 3),
        ("seldom", "released", 3, 2),
    ]
    for row in together.iter_rows(named=True):
        settings = {"variant": row["variant"].split()[0], "every": row["every"], "steps": row["steps"]}
        defended = EntropyReduction(model(3), radius=EPS, step_size=EPS / 4, **settings)
        verdict = evaluate(EarlyState(defended, state=3), shown, "grid", tmp_path / row["predictor"], **options)
        (alone,) = metrics.by_setting(verdict.store).iter_rows(named=True)
        assert alone == {**row, "predictor": "deployed"}
        assert alone["accuracy"] == verdict.minimum.value
        assert predictions(verdict.store, "deployed") == predictions(store, row["predictor"])
    assert predictions(store, "often") != predictions(store, "seldom")


def predictions(store, predictor):
    rows = store.rows().filter(pl.col("predictor") == predictor).sort("attack", "image", "state")
    return rows.select("attack", "image", "state", "prediction").collect().rows()


def test_a_manifest_names_the_variant_and_what_differs_from_it():
    def words(**settings):
        config = describe(EntropyReduction(model(), **settings))
        return PredictorRecord(deployed_state="final", states=["final"], config=config).entropy.words

    assert (words(), words(variant="released")) == ("paper along the sign", "released")
    assert words(direction="sign", resolve=False) == "paper along the sign, with resolve false"
    assert words(direction="gradient") == "paper along the gradient, as printed"
    assert words(variant="released", direction="gradient") == "released along the gradient"


@pytest.mark.parametrize(("variant", "direction"), [("paper", "gradient"), ("released", "sign")])
def test_a_store_from_before_switches_were_recorded_is_of_the_directions_of_its_time(variant, direction):
    config = describe(EntropyReduction(model(), variant=variant))
    del config["switches"]
    record = PredictorRecord(deployed_state="final", states=["final"], config=config)
    assert record.entropy.switches == {"direction": direction}


RESULTS = sorted((Path(__file__).parents[3] / "results/suites").glob("*.yaml"))


@pytest.mark.parametrize("file", RESULTS, ids=[file.stem for file in RESULTS])
def test_the_suites_of_the_results_can_be_made(file, monkeypatch):
    monkeypatch.setattr(metrics, "strongest_oracles", lambda store, count: [(1, k, 0.5) for k in range(1, count + 1)])
    aware = file.stem.startswith("aware")
    victim = EntropyReduction(model()) if aware else model()
    suite = made(file, victim, aware=aware)
    check_buildable(suite.specs, Subject(victim), seed=0, classes=10)
    grid = {"aware": 16, "settings": 8, "variants": 8, "grid": 144, "transfer": 8}
    assert sum(spec.in_grid for spec in suite.specs) == grid.get(file.stem.partition("-")[0], 0)
    assert suite.keep_images == file.stem.startswith("transfer")
