"""Resuming a store: what counts as the same predictor, what counts as done, and what is refused beforehand."""

import errno
import json
import shutil
from dataclasses import replace

import polars as pl
import pytest
import torch
from torch import nn

import robustdeq.evaluation.run.runner as runner_module
from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation import OtherStoreError, Store, evaluate
from robustdeq.evaluation.run.resume import PartialItem
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.schema import PARTIAL_SCHEMA
from robustdeq.evaluation.suites import read as suites
from robustdeq.evaluation.suites.attacks import unrolled
from robustdeq.evaluation.suites.read import make_suite
from robustdeq.evaluation.suites.subject import Subject, describe
from robustdeq.evaluation.suites.suite import Context, Suite
from robustdeq.evaluation.suites.variants import entropy_reduced, entropy_variants
from robustdeq.threat import Linf
from tests.evaluation.predictors import EPS, images, plain_function, short, small_deq

COUNT = 8


@pytest.fixture
def run(deployed, tmp_path):
    """Evaluate into a folder of that name."""

    def evaluated(name, suite=short, predictor=deployed, **options):
        options = {"threat": Linf(EPS), "batch_size": 4, "shard_size": 4} | options
        return evaluate(predictor, images(COUNT), suite, tmp_path / name, **options)

    return evaluated


@pytest.fixture
def own(tmp_path):
    """Write a suite."""

    def written(name, text):
        (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path / f"{name}.yaml"

    return written


def test_all_shards_use_the_strongest_oracle_that_the_manifest_names(run, tmp_path, monkeypatch):
    def few(context):
        weak = {"steps": 1, "step_size": 0.02}
        grid = [replace(unrolled(context, i, 1, 1.0), options=weak) for i in (1, 2)]
        last = AttackSpec(name="last", attack="pgd", options={"steps": 1, "step_size": 0.02}, oracle="strongest",
                          **context.ball)  # fmt: skip
        return Suite("few", [*grid, last])

    whole = run("store", few).store
    chosen = whole.manifest.attacks["last"].resolved
    rows = whole.path("last", 1).read_bytes()
    whole.path("last", 1).unlink()

    def another(store):
        raise AssertionError("computed anew")

    monkeypatch.setattr(runner_module, "strongest", another)
    again = run("store", few).store
    assert again.manifest.attacks["last"].resolved == chosen
    assert again.path("last", 1).read_bytes() == rows


@pytest.mark.parametrize(("metadata", "radius"), [({"eps": EPS}, EPS), ({}, 8 / 255)])
def test_entropy_variants_defend_within_the_model_s_eps(metadata, radius):
    model = small_deq(2)
    model.metadata = metadata
    variants = entropy_variants(Subject(model))
    assert set(variants) == {"entropy-sign", "entropy-released"}
    for variant in variants.values():
        expected = EntropyReduction(model, variant=variant.variant, radius=radius, step_size=radius / 4)
        assert describe(variant) == describe(expected)


STRONG = "attacks: [{name: strong, attack: pgd, eps: 0.05, options: {steps: 5, step_size: 0.05}}]"
WEAK = "attacks: [{name: weak, attack: pgd, eps: 1/1000, options: {steps: 1, step_size: 0.001}}]"


def test_bounds_are_those_of_the_union_over_all_suites_in_the_store(run, own):
    strong = run("store", own("strong", STRONG))
    assert strong.union.value < strong.clean.value
    seen = []
    weak = run("store", own("weak", WEAK), report=seen.append)
    assert weak.attacks["weak"].value > strong.union.value
    assert weak.bounds.low == weak.bounds.high == weak.union.value == strong.union.value
    assert {now.robust.high for now in seen} == {strong.union.value}


def test_bounds_stay_apart_while_another_suite_is_unfinished(run, own, tmp_path):
    class Stop(Exception):
        pass

    def report(now):
        if now.done == 3:
            raise Stop

    with pytest.raises(Stop):
        run("store", own("strong", STRONG), report=report)
    weak = run("store", own("weak", WEAK))
    assert weak.complete
    assert weak.bounds.high == weak.union.value
    whole = run("store", own("strong", STRONG)).union.value
    assert weak.bounds.low <= whole <= weak.bounds.high
    assert weak.bounds.low < weak.bounds.high


def test_other_weights_of_a_further_predictor_are_refused(run):
    other = small_deq()
    run("store", also={"other": other})
    with torch.no_grad():
        other.head.bias += 1e-9
    with pytest.raises(OtherStoreError, match=r"predictors\.other\.weights_sha256"):
        run("store", also={"other": other})


class Scaled(nn.Module):
    def __init__(self, t):
        super().__init__()
        self.t = t

    def forward(self, x):
        return self.t * x.flatten(1)[:, :10]


def test_settings_of_child_modules_identify_the_predictor(run):
    run("store", predictor=nn.Sequential(nn.Identity(), nn.Sequential(Scaled(1))))
    with pytest.raises(OtherStoreError, match=r"model\.config\.1\.0\.t: 1 in the store, -1 asked for"):
        run("store", predictor=nn.Sequential(nn.Identity(), nn.Sequential(Scaled(-1))))
    assert describe(nn.Sequential(nn.Conv2d(1, 1, 3, stride=1))) != describe(
        nn.Sequential(nn.Conv2d(1, 1, 3, stride=2))
    )


def test_images_can_be_kept_by_a_later_run(run):
    first = run("store").store
    assert not first.has_images("pgd-ready")
    rows = [first.path("pgd-ready", s).read_bytes() for s in range(2)]
    kept = run("store", keep_images=True).store
    assert [kept.path("pgd-ready", s).read_bytes() for s in range(2)] == rows
    assert kept.has_images("pgd-ready")
    assert [kept.images("pgd-ready", s)[0].tolist() for s in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert first.images_path(None, 0).is_file()  # they stand beside the attacked ones
    index, pixels = kept.images(None, 1)
    assert index.tolist() == [4, 5, 6, 7]
    assert torch.equal(pixels, images(COUNT)[0][4:])
    kept.images_path("pgd-ready", 1).unlink()
    assert not kept.has_images("pgd-ready")


def test_a_shard_without_survivors_keeps_a_file_of_no_images(run, monkeypatch):
    def wrong(x):
        return torch.full((len(x), 10), torch.nan, dtype=x.dtype) + x.flatten(1)[:, :10]

    store = run("store", predictor=wrong, union=True, keep_images=True).store
    assert store.has_images("pgd-direct")
    places, pixels = store.images("pgd-direct", 0)
    assert (tuple(places.shape), tuple(pixels.shape)) == ((0,), (0, 1, 8, 8))
    monkeypatch.setattr(runner_module.Runner, "_run", None)
    assert run("store", predictor=wrong, union=True, keep_images=True).complete


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("options: {stepz: 2}", "attack b: pgd cannot be made"),
        ("oracle: unrolled, oracle_options: {stat: 2}", "attack b: oracle unrolled cannot be made"),
    ],
)
def test_a_typo_is_found_before_anything_is_written_and_can_be_corrected(run, own, tmp_path, mistake, message):
    text = "attacks: [{{name: a, attack: pgd, options: {{steps: 1}}}}, {{name: b, attack: pgd, {}}}]"
    with pytest.raises(ValueError, match=message):
        run("store", own("typo", text.format(mistake)))
    assert not (tmp_path / "store").exists()
    assert run("store", own("typo", text.format("options: {steps: 1}"))).complete


