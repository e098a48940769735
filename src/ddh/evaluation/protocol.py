"""What a score was measured on. No figure leaves this package without one."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError

UNSPECIFIED = "unspecified"


def digest(*arrays: ArrayLike) -> str:
    """12 hexadecimal digits that stand for these arrays, in this order."""
    state = hashlib.sha256()
    for values in arrays:
        array = np.ascontiguousarray(values)
        if array.dtype.kind in "iub":  # the width of an integer is no part of a split
            array = array.astype(np.int64)
        state.update(f"{array.dtype.str}{array.shape}".encode())
        state.update(array.astype(str).tobytes() if array.dtype == object else array.tobytes())
    return state.hexdigest()[:12]


@dataclass(frozen=True)
class Protocol:
    """How a score was made: data and split, cut, denominator, ties, distance, features, seeds.

    `labels` says which labels the method has learned from; empty for none.
    """

    measure: str = "mAP"
    data: str = UNSPECIFIED
    split: str = UNSPECIFIED
    queries: int = 0
    database: int = 0
    bits: int = 0
    k: int | None = None
    denominator: str | None = None
    ties: str | None = None
    without_relevant: str | None = None
    distance: str = "symmetric Hamming"
    backbone: str = UNSPECIFIED
    supervision: str = UNSPECIFIED
    labels: str = ""
    seeds: tuple[int, ...] = ()

    def replace(self, **changes: Any) -> "Protocol":
        """The same protocol with some entries changed."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "seeds": list(self.seeds)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Protocol":
        """The inverse of `as_dict`."""
        return cls(**{**values, "seeds": tuple(values.get("seeds", ()))})

    @property
    def title(self) -> str:
        """The measure with its cut: mAP@1000."""
        return f"{self.measure}@{self.k}" if self.k is not None else self.measure

    def __str__(self) -> str:
        parts = [
            f"data {self.data}, split {self.split}",
            f"{self.queries:,} queries, {self.database:,} items"
            + (f", {self.bits} bits" if self.bits else ""),
            f"denominator {self.denominator}" if self.denominator else "",
            f"ties {self.ties}" if self.ties else "",
            f"query without a relevant item: {self.without_relevant}"
            if self.without_relevant
            else "",
            self.distance,
            f"backbone {self.backbone}, supervised by {self.supervision}",
            f"learned from {self.labels}" if self.labels else "",
            "seeds " + ", ".join(map(str, self.seeds)) if self.seeds else "",
        ]
        return "; ".join(part for part in parts if part)


class Score(float):
    """A figure with its protocol; use it as a float, print it to see what it stands for.

    `per_query` has the value of each query that counts, `deviation` the spread over seeds (None
    for a single one), `empty` the number of queries without any relevant item.
    """

    protocol: Protocol
    per_query: NDArray[np.float64]
    deviation: float | None
    empty: int

    def __new__(
        cls,
        value: float,
        protocol: Protocol,
        per_query: ArrayLike = (),
        *,
        deviation: float | None = None,
        empty: int = 0,
    ) -> "Score":
        """A float that carries its protocol."""
        score = super().__new__(cls, value)
        score.protocol = protocol
        score.per_query = np.asarray(per_query, np.float64)
        score.deviation = deviation
        score.empty = empty
        return score

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), self.protocol, self.per_query

    @property
    def figure(self) -> str:
        """The number alone, with its deviation where there is one."""
        spread = "" if self.deviation is None else f" +- {self.deviation:.4f}"
        return f"{float(self):.4f}{spread}"

    def __str__(self) -> str:
        return f"{self.protocol.title} {self.figure} ({self.protocol})"

    def __repr__(self) -> str:
        return f"<Score {self}>"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: value, deviation and protocol."""
        return {
            "value": float(self),
            "deviation": self.deviation,
            "queries_without_relevant": self.empty,
            "protocol": self.protocol.as_dict(),
        }

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.as_dict())


def over_seeds(scores: "list[Score]") -> Score:
    """Mean of the scores of several seeds, with the sample standard deviation."""
    if len({score.protocol.replace(seeds=(), split="") for score in scores}) != 1:
        raise InputError("a mean over seeds needs one or more scores of one protocol")
    seeds = tuple(seed for score in scores for seed in score.protocol.seeds)
    splits = dict.fromkeys(score.protocol.split for score in scores)
    deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
    protocol = scores[0].protocol.replace(seeds=seeds, split=", ".join(splits))
    empty = max(score.empty for score in scores)
    return Score(float(np.mean(scores)), protocol, deviation=deviation, empty=empty)
