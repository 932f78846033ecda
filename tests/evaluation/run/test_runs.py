"""Runs that are interrupted, shared between processes, or limited in time or memory give the results of one run."""

import itertools
import json
import math
import os
import shutil
import signal
from dataclasses import replace

import polars as pl
import pytest
import torch

import robustdeq.evaluation.run.batch as batch_module
import robustdeq.evaluation.run.progress as progress_module
import robustdeq.evaluation.run.runner as runner_module
from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation import Interrupted, OtherStoreError, Store, evaluate
from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.suites.attacks import ready, unrolled
from robustdeq.evaluation.suites.read import make_suite
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.evaluation.suites.suite import Context, Suite
from robustdeq.solve import Broyden, Implicit
from robustdeq.threat import Linf
from tests.evaluation import predictors
from tests.evaluation.conftest import UNROLLINGS
from tests.evaluation.predictors import EPS, short, small_deq

COUNT = 8
ITEMS = 8
FOLDERS = ("clean", "attacks/a", "attacks/b", "attacks/c")

SUITE = """
attacks:
  - {name: a, attack: pgd, options: {steps: 1, step_size: 0.02}}
  - {name: b, attack: pgd, options: {steps: 2, step_size: 0.03}, oracle: unrolled, oracle_options: {state: 2}}
  - {name: c, attack: apgd, options: {n_iter: 3}, oracle_options: {values: deployed}}
"""


def images(count):
    """Digits, of which one is labelled wrongly, so that one is misclassified."""
    x, y = predictors.images(count)
    y = y.clone()
    y[5] = (y[5] + 1) % 10
    return x, y


