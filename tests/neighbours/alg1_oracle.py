"""Alg. 1 of the paper in its plainest form, over all pairs, to compare everything with."""

import numpy as np


def order_keys(X):
    """cos |cos| ||x_i||^2 of all pairs in float64: the order of the cosine, without roots."""
    X = np.asarray(X, np.float64)
    squares = (X * X).sum(axis=1)
    dots = np.array([(row * X).sum(axis=1) for row in X])
    return dots * np.abs(dots) / np.where(squares > 0, squares, 1.0)


def nearest_by_hand(X, k):
    keys = order_keys(X)
    lists = []
    for i, row in enumerate(keys.tolist()):
        others = [j for j in range(len(row)) if j != i]
        lists.append(sorted(others, key=lambda j, row=row: (-row[j], j))[:k])
    return np.array(lists)


def labels_by_hand(lists, k2, X=None, *, mutual=False, min_overlap=1):
    """S as a boolean matrix."""
    images = len(lists)
    members = [{i, *map(int, row)} for i, row in enumerate(lists)]
    if mutual:
        members = [{j for j in mine if i in members[j]} for i, mine in enumerate(members)]
    keys = np.zeros((images, images)) if X is None else order_keys(X)
    S = np.zeros((images, images), bool)
    for i in range(images):
        num = [len(members[i] & members[j]) for j in range(images)]
        ranking = sorted(range(images), key=lambda j: (-num[j], -keys[i, j], j))
        for k in [j for j in ranking if num[j] >= min_overlap][:k2]:
            S[i, list(members[k])] = True
    S |= S.T
    np.fill_diagonal(S, False)
    return S
