"""What the base class guarantees, for every attack."""

import dataclasses
from functools import cache

import pytest
import torch
from torch import nn

from robustdeq.attacks import Direct, Oracle

from .conformance import every_attack, every_kind, every_start
from .victims import RowByRow, images, predictions


@pytest.fixture
def model():
    return RowByRow().eval()


@pytest.fixture
def x():
    return images(4)


@pytest.fixture
def y(model, x):
    return labels(model, x)


@cache
def usual(attack, every_image=True, index=None):
    """The result on the images, labels and model of the fixtures, computed once for all tests that compare with it."""
    model, x = RowByRow().eval(), images(4)
    return attack(Direct(model), x, labels(model, x), every_image=every_image, index=index)


def labels(model, x):
    """The predicted classes, except for image 1, which is misclassified."""
    y = predictions(model, x)
    y[1] = (y[1] + 1) % 5
    return y


def same(result, expected):
    pairs = [(getattr(result, f.name), getattr(expected, f.name)) for f in dataclasses.fields(result)]
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


@every_attack
@pytest.mark.parametrize("every_image", [True, False])
def test_images_lie_in_the_ball_and_the_deployed_predictor_judges_success(attack, model, x, y, every_image):
    result = usual(attack, every_image)
    assert attack.threat.contains(result.images, x).all()
    assert (result.images >= 0).all()
    assert (result.images <= 1).all()
    assert result.images.dtype == x.dtype
    with torch.no_grad():
        assert torch.equal(result.logits, model(result.images))
    assert torch.equal(result.success, result.logits.argmax(1) != y)
    assert result.success.sum() > 1
    assert (result.queries >= 1).all()


@every_attack
def test_a_progress_callback_is_called_at_every_pass_and_changes_nothing(attack, model, x, y):
    told = []
    result = attack(Direct(model), x, y, watch=lambda queries: told.append(queries.clone()))
    assert same(result, usual(attack))
    assert torch.equal(told[-1], result.queries)
    steps = torch.diff(torch.stack([torch.zeros_like(told[0]), *told]), dim=0)
    assert ((steps == 0) | (steps == 1)).all()
    assert (steps.sum(1) > 0).all()


@every_attack
def test_misclassified_images_are_left_alone_without_every_image(attack, x):
    result = usual(attack, False)
    assert torch.equal(result.images[1], x[1])
    assert result.success[1]
    assert result.queries[1] == 1
    assert (result.queries[torch.arange(4) != 1] > 1).all()


@every_attack
@pytest.mark.parametrize(("index", "every_image"), [(None, True), ((7, 3, 11, 0), False)])
def test_an_image_s_result_does_not_depend_on_its_batch(attack, model, x, y, index, every_image):
    whole = usual(attack, every_image, index)
    for rows in ([2, 0, 3, 1], [3]):
        keys = index and [index[row] for row in rows]
        part = attack(Direct(model), x[rows], y[rows], index=keys, every_image=every_image)
        assert torch.equal(part.images, whole.images[rows])
        assert torch.equal(part.success, whole.success[rows])
        assert torch.equal(part.queries, whole.queries[rows])


@every_attack
def test_a_seed_gives_the_same_attack_again_whatever_the_global_random_state(attack, model, x, y):
    torch.manual_seed(123)
    state = torch.get_rng_state()
    again = attack(Direct(model), x, y)
    assert same(again, usual(attack))
    assert torch.equal(torch.get_rng_state(), state)


@every_attack
def test_another_seed_or_index_gives_another_attack_unless_nothing_is_random(attack, model, x, y):
    random = getattr(attack, "random_start", attack.name != "FAB-T")
    first = usual(attack, True, range(4)).images
    reseeded = dataclasses.replace(attack, seed=1)(Direct(model), x, y, index=range(4)).images
    moved = attack(Direct(model), x, y, index=range(1, 5)).images
    assert torch.equal(first, reseeded) == (not random)
    assert torch.equal(first, moved) == (not random)


@every_kind
def test_the_model_is_left_as_it_was_found(attack, x, y):
    model = RowByRow().train()
    model.dropout.eval()  # modes need not be uniform
    model.bias.requires_grad_(False)
    for p in model.parameters():
        p.grad = torch.full_like(p, 3.0)
    modes = [m.training for m in model.modules()]
    state = {k: v.clone() for k, v in model.state_dict().items()}
    attack(Direct(model), x, y, every_image=False)
    assert [m.training for m in model.modules()] == modes
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == ["bias"]
    assert all((p.grad == 3).all() for p in model.parameters())
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


