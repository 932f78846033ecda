"""The balls: projection, membership, random points, directions."""

import pytest
import torch
from torch.testing import assert_close

from robustdeq.threat import L2, Linf, number

THREATS = [Linf(0.1), L2(0.7)]


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    origin = torch.rand(16, 3, 4, 4, dtype=torch.float64, generator=generator)
    return origin, origin + torch.randn(origin.shape, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("threat", THREATS, ids=repr)
def test_a_projected_image_is_in_the_ball_and_in_the_pixel_range(threat, images):
    origin, x = images
    assert not threat.contains(x, origin).any()
    projected = threat.project(x, origin)
    assert (threat.distance(projected, origin) <= threat.eps + 1e-12).all()
    assert projected.min() >= 0
    assert projected.max() <= 1
    assert threat.contains(projected, origin).all()


@pytest.mark.parametrize("threat", THREATS, ids=repr)
def test_projecting_twice_is_projecting_once(threat, images):
    origin, x = images
    once = threat.project(x, origin)
    assert_close(threat.project(once, origin), once, rtol=0, atol=1e-15)


@pytest.mark.parametrize("threat", THREATS, ids=repr)
def test_an_image_inside_the_ball_stays_where_it_is(threat, images):
    origin, x = images
    inside = (origin + 1e-3 * (x - origin)).clamp(0, 1)
    assert_close(threat.project(inside, origin), inside, rtol=0, atol=1e-15)


@pytest.mark.parametrize("threat", THREATS, ids=repr)
def test_the_projection_into_the_ball_is_the_nearest_of_its_points(threat, images):
    origin, x = images
    nearest = (x - threat.into_ball(x, origin)).flatten(1).norm(dim=1)
    for seed in range(20):
        other = origin + threat.random_offset(origin, torch.Generator().manual_seed(seed))
        assert ((x - other).flatten(1).norm(dim=1) >= nearest).all()


@pytest.mark.parametrize("threat", THREATS, ids=repr)
def test_random_points_lie_in_the_ball_and_fill_it(threat):
    origin = torch.full((2000, 1, 2, 2), 0.5, dtype=torch.float64)
    offset = threat.random_offset(origin, torch.Generator().manual_seed(0))
    distance = threat.distance(origin + offset, origin)
    assert (distance <= threat.eps + 1e-12).all()
    # in both norms P(distance <= r) = (r / eps)^4 in four dimensions, so distance^4 is uniform
    assert (distance / threat.eps).pow(4).mean() == pytest.approx(0.5, abs=0.03)
    assert offset.mean() == pytest.approx(0, abs=0.02 * threat.eps)


@pytest.mark.parametrize("threat", THREATS, ids=repr)
def test_a_random_start_is_a_pure_function_of_its_generator_and_in_the_pixel_range(threat, images):
    origin, _ = images
    starts = [threat.random_start(origin, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
    assert threat.contains(starts[0], origin).all()


@pytest.mark.parametrize(("threat", "dual"), [(Linf(0.1), 1), (L2(0.7), 2)], ids=repr)
def test_the_ascent_direction_has_unit_norm_and_reaches_the_dual_norm(threat, dual, images):
    _, gradient = images
    step = threat.ascent(gradient)
    assert_close(threat.distance(step, torch.zeros_like(step)), torch.ones(16, dtype=torch.float64))
    expected = torch.linalg.vector_norm(gradient.flatten(1), dual, dim=1)
    assert_close((step * gradient).flatten(1).sum(1), expected)


@pytest.mark.parametrize("scale", [1e-22, 1e-25, 1e-37, 1e25])
def test_a_direction_does_not_depend_on_how_long_the_gradient_is(scale, images):
    gradient = images[1].float()
    step = L2(0.5).ascent(gradient * scale)
    assert_close(step, L2(0.5).ascent(gradient), rtol=0, atol=1e-5)


@pytest.mark.parametrize("threat", THREATS, ids=repr)
def test_a_zero_gradient_gives_no_direction(threat):
    assert torch.equal(threat.ascent(torch.zeros(2, 1, 2, 2)), torch.zeros(2, 1, 2, 2))


@pytest.mark.parametrize("kind", [Linf, L2])
def test_a_ball_of_radius_zero_holds_its_centre_only(kind, images):
    origin, x = images
    assert_close(kind(0.0).project(x, origin), origin, rtol=0, atol=1e-15)


@pytest.mark.parametrize("eps", [-0.1, float("nan")])
def test_a_radius_must_not_be_negative(eps):
    with pytest.raises(ValueError, match="eps"):
        Linf(eps)


@pytest.mark.parametrize("threat", THREATS, ids=repr)
def test_an_image_outside_the_pixel_range_is_not_contained(threat):
    origin = torch.zeros(1, 1, 2, 2)
    assert not threat.contains(origin - 0.01, origin).any()
    assert threat.contains(origin + 0.01, origin).all()


def test_a_linf_radius_above_one_is_refused():
    with pytest.raises(ValueError, match="8 of 255 is 8/255"):
        Linf(8.0)
    assert Linf(1.0).eps == 1


@pytest.mark.parametrize(("written", "value"), [("8/255", 8 / 255), ("0.5", 0.5), (0.25, 0.25)])
def test_budgets_may_be_fractions(written, value):
    assert number(written) == value


@pytest.mark.parametrize("written", ["8/0", "much", ""])
def test_the_error_about_a_wrong_budget_names_the_setting(written):
    with pytest.raises(ValueError, match="--eps must be a number or a fraction such as 8/255"):
        number(written, "--eps")


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.5)], ids=repr)
def test_an_empty_batch_is_no_error(threat):
    none = torch.rand(0, 3, 4, 4)
    assert threat.distance(none, none).shape == (0,)
    assert threat.contains(none, none).shape == (0,)
    for moved in (threat.project(none, none), threat.ascent(none)):
        assert moved.shape == none.shape
