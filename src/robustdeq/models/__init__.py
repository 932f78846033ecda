"""Deep equilibrium models, the paper's baseline, and their checkpoints."""

from robustdeq.models import compat
from robustdeq.models.checkpoint import load
from robustdeq.models.deq import DEQ, ForwardPass
from robustdeq.models.dynamics import BoundDynamics, SplitDynamics
from robustdeq.models.mdeq import MDEQ, MDEQConfig
from robustdeq.models.predictor import Predictor, Trajectory
from robustdeq.models.pretrained import CheckpointError
from robustdeq.models.registry import create_model, list_models, register_model
from robustdeq.models.resnet import ResNet

__all__ = [
    "DEQ",
    "MDEQ",
    "BoundDynamics",
    "CheckpointError",
    "ForwardPass",
    "MDEQConfig",
    "Predictor",
    "ResNet",
    "SplitDynamics",
    "Trajectory",
    "compat",
    "create_model",
    "list_models",
    "load",
    "register_model",
]
