"""Attacks of foolbox, torchattacks, ART and pyautoattack on our predictors and oracles, beside ours at equal settings.

foolbox and ART come with `pip install foolbox adversarial-robustness-toolbox`. torchattacks declares torchvision and
an old requests, and uses neither for its attacks: `pip install --no-deps torchattacks`.
"""

import argparse
import importlib
import warnings
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from rich import print
from rich.table import Table
from torch import Tensor, nn

import robustdeq as rd
from robustdeq.data import load_digits

EPS, EPS_L2, STEPS = 0.15, 0.8, 5
Find = Callable[[], Tensor]
"""Runs an attack and returns its images."""
Row = tuple[str, Find, rd.Attack]
"""Name of an outside attack, how it is run, and ours with the same settings."""


def pgd(threat: rd.Threat, steps: int = STEPS, step_size: float | None = None) -> rd.PGD:
    """Ours, from the clean image as theirs are told to."""
    return rd.PGD(threat, steps=steps, step_size=step_size, random_start=False)


LINF, L2 = pgd(rd.Linf(EPS)), pgd(rd.L2(EPS_L2))
FGSM = pgd(rd.Linf(EPS), steps=1, step_size=EPS)


def foolbox_rows(net: nn.Module, x: Tensor, y: Tensor) -> Iterator[Row]:
    """Foolbox takes a module in eval mode; it returns the last iterate, clipped to the ball."""
    import foolbox as fb

    client = fb.PyTorchModel(net, bounds=(0, 1), device="cpu")

    def run(attack: fb.Attack, eps: float) -> Find:
        return lambda: attack(client, x, y, epsilons=eps)[1]

    options = {"steps": STEPS, "random_start": False}
    yield "foolbox LinfPGD", run(fb.attacks.LinfPGD(abs_stepsize=EPS / 4, **options), EPS), LINF
    yield "foolbox L2PGD", run(fb.attacks.L2PGD(abs_stepsize=EPS_L2 / 4, **options), EPS_L2), L2
    yield "foolbox LinfFastGradient", run(fb.attacks.LinfFastGradientAttack(random_start=False), EPS), FGSM


def torchattacks_rows(net: nn.Module, x: Tensor, y: Tensor) -> Iterator[Row]:
    """Torchattacks takes a module, puts it into eval mode and restores the mode that it found; last iterate."""
    import torchattacks as ta

    options = {"steps": STEPS, "random_start": False}
    yield "torchattacks PGD", lambda: ta.PGD(net, eps=EPS, alpha=EPS / 4, **options)(x, y), LINF
    yield "torchattacks PGDL2", lambda: ta.PGDL2(net, eps=EPS_L2, alpha=EPS_L2 / 4, **options)(x, y), L2
    yield "torchattacks FGSM", lambda: ta.FGSM(net, eps=EPS)(x, y), FGSM


def art_rows(net: nn.Module, x: Tensor, y: Tensor) -> Iterator[Row]:
    """ART takes a module in a classifier and NumPy arrays; last iterate."""
    from art.attacks.evasion import FastGradientMethod, ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    client = PyTorchClassifier(net, F.cross_entropy, x.shape[1:], nb_classes=10, clip_values=(0, 1), device_type="cpu")

    def run(kind: type, **options: object) -> Find:
        attack = kind(client, **options)
        return lambda: torch.as_tensor(attack.generate(x.numpy(), y.numpy()))

    steps = {"max_iter": STEPS, "num_random_init": 0, "verbose": False}
    linf, l2 = {"norm": "inf", "eps": EPS}, {"norm": 2, "eps": EPS_L2}
    yield "ART PGD", run(ProjectedGradientDescentPyTorch, eps_step=EPS / 4, **linf, **steps), LINF
    yield "ART PGD, L2", run(ProjectedGradientDescentPyTorch, eps_step=EPS_L2 / 4, **l2, **steps), L2
    yield "ART FGSM", run(FastGradientMethod, **linf), FGSM


