"""Zhang et al. (2015), "Bit-scalable deep hashing with regularized similarity learning": DRSCH."""

from dataclasses import dataclass

from torch import Tensor

from ddh.hashers.deep_training import HashLayers, Objective
from ddh.hashers.dsch import DSCH, WeightedTriplets


@dataclass(eq=False, repr=False)
class DRSCH(DSCH):
    """DSCH and a regulariser that keeps pairs consistent: + lambda sum_ij S_ij H(i, j).

    Bits are sorted by `bit_weights_` and compared by plain Hamming distance, as in DSCH.
    """

    title = "Deep regularised similarity comparison hashing"

    consistency: float = 0.1

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor | None) -> Objective:
        assert labels is not None
        return WeightedTriplets(labels, self.bits, self.beta, self.consistency)