@pytest.fixture
def suite(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(SUITE)
    return file


@pytest.fixture
def run(deployed, suite, tmp_path):
    """Evaluate into a folder of that name."""

    def evaluated(name, predictor=deployed, data=None, **options):
        data = images(COUNT) if data is None else data
        options = {"threat": Linf(EPS), "batch_size": 3, "shard_size": 4, "suite": suite} | options
        return evaluate(predictor, data, out=tmp_path / name, **options)

    return evaluated


@pytest.fixture(scope="module")
def straight(deployed, tmp_path_factory):
    """An undisturbed run."""
    folder = tmp_path_factory.mktemp("straight")
    (folder / "small.yaml").write_text(SUITE)
    return evaluate(
        deployed, images(COUNT), folder / "small.yaml", folder / "out", threat=Linf(EPS), batch_size=3, shard_size=4
    )


def tables(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


class Stop(Exception):
    pass


def test_an_interrupted_run_resumes_to_the_same_bytes(run, straight, tmp_path):
    assert len(tables(straight.folder)) == ITEMS
    for stop_at in (1, 5):

        def report(now, stop_at=stop_at):
            if now.done == stop_at:
                raise Stop

        with pytest.raises(Stop):
            run("stopped", report=report)
        assert len(tables(tmp_path / "stopped")) == stop_at
    finished = run("stopped")
    assert finished.complete
    assert tables(finished.folder) == tables(straight.folder)


def test_a_finished_run_attacks_nothing_again(run, straight, tmp_path, monkeypatch):
    shutil.copytree(straight.folder, tmp_path / "store")
    monkeypatch.setattr(batch_module, "attack_together", None)
    assert run("store").table() == straight.table()


def test_another_batch_and_shard_size_gives_equal_results_in_float64(run, straight):
    one, other = straight.store, run("other", batch_size=7, shard_size=8).store
    keys = ["attack", "image", "predictor", "state"]
    a, b = (store.rows().collect().sort(keys) for store in (one, other))
    exact = [*keys, "label", "deployed", "clean_prediction", "prediction", "success", "queries"]
    assert a.select(exact).equals(b.select(exact))
    for column in ("margin", "entropy", "loss"):
        assert a[column].to_list() == pytest.approx(b[column].to_list(), rel=1e-5, abs=1e-6)


def test_a_process_does_its_own_items_first_and_then_what_others_left(run, straight, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)

    def stop_half_way(now):
        if now.done == ITEMS // 2:
            raise Stop

    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    with pytest.raises(Stop):
        run("shared", report=stop_half_way)
    first = set(tables(tmp_path / "shared"))
    assert first == {f"{folder}/shard-0000.parquet" for folder in FOLDERS}  # every second item
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    finished = run("shared")
    assert finished.complete
    assert tables(finished.folder) == tables(straight.folder)


def test_under_union_misclassified_and_broken_images_leave(run, straight):
    full, union = straight, run("union", union=True)
    assert union.union.value <= full.union.value  # an image stops where it is fooled, not where the attack ends
    tables = {name: union.store.rows(name).collect() for name in union.store.attacks}
    clean = union.store.clean().collect()
    left = set(clean.filter(pl.col("correct"))["image"])
    assert 0 < len(left) < COUNT
    for name in ("a", "b", "c"):  # by their cost
        assert set(tables[name]["image"]) == left
        assert tables[name]["state"].unique().to_list() in (["3"], [])
        left -= set(tables[name].filter(pl.col("success"))["image"])
    assert union.union.value == len(left) / COUNT
    assert (
        sum(t["queries"].sum() for t in tables.values())
        < full.store.rows().filter(pl.col("deployed")).collect()["queries"].sum()
    )
    with pytest.raises(metrics.IncompleteError, match="--union"):
        metrics.paper_minimum(union.store, ["a"])


def test_a_time_budget_ends_a_run_with_the_interval_the_answer_must_lie_in(run, monkeypatch):
    clock = iter(range(10_000))
    with monkeypatch.context() as patch:
        patch.setattr(runner_module.time, "monotonic", lambda: float(next(clock)))
        part = run("store", union=True, budget=22.0)
    assert not part.complete
    assert 0 < len(list(part.folder.rglob("*.parquet"))) < ITEMS
    assert "not complete" in part.table()
    whole = run("store", union=True)
    assert whole.complete
    assert part.bounds.low <= whole.union.value <= part.bounds.high
    assert part.bounds.low < part.bounds.high


def test_a_time_budget_also_ends_an_attack_under_way(run, monkeypatch):
    clock = iter(range(10_000))
    with monkeypatch.context() as patch:
        patch.setattr(runner_module.time, "monotonic", lambda: float(next(clock)))
        part = run("store", budget=8.0)
    assert part.given_up == "a"
    assert not part.complete
    assert "the time budget ended within a, whose batch under way is lost" in part.table()
    assert not list((part.folder / "attacks").rglob("*.parquet"))
    assert run("store").complete


def test_a_run_without_time_says_that_nothing_is_done(run):
    assert "clean           nothing is done yet" in run("store", budget=0.0).table()


def test_the_bounds_of_the_robust_accuracy_only_tighten(run):
    seen = []
    verdict = run("store", report=lambda now: seen.append(now))
    lows, highs = [now.robust.low for now in seen], [now.robust.high for now in seen]
    assert lows == sorted(lows)
    assert highs == sorted(highs, reverse=True)
    assert (lows[0], highs[0]) == (0.0, 1.0)
    assert lows[-1] == highs[-1] == verdict.union.value
    assert seen[-1].done == seen[-1].total == ITEMS
    assert seen[-1].remaining == 0
    assert seen[-1].rate > 0


def test_a_long_attack_reports_its_image_and_pass(run, monkeypatch):
    quiet, told = [], []
    one = Suite("one", [AttackSpec(name="a", attack="pgd", options={"steps": 1}, eps=EPS, oracle="ready")])
    monkeypatch.setattr(progress_module, "EVERY", math.inf)
    run("quiet", suite=one, report=lambda now: quiet.append(now.doing))
    monkeypatch.setattr(progress_module, "EVERY", 0.0)
    run("told", suite=one, report=lambda now: told.append(now.doing))
    assert [doing for doing in told if ", pass " not in doing] == quiet
    first = told.index("a")
    steps = list(itertools.takewhile(lambda doing: doing.startswith("a, image "), told[first + 1 :]))
    assert steps == [f"a, image {image} of 4, pass {n}" for image in (1, 4) for n in (1, 2)]  # batches of 3


@pytest.mark.parametrize("union", [True, False])
def test_the_forecast_counts_unbroken_images_only_under_union(run, monkeypatch, union):
    runners = []
    start = runner_module.Runner.run
    monkeypatch.setattr(runner_module.Runner, "run", lambda self: runners.append(self) or start(self))
    verdict = run("store", union=union)
    (runner,) = runners
    items = [item for item in runner.schedule.items if item.attack == "a"]
    whole = runner.schedule.specs["a"].cost() * COUNT
    effort = runner._effort(items)
    assert 0 < verdict.union.value < 1
    share = verdict.union.value if union else 1.0
    assert effort.cost == pytest.approx(share * whole)
    assert effort.images == pytest.approx(share * COUNT)


class Small(torch.nn.Module):
    """A predictor that runs out of memory on more than three images."""

    def __init__(self, error):
        super().__init__()
        self.model, self.error, self.largest = small_deq(), error, 0

    def forward(self, x):
        if len(x) > 3:
            raise self.error
        self.largest = max(self.largest, len(x))
        return self.model(x)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate")],
    ids=["device", "cpu"],
)
def test_a_batch_that_does_not_fit_is_halved(run, error):
    whole = run("whole", predictor=small_deq().forward, suite=short, batch_size=8)
    halved = run("halved", predictor=Small(error), suite=short, batch_size=8)
    assert halved.attacks == whole.attacks
    assert halved.store.rows().collect()["image"].to_list() == list(range(COUNT))


def test_other_errors_are_not_retried(run):
    with pytest.raises(RuntimeError, match="a bug"):
        run("store", predictor=Small(RuntimeError("a bug")), suite=short, batch_size=8)


def test_another_model_or_configuration_is_refused_with_the_difference(run, straight, tmp_path):
    shutil.copytree(straight.folder, tmp_path / "store")
    other = small_deq()
    with torch.no_grad():
        other.head.bias += 1e-9
    cases = [
        ({"predictor": EarlyState(other, state=3)}, r"model\.weights_sha256: '\w+' in the store, '\w+' asked for"),
        ({"predictor": EarlyState(small_deq(), state=2)}, "model.config.state: 3 in the store, 2 asked for"),
        ({"seed": 1}, "seed: 0 in the store, 1 asked for"),
        ({"data": images(7)}, "data.images: 8 in the store, 7 asked for"),
        ({"threat": Linf(0.2)}, r"attacks.a.eps: 0.05 in the store, 0.2 asked for"),
        ({"union": True}, "union: False in the store, True asked for"),
        ({"shard_size": 5}, "shard_size: 4 in the store, 5 asked for"),
    ]
    for change, message in cases:
        with pytest.raises(OtherStoreError, match=message):
            run("store", **change)


class Centred(torch.nn.Module):
    """Features less their mean over the batch."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, x):
        u = self.encoder(x)
        return u - u.mean(0)


class OwnBroyden(Broyden):
    """A user's solver, which a manifest has as text."""


def _batch_dependent(kind):
    model = small_deq()
    if kind == "coupled":
        model.solver = replace(model.solver, batch_coupled=True)
    elif kind == "coupled, a user's solver":
        model.solver, model.gradient = OwnBroyden(max_steps=3, batch_coupled=True), Implicit()
    elif kind == "coupled backwards":
        model.gradient = Implicit(solver=Broyden(max_steps=3, batch_coupled=True))
    elif kind == "an encoder's statistics":
        model.encoder = Centred(model.encoder)
    elif kind == "a module around a DEQ":
        return Small(torch.OutOfMemoryError("too many"))  # knows nothing of its batch, but nobody can say so
    elif kind == "a function":
        return model.forward
    return EarlyState(model, state=3)


KINDS = (
    "coupled",
    "coupled, a user's solver",
    "coupled backwards",
    "an encoder's statistics",
    "a module around a DEQ",
    "a function",
)


@pytest.mark.parametrize("kind", KINDS)
def test_another_batch_size_is_refused_where_predictions_may_depend_on_the_batch(run, kind):
    run("store", predictor=_batch_dependent(kind), suite=short, batch_size=3)
    with pytest.raises(OtherStoreError, match="batch_size: 3 in the store, 2 asked for"):
        run("store", predictor=_batch_dependent(kind), suite=short, batch_size=2)


@pytest.mark.parametrize("defended", [False, True])
def test_another_batch_size_is_accepted_where_images_are_solved_independently(run, defended):
    def predictor():
        model = small_deq()
        model.solver = OwnBroyden(max_steps=3)
        return EarlyState(EntropyReduction(model, every=1, steps=2) if defended else model, state=3)

    first = run("store", predictor=predictor(), suite=short, batch_size=3)
    first.store.path("pgd-ready", 1).unlink()
    assert run("store", predictor=predictor(), suite=short, batch_size=2).attacks == first.attacks


def test_another_attack_of_the_same_name_is_refused(run, straight, tmp_path, suite):
    shutil.copytree(straight.folder, tmp_path / "store")
    suite.write_text(SUITE.replace("steps: 1,", "steps: 3,"))
    with pytest.raises(OtherStoreError, match=r"attacks\.a\.options\.steps: 1 in the store, 3 asked for"):
        run("store")


def test_a_store_with_results_but_no_manifest_is_refused(run, straight, tmp_path):
    shutil.copytree(straight.folder, tmp_path / "store")
    (tmp_path / "store" / "manifest.json").unlink()
    with pytest.raises(OtherStoreError, match=r"holds results but no manifest\.json"):
        run("store")


def test_the_threat_defaults_to_the_checkpoint_s_eps_and_then_the_paper_s(tmp_path):
    x, y = predictors.images(2)
    for metadata, eps in (({}, 8 / 255), ({"eps": "4/255"}, 4 / 255)):
        model = small_deq(2)
        model.metadata = metadata
        store = evaluate(model, (x, y), short, tmp_path / str(eps)).store
        assert store.manifest.threat == Linf(eps)


def test_half_precision_logits_are_scored(tmp_path):
    x, y = predictors.images(2)
    verdict = evaluate(lambda x: small_deq()(x).bfloat16(), (x, y), short, tmp_path / "store", threat=Linf(EPS))
    assert verdict.complete


def test_suites_share_a_store_and_provenance_may_change(run, straight, tmp_path, monkeypatch):
    shutil.copytree(straight.folder, tmp_path / "store")
    monkeypatch.setattr(
        "robustdeq.evaluation.run.plan.provenance", lambda world: {"versions": {}, "commit": "another", "hardware": {}}
    )
    verdict = run("store", suite=short)
    manifest = json.loads((verdict.folder / "manifest.json").read_text())
    assert list(manifest["attacks"]) == ["a", "b", "c", "pgd-ready"]
    assert manifest["suites"] == ["small", "short"]
    assert [r["commit"] for r in manifest["runs"]][1:] == ["another"]
    assert set(verdict.attacks) == {"a", "b", "c", "pgd-ready"}


def test_a_defended_predictor_is_scored_beside_its_base(run):
    defended = EarlyState(EntropyReduction(small_deq(), every=1, steps=3, radius=EPS, step_size=0.02), state=3)

    def both(context):
        return Suite("both", [*short(context).specs, replace(ready(context, aware=True), options={"steps": 1})])

    store = run("store", predictor=defended, suite=both, aware=True, keep_images=True).store
    assert store.attacks == ["pgd-ready", "pgd-ready-aware"]
    rows = store.rows("pgd-ready").filter(pl.col("deployed")).collect()
    by_name = {
        name: table["prediction"].to_list() for (name,), table in rows.partition_by("predictor", as_dict=True).items()
    }
    assert list(by_name) == ["deployed", "base"]
    base = EarlyState(small_deq(), state=3)
    pixels = torch.cat([store.images("pgd-ready", s)[1] for s in range(2)])
    with torch.no_grad():
        assert by_name["base"] == base(pixels).argmax(1).tolist()
        assert by_name["deployed"] == defended(pixels).argmax(1).tolist()


def test_images_of_one_store_are_scored_on_another_predictor(run, tmp_path):
    source = run("source", keep_images=True).store
    other = EarlyState(small_deq(), state=1)
    verdict = run("target", predictor=other, suite=short, sources=[source.folder])
    pixels = torch.cat([source.images("b", s)[1] for s in range(2)])
    with torch.no_grad():
        expected = other(pixels).argmax(1).tolist()
    rows = verdict.store.rows("from.source.b").filter(pl.col("deployed")).sort("image").collect()
    assert rows["prediction"].to_list() == expected
    assert rows["queries"].unique().to_list() == [0]
    with pytest.raises(ValueError, match="keeps no adversarial images"):
        run("again", predictor=other, sources=[verdict.folder])
    x, y = images(COUNT)
    with pytest.raises(ValueError, match="its attacks do not fit"):
        run("again", predictor=other, sources=[source.folder], data=(x.flip(0), y.flip(0)))


def test_autoattack_takes_the_grid_s_strongest_oracle_or_says_that_it_did_not(grid_verdict, deployed):
    def suite(store):
        return make_suite("autoattack", Context(Subject(deployed), Linf(EPS), store=store, unrollings=UNROLLINGS))

    assert [s.name for s in suite(grid_verdict.store).specs] == ["aa-strongest"]
    without = suite(Store("/nowhere"))
    assert [s.name for s in without.specs] == ["aa-ready"]
    assert any("aa-ready" in note for note in without.notes)


def test_the_strongest_oracle_is_found_in_the_run_and_named_in_the_manifest(run, tmp_path):
    def few(context):
        weak = {"steps": 2, "step_size": 0.02}
        grid = [replace(unrolled(context, i, 2, 1.0), options=weak) for i in (1, 2, 3)]
        short = AttackSpec(
            name="short", attack="autoattack", options={"n_iter": 2, "targets": 1, "n_queries": 3}, oracle="strongest",
            oracle_options={"values": "deployed"}, every_image=False, **context.ball,
        )  # fmt: skip
        return Suite("few", [*grid, short])

    verdict = run("store", suite=few, batch_size=4)
    strongest = metrics.strongest(verdict.store)
    resolved = verdict.store.manifest.attacks["short"].resolved
    assert resolved.attack_of_grid == strongest.attack
    assert resolved.oracle_options == {**strongest.oracle_options, "values": "deployed"}
    assert verdict.aa == {}  # not the standard budgets
    assert verdict.attacks["short"].value <= verdict.clean.value


def test_a_signal_ends_the_run_with_its_code_and_the_handlers_come_back(run, tmp_path):
    before = signal.getsignal(signal.SIGTERM)

    def report(now):
        if now.done == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="SIGTERM: 3 of 8 items are stored") as stop:
        run("store", report=report)
    assert stop.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(tables(tmp_path / "store")) == 3


def test_predictions_that_are_not_finite_count_as_wrong(run):
    def broken(x):
        return torch.full((len(x), 10), torch.nan, dtype=x.dtype) + x.flatten(1)[:, :10]

    verdict = run("store", predictor=broken, suite=short)
    assert verdict.clean.value == verdict.union.value == 0
    assert verdict.store.clean().collect()["prediction"].unique().to_list() == [-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": (torch.rand(3, 1, 8, 8) * 255, torch.zeros(3).long())}, "pixels must lie in"),
        ({"data": (torch.rand(3, 1, 8, 8), torch.zeros(4).long())}, "one label for each of the 3"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"shard_size": 0}, "shard_size must be at least 1"),
        ({"suite": "gird"}, "did you mean grid"),
        ({"also": {"deployed": lambda x: x}}, "name the others differently"),
    ],
)
def test_a_mistake_is_explained_and_leaves_no_folder(run, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        run("store", **change)
    assert not (tmp_path / "store").exists()
