"""The pictures of the documentation: python docs/make_figures.py (a few seconds; nothing big is trained)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import robustdeq as rd
from robustdeq.attacks import PGD
from robustdeq.attacks.oracles import UnrolledState
from robustdeq.report.figures.drawing import Figure, draw
from robustdeq.threat import Linf

HERE = Path(__file__).parent
EPS = 0.1


def paths() -> Figure:
    """Two solvers on z = tanh(W z + u) in the plane."""
    w = torch.tensor([[0.2, -1.1], [1.1, 0.2]], dtype=torch.float64)
    u = torch.tensor([[0.9, -0.4]], dtype=torch.float64)

    def f(z: Tensor) -> Tensor:
        return torch.tanh(z @ w.T + u)

    z0 = torch.zeros(1, 2, dtype=torch.float64)
    solved = {
        "Picard": rd.fixed_point(f, z0, rd.Picard(max_steps=12), tol=0.0),
        "Broyden": rd.fixed_point(f, z0, rd.Broyden(max_steps=12), tol=0.0),
    }
    end = rd.fixed_point(f, z0, rd.Broyden(max_steps=60), tol=1e-13).value[0]

    def paint(plane: Any, residual: Any) -> None:
        for name, solution in solved.items():
            assert solution.trajectory is not None
            path = torch.cat([z0[None], solution.trajectory])[:, 0]
            plane.plot(path[:, 0], path[:, 1], marker="o", markersize=3, label=name)
            residual.semilogy(range(1, 13), solution.residuals[:, 0].clamp_min(1e-16), marker="o", markersize=3)
        plane.plot(*end, marker="*", markersize=12, color="#c2486b", linestyle="none", label="equilibrium")
        plane.set_xlabel("z, first coordinate")
        plane.set_ylabel("second coordinate")
        plane.legend(fontsize=8)
        residual.set_xlabel("solver step t")
        residual.set_ylabel("relative residual")

    alt = "Left: the iterates of Picard circle in on the equilibrium, Broyden's jump to it. Right: residuals."
    return draw("solver-paths", "Two solvers on the way to one equilibrium", alt, paint, panels=2, width=8.0)


def dynamics() -> list[Figure]:
    """A small DEQ on digits, clean and attacked, state by state."""
    example = _example()
    torch.manual_seed(0)
    model = rd.create_model("digits-deq")
    x, x_test, y, y_test = example.digits(0)
    example.train(model, x, y, epochs=12)
    model.eval()
    oracle = UnrolledState(model, state=3, steps=5, damping=0.5)
    attacked = PGD(Linf(EPS), steps=10, step_size=EPS / 4, seed=0)(oracle, x_test, y_test).images
    defended = rd.EntropyReduction(model, step_size=EPS / 4, radius=EPS)
    passes = {
        "clean": model.trajectory(x_test),
        "attacked": model.trajectory(attacked),
        "attacked, regulated": defended.trajectory(attacked),
    }
    steps = range(1, len(passes["clean"].entropy) + 1)

    def paint(accuracy: Any, entropy: Any) -> None:
        for name, walked in passes.items():
            right = (walked.logits.argmax(-1) == y_test).double().mean(1)
            accuracy.plot(steps, 100 * right, marker="o", markersize=3, label=name)
            entropy.plot(steps, walked.entropy.mean(1), marker="o", markersize=3, label=name)
        accuracy.set_xlabel("state t")
        accuracy.set_ylabel("accuracy of head(z[t]) (%)")
        entropy.set_xlabel("state t")
        entropy.set_ylabel("mean entropy (nats)")
        accuracy.legend(fontsize=8)

    alt = (
        "Accuracy and mean entropy of the prediction at each state of a small DEQ on digits: on clean images, on "
        "attacked ones, and on attacked ones with entropy reduction, which lowers the entropy along the states."
    )
    figures = [draw("dynamics", "Accuracy and entropy along the dynamics", alt, paint, panels=2, width=8.0)]

    def one(axes: Any) -> None:
        moved = (passes["attacked"].logits[-1].argmax(-1) != y_test) & (passes["clean"].logits[-1].argmax(-1) == y_test)
        image = int(moved.nonzero()[0])
        for name, walked in passes.items():
            axes.plot(steps, walked.entropy[:, image], marker="o", markersize=3, label=name)
        axes.set_xlabel("state t")
        axes.set_ylabel("entropy (nats)")
        axes.legend(fontsize=8)

    alt = "The entropy of the prediction along the states for one digit that an attack turns into another."
    return [*figures, draw("one-image", "One image along the dynamics", alt, one, width=5.0)]


def _example() -> Any:
    """examples/digits_deq.py as a module."""
    spec = importlib.util.spec_from_file_location("digits_deq", HERE.parent / "examples" / "digits_deq.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Write them all."""
    torch.set_num_threads(1)
    for figure in [paths(), *dynamics()]:
        # an image in a page cannot take the page's colour: a grey that is readable on white and on black
        (HERE / "images" / f"{figure.name}.svg").write_text(figure.svg.replace("currentColor", "#808890"))


if __name__ == "__main__":
    main()
