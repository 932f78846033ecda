"""FAB-T, Square and AutoAttack against the library they come from."""

import logging

import pyautoattack
import pytest
import torch
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import nn

from robustdeq.attacks import APGD, FABT, AutoAttack, Direct, Square
from robustdeq.threat import L2, Linf

from .oracles import Recorded
from .victims import Linear, RowByRow, digits, images, predictions


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.6)], ids=str)
def test_fab_t_ends_where_the_library_s_own_loop_succeeds(threat):
    """Ours also pulls points from outside back into the ball, which fools a few more."""
    model, x, y = digits()
    x, y = x[:50], y[:50]
    library = FABAttack_PT(
        model, norm=type(threat).__name__, n_iter=10, eps=threat.eps, targeted=True, n_target_classes=3, device="cpu"
    )
    with torch.random.fork_rng():
        expected = library.perturb(x, y)
    result = FABT(threat, n_iter=10, targets=3)(Direct(model), x, y)
    success = predictions(model, expected) != y
    assert 5 < success.sum() < 45
    torch.testing.assert_close(result.images[success], expected[success], rtol=0, atol=1e-6)
    more = result.success & ~success
    assert more.sum() <= 3
    distance = threat.distance(result.images[more], x[more])
    torch.testing.assert_close(distance, torch.full_like(distance, threat.eps))


def test_fab_t_without_success_ends_at_the_nearest_point_it_found_in_the_ball():
    model, x, y = digits()
    result = FABT(Linf(0.02), n_iter=10, targets=2)(Direct(model), x[:20], y[:20])
    missed = ~result.success
    assert missed.sum() > 10
    distance = Linf(0.02).distance(result.images[missed], x[:20][missed])
    torch.testing.assert_close(distance, torch.full_like(distance, 0.02))


def test_square_draws_its_own_numbers_but_fools_about_as_many_images_as_the_library():
    model, x, y = digits()
    library = SquareAttack(model, norm="Linf", n_queries=150, eps=0.1, resc_schedule=False, device="cpu")
    with torch.random.fork_rng():
        expected = predictions(model, library.perturb(x, y)) != y
    result = Square(Linf(0.1), n_queries=150)(Direct(model), x, y)
    assert 20 < expected.sum() < 180
    assert abs(int(result.success.sum()) - int(expected.sum())) <= 12


@pytest.mark.parametrize("threat", [Linf(0.15), L2(0.6)], ids=str)
def test_more_queries_continue_the_search_where_fewer_stopped(threat):
    model, x, y = digits()
    few, many = (Square(threat, n_queries=n)(Direct(model), x[:60], y[:60]) for n in (20, 80))
    assert torch.equal(few.images[few.success], many.images[few.success])
    assert few.success.sum() < many.success.sum() < 60
    assert (few.queries[~few.success] == 22).all()  # the first point, 20 squares, the judge
    assert (many.queries[~many.success] == 82).all()
    assert torch.equal(few.queries[few.success], many.queries[few.success])


def test_square_stops_when_every_margin_is_exactly_zero():
    class Undecided(nn.Module):
        def forward(self, x):
            return torch.zeros(len(x), 4, dtype=x.dtype) + 0 * x.sum((1, 2, 3))[:, None]

    result = Square(Linf(0.1), n_queries=50)(Direct(Undecided()), images(3), torch.tensor([0, 0, 1]))
    assert result.success.tolist() == [False, False, True]
    assert result.queries.tolist() == [2, 2, 2]


def test_auto_attack_is_the_union_of_its_parts():
    model, x = RowByRow().eval(), images(30)
    y = predictions(model, x)
    attack = AutoAttack(Linf(0.02), n_iter=3, targets=2, n_queries=20)
    whole = attack(Direct(model), x, y, every_image=False)
    parts = [part(Direct(model), x, y, every_image=False) for part in attack.parts]
    success = torch.stack([part.success for part in parts])
    assert torch.equal(whole.success, success.any(0))
    assert 3 < whole.success.sum() < 30
    assert torch.equal(whole.images[success[0]], parts[0].images[success[0]])
    assert torch.equal(whole.images[~whole.success], parts[-1].images[~whole.success])
    assert [part.name for part in attack.parts] == ["APGD-CE", "APGD-T", "FAB-T", "Square"]


