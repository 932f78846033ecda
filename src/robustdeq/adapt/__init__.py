"""Models of other libraries as deep equilibrium models of ours."""

from robustdeq.adapt.from_torchdeq import torchdeq
from robustdeq.adapt.parts import AdaptError

__all__ = ["AdaptError", "torchdeq"]