def test_a_truncated_timing_record_loses_no_other_and_a_full_disk_is_ignored(tmp_path, monkeypatch):
    store = Store(tmp_path)
    records = [{"attack": "a", "shard": k, "images": 4, "seconds": 1.0} for k in range(3)]
    store.log_time(0, records[0])
    with open(tmp_path / "times-0.jsonl", "a") as file:
        file.write("\n" + json.dumps(records[1])[:20])
    store.log_time(0, records[2])
    assert store.times().to_dicts() == [records[0], records[2]]

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("builtins.open", full)
    store.log_time(0, records[1])


def test_a_store_without_images_says_which_option_keeps_them(run):
    source = run("source").folder
    with pytest.raises(ValueError, match="--keep-images"):
        run("target", sources=[source])


@pytest.mark.parametrize("attack", [None, "pgd-ready"])
def test_a_truncated_file_is_named_and_recomputed_after_it_is_deleted(run, attack):
    store = run("quick").store
    path = store.path(attack, 0)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=f"{path} is damaged .*: copy it again, or delete it"):
        run("quick")
    path.unlink()
    assert run("quick").complete


def test_included_suites_give_each_note_once(own):
    file = own("both", "include: [quick, autoattack]")
    suite = make_suite(file, Context(Subject(plain_function()), Linf(EPS)))
    assert suite.notes == [suites.WITHOUT_DYNAMICS]


class Own(torch.nn.Module):
    """A user's own: what it does to its answer is no setting that a manifest could hold."""

    def __init__(self, activation):
        super().__init__()
        self.model, self.activation = small_deq(), activation

    def forward(self, x):
        return self.activation(self.model(x))


