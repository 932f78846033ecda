"""APGD: schedule, steering, targets; the iterates are compared with the reference in test_apgd_reference.py."""

import pytest
import torch

from robustdeq.attacks import APGD, Direct
from robustdeq.attacks.apgd import checkpoints, likeliest_wrong
from robustdeq.threat import L2, Linf, cross_entropy, margin

from .oracles import Recorded
from .victims import Linear, RowByRow, images, predictions


def test_checkpoints_of_a_hundred_steps_are_the_paper_s():
    """w_j = ceil(100 p_j), p_{j+1} = p_j + max(p_j - p_{j-1} - 0.03, 0.06), p_0 = 0, p_1 = 0.22."""
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]


@pytest.mark.parametrize("steps", [1, 2, 5, 33])
def test_checkpoints_of_few_steps_rise_and_end_in_time(steps):
    times = checkpoints(steps)
    assert times == sorted(set(times))
    assert times[-1] <= steps


@pytest.mark.parametrize(("threat", "dual"), [(Linf(0.1), 1), (L2(0.2), 2)], ids=str)
def test_the_exact_attack_on_a_linear_model_is_recovered(threat, dual):
    model, x = Linear(classes=2), 0.3 + 0.4 * images(8, shape=(1, 3, 3))
    y = predictions(model, x)
    w = model.weight[1 - y] - model.weight[y]
    result = APGD(threat, n_iter=60)(Direct(model), x, y)
    gained = margin(result.logits, y) - margin(model(x), y)
    best = threat.eps * torch.linalg.vector_norm(w, dual, dim=1)
    assert (result.success == (margin(model(x), y) + best > 0)).all()
    missed = ~result.success  # a success ends at its last fooling iterate, which need not be the exact attack
    torch.testing.assert_close(gained[missed], best[missed], rtol=1e-4, atol=0)


def test_finished_images_leave_the_batch_and_the_others_go_on():
    model, x = RowByRow().eval(), images(24)
    y, oracle = predictions(model, x), Recorded(model)
    result = APGD(Linf(0.04), n_iter=12)(oracle, x, y, every_image=False)
    assert 0 < result.success.sum() < 24
    assert (result.queries[~result.success] == 15).all()  # clean, start, 12 steps, judge
    assert (result.queries[result.success] < 15).any()
    assert sum(map(len, oracle.shown)) == result.queries.sum()
    everyone = APGD(Linf(0.04), n_iter=12)(Recorded(model), x, y)
    assert torch.equal(everyone.success, result.success)
    assert (everyone.queries == 14).all()


def test_a_predictor_s_own_gradient_costs_one_pass_a_look():
    model, x = RowByRow().eval(), images(3)
    y, calls = predictions(model, x), []
    model.register_forward_hook(lambda *_: calls.append(1))
    result = APGD(Linf(0.04), n_iter=5)(Direct(model), x, y)
    assert len(calls) == 5 + 2
    assert (result.queries == len(calls)).all()


def test_a_surrogate_that_misjudges_values_does_not_steer():
    """Logits ten times too small have a parallel gradient: in Linf the deployed-steered attack is the same, bitwise."""
    model, x = RowByRow().eval(), images(12)
    y = predictions(model, x)
    attack = APGD(Linf(0.04), n_iter=20)
    honest, scaled = (attack(Recorded(model, factor=factor), x, y) for factor in (1.0, 0.1))
    assert torch.equal(honest.images, scaled.images)
    by_surrogate = APGD(Linf(0.04), n_iter=20, steer="surrogate")(Recorded(model, factor=0.1), x, y)
    assert not torch.equal(by_surrogate.images, honest.images)


def test_steered_by_the_surrogate_it_never_asks_the_deployed_predictor_and_returns_clean_images_where_it_failed():
    model, x = RowByRow().eval(), images(24)
    y, oracle = predictions(model, x), Recorded(model)
    result = APGD(Linf(0.04), n_iter=10, steer="surrogate")(oracle, x, y)
    assert oracle.asked == ["surrogate"] * 12 + ["deployed"]  # the start, 10 steps, what was found; the judge
    assert 0 < result.success.sum() < 24
    assert torch.equal(result.images[~result.success], x[~result.success])


def test_steered_by_a_surrogate_that_cannot_be_fooled_success_is_still_the_deployed_predictor_s():
    """Surrogate: the deployed logits times -1, wrong on clean images already, so any point will do for it."""
    model, x = RowByRow().eval(), images(12)
    y = predictions(model, x)
    result = APGD(Linf(0.01), n_iter=5, steer="surrogate")(Recorded(model, factor=-1.0), x, y)
    assert torch.equal(result.success, result.logits.argmax(1) != y)
    assert not result.success.all()


def test_without_success_the_result_is_the_point_of_highest_objective():
    model, x = RowByRow().eval(), images(6)
    y, oracle = predictions(model, x), Recorded(model)
    result = APGD(Linf(0.005), n_iter=15)(oracle, x, y)
    losses = torch.stack([cross_entropy(model(shown), y) for shown in oracle.shown])
    missed = ~result.success
    assert missed.sum() > 3
    assert torch.equal(cross_entropy(result.logits, y)[missed], losses.amax(0)[missed])


def test_targets_are_the_likeliest_wrong_classes_in_order():
    logits = torch.tensor([[1.0, 5.0, 3.0, 4.0], [9.0, 2.0, 8.0, 1.0]])
    y = torch.tensor([1, 2])
    assert likeliest_wrong(logits, y, 9).tolist() == [[3, 2, 0], [0, 1, 3]]
    assert likeliest_wrong(logits, y, 2).tolist() == [[3, 2], [0, 1]]


def test_targeted_runs_are_for_the_images_left_one_for_each_wrong_class():
    model, x = RowByRow().eval(), images(12)
    y = predictions(model, x)
    result = APGD(Linf(0.04), n_iter=4, loss="dlr_targeted")(Direct(model), x, y)
    assert 0 < result.success.sum() < 12
    assert (result.queries[~result.success] == 1 + 4 * 5 + 1).all()  # targets, four runs of five looks, judge
    assert (result.queries[result.success] < 1 + 4 * 5 + 1).any()


@pytest.mark.parametrize(("loss", "classes", "needed"), [("dlr", 2, 3), ("dlr_targeted", 3, 4)])
def test_a_loss_that_needs_more_classes_says_so(loss, classes, needed):
    x = images(2, shape=(1, 3, 3))
    with pytest.raises(ValueError, match=f"needs at least {needed} classes, the predictor has {classes}"):
        APGD(Linf(0.1), loss=loss)(Direct(Linear(classes=classes)), x, torch.zeros(2, dtype=torch.int64))


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        APGD(Linf(0.1), n_iter=0)
