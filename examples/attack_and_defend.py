"""Attack one image of a small DEQ, then predict it with a test-time defence."""

import argparse

import torch
import torch.nn.functional as F
from rich import print
from rich.progress import track
from torch import Tensor

import robustdeq as rd
from robustdeq.data import load_digits

EPS = 0.15
"""The attacker's budget: the most that a pixel in [0, 1] may change. Photographs usually get 8/255, digits more."""
STEP = EPS / 4
"""A step of the attack and of the defence: a quarter of the budget, as 2/255 is of 8/255."""


def attack_and_defend(model: rd.DEQ, x: Tensor, y: Tensor) -> tuple[rd.AttackResult, Tensor]:
    """Attack images through the third state of the undefended model; also the entropies along the defended states."""
    defended = rd.EarlyState(rd.EntropyReduction(model, every=2, steps=10, step_size=STEP, radius=EPS), state=8)
    oracle = rd.UnrolledState(defended, state=3, steps=5, damping=0.5)
    attack = rd.PGD(rd.Linf(EPS), steps=10, step_size=STEP, seed=0)
    result = attack(oracle, x, y)
    return result, defended.trajectory(result.images).entropy


def trained(steps: int) -> rd.DEQ:
    """A tiny DEQ, trained for a few seconds on digits as a network of four layers that share the weights of f."""
    model, images = rd.create_model("mdeq-nano", num_classes=10), load_digits()[0]
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in track(range(steps), "training"):
        rows = torch.randint(len(images.pixels), (64,))
        loss = F.cross_entropy(model.truncated(images.pixels[rows].float() / 255, layers=4), images.labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def first_correct(model: rd.DEQ, x: Tensor, y: Tensor) -> int:
    """The first image that the model classifies correctly: attacking a misclassified one would show nothing."""
    with torch.no_grad():
        correct = model(x).argmax(1) == y
    if not correct.any():
        raise SystemExit(f"the model classifies none of {len(x)} images correctly: give more --steps")
    return int(correct.int().argmax())


def main(argv: list[str] | None = None) -> None:
    """Train a model, attack one image, and print what the undefended and the defended model predict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150, help="training steps")
    parser.add_argument("--image", type=int, help="number of the test image (default: the first correct one)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    model, images = trained(args.steps), load_digits()[2]
    x, y = images.pixels.float() / 255, images.labels
    chosen = first_correct(model, x, y) if args.image is None else args.image
    x, y = x[chosen][None], y[chosen][None]

    result, entropy = attack_and_defend(model, x, y)
    distance = (result.images - x).abs().max()
    print(f"test image {chosen}: label {y.item()}, undefended prediction on the clean image {model(x).argmax().item()}")
    print(f"attacked within {distance:.3f}: undefended prediction {model(result.images).argmax().item()}")
    print(f"defended prediction {result.logits.argmax().item()} ({'fooled' if result.success else 'not fooled'})")
    print("entropy along the defended states: " + " ".join(f"{h:.2f}" for h in entropy[:, 0]))


if __name__ == "__main__":
    torch.set_num_threads(1)  # batches this small only wait for a second thread
    main()
