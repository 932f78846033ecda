"""Draws the pictures of the documentation into docs/figures: python docs/make_figures.py (half a minute)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import robustdeq as rd
from robustdeq.app.case import Case
from robustdeq.app.catalogue import Catalogue
from robustdeq.app.look import look
from robustdeq.app.page import headline
from robustdeq.app.poster import poster
from robustdeq.cli.arguments.checkpoint import resolve
from robustdeq.cli.arguments.deploy import deploy
from robustdeq.report.figures.drawing import Figure, draw

HERE = Path(__file__).parent
EPS = 0.1
INK = "#808890"
"""A grey that is readable on white and on black: an image cannot take the colour of its page."""


def solver_paths() -> Figure:
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
    """A small DEQ on digits, state by state: clean, attacked, and attacked with entropy reduction."""
    example = _example()
    torch.manual_seed(0)
    model = rd.create_model("digits-deq")
    x, x_test, y, y_test = example.digits(0)
    example.train(model, x, y, epochs=12)
    model.eval()
    model.solver = rd.Broyden(max_steps=8)
    oracle = rd.UnrolledState(model, state=3, steps=5, damping=0.5)
    attacked = rd.PGD(rd.Linf(EPS), steps=10, step_size=EPS / 4, seed=0)(oracle, x_test, y_test).images
    defended = rd.EntropyReduction(model, step_size=EPS / 4, radius=EPS)
    passes = {
        "clean": model.trajectory(x_test),
        "attacked": model.trajectory(attacked),
        "attacked, with entropy reduction": defended.trajectory(attacked),
    }
    steps = range(1, len(passes["clean"].entropy) + 1)

    def means(accuracy: Any, entropy: Any, residual: Any) -> None:
        for name, trajectory in passes.items():
            right = (trajectory.logits.argmax(-1) == y_test).double().mean(1)
            accuracy.plot(steps, 100 * right, marker="o", markersize=3, label=name)
            entropy.plot(steps, trajectory.entropy.mean(1), marker="o", markersize=3, label=name)
            residual.semilogy(steps, trajectory.residual.median(1).values, marker="o", markersize=3, label=name)
        accuracy.set_ylabel("accuracy of head(z[t]) (%)")
        entropy.set_ylabel("mean entropy (nats)")
        residual.set_ylabel("median residual of the solver")
        accuracy.legend(fontsize=8)
        for axes in (accuracy, entropy, residual):
            axes.set_xlabel("state t")

    alt = (
        "Accuracy, mean entropy of the prediction and median residual at each state of a small DEQ on digits: on clean "
        "images, on attacked ones, and on attacked ones with entropy reduction, which lowers the entropy."
    )
    figures = [
        draw("dynamics", "Accuracy and entropy along the dynamics", alt, means, panels=3, width=11.0, height=3.0)
    ]

    correct = [trajectory.logits[-1].argmax(-1) == y_test for trajectory in passes.values()]
    image = int((correct[0] & ~correct[1]).nonzero()[0])  # the first that the attack breaks, whatever the defence does

    def one(probability: Any, entropy: Any, residual: Any) -> None:
        for name, trajectory in passes.items():
            true_class = trajectory.logits[:, image].softmax(-1)[:, y_test[image]]
            probability.plot(steps, 100 * true_class, marker="o", markersize=3, label=name)
            entropy.plot(steps, trajectory.entropy[:, image], marker="o", markersize=3, label=name)
            residual.semilogy(steps, trajectory.residual[:, image], marker="o", markersize=3, label=name)
        probability.set_ylabel("probability of the true class (%)")
        entropy.set_ylabel("entropy of the prediction (nats)")
        residual.set_ylabel("residual of the solver")
        residual.legend(fontsize=8)
        for axes in (probability, entropy, residual):
            axes.set_xlabel("state t")

    alt = (
        "One digit along the eight states of a DEQ, clean, attacked, and attacked with entropy reduction: the "
        "probability of its true class, the entropy of the prediction, and the solver's residual."
    )
    return [*figures, draw("one-image", "One image along the dynamics", alt, one, panels=3, width=11.0, height=3.0)]


def explorer() -> str:
    """A digit that the attack fools from z^[4] on, and that entropy reduction brings back."""
    case = Case(model="digits-nano-trades-random", image="test:44")
    looked = look(case, Catalogue([case.model], resolve), deploy)
    return poster((looked.view, headline(looked.view)))


def flow() -> str:
    """Pixels to logits, and what attacks, defends, trains and evaluates that path."""
    picture = Picture(900, 452)
    row = {
        "pixels": ("pixels x", "[0, 1], NCHW"),
        "encoder": ("encoder", "models"),
        "u": ("injection u", "once per image"),
        "solver": ("solver", "iterates f(z; u)"),
        "states": ("trajectory", "z[1] .. z[N]"),
        "readout": ("readout", "which state"),
        "head": ("head", "models"),
        "logits": ("logits", "deployed"),
    }
    for k, (name, (title, below)) in enumerate(row.items()):
        picture.box(name, 12 + 111 * k, 70, 98, 50, title, below, "data" if name in ("pixels", "u", "logits") else "")
    for a, b in zip(row, [*row][1:], strict=False):
        picture.arrow(a, b)
    picture.text(12, 40, "a prediction", bold=True)
    picture.box(
        "defence",
        234,
        160,
        320,
        50,
        "defence: input entropy reduction",
        "looks at head(f(z; u)), rewrites x between steps",
    )
    picture.path([("states", "bottom", 0), (505, 160)])
    picture.path([(283, 160), ("u", "bottom", 0)])

    picture.text(12, 282, "an attack", bold=True)
    picture.box("attack", 123, 236, 209, 50, "attack: PGD, APGD, ...", "the search; its base class projects")
    picture.box("oracle", 456, 236, 209, 50, "oracle", "shows chosen values and gradients")
    picture.box("threat", 734, 236, 154, 50, "threat", "the ball around x")
    picture.arrow("oracle", "attack")
    picture.path([("logits", "bottom", 31), (869, 205), (580, 205), (580, 236)])
    picture.path([("threat", "left", 0), (700, 261), (700, 302), (227, 302), (227, 286)])
    picture.path([(123, 261), (61, 261), ("pixels", "bottom", 0)])

    picture.text(12, 352, "a training", bold=True)
    picture.box(
        "objective", 123, 326, 320, 50, "objective: standard, PGD-AT, TRADES", "inner attack + state policy + loss"
    )
    picture.box("trainer", 478, 326, 187, 50, "trainer", "batches, resume, validation")
    picture.box("checkpoint", 734, 326, 154, 50, "checkpoint", "config + weights", "data")
    picture.arrow("objective", "trainer")
    picture.arrow("trainer", "checkpoint")

    picture.text(12, 420, "an evaluation", bold=True)
    names = {
        "suite": ("suite", "list of attacks"),
        "run": ("run", "attacks x shards"),
        "store": ("store", "Parquet, resumable"),
        "analysis": ("analysis, audit", "numbers, verdict"),
        "report": ("report", "tables, figures"),
    }
    for k, (name, (title, below)) in enumerate(names.items()):
        picture.box(
            name, 123 + 154 * k, 396, 149 if k == 4 else 130, 50, title, below, "data" if name == "store" else ""
        )
    for a, b in zip(names, [*names][1:], strict=False):
        picture.arrow(a, b)
    return picture.svg("How data flow through robustdeq", "From pixels to logits; attack, training and evaluation.")


def rooms() -> str:
    """The packages of src/robustdeq: a room may import what stands below it."""
    layers = [
        ["cli"],
        ["app"],
        ["plain", "report", "recipes"],
        ["training", "evaluation"],
        ["attacks", "defences"],
        ["models", "threat", "data"],
        ["solve"],
    ]
    inside = {
        "report": "results · tables · figures",
        "evaluation": "evaluate > audit > run > suites > analysis > store",
        "attacks": "base · searches · oracles",
        "defences": "entropy reduction · early state",
        "models": "predictor · deq · mdeq · kernels",
        "training": "objectives · states · trainer",
        "solve": "loop · solvers · gradient policies",
        "cli": "one file per verb",
        "app": "the explorer, and its drawing",
        "plain": "straightforward twin",
        "recipes": "YAML",
        "threat": "balls · losses",
        "data": "CIFAR-10 · digits · folder",
    }
    picture = Picture(900, 454)
    for k, layer in enumerate(layers):
        wide = 710 / len(layer)
        for j, name in enumerate(layer):
            picture.box(name, 12 + wide * j, 14 + 62 * k, wide - 10, 50, name, inside[name])
    picture.box("host", 740, 14, 148, 422, "host", "files · processes", "data")
    picture.text(756, 271, "imports none of ours;", small=True)
    picture.text(756, 287, "all may import it", small=True)
    return picture.svg(
        "The rooms of robustdeq", "Each row may import the rows below it; rooms of one row do not see each other."
    )


class Picture:
    """Boxes and arrows as SVG."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []
        self.boxes: dict[str, tuple[float, float, float, float]] = {}

    def box(self, name: str, x: float, y: float, w: float, h: float, title: str, below: str, kind: str = "") -> None:
        """A box with a title and a line below it."""
        self.boxes[name] = (x, y, w, h)
        colour = "#d9730d" if kind == "data" else "#2f7fc1"
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" fill="{colour}" fill-opacity="0.12" '
            f'stroke="{colour}"/>'
        )
        self.text(x + w / 2, y + h / 2 - 3, title, bold=True, middle=True)
        self.text(x + w / 2, y + h / 2 + 14, below, small=True, middle=True)

    def text(
        self, x: float, y: float, words: str, *, bold: bool = False, small: bool = False, middle: bool = False
    ) -> None:
        """A line of text."""
        style = f'font-size="{10.5 if small else 13}"' + (' font-weight="bold"' if bold else "")
        style += ' text-anchor="middle"' if middle else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" fill="{INK}" {style}>{escape(words)}</text>')

    def arrow(self, a: str, b: str) -> None:
        """A straight arrow between the facing sides of two boxes of one row."""
        left_to_right = self.boxes[a][0] < self.boxes[b][0]
        self.path([(a, "right" if left_to_right else "left", 0), (b, "left" if left_to_right else "right", 0)])

    def path(self, points: Sequence[tuple[Any, ...]]) -> None:
        """An arrow through points; a point is (x, y), or (box, side, offset along that side)."""
        corners = [point if isinstance(point[0], int | float) else self._on(*point) for point in points]
        track = " ".join(f"{x:g},{y:g}" for x, y in corners)
        self.parts.append(f'<polyline points="{track}" fill="none" stroke="{INK}" marker-end="url(#tip)"/>')

    def _on(self, name: str, side: str, offset: float) -> tuple[float, float]:
        x, y, w, h = self.boxes[name]
        return {
            "left": (x, y + h / 2 + offset),
            "right": (x + w, y + h / 2 + offset),
            "bottom": (x + w / 2 + offset, y + h),
        }[side]

    def svg(self, title: str, alt: str) -> str:
        """The picture, with its words for screen readers."""
        tip = (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker></defs>'
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'font-family="sans-serif"><title>{escape(title)}</title><desc>{escape(alt)}</desc>'
        )
        return "\n".join([head, tip, *self.parts, "</svg>", ""])


def _example() -> Any:
    """examples/digits_deq.py as a module."""
    spec = importlib.util.spec_from_file_location("digits_deq", HERE.parent / "examples" / "digits_deq.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Write every picture."""
    torch.set_num_threads(1)
    drawn = {figure.name: figure.svg.replace("currentColor", INK) for figure in [solver_paths(), *dynamics()]}
    for name, svg in {**drawn, "flow": flow(), "rooms": rooms(), "explorer": explorer()}.items():
        (HERE / "figures" / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