def test_only_the_standard_budgets_may_be_called_aa():
    standard = AutoAttack(Linf(8 / 255))
    assert standard.is_standard
    assert standard.name == "AA"
    assert standard.parts == (
        APGD(Linf(8 / 255), loss="ce", n_iter=100, restarts=1),
        APGD(Linf(8 / 255), loss="dlr_targeted", n_iter=100, restarts=1, targets=9),
        FABT(Linf(8 / 255), n_iter=100, targets=9),
        Square(Linf(8 / 255), n_queries=5000),
    )
    for change in ({"n_iter": 10}, {"targets": 3}, {"n_queries": 1000}, {"steer": "surrogate"}):
        attack = AutoAttack(Linf(8 / 255), **change)
        assert not attack.is_standard
        assert attack.name != "AA"


def test_there_are_no_more_targets_than_wrong_classes():
    model, x = RowByRow(classes=4).eval(), images(8)
    y = predictions(model, x)
    result = FABT(Linf(1e-4), n_iter=2)(Direct(model), x, y)
    missed = ~result.success
    assert missed.any()
    # clean; for each of three targets its own two looks at the clean image, two steps of two looks, ours; the judge
    assert (result.queries[missed] == 1 + 3 * (2 + 2 * 2 + 1) + 1).all()


def test_auto_attack_says_that_it_needs_four_classes():
    x = images(2, shape=(1, 3, 3))
    model = Linear(classes=3)
    y = predictions(model, x)
    for eps in (1e-3, 0.9):  # whether or not the first attack leaves anything
        with pytest.raises(ValueError, match="targeted DLR loss needs at least 4 classes, the predictor has 3"):
            AutoAttack(Linf(eps), n_iter=3)(Direct(model), x, y)


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: FABT(Linf(0.03), n_iter=4, targets=2, **options),
        lambda **options: Square(Linf(0.03), n_queries=30, **options),
        lambda **options: AutoAttack(Linf(0.02), n_iter=3, targets=2, n_queries=20, **options),
    ],
)
def test_steered_by_the_surrogate_they_never_ask_the_deployed_predictor_before_the_judge(make):
    model, x = RowByRow().eval(), images(24)
    y, oracle = predictions(model, x), Recorded(model)
    result = make(steer="surrogate")(oracle, x, y)
    assert set(oracle.asked[:-1]) == {"surrogate"}
    assert oracle.asked[-1] == "deployed"
    # this surrogate is the deployed predictor: the same images fall, the others come back clean
    assert torch.equal(result.success, make()(Recorded(model), x, y).success)
    assert 0 < result.success.sum() < 24
    assert torch.equal(result.images[~result.success], x[~result.success])


def test_steered_by_a_surrogate_that_cannot_be_fooled_nothing_is_found():
    """Logits of one class whatever is shown: the released mode gives every image back."""
    model, x = RowByRow().eval(), images(6)
    y = predictions(model, x)

    class Blind(Recorded):
        def estimate(self, x):
            return torch.nn.functional.one_hot(y, 5).to(x) + 0 * x.sum()

    attack = Square(Linf(0.3), n_queries=10, steer="surrogate")
    assert torch.equal(attack(Blind(model), x, y).images, x)
    assert not torch.equal(Square(Linf(0.3), n_queries=10)(Blind(model), x, y).images, x)


@pytest.mark.parametrize(
    "threat", [pytest.param(Linf(0.1), marks=pytest.mark.long), pytest.param(L2(0.6), marks=pytest.mark.slow)], ids=str
)
def test_standard_auto_attack_agrees_with_the_library_s_whole_ensemble(threat):
    model, x, y = digits()
    x, y = x[:50], y[:50]
    logging.getLogger("auto-attack").setLevel(logging.ERROR)
    with torch.random.fork_rng():
        library = pyautoattack.AutoAttack(model, norm=type(threat).__name__, eps=threat.eps, seed=0, device="cpu")
        expected = predictions(model, library.run_standard_evaluation(x, y, batch_size=50)[0]) != y
    result = AutoAttack(threat)(Direct(model), x, y, every_image=False)
    assert abs(int(result.success.sum()) - int(expected.sum())) <= 1
