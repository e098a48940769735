"""Exact minimum of a pairwise binary energy without repulsion, as a minimum cut (used by FastH)."""

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_flow


def minimum_energy(couplings: NDArray[np.int64], fields: NDArray[np.int64]) -> NDArray[np.int8]:
    """z in {-1, +1}^n that minimises sum_ij couplings_ij z_i z_j + sum_i fields_i z_i.

    All couplings are integers <= 0 and symmetric (the diagonal does not matter), so the energy is
    submodular and its minimum a cut (Kolmogorov & Zabih 2004): z_i = +1 on the source's side.
    """
    n = len(fields)
    source, sink = n, n + 1
    # an unordered pair that is cut costs -4 couplings_ij more than one that is not
    capacity = np.zeros((n + 2, n + 2), np.int64)
    capacity[:n, :n] = -4 * couplings
    np.fill_diagonal(capacity, 0)
    # z_i = -1 costs -2 fields_i more than z_i = +1
    capacity[source, :n] = np.maximum(-2 * fields, 0)
    capacity[:n, sink] = np.maximum(2 * fields, 0)
    if capacity.max() > np.iinfo(np.int32).max:
        raise OverflowError("the energy does not fit into 32-bit flows: use fewer rows or bits")
    graph = scipy.sparse.csr_array(capacity.astype(np.int32))
    residual = graph - maximum_flow(graph, source, sink).flow
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, source, return_predecessors=False)
    z = np.full(n + 2, -1, np.int8)
    z[reached] = 1
    return z[:n]
