"""Train, defend and honestly evaluate adversarially robust deep equilibrium models."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robustdeq.attacks import (
        APGD,
        FABT,
        PGD,
        Attack,
        AttackResult,
        AutoAttack,
        Oracle,
        Square,
        UnrolledState,
        gradient_honesty,
        oracles,
    )
    from robustdeq.attacks import Direct as Direct  # these four belong to `oracles`; older code finds them here
    from robustdeq.attacks import Estimate as Estimate
    from robustdeq.attacks import Exact as Exact
    from robustdeq.attacks import WatchedStates as WatchedStates
    from robustdeq.defences import EarlyState, EntropyReduction, InputDefence
    from robustdeq.evaluation.evaluate import evaluate
    from robustdeq.models import (
        DEQ,
        MDEQ,
        BoundDynamics,
        CheckpointError,
        ForwardPass,
        MDEQConfig,
        Predictor,
        ResNet,
        SplitDynamics,
        Trajectory,
        compat,
        create_model,
        list_models,
        load,
        register_model,
    )
    from robustdeq.models.predictor import Defence, DynamicPredictor
    from robustdeq.solve import (
        Anderson,
        Broyden,
        GradientPolicy,
        Implicit,
        Iteration,
        Neumann,
        NotConvergedError,
        OneStep,
        Phantom,
        Picard,
        SharedInverse,
        Solution,
        Solver,
        Status,
        ThroughSolver,
        Unrolled,
        fixed_point,
        jacobian_penalty,
        spectral_radius,
    )
    from robustdeq.threat import L2, Linf, Threat
    from robustdeq.training import PGDAT, TRADES, Carried, Cold, Final, RandomState, Standard, TrainConfig
    from robustdeq.training.trainer import Trainer
else:
    from robustdeq.host.lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__version__ = "0.1.0"

# fmt: off
__all__ = [
    "APGD", "DEQ", "FABT", "L2", "MDEQ", "PGD", "PGDAT", "TRADES", "Anderson", "Attack", "AttackResult",
    "AutoAttack", "BoundDynamics", "Broyden", "Carried", "CheckpointError", "Cold", "Defence", "DynamicPredictor",
    "EarlyState", "EntropyReduction", "Final", "ForwardPass", "GradientPolicy", "Implicit", "InputDefence",
    "Iteration", "Linf", "MDEQConfig", "Neumann", "NotConvergedError", "OneStep", "Oracle", "Phantom", "Picard",
    "Predictor", "RandomState", "ResNet", "SharedInverse", "Solution", "Solver", "SplitDynamics", "Square",
    "Standard", "Status", "Threat", "ThroughSolver", "TrainConfig", "Trainer", "Trajectory", "Unrolled",
    "UnrolledState", "compat", "create_model", "evaluate", "fixed_point", "gradient_honesty", "jacobian_penalty",
    "list_models", "load", "oracles", "register_model", "spectral_radius",
]
# fmt: on
