"""Does training the network help? A label-free answer by pictures that are kept from it.

Two questions are asked about held-out pictures, and a sample of others that is ranked for them:

- Are neighbourhoods kept? The members of S (of the starting features) should come before others.
  A part of that order may be lost, since S itself has errors. All pairs are counted, not the
  first ones alone: in large collections S is fine-grained, and a network that learns kinds mixes
  its members with others of their kind.
- Are neighbours stable? Two random views of one picture should find the same others: the share of
  common ones among the first of both. That must grow, picture by picture, by more than chance.

A network that fails in either is not kept. Labels that are given are trusted: there R-precision
alone is asked for, and must grow. So it is where the network starts from random weights, whose
neighbours may be stable and worth nothing.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from ddh._core.arrays import l2_normalize, sgn
from ddh._core.errors import DDHWarning
from ddh.neighbours import LabelGroups
from ddh.train.distributed import Processes
from ddh.train.features import Extractor, Pictures
from ddh.train.network import standardise
from ddh.train.settings import Settings

Floats = NDArray[np.floating[Any]]
Rows = NDArray[np.int64]

HELD, SHARE = 1000, 10  # pictures held out: so many, or one in so many where that is less
OTHERS = 10_000  # pictures that are ranked for them
FIRST = 100  # of the others, compared between two views; a tenth of them where that is less
LOSS = 0.15  # of the order at the start that may be lost
PATIENCE = 3  # looks without a gain, after which the training of a trained network ends


class HeldOut:
    """Rows that are not trained on (`queries`), those that are, and a sample to rank."""

    def __init__(self, images: int, seed: int) -> None:
        order = np.random.default_rng((seed, images)).permutation(images)
        held = max(1, min(HELD, images // SHARE))
        self.queries, self.trained = np.sort(order[:held]), np.sort(order[held:])
        self.others = np.sort(order[held : held + OTHERS])
        self.rows = np.concatenate([self.queries, self.others])

    def members(self, labels: sparse.csr_array | LabelGroups) -> NDArray[np.bool_]:
        """Which of the others are in S of each query."""
        if not isinstance(labels, LabelGroups):
            return np.asarray(labels[self.queries][:, self.others].toarray() > 0)
        pairs = np.meshgrid(self.queries, self.others, indexing="ij")
        similar = labels.similar(*(side.ravel() for side in pairs))
        return similar.reshape(len(self.queries), -1)

    def precision(self, values: Floats, ranked: Floats, members: NDArray[np.bool_]) -> Floats:
        """R-precision of each query, of the `values` of `rows` against what is `ranked`."""
        counts = members.sum(axis=1)
        found = self._in_order(values, ranked, members).cumsum(axis=1)
        hits = np.take_along_axis(found, np.maximum(counts - 1, 0)[:, None], axis=1)[:, 0]
        return np.asarray(np.where(counts > 0, hits / np.maximum(counts, 1), 0.0))

    def order(self, values: Floats, ranked: Floats, members: NDArray[np.bool_]) -> Floats:
        """2 AUC - 1 of each query: of a member and another picture, how much more often the member
        comes first than last. 1 is a perfect ranking, 0 is chance."""
        n, counts = members.shape[1], members.sum(axis=1)
        places = self._in_order(values, ranked, members) @ np.arange(n)
        before = places - counts * (counts - 1) / 2  # others before members, over all members
        pairs = counts * (n - counts)
        return np.asarray(np.where(pairs > 0, 1 - 2 * before / np.maximum(pairs, 1), 0.0))

    def _in_order(
        self, values: Floats, ranked: Floats, members: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """`members`, the most similar picture first."""
        scores = values[: len(self.queries)] @ ranked[len(self.queries) :].T
        return np.take_along_axis(members, np.argsort(-scores, axis=1, kind="stable"), axis=1)

    def stability(self, views: tuple[Floats, Floats], ranked: Floats) -> Floats:
        """Share of the first others that two views of each query have in common."""
        others = ranked[len(self.queries) :]
        first = max(1, min(FIRST, len(others) // 10))
        found = [np.argsort(-(view @ others.T), axis=1, kind="stable")[:, :first] for view in views]
        marked = np.zeros((len(self.queries), len(others)), np.int8)
        for lists in found:
            np.put_along_axis(marked, lists, np.take_along_axis(marked, lists, 1) + 1, axis=1)
        return np.asarray((marked == 2).sum(axis=1) / first)


def improves(before: Floats, after: Floats) -> bool:
    """Whether paired values are larger by more than the standard error of their mean."""
    difference = after - before
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else 0.0
    return bool(difference.mean() > error)


def network_features(pictures: Pictures, rows: Rows, device: torch.device, view: int = 0) -> Floats:
    """Features of some rows, or of a random view of them, by the network as it is now."""
    stream = Extractor(pictures.backbone, device).stream(
        pictures.source, indices=pictures.usable[rows], view=view
    )
    return np.concatenate([batch.features for batch in stream])


class Guard:
    """Watches the training of a network and its hashing layer, and keeps what is better.

    Where the codes come from a head that is fitted afterwards, the features are judged, otherwise
    the codes of the layer. Of several processes, the main one judges.
    """

    def __init__(
        self,
        pictures: Pictures,
        layer: nn.Linear,
        mean: Tensor,
        scale: Tensor,
        settings: Settings,
        seed: int,
        processes: Processes,
    ) -> None:
        self.pictures, self.layer, self.processes = pictures, layer, processes
        self.mean, self.scale, self.settings = mean, scale, settings
        self.held = HeldOut(len(pictures.usable), seed)
        self.modules: dict[str, nn.Module] = {"layer": layer, "network": pictures.backbone}
        self.first, self.kept = self._weights(), dict[str, Tensor]()
        self.since = 0

    def begin(
        self,
        labels: Callable[[], sparse.csr_array | LabelGroups],
        *,
        given: bool,
        by_features: bool,
        fresh: bool,
    ) -> None:
        """Judge what the training starts with, by labels that are `given` or were built."""
        self.by_precision, self.by_features, self.fresh = given or fresh, by_features, fresh

        def judge() -> list[list[float]]:
            self.members = self.held.members(labels())
            return self._judge()

        members_first, stability = map(np.array, self.processes.run_on_main(judge))
        self.bound = 0.0 if self.by_precision else (1 - LOSS) * float(members_first.mean())
        self.start = self.best = members_first if self.by_precision else stability

    def _judge(self) -> list[list[float]]:
        """Precision or order, and stability, of each held-out picture with the weights as they
        are."""
        rows, held, device = self.held.rows, self.held, self.mean.device
        plain = network_features(self.pictures, rows, device)
        views = [network_features(self.pictures, held.queries, device, view) for view in (1, 2)]
        every = self._values(np.concatenate([plain, *views]))
        ranked = every if self.by_features else sgn(every, np.float32)
        first, second = np.split(every[len(rows) :], 2)
        measure = held.precision if self.by_precision else held.order
        own = measure(every[: len(rows)], ranked[: len(rows)], self.members)
        return [own.tolist(), held.stability((first, second), ranked[: len(rows)]).tolist()]

    def _values(self, features: Floats) -> Floats:
        """What is compared: centred features of unit length, or the outputs of the layer."""
        values = l2_normalize(features) if self.settings.normalize else features
        if self.by_features:
            mean = values[: len(self.held.rows)].mean(axis=0) if self.settings.centre else 0.0
            return l2_normalize(values - mean)
        with torch.no_grad():
            phi, mean, scale = torch.from_numpy(values).to(self.mean), self.mean, self.scale
            if self.fresh:
                mean, scale = standardise(phi[: len(self.held.rows)], True)
            phi = (phi - mean) / scale
            parts = [self.layer(part) for part in phi.split(8192)]
        return np.asarray(torch.cat(parts).cpu().numpy())

    def _weights(self) -> dict[str, Tensor]:
        return {
            f"{part}.{name}": tensor.detach().cpu().clone()
            for part, module in self.modules.items()
            for name, tensor in module.state_dict().items()
        }

    def look(self) -> tuple[dict[str, float], bool]:
        """Mean precision or order, and stability, now; and whether the training should end."""
        members_first, stability = map(np.array, self.processes.run_on_main(self._judge))
        now = members_first if self.by_precision else stability
        better = improves(self.start, now) and now.mean() > self.best.mean()
        if better and members_first.mean() >= self.bound:
            self.best, self.since, self.kept = now, 0, self._weights()
        else:
            self.since += 1
        # random weights come from below: they need all the epochs that they are given
        ended = self.since >= PATIENCE and self.pictures.backbone.origin != "random"
        name = "precision" if self.by_precision else "order"
        return {name: float(members_first.mean()), "stability": float(stability.mean())}, ended

    def end(self, depth: str) -> bool:
        """Put back the best weights; whether they have been trained."""
        weights = self.kept or self.first
        for part, module in self.modules.items():
            own = {k.partition(".")[2]: v for k, v in weights.items() if k.startswith(f"{part}.")}
            module.load_state_dict(own)
        if self.kept:
            return True
        warnings.warn(
            f"depth {depth!r} did not make the neighbours of held-out pictures better or more "
            "stable: the network and the codes of depth 'head' are kept",
            DDHWarning,
            stacklevel=2,
        )
        return False

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """For checkpoints: the best so far."""
        return {"best": self.best.tolist(), "since": self.since}, dict(self.kept)

    def load_state(self, values: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """The inverse of `state`."""
        self.best, self.since = np.array(values["best"]), int(values["since"])
        self.kept = {name: tensor.cpu() for name, tensor in tensors.items()}
