"""The gauntlet: planted false defences and true gains, each with what the audit must say of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from robustdeq.evaluation import Verdict, evaluate
from robustdeq.evaluation.suites.audit import Budget, audit_suite
from robustdeq.threat import Linf
from tests.evaluation.gauntlet import false_defences as false
from tests.evaluation.gauntlet import true_gains as true
from tests.evaluation.gauntlet.models import EPS, adversarial, data, standard

BUDGET = Budget(steps=100, search=30, restarts=2, rounds=2, square={"n_queries": 300})
FEW = 110
"""Images of the predictors that look every image up."""


@dataclass(frozen=True)
class Case:
    """A predictor and what the audit must say of it."""

    make: Callable[[], Any]
    words: str
    """What it is, for the table."""
    verdicts: tuple[str, ...]
    """Verdicts that are right."""
    flags: tuple[str, ...] = ()
    """Flags that must be raised."""
    base: Callable[[], Any] | None = None
    images: Callable[[], Any] = data
    gain: bool = False
    """Whether the gain over its base is true."""

    @property
    def name(self) -> str:
        """Name of the function that makes it."""
        return self.make.__name__

    def audit(self, out: Any) -> Verdict:
        """Audit it at the gauntlet's budget."""
        x, y = self.images()
        return evaluate(
            self.make(),
            (x, y),
            lambda context: audit_suite(context, BUDGET),
            out,
            base=self.base and self.base(),
            threat=Linf(EPS),
            batch_size=len(y),
        )


def few():
    """Fewer images."""
    return data(FEW)


def in_float64():
    """Images for the model with a solver."""
    x, y = data()
    return x.double(), y


CASES = [
    Case(false.rounded_pixels, "pixels rounded to five levels", ("masked",), ("vanishing-gradients",)),
    Case(false.logits_times_ten_thousand, "logits times 10,000", ("masked",), ("vanishing-gradients",)),
    Case(false.logits_over_ten_thousand, "logits over 10,000", ("broken",)),
    Case(
        false.argmax_outputs,
        "one-hot argmax instead of logits",
        ("masked",),
        ("vanishing-gradients", "black-box-beats-white-box"),
    ),
    Case(false.rounded_logits, "logits rounded to whole numbers", ("masked",), ("vanishing-gradients",)),
    Case(false.noise_on_inputs, "noise on inputs", ("broken",), ("randomness",)),
    Case(false.noise_on_logits, "noise on logits", ("broken",), ("randomness",)),
    Case(
        false.noise_around_a_robust_model,
        "noise on inputs of an adversarially trained model",
        ("no-gain",),
        ("randomness",),
        base=adversarial,
    ),
    Case(false.stopped_gradient, "an identity that stops the gradient", ("masked",), ("vanishing-gradients",)),
    Case(false.reversed_gradient, "an identity that reverses the gradient", ("masked",), ("false-gradient",)),
    Case(
        false.purifier_by_confidence,
        "a purifier: four steps that lower the entropy",
        ("no-gain", "masked"),
        base=adversarial,
    ),
    Case(false.anti_adversary, "an anti-adversary step", ("no-gain", "masked"), base=adversarial),
    Case(false.clipped_features, "features clipped", ("masked", "broken"), ("large-eps",)),
    Case(false.batch_statistics, "logits normalised over the batch", ("undecided", "broken"), ("batch-dependence",)),
    Case(
        false.solver_cut_off,
        "a DEQ whose solver stops after one step",
        ("broken",),
        ("non-convergence",),
        images=in_float64,
    ),
    Case(
        false.times_out_into_the_plain_prediction,
        "a defence that gives up while gradients are recorded",
        ("masked",),
        ("gradient-mode",),
    ),
    Case(
        false.remembers_images,
        "answers near a seen image as it did then",
        ("masked",),
        ("vanishing-gradients",),
        images=few,
    ),
    Case(
        false.remembers_images_with_a_gradient,
        "the same with the gradient of the model",
        ("masked",),
        ("memory", "false-gradient"),
        images=few,
    ),
    Case(false.knows_the_test_images, "knows the test images", ("masked",), ("memory", "false-gradient"), images=few),
    Case(false.hardens_with_time, "rounds coarsely after 150 calls", ("masked",), ("vanishing-gradients", "large-eps")),
    Case(
        false.quantised_frequencies,
        "frequencies rounded coarsely, as in JPEG",
        ("masked",),
        ("vanishing-gradients", "black-box-beats-white-box"),
    ),
    Case(false.refuses_what_no_file_holds, "NaN for images that are not 8-bit", ("broken",)),
    Case(
        false.gradient_of_files_only,
        "a gradient on 8-bit images only",
        ("masked",),
        ("black-box-beats-white-box", "large-eps"),
    ),
    Case(false.running_mean, "the running mean of all batches", ("masked",), ("false-gradient", "batch-dependence")),
    Case(true.adversarially_trained, "adversarial training", ("stands",), base=standard, gain=True),
    Case(true.ensemble, "an ensemble of two adversarially trained models", ("stands",), base=standard, gain=True),
    Case(true.prototypes, "nearest class mean", ("stands",), base=standard, gain=True),
    Case(
        true.brightest_quadrant,
        "mean brightness of quadrants, certified at this radius",
        ("stands",),
        base=true.single_pixels,
        images=true.quadrants,
        gain=True,
    ),
]
