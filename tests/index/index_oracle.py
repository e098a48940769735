"""A plain oracle to hold the engines to."""

import numpy as np


class Oracle:
    """The same interface in a few lines of NumPy: a dictionary in the order of writing."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.rows: dict[str, np.ndarray] = {}

    def write(self, keys: list[str], codes: np.ndarray) -> None:
        for key, code in zip(keys, codes, strict=True):
            self.rows.pop(key, None)
            self.rows[key] = code

    def delete(self, keys: list[str]) -> int:
        return sum(self.rows.pop(key, None) is not None for key in keys)

    def ranking(self, query: np.ndarray) -> list[tuple[str, int]]:
        if not self.rows:
            return []
        keys, codes = list(self.rows), np.stack(list(self.rows.values()))
        distances = np.unpackbits(codes ^ query, axis=1).sum(axis=1)
        order = np.argsort(distances, kind="stable")
        return [(keys[position], int(distances[position])) for position in order]

    def search(self, queries: np.ndarray, k: int) -> list[list[tuple[str, int]]]:
        return [self.ranking(query)[:k] for query in queries]

    def search_radius(self, queries: np.ndarray, radius: int) -> list[list[tuple[str, int]]]:
        return [[hit for hit in self.ranking(query) if hit[1] <= radius] for query in queries]

    def duplicates(self, radius: int) -> list[list[str]]:
        """Connected components by repeated merging."""
        keys = list(self.rows)
        group = {key: {key} for key in keys}
        for key in keys:
            for other, distance in self.ranking(self.rows[key]):
                if distance <= radius and group[key] is not group[other]:
                    group[key] |= group[other]
                    for member in group[other]:
                        group[member] = group[key]
        seen: list[set[str]] = []
        for key in keys:
            if len(group[key]) > 1 and group[key] not in seen:
                seen.append(group[key])
        return [[key for key in keys if key in members] for members in seen]


def random_codes(rng: np.random.Generator, n: int, bits: int, spread: float = 0.5) -> np.ndarray:
    """Packed codes; a small `spread` makes many ties and equal codes."""
    return np.packbits(rng.random((n, bits)) < spread, axis=1)


def pairs(answers) -> list[list[tuple[str, int]]]:
    """Hits as (key, distance), as the oracle gives them."""
    return [[(hit.key, hit.distance) for hit in answer] for answer in answers]
