"""Arguments from Python that are not what they should be get a sentence from every door."""

import pytest
import torch

import robustdeq as rd
from robustdeq.evaluation import evaluate
from robustdeq.recipes import parse_config
from tests.evaluation.predictors import EPS, images, short, small_deq

MODEL = small_deq()
X, Y = images(4)
DOORS = {
    "model": MODEL,
    "trajectory": MODEL.trajectory,
    "early": rd.EarlyState(MODEL, state=2),
    "defence": rd.EntropyReduction(MODEL, every=2, steps=1, radius=0.1, step_size=0.01),
    "defended trajectory": rd.EntropyReduction(MODEL, every=2, steps=1, radius=0.1, step_size=0.01).trajectory,
    "attack": lambda x: rd.PGD(rd.Linf(EPS), steps=1)(rd.oracles.Direct(MODEL), x, Y),
    "evaluate": lambda x: evaluate(MODEL, (x, Y), short, "/nowhere/s", threat=rd.Linf(EPS)),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("x", [None, "x", 3, [[0.5]], X.numpy(), X.to_sparse(), X.to(torch.complex64)], ids=type)
def test_images_that_are_no_tensors_of_pixels_get_a_sentence(door, x):
    with pytest.raises(
        (TypeError, ValueError),
        match=r"expected (floating-point pixels|dense images)|images and labels|images are dense",
    ):
        DOORS[door](x)


@pytest.mark.parametrize("door", [door for door in DOORS if door != "evaluate"])
def test_images_that_require_grad_are_taken(door):
    x = X.clone().requires_grad_()
    found, expected = DOORS[door](x), DOORS[door](X)
    if isinstance(found, torch.Tensor):
        assert torch.equal(found, expected)
    assert x.grad is None


def test_images_that_require_grad_can_be_evaluated(tmp_path):
    verdicts = [
        evaluate(MODEL, (x, Y), short, tmp_path / name, threat=rd.Linf(EPS))
        for name, x in (("a", X), ("b", X.clone().requires_grad_()))
    ]
    assert verdicts[0].union == verdicts[1].union


@pytest.mark.parametrize("steer", [True, False])
@pytest.mark.parametrize("attack", [rd.PGD(rd.Linf(EPS), steps=1), rd.APGD(rd.Linf(EPS), n_iter=1)], ids=str)
def test_labels_of_classes_that_the_predictor_has_not_get_a_sentence(attack, steer):
    with pytest.raises(ValueError, match="the labels go up to 17, the predictor has 10 classes"):
        attack(rd.oracles.Direct(MODEL), X, Y * 0 + 17, every_image=steer)


@pytest.mark.parametrize("y", [Y.float(), Y.bool(), Y[:, None], Y - 20, Y[:2], Y.to(torch.complex64)])
def test_labels_that_are_none_get_a_sentence_from_evaluate(y, tmp_path):
    with pytest.raises(ValueError, match=r"labels are whole numbers|one label for each"):
        evaluate(MODEL, (X, y), short, tmp_path / "s", threat=rd.Linf(EPS))
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("eps", [10**400, float("inf"), float("nan"), -1, None, "8/255", True])
@pytest.mark.parametrize("ball", [rd.Linf, rd.L2])
def test_balls_have_a_finite_radius(ball, eps):
    with pytest.raises((TypeError, ValueError), match="eps must be"):
        ball(eps)


@pytest.mark.parametrize("content", [{"schedule": None}, {"objective": 3}, {"schedule": {"lr": 10**400}}])
def test_sections_that_are_no_mappings_and_numbers_that_are_too_large_get_a_sentence(content):
    with pytest.raises(ValueError, match="not a training configuration"):
        parse_config(content)