@pytest.mark.parametrize("plain", [True, False])
def test_a_predictor_whose_code_has_changed_is_recognised_by_its_logits(plain, tmp_path):
    first, other = (Own(torch.tanh), Own(torch.negative))
    if plain:
        first, other = (lambda x: Own(torch.tanh)(x), lambda x: Own(torch.negative)(x))
    data = images(4)
    again = {"suite": short, "out": tmp_path / "store", "threat": Linf(EPS)}
    evaluate(first, data, **again)
    evaluate(first, data, **again)
    with pytest.raises(OtherStoreError, match="gives other logits than the one that created the store"):
        evaluate(other, data, **again)


def test_a_function_that_gained_a_defence_is_refused(tmp_path):
    model = small_deq()
    defended = EntropyReduction(model, radius=EPS, step_size=EPS / 4)
    again = {"suite": short, "out": tmp_path / "store", "threat": Linf(EPS)}
    evaluate(lambda x: model(x), images(4), **again)
    with pytest.raises(OtherStoreError, match="gives other logits"):
        evaluate(lambda x: defended(x), images(4), **again)


def test_a_predictor_that_fails_is_reported_in_one_line(tmp_path):
    def failing(x):
        raise KeyError("weights")

    with pytest.raises(ValueError, match=r"fails on images \(4, 1, 8, 8\) \(KeyError: 'weights'\)"):
        evaluate(failing, images(4), "quick", tmp_path, threat=Linf(EPS))


def test_a_store_without_stored_logits_resumes_and_gains_them(tmp_path):
    data, again = images(4), {"suite": short, "out": tmp_path / "store", "threat": Linf(EPS)}
    evaluate(small_deq(), data, **again)
    kept = Store(tmp_path / "store").manifest.answers
    path = tmp_path / "store" / "manifest.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "answers"}))
    evaluate(small_deq(), data, **again)
    assert Store(tmp_path / "store").manifest.answers == kept


def test_a_random_predictor_has_no_stored_logits(tmp_path):
    noise = torch.Generator().manual_seed(0)
    model = small_deq()

    def noisy(x):
        return model(x) + 10 * torch.randn(len(x), 10, dtype=x.dtype, generator=noise)

    again = {"suite": short, "out": tmp_path / "store", "threat": Linf(EPS)}
    for _ in range(2):
        verdict = evaluate(noisy, images(4), **again)
    assert verdict.store.manifest.answers is None


def test_a_refusal_shows_the_first_differences_only(tmp_path):
    data, again = images(2), {"suite": "grid", "out": tmp_path / "store", "budget": 0.0}
    model = EarlyState(small_deq(), state=3)
    evaluate(model, data, threat=Linf(0.1), **again)
    with pytest.raises(OtherStoreError, match=r"threat\.eps: 0\.1 in the store, 0\.2 asked for") as refused:
        evaluate(model, data, threat=Linf(0.2), **again)
    lines = str(refused.value).splitlines()
    assert len(lines) < 20
    assert lines[-1].endswith(" more")


@pytest.mark.parametrize("eps", ["8/255", 8 / 255])
def test_an_eps_of_the_checkpoint_may_be_a_fraction(eps):
    model = small_deq()
    model.metadata = {"eps": eps}
    defended = entropy_reduced(Subject(model))
    assert (defended.descent.radius, defended.descent.step_size) == (8 / 255, 2 / 255)


def test_a_store_whose_name_is_a_pattern_reads_its_own_files_only(run, tmp_path):
    beside = run("seed0", threat=Linf(1e-6))
    wanted = run("seed[01]", threat=Linf(0.3))
    assert beside.union.value > wanted.union.value  # reading the other store would show
    for name in ("seed*", "seed?", "~seed", "a=1"):
        shutil.copytree(wanted.folder, tmp_path / name)
        (tmp_path / name / "attacks" / "pgd-ready" / "shard-0001.parquet").unlink()
        found = run(name, threat=Linf(0.3))
        assert found.union == wanted.union
        assert found.attacks == wanted.attacks


def test_partial_items_are_read_from_a_store_whose_name_is_a_pattern(tmp_path):
    for folder in ("seed0", "seed[01]"):
        partial = PartialItem(Store(tmp_path / folder), "pgd", 0, keep_images=False)
        prediction = 1 if folder == "seed0" else 2
        rows = pl.DataFrame({"image": [0, 1], "prediction": [prediction] * 2})
        missing = {name: kind for name, kind in PARTIAL_SCHEMA.items() if name not in rows.columns}
        rows = rows.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in missing.items())
        partial.write(rows, torch.arange(2), torch.empty(0))
    found = partial.read(torch.arange(2), 2)
    assert found is not None
    assert found[0]["prediction"].to_list() == [2, 2]
