"""Train, defend and honestly evaluate adversarially robust deep equilibrium models."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import robustdeq.adapt as adapt
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
    from robustdeq.defences import (
        EarlyState,
        EntropyReduction,
        InputDefence,
        Intervention,
        Readings,
        ReadoutDefence,
    )
    from robustdeq.evaluation.benchmark import Benchmark, benchmark
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
    from robustdeq.recipes import load_recipe
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
    from robustdeq.training import (
        PGDAT,
        TRADES,
        Adversarial,
        Attacked,
        Carried,
        Cold,
        Final,
        Losses,
        Objective,
        RandomState,
        Standard,
        TrainConfig,
    )
    from robustdeq.training.config import (
        DataConfig,
        JacobianConfig,
        ModelConfig,
        ObjectiveConfig,
        ScheduleConfig,
        ValidationConfig,
    )
    from robustdeq.training.trainer import Trainer
else:
    from robustdeq.host.lazy import lazily

    __getattr__, __dir__ = lazily(__name__)

__version__ = "0.1.0"

# fmt: off
__all__ = [
    "APGD", "DEQ", "FABT", "L2", "MDEQ", "PGD", "PGDAT", "TRADES", "Adversarial", "Anderson", "Attack",
    "AttackResult", "Attacked", "AutoAttack", "Benchmark", "BoundDynamics", "Broyden", "Carried", "CheckpointError",
    "Cold", "DataConfig", "Defence", "DynamicPredictor", "EarlyState", "EntropyReduction", "Final", "ForwardPass",
    "GradientPolicy", "Implicit", "InputDefence", "Intervention", "Iteration", "JacobianConfig", "Linf", "Losses",
    "MDEQConfig", "ModelConfig", "Neumann", "NotConvergedError", "Objective", "ObjectiveConfig", "OneStep",
    "Oracle", "Phantom", "Picard", "Predictor", "RandomState", "Readings", "ReadoutDefence", "ResNet",
    "ScheduleConfig", "SharedInverse", "Solution", "Solver", "SplitDynamics", "Square", "Standard", "Status",
    "Threat", "ThroughSolver", "TrainConfig", "Trainer", "Trajectory", "Unrolled", "UnrolledState",
    "ValidationConfig", "adapt", "benchmark", "compat", "create_model", "evaluate", "fixed_point",
    "gradient_honesty", "jacobian_penalty", "list_models", "load", "load_recipe", "oracles", "register_model",
    "spectral_radius",
]
# fmt: on
