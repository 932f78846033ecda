"""Attacks of the grid that share batches give the same results, and the same bytes whatever was done before."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from robustdeq.defences import EarlyState
from robustdeq.evaluation import Suite, evaluate
from robustdeq.evaluation.run.stacking import attack_together, bundles
from robustdeq.evaluation.suites import attacks
from robustdeq.evaluation.suites.attacks import unrolled
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.evaluation.suites.suite import Context
from robustdeq.threat import Linf
from tests.evaluation.conftest import UNROLLINGS
from tests.evaluation.predictors import EPS, images, small_deq


def test_sharing_batches_changes_nothing_but_rounding(deployed, images, grid_verdict, tmp_path):
    seen = []
    keys = ["attack", "image", "predictor", "state"]
    sizes = {"batch_size": 40, "shard_size": 10}  # four attacks on a shard of ten images
    options = {"threat": Linf(EPS), "keep_images": True, "unrollings": UNROLLINGS, "report": seen.append, **sizes}
    one, other = grid_verdict.store, evaluate(deployed, images, "grid", tmp_path / "store", **options).store
    bundles = {f"pgd-i{i}-K1-l0.5 and 3 more" for i in (1, 2, 3)}
    assert {now.doing.partition(", image")[0] for now in seen} == {"looking", "clean", *bundles}
    a, b = (store.rows().collect().sort(keys) for store in (one, other))
    exact = [*keys, "label", "deployed", "clean_prediction", "prediction", "success", "queries"]
    assert a.select(exact).equals(b.select(exact))
    for column in ("margin", "entropy", "loss"):
        assert a[column].to_list() == pytest.approx(b[column].to_list(), rel=1e-5, abs=1e-6)
    for attack in one.attacks:
        (index, pixels), (same_index, same) = one.images(attack, 1), other.images(attack, 1)
        assert index.tolist() == same_index.tolist()
        assert (pixels - same).abs().max() < 1e-9


def few(context):
    """Four attacks of the grid with two steps each."""
    options = {"steps": 2, "step_size": 0.02}
    return Suite("few", [replace(unrolled(context, 2, k, d), options=options) for k in (1, 2) for d in (0.5, 1.0)])


def test_resuming_inside_a_bundle_gives_the_bytes_of_an_undisturbed_run(deployed, images, tmp_path):
    class Stop(Exception):
        pass

    def run(**more):
        options = {"threat": Linf(EPS), "keep_images": True, "batch_size": 32, "shard_size": 8, **more}
        return evaluate(deployed, images, few, tmp_path / "store", **options)

    store = run().store
    files = {
        path: path.read_bytes() for folder in ("attacks", "images") for path in (store.folder / folder).rglob("shard-*")
    }
    assert len(files) == 2 * 2 * 4
    lost = [path for k, path in enumerate(sorted(files)) if k % 3 == 0]
    for path in lost:
        path.unlink()
    noted = store.times().height
    assert noted == 2 * 5  # each attack and the clean images, on two shards

    def report(now):
        if now.done > 1 and not lost[0].exists():
            raise Stop

    with pytest.raises(Stop):
        run(report=report)
    run()
    assert {path: path.read_bytes() for path in files} == files
    items = {(path.parent.name, path.stem) for path in lost}
    assert store.times().height == noted + len(items)  # nothing that was there is logged again


def test_bundles_hold_only_attacks_that_can_share_a_batch(deployed):
    grid = attacks.grid(Context(Subject(deployed), Linf(EPS)))

    def sizes(specs, predictor=deployed, **options):
        options = {"shard_size": 50, "batch_size": 900} | options
        return [len(bundle) for bundle in bundles(specs, Subject(predictor), **options)]

    assert sizes(grid) == [18, 18, 18]
    assert sorted(sizes(grid, batch_size=449)) == [2, 2, 2, 8, 8, 8, 8, 8, 8]
    assert sizes(grid, shard_size=500) == 54 * [1]
    for change in ({"every_image": False}, {"options": {**grid[0].options, "restarts": 2}}, {"attack": "apgd"}):
        assert sizes([replace(spec, **change) for spec in grid]) == 54 * [1]
    assert sizes([grid[0], replace(grid[1], eps=0.01), replace(grid[2], limit=3), grid[3]]) == [2, 1, 1]
    coupled = small_deq()
    coupled.solver = replace(coupled.solver, batch_coupled=True)
    assert sizes(grid, coupled) == 54 * [1]


@pytest.mark.parametrize("batch_size", [50, 200, 449, 900])
def test_bundles_keep_the_place_of_their_first_attack(deployed, batch_size):
    context = Context(Subject(deployed), Linf(EPS))
    specs = [attacks.ready(context), *attacks.grid(context), attacks.autoattack(context, with_grid=True)]
    made = bundles(specs, context.subject, shard_size=50, batch_size=batch_size)
    firsts = [specs.index(bundle[0]) for bundle in made]
    assert firsts == sorted(firsts)
    assert sorted(specs.index(spec) for bundle in made for spec in bundle) == list(range(len(specs)))
    if batch_size == 50:
        assert made == [(spec,) for spec in specs]


class Float(nn.Module):
    def forward(self, x):
        return x.float()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_starts_in_a_bundle_where_it_starts_alone(dtype):
    model = small_deq().float()
    model.encoder = nn.Sequential(model.encoder.to(dtype), Float())  # pixels of half precision, states of single
    subject = Subject(EarlyState(model, state=3))
    specs = [attacks.unrolled(Context(subject, Linf(EPS)), 2, k, 0.5) for k in (1, 2)]
    specs = [replace(spec, options={"steps": 1, "step_size": 1e-9}) for spec in specs]  # it stays at its start
    x, y = images(8)
    x, index = x.to(dtype), torch.arange(8)
    which = torch.arange(2).repeat_interleave(4)
    together = attack_together(specs, which, subject, 0, x, y, index).images
    for number, spec in enumerate(specs):
        mine = which == number
        alone = attack_together([spec], torch.zeros(4, dtype=torch.int64), subject, 0, x[mine], y[mine], index[mine])
        assert torch.equal(together[mine], alone.images)
