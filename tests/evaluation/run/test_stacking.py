"""Attacks of the grid that share batches: the same results, and the same bytes whatever was done before."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from robustdeq.defences import EarlyState
from robustdeq.evaluation import evaluate
from robustdeq.evaluation.run.stacking import attack_together, bundles
from robustdeq.evaluation.suites import attacks
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.evaluation.suites.suite import Context
from robustdeq.threat import Linf
from tests.evaluation.conftest import UNROLLINGS
from tests.evaluation.predictors import EPS, images, small_deq


@pytest.fixture
def stacked(deployed, images, tmp_path):
    """The grid in batches of 40: four attacks on a shard of ten images."""

    def run(**options):
        sizes = {"batch_size": 40, "shard_size": 10, "unrollings": UNROLLINGS}
        options = {"threat": Linf(EPS), "keep_images": True} | sizes | options
        return evaluate(deployed, images, "grid", tmp_path / "store", **options)

    return run


def test_sharing_batches_changes_nothing_but_rounding(stacked, grid_verdict):
    seen = []
    keys = ["attack", "image", "predictor", "state"]
    one, other = grid_verdict.store, stacked(report=seen.append).store
    assert {now.doing for now in seen} == {"looking", "clean", *(f"pgd-i{i}-K1-l0.5 and 3 more" for i in (1, 2, 3))}
    a, b = (store.rows().collect().sort(keys) for store in (one, other))
    exact = [*keys, "label", "deployed", "clean_prediction", "prediction", "success", "queries"]
    assert a.select(exact).equals(b.select(exact))
    for column in ("margin", "entropy", "loss"):
        assert a[column].to_list() == pytest.approx(b[column].to_list(), rel=1e-5, abs=1e-6)
    for attack in one.attacks:
        (index, pixels), (same_index, same) = one.images(attack, 1), other.images(attack, 1)
        assert index.tolist() == same_index.tolist()
        assert (pixels - same).abs().max() < 1e-9


def test_going_on_inside_a_bundle_gives_the_bytes_of_an_undisturbed_run(stacked):
    class Stop(Exception):
        pass

    store = stacked().store
    files = {
        path: path.read_bytes() for folder in ("attacks", "images") for path in (store.folder / folder).rglob("shard-*")
    }
    assert len(files) == 2 * 2 * 12
    lost = [path for k, path in enumerate(sorted(files)) if k % 3 == 0]
    for path in lost:
        path.unlink()
    noted = store.times().height
    assert noted == 2 * 13  # each attack and the clean images, on two shards

    def report(now):
        if now.done > 1 and not lost[0].exists():
            raise Stop

    with pytest.raises(Stop):
        stacked(report=report)
    stacked()
    assert {path: path.read_bytes() for path in files} == files
    items = {(path.parent.name, path.stem) for path in lost}
    assert store.times().height == noted + len(items)  # no time of what was there


def test_bundles_depend_on_the_configuration_and_hold_only_what_can_share(deployed):
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
def test_bundles_stand_where_their_first_attack_does(deployed, batch_size):
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