def pyautoattack_rows(net: nn.Module, x: Tensor, y: Tensor) -> Iterator[Row]:
    """Pyautoattack takes any callable.

    FAB-T returns the clean image where it sees no success; ours projects the nearest point that it found into the ball
    instead, so it breaks at least as many.
    """
    from pyautoattack.autopgd_base import APGDAttack
    from pyautoattack.fab_pt import FABAttack_PT

    options = {"norm": "Linf", "eps": EPS, "n_iter": STEPS, "device": "cpu"}

    def apgd() -> Tensor:
        attack = APGDAttack(net, loss="ce", **options)
        attack.init_hyperparam(x)
        best, correct, _, adversarial = attack.attack_single_run(x, y, x_init=x)
        return torch.where(correct[:, None, None, None], best, adversarial)

    fab = FABAttack_PT(net, targeted=True, n_target_classes=3, **options)
    yield "pyautoattack APGD-CE", apgd, rd.APGD(rd.Linf(EPS), n_iter=STEPS)
    yield "pyautoattack FAB-T", lambda: fab.perturb(x, y), rd.FABT(rd.Linf(EPS), n_iter=STEPS, targets=3)


LIBRARIES = {
    "foolbox": foolbox_rows, "torchattacks": torchattacks_rows, "art": art_rows, "pyautoattack": pyautoattack_rows
}  # fmt: skip


def installed() -> dict[str, Callable[..., Iterator[Row]]]:
    """The libraries that can be imported here; the others are named and left out."""
    found = {}
    for name, rows in LIBRARIES.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some import old names of NumPy and SciPy
                importlib.import_module(name)
            found[name] = rows
        except ImportError as error:
            print(f"{name} is left out: {error}")
    return found


def compare(net: nn.Module, oracle: rd.Oracle, x: Tensor, y: Tensor) -> Iterator[tuple[str, int, int, int, int]]:
    """For each outside attack: its name, images broken by theirs and by ours, and images that each left as they were.

    Args:
        net: What the outside library attacks: a predictor, or an oracle as a module.
        oracle: What ours attack; the deployed predictor judges all images.
        x: Clean images.
        y: Their labels.
    """
    for rows in installed().values():
        for name, run, ours in rows(net, x, y):
            start = None if isinstance(ours, rd.FABT) else x  # all begin at the clean image, FAB-T where it likes
            theirs, result = run().detach(), ours(oracle, x, y, start=start)
            fooled = oracle.deployed(theirs).argmax(1) != y
            kept, own = [int((images == x).flatten(1).all(1).sum()) for images in (theirs, result.images)]
            yield name, int(fooled.sum()), int(result.success.sum()), kept, own


def trained(steps: int) -> rd.DEQ:
    """A tiny DEQ, trained for a few seconds on digits."""
    model, images = rd.create_model("mdeq-nano", num_classes=10), load_digits()[0]
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        rows = torch.randint(len(images.pixels), (64,))
        loss = F.cross_entropy(model.truncated(images.pixels[rows].float() / 255, layers=4), images.labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()
    return model.eval()


def main(argv: list[str] | None = None) -> None:
    """Attack a predictor and an oracle with every library that is installed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--steps", type=int, default=150, help="training steps")
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    model, images = trained(args.steps), load_digits()[2]
    x, y = images.pixels[: args.images].float() / 255, images.labels[: args.images]
    predictor = rd.EarlyState(model, state=8)
    defended = rd.EarlyState(rd.EntropyReduction(model, every=4, steps=2), state=8)
    oracle = rd.UnrolledState(defended, state=3, values="deployed")
    subjects = {
        "the predictor itself": (predictor, rd.oracles.Direct(predictor)),
        "an oracle of a defended one": (oracle.module(), oracle),
    }
    for title, (net, view) in subjects.items():
        wrong = int((view.deployed(x).argmax(1) != y).sum())
        table = Table(
            "attack", "broken: theirs", "ours", "unchanged: theirs", "ours", title=f"On {title}; {wrong} wrong before"
        )
        for row in compare(net, view, x, y):
            table.add_row(*map(str, row))
        print(table)


if __name__ == "__main__":
    torch.set_num_threads(1)  # batches this small only wait for a second thread
    main()
