"""Mistakes of the caller raise an error at once that says what is wrong."""

import pytest
import torch

from robustdeq import Anderson, Broyden, Implicit, Neumann, Phantom, Picard, fixed_point

START = torch.zeros(2, 3)


@pytest.mark.parametrize("make", [Broyden, Anderson, Picard, Phantom, Neumann, Implicit])
def test_a_misspelt_option_is_an_error(make):
    with pytest.raises(TypeError, match="max_stpes"):
        make(max_stpes=3)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Broyden, {"max_steps": 0}),
        (Broyden, {"max_steps": -3}),
        (Broyden, {"criterion": "relativ"}),
        (Broyden, {"divergence": 0.5}),
        (Anderson, {"memory": 0}),
        (Anderson, {"ridge": -1e-4}),
        (Anderson, {"mixing": 0.0}),
        (Anderson, {"max_steps": 0}),
        (Picard, {"damping": 0.0}),
        (Picard, {"damping": -0.5}),
        (Picard, {"damping": 2.5}),
        (Picard, {"damping": float("nan")}),
        (Phantom, {"steps": -1}),
        (Phantom, {"damping": 0.0}),
        (Phantom, {"damping": 1.5}),
        (Neumann, {"steps": -1}),
        (Neumann, {"damping": 0.0}),
        (Neumann, {"damping": 1.5}),
    ],
    ids=lambda v: v.__name__ if isinstance(v, type) else str(v),
)
def test_a_bad_option_value_is_named(make, options):
    (name, value) = next(iter(options.items()))
    with pytest.raises(ValueError, match=name) as error:
        make(**options)
    assert str(value) in str(error.value)


def test_an_integer_start_is_an_error():
    with pytest.raises(TypeError, match=r"(?i)float"):
        fixed_point(torch.cos, torch.zeros(2, 3, dtype=torch.int64), Broyden())


def test_an_empty_batch_is_an_error():
    with pytest.raises(ValueError, match="at least one sample"):
        fixed_point(torch.cos, torch.zeros(0, 3), Broyden())


def test_a_start_without_a_batch_axis_is_an_error():
    with pytest.raises((ValueError, TypeError)):
        fixed_point(torch.cos, torch.zeros(()), Broyden())


def test_an_empty_state_is_an_error():
    with pytest.raises(ValueError, match=r"z0.*\(2, 0\)"):
        fixed_point(torch.cos, torch.zeros(2, 0), Broyden())


@pytest.mark.parametrize("tol", [-1e-3, float("nan")])
def test_a_bad_tolerance_is_an_error(tol):
    with pytest.raises(ValueError, match="tol"):
        fixed_point(torch.cos, START, Broyden(), tol=tol)


@pytest.mark.parametrize(
    ("f", "found"),
    [(lambda z: z[:, :1], "(2, 1)"), (lambda z: z[:1], "(1, 3)"), (lambda z: z.flatten(), "(6,)")],
    ids=["latent", "batch", "flat"],
)
def test_f_that_changes_the_shape_is_an_error_that_names_both(f, found):
    with pytest.raises(ValueError) as error:
        fixed_point(f, START, Broyden())
    assert found in str(error.value)
    assert "(2, 3)" in str(error.value)


def test_f_that_changes_the_dtype_is_an_error_that_names_both():
    with pytest.raises(ValueError, match=r"torch\.float64.*torch\.float32"):
        fixed_point(lambda z: z.double(), START, Broyden())


def test_f_that_changes_the_shape_at_a_later_step_is_an_error():
    with pytest.raises(ValueError, match="float64"):
        fixed_point(lambda z: z + 1 if (z == 0).all() else z.double(), START, Broyden())