@every_kind
def test_parameters_of_a_plain_callable_get_no_gradients(attack, model, x, y):
    attack(Direct(lambda x: model(x)), x, y)
    assert all(p.grad is None for p in model.parameters())


@every_kind
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_caller_s_grad_mode_does_not_matter(attack, model, x, y, mode):
    with mode():
        result = attack(Direct(model), x.clone(), y.clone())
        assert not torch.is_grad_enabled()
    assert same(result, usual(attack))
    assert not result.images.requires_grad
    assert not result.logits.requires_grad


@every_kind
def test_images_that_require_gradients_are_not_touched(attack, model, x, y):
    variable = x.clone().requires_grad_()
    assert same(attack(Direct(model), variable, y), usual(attack))
    assert variable.grad is None
    assert torch.equal(variable, x)


@every_kind
def test_a_model_that_raises_is_restored_too(attack, model, x, y):
    def second_call_fails(module, inputs):
        calls.append(inputs)
        if len(calls) == 2:
            raise RuntimeError("broken on purpose")

    calls = []
    model.train().register_forward_pre_hook(second_call_fails)
    with pytest.raises(RuntimeError, match="on purpose"):
        attack(Direct(model), x, y)
    assert all(m.training for m in model.modules())
    assert all(p.requires_grad for p in model.parameters())


class Poisoned(nn.Module):
    """NaN logits for images brighter than 0.9 in the first pixel; else the network's."""

    def __init__(self):
        super().__init__()
        self.inner = RowByRow()

    def forward(self, x):
        return torch.where((x[:, 0, 0, :1] > 0.9), torch.nan, self.inner(x))


@every_attack
@pytest.mark.parametrize("every_image", [True, False])
def test_nan_logits_stay_in_their_row_and_count_as_success(attack, model, x, y, every_image):
    x[:, 0, 0, 0] = 0.1
    y = predictions(model, x)
    expected = attack(Direct(model), x, y, every_image=every_image, index=range(4))
    x[3, 0, 0, 0] = 0.999
    result = attack(Direct(Poisoned()), x, y, every_image=every_image, index=range(4))
    others = torch.arange(4) != 3
    assert result.success[3] or not result.logits[3].isnan().any()
    assert every_image or result.logits[3].isnan().all()
    assert result.images.isfinite().all()
    assert torch.equal(result.images[others], expected.images[others])


@every_attack
@pytest.mark.parametrize("every_image", [True, False])
def test_a_nan_image_stays_itself_counts_as_fooled_and_changes_no_other_image(attack, model, x, y, every_image):
    expected = usual(attack, every_image, range(4))
    x[3, 0, 1, 1] = torch.nan
    result = attack(Direct(model), x, y, every_image=every_image, index=range(4))
    others = torch.arange(4) != 3
    assert result.success[3]
    assert torch.equal(result.images[3].isnan(), x[3].isnan())
    assert torch.equal(result.images[3].nan_to_num(), x[3].nan_to_num())
    assert torch.equal(result.images[others], expected.images[others])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Misled(Oracle):
    """NaN gradients for image rows whose first pixel is above a half."""

    model: nn.Module

    @property
    def target(self):
        return self.model

    def estimate(self, x):
        return self.model(x) * torch.where(x[:, 0, 0, :1] > 0.5, torch.nan, 1.0)


@every_attack
def test_nan_gradients_move_no_image_outside_and_make_no_nan_pixels(attack, model, x, y):
    result = attack(Misled(model=model, values="deployed"), x, y)
    assert result.images.isfinite().all()
    assert attack.threat.contains(result.images, x).all()
    assert result.logits.isfinite().all()


@every_start
def test_a_start_in_the_ball_is_used_and_one_outside_is_refused(attack, model, x, y):
    start = attack.threat.random_start(x, torch.Generator().manual_seed(5))
    given = attack(Direct(model), x, y, start=start)
    assert same(attack(Direct(model), x, y, start=start), given)
    assert not torch.equal(given.images, usual(attack).images)
    start[2, 0, 0, 0] = (start[2, 0, 0, 0] + 0.5) % 1 if attack.threat.eps < 0.3 else 7.0
    with pytest.raises(ValueError, match=r"start must lie inside .*; image 2 is at distance"):
        attack(Direct(model), x, y, start=start)
