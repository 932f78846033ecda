"""Other stores as sources of images: the names of their attacks, and which images are refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robustdeq.evaluation import Store, evaluate
from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.store.files import Origin, as_safetensors
from robustdeq.evaluation.store.manifest import AttackRecord
from robustdeq.evaluation.store.sources import named_sources
from robustdeq.threat import Linf
from tests.evaluation.manifests import record
from tests.evaluation.predictors import EPS, images, short, small_deq

WEAK = "attacks: [{name: weak, attack: pgd, options: {steps: 1, step_size: 0.02}}]"


def named(*folders, attacks=()):
    stored = {"attack": "stored", "oracle": "none"}
    records = [
        record(f"from.{label}.pgd", options={"store": store, "attack": "pgd"}, **stored) for store, label in attacks
    ]
    known = {entry.spec.name: entry for entry in records}
    return [source.label for source in named_sources(map(Path, folders), known, Path("/runs/target"))]


def test_a_source_is_named_by_the_shortest_unique_end_of_its_path():
    assert named("/runs/a", "/runs/b") == ["a", "b"]
    assert named("/runs/a/out", "/runs/b/out", "/runs/c") == ["a+out", "b+out", "c"]
    assert named("/runs/a", "/runs/a") == ["a"]


def test_characters_that_names_may_not_contain_are_replaced_and_names_stay_unique():
    assert named("/runs/my results") == ["my-results"]
    one, other = named("/runs/my results", "/runs/my-results")
    assert one != other


def test_a_known_source_keeps_its_name_when_others_are_added():
    before = [("/runs/a/out", "out")]
    assert named("/runs/b/out", attacks=before) == ["b+out"]
    assert named("/runs/b/out", "/runs/a/out", attacks=before) == ["b+out", "out"]
    assert named("/runs/a/out", attacks=[*before, ("/runs/b/out", "b+out")]) == ["out"]
    assert named("/runs/a/out", "/runs/b/out", attacks=[("../a/out", "mine")]) == ["mine", "b+out"]


def test_two_sources_with_the_same_folder_name_can_be_added_one_after_the_other(tmp_path):
    (tmp_path / "weak.yaml").write_text(WEAK)
    options = {"threat": Linf(EPS), "batch_size": 4, "shard_size": 4}
    for name in ("a", "b"):
        predictor = small_deq(2 if name == "a" else 3)
        evaluate(predictor, images(4), tmp_path / "weak.yaml", tmp_path / name / "out", keep_images=True, **options)

    def target(*sources):
        folders = [tmp_path / name / "out" for name in sources]
        store = evaluate(small_deq(), images(4), short, tmp_path / "target", sources=folders, **options).store
        return {name: entry.spec.options.get("store") for name, entry in store.manifest.attacks.items()}

    a, b = "../a/out", "../b/out"  # as seen from the target
    assert target("a") == {"pgd-ready": None, "from.out.weak": a}
    assert target("a", "b") == target("b") == {"pgd-ready": None, "from.out.weak": a, "from.b+out.weak": b}


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "of an earlier version"])
def test_a_store_resumes_with_sources_that_moved_along_or_have_absolute_paths(tmp_path, moved):
    (tmp_path / "weak.yaml").write_text(WEAK)
    options = {"threat": Linf(EPS), "batch_size": 2, "shard_size": 2}
    here = tmp_path / "here"
    evaluate(small_deq(2), images(4), tmp_path / "weak.yaml", here / "a", keep_images=True, **options)

    def target(folder):
        return evaluate(small_deq(), images(4), short, folder / "b", sources=[folder / "a"], **options).store

    store = target(here)
    if moved:
        here = here.rename(tmp_path / "there")
    else:  # with the place and the hash that it had then
        spec = store.manifest.attacks["from.a.weak"].spec
        spec = replace(spec, options={**spec.options, "store": str((here / "a").resolve())})
        attacks = {**store.manifest.attacks, spec.name: AttackRecord(spec=spec, hash=spec.hash)}
        store.write_manifest(replace(store.manifest, attacks=attacks))
    store = Store(here / "b")
    store.path("from.a.weak", 1).unlink()
    store = target(here)
    assert (sorted(store.attacks), store.complete("from.a.weak")) == (["from.a.weak", "pgd-ready"], True)


@pytest.fixture
def models(tmp_path):
    """Evaluate one of two small models by a grid and an attack outside it, and keep the images."""
    (tmp_path / "both.yaml").write_text(f"{{include: [grid], keep_images: true, {WEAK}}}")

    def run(name, *sources, **options):
        predictor, folders = small_deq(2 if name == "a" else 3), [tmp_path / source for source in sources]
        options = {
            "threat": Linf(EPS),
            "batch_size": 4,
            "shard_size": 4,
            "sources": folders,
            "unrollings": (1,),
        } | options
        return evaluate(predictor, images(4), tmp_path / "both.yaml", tmp_path / name, **options).store

    return run


def test_stores_that_are_each_other_s_sources_pass_on_only_their_own_images(models):
    models("a")
    models("b", "a")
    for _ in range(2):  # in whichever order, and however often
        a, b = models("a", "b"), models("b", "a")
        for store, sizes in ((a, (5, 7)), (b, (7, 5))):
            own = [name for name in store.attacks if not name.startswith("from.")]
            seen = [name for name in store.attacks if name not in own]
            assert (len(own), len(seen)) == sizes
            assert {name.count("from.") for name in seen} == {1}
            assert all(store.has_images(name) for name in own)
            assert not any(store.images_path(name, 0).parent.exists() for name in seen)
            assert all(store.complete(name) for name in seen)
    table = metrics.transfer_matrix({"a": a, "b": b})
    grid = {("a", "a"): 4, ("a", "b"): 6, ("b", "a"): 4, ("b", "b"): 6}  # weak is no attack of a grid
    assert {row[:2]: row[2] for row in table.select("target", "source", "attacks").iter_rows()} == grid
    for target, source, accuracy in table.select("target", "source", "accuracy").iter_rows():
        names = metrics.grid_attacks({"a": a, "b": b}[source])
        store, prefix = {"a": a, "b": b}[target], "" if target == source else f"from.{source}."
        assert accuracy == metrics.accuracy(store, [prefix + name for name in names])["accuracy"].min()


def test_a_union_store_is_refused_as_a_source(models, tmp_path):
    models("a", union=True)
    with pytest.raises(ValueError, match=r"a was evaluated with --union, where broken images leave"):
        models("b", "a")
    assert not (tmp_path / "b").exists()


def test_images_of_another_folder_of_pictures_are_refused(tmp_path):
    folders = {"one": 0, "two": 150}
    generator = np.random.default_rng(0)
    for name, brightness in folders.items():
        for place in (tmp_path / name / part / label for part in ("train", "test") for label in "ab"):
            place.mkdir(parents=True)
            for k in range(2):
                pixels = generator.integers(0, 60, (8, 8, 3), dtype=np.uint8) + np.uint8(brightness)
                Image.fromarray(pixels).save(place / f"{k}.png")
    options = {"threat": Linf(0.03)}

    def predictor(x):
        return x.flatten(1)[:, :2]

    evaluate(predictor, "folder", "quick", tmp_path / "a", data_root=tmp_path / "one", keep_images=True, **options)
    with pytest.raises(ValueError, match="its attacks do not fit"):
        evaluate(
            predictor,
            "folder",
            "quick",
            tmp_path / "b",
            data_root=tmp_path / "two",
            sources=[tmp_path / "a"],
            **options,
        )


def test_stored_images_outside_the_ball_are_refused(tmp_path):
    options = {"threat": Linf(EPS), "batch_size": 4, "shard_size": 4}
    store = evaluate(small_deq(), images(4), short, tmp_path / "a", keep_images=True, **options).store
    place, pixels = store.images("pgd-ready", 0)
    store.images_path("pgd-ready", 0).write_bytes(as_safetensors((place, 1 - pixels), Origin("pgd-ready", 0)))
    with pytest.raises(ValueError, match="they were made from other images"):
        evaluate(small_deq(2), images(4), short, tmp_path / "b", sources=[tmp_path / "a"], **options)
