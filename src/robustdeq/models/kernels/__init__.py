"""Everything that exists for speed alone: the same functions as PyTorch's own layers, computed faster.

Convolutions are dispatched to matrix products or Winograd tiles where those are faster, effective weights of
weight-normed layers are kept while they are constant, and BatchNorm is folded into convolutions for inference.
"""

from robustdeq.models.kernels.convolution import Kernel, Pointwise, untiled
from robustdeq.models.kernels.folding import FoldedCopies
from robustdeq.models.kernels.weight_norm import WeightNormConv2d
from robustdeq.models.modes import constant_weights

__all__ = ["FoldedCopies", "Kernel", "Pointwise", "WeightNormConv2d", "constant_weights", "untiled"]
