"""The hashing layer alone, with the paper's binary labels, in NumPy: no torch, no autograd.

The gradient of J with respect to the outputs z of a batch has a closed form (the paper, 2.4), here
for all pairs by G = sum_j u_j u_j^T and m = sum_j u_j (see `ddh.objective`), and two products with
the batch of features carry it to W and c. Batches, learning rates and optimisers are those of
`ddh.train.trainer`: both ways give the same layer up to rounding.
"""

import json
import math
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy import sparse

from ddh._core.arrays import l2_normalize, sgn
from ddh._core.atomic import atomic_path
from ddh._core.errors import DDHError, ModelError
from ddh._core.progress import bar
from ddh._core.spans import spans
from ddh.neighbours import LabelGroups
from ddh.train.identity import check_same_run
from ddh.train.settings import Settings

Floats = NDArray[np.float32]
#: Weight and bias of a layer on raw features, and the history of its training.
Layer: TypeAlias = tuple[Floats, Floats, list[dict[str, Any]]]
#: Who is similar to whom: the graph S, or groups of images with the same labels.
Similar: TypeAlias = LabelGroups | sparse.csr_array

FILE = "training.safetensors"
CHECKPOINT_SECONDS = 10.0
BLOCK = 8192


def trains(settings: Settings, S: Similar) -> bool:
    """Whether `fit_linear` knows these settings: all but a weight of labelled pairs."""
    return settings.alpha == 1 or not isinstance(S, LabelGroups)


def initial_layer(dimensions: int, bits: int, seed: int) -> tuple[Floats, Floats]:
    """Weight and bias from N(0, 0.01), as the authors' release starts them."""
    rng = np.random.default_rng((seed, bits))
    weight = rng.standard_normal((bits, dimensions), np.float32) * np.float32(0.01)
    return weight, rng.standard_normal(bits, np.float32) * np.float32(0.01)


def fit_linear(
    features: NDArray[np.floating],
    S: Similar,
    bits: int,
    settings: Settings,
    *,
    seed: int,
    folder: Path | None = None,
    resume: bool = False,
    identity: dict[str, Any] | None = None,
) -> Layer:
    """(weight, bias, history) of the layer z = weight phi + bias on features phi.

    With a `folder`, a checkpoint of this `identity` is kept there, and continued by `resume`.
    Memory: 4 bytes x N x (dimensions + bits).
    """
    phi, mean, scale = standardised(features, settings)
    training = LinearTraining(phi, S, bits, settings, seed)
    identity = {"seed": seed, "images": len(phi), **(identity or {})}
    checkpoint = None if folder is None else folder / FILE
    if resume and checkpoint is not None and checkpoint.is_file():
        training.load(checkpoint, identity)
    saved = -math.inf
    with bar("Training", total=training.total, unit="step") as progress:
        progress.update(training.step)
        for _ in training.run():
            progress.update()
            if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                training.save(checkpoint, identity)
                saved = time.monotonic()
    if checkpoint is not None:
        training.save(checkpoint, identity)
    weight = (training.weight / scale).astype(np.float32)
    bias = (training.bias - weight @ mean).astype(np.float32)
    return weight, bias, training.history


def standardised(
    features: NDArray[np.floating], settings: Settings
) -> tuple[Floats, Floats, np.float32]:
    """(phi, mean, scale): phi has the mean 0 and an average squared length of its dimension."""
    phi: Floats = np.empty((len(features), features.shape[1]), np.float32)
    for rows in spans(len(phi), BLOCK):
        part = np.asarray(features[rows], np.float32)
        phi[rows] = l2_normalize(part) if settings.normalize else part
    mean = np.zeros(phi.shape[1], np.float32)
    if settings.centre:
        mean = phi.mean(axis=0, dtype=np.float64).astype(np.float32)
    phi -= mean
    size = math.sqrt(float(sum(np.vdot(phi[rows], phi[rows]) for rows in spans(len(phi), BLOCK))))
    scale = np.float32(size / math.sqrt(phi.size) or 1.0)
    phi /= scale
    return phi, mean, scale


class LinearTraining:
    """The layer, its optimiser, and the memory U of the outputs of all images."""

    def __init__(self, phi: Floats, S: Similar, bits: int, settings: Settings, seed: int) -> None:
        self.phi, self.S, self.bits, self.settings, self.seed = phi, S, bits, settings, seed
        self.weight, self.bias = initial_layer(phi.shape[1], bits, seed)
        self.steps_per_epoch = math.ceil(len(phi) / settings.batch_size)
        self.total = settings.epochs * self.steps_per_epoch
        self.step = 0
        self.history: list[dict[str, Any]] = []
        self.sums = np.zeros(4)  # of the loss and its terms in this epoch
        self.outputs = np.concatenate([self.layer(phi[rows]) for rows in spans(len(phi), BLOCK)])
        parameters = (self.weight, self.bias)
        self.first = [np.zeros_like(value) for value in parameters]  # moments of the gradient
        self.second = [np.zeros_like(value) for value in parameters]
        self.labelled = isinstance(S, LabelGroups)
        self.refresh()

    def layer(self, phi: Floats) -> Floats:
        return phi @ self.weight.T + self.bias

    # -- the memory -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """G, m and, with labels, m of each group, summed anew from U."""
        self.gram = np.zeros((self.bits, self.bits))
        self.sum = np.zeros(self.bits)
        groups = len(self.S.sizes) if isinstance(self.S, LabelGroups) else 0
        self.group_sums = np.zeros((groups, self.bits))
        for rows in spans(len(self.outputs), BLOCK):
            self._add(np.arange(rows.start, rows.stop), self.outputs[rows], 1)

    def _add(self, rows: NDArray[np.int64], outputs: Floats, sign: int) -> None:
        wide = outputs.astype(np.float64)
        self.gram += sign * (wide.T @ wide)
        self.sum += sign * wide.sum(axis=0)
        if isinstance(self.S, LabelGroups):
            groups = self.S.group_of[rows]
            places = np.arange(len(rows) + 1)
            members = sparse.csr_array(
                (np.ones(len(rows)), groups, places), shape=(len(rows), len(self.S.sizes))
            )
            self.group_sums += sign * (members.T @ wide)

    def _positive_sums(self, rows: NDArray[np.int64], z: Floats) -> Floats:
        """sum_{j in S_i} u_j and, for a weight alpha, (alpha - 1) sum_j (p_ij - 1) u_j / 2 less."""
        if isinstance(self.S, LabelGroups):
            groups = self.S.group_of[rows]
            with_itself = self.S.relation.diagonal()[groups, None].astype(bool)
            related = self.S.relation[groups].astype(np.float64) @ self.group_sums
            return (related - self.outputs[rows] * with_itself).astype(np.float32)
        near = self.S[rows].astype(np.float32)
        sums: Floats = near @ self.outputs
        if self.settings.alpha != 1:
            owner = np.repeat(np.arange(len(rows)), np.diff(near.indptr))
            products = np.empty(len(owner), np.float32)
            for part in spans(len(owner), BLOCK * 32):
                left, right = z[owner[part]], self.outputs[near.indices[part]]
                products[part] = np.einsum("ij,ij->i", left, right)
            near.data = products / np.float32(self.bits) - 1
            self.extra = near @ self.outputs, float(np.vdot(near.data, near.data))
        return sums

    # -- the objective ----------------------------------------------------------------------------

    def gradient(self, rows: NDArray[np.int64], z: Floats) -> tuple[Floats, float]:
        """dJ1 / dz of a batch and J1, both divided by N x batch; U is up to date."""
        L, alpha, N = np.float32(self.bits), self.settings.alpha, len(self.outputs)
        G, m = self.gram.astype(np.float32), self.sum.astype(np.float32)
        own = self.outputs[rows]
        positives, products = self._positive_sums(rows, z), z @ G
        itself = np.einsum("ij,ij->i", z, own)[:, None] / L + 1
        change = products / L**2 + m / L - 2 / L * positives - itself * own / L
        value = float(np.vdot(products, z)) / self.bits**2 + 2 * float((z @ m).sum()) / self.bits
        value += len(z) * N - 4 / self.bits * float(np.vdot(positives, z))
        value -= float(np.vdot(itself, itself))
        if alpha != 1:
            slopes, squares = self.extra
            change += np.float32(alpha - 1) / L * slopes
            value += (alpha - 1) * squares
        count = len(z) * N
        return change / np.float32(count), value / 2 / count

    def batch_gradient(self, rows: NDArray[np.int64], z: Floats) -> tuple[Floats, float]:
        """As `gradient`, for the pairs of the batch, both of which learn."""
        L, b = self.bits, len(z)
        if isinstance(self.S, LabelGroups):
            groups = self.S.group_of[rows]
            similar = self.S.relation[groups][:, groups].toarray() != 0
        else:
            similar = self.S[rows][:, rows].toarray() != 0
        weights = np.where(similar, np.float32(self.settings.alpha), np.float32(1))
        np.fill_diagonal(weights, 0)
        off = z @ z.T / np.float32(L) - np.where(similar, np.float32(1), np.float32(-1))
        weighted = weights * off
        return weighted @ z * np.float32(2 / L / b**2), float(np.vdot(weighted, off)) / 2 / b**2

    def _take_step(self, rows: NDArray[np.int64]) -> None:
        settings, N = self.settings, len(self.outputs)
        phi = self.phi[rows]
        z = self.layer(phi)
        self._add(rows, self.outputs[rows], -1)
        self._add(rows, z, 1)
        self.outputs[rows] = z
        if settings.pairs == "all":
            change, pairs = self.gradient(rows, z)
        else:
            change, pairs = self.batch_gradient(rows, z)
        off = z - sgn(z, np.float32)
        weight = settings.quantisation_weight(N, self.bits)
        change = change + np.float32(weight / (N * len(z))) * off
        quantisation = float(np.vdot(off, off)) / (N * len(z))
        size = float(np.vdot(self.weight, self.weight) + np.vdot(self.bias, self.bias))
        gradients = [change.T @ phi, change.sum(axis=0)]
        if settings.lambda2:
            factor = np.float32(2 * settings.lambda2 * size)
            gradients[0] += factor * self.weight
            gradients[1] += factor * self.bias
        self._optimise(gradients)
        loss = pairs + weight / 2 * quantisation + settings.lambda2 / 2 * size**2
        self.sums += (loss, pairs, quantisation, size**2)

    def _optimise(self, gradients: list[Floats]) -> None:
        """One step of SGD with momentum, or of Adam, in place."""
        settings, t = self.settings, self.step + 1
        rate = settings.learning_rate_at(min(1.0, self.step / self.total))
        for value, gradient, first, second in zip(
            (self.weight, self.bias), gradients, self.first, self.second, strict=True
        ):
            if settings.weight_decay:
                gradient = gradient + np.float32(settings.weight_decay) * value
            if settings.optimiser == "sgd":
                first *= np.float32(settings.momentum)
                first += gradient
                value -= np.float32(rate) * first
                continue
            first *= np.float32(0.9)
            first += np.float32(0.1) * gradient
            second *= np.float32(0.999)
            second += np.float32(0.001) * (gradient * gradient)
            size = np.sqrt(second) / np.float32(math.sqrt(1 - 0.999**t)) + np.float32(1e-8)
            value -= np.float32(rate / (1 - 0.9**t)) * first / size

    # -- the loop ---------------------------------------------------------------------------------

    def run(self) -> Iterator[int]:
        """Take the steps that are left; after each, its number."""
        size = self.settings.batch_size
        while self.step < self.total:
            epoch, at = divmod(self.step, self.steps_per_epoch)
            if at == 0:
                self.refresh()
            order = np.random.default_rng((self.seed, epoch)).permutation(len(self.phi))
            for place in range(at, self.steps_per_epoch):
                self._take_step(order[place * size : (place + 1) * size])
                self.step += 1
                if place == self.steps_per_epoch - 1:
                    self._end_epoch(epoch + 1)
                yield self.step

    def _end_epoch(self, epoch: int) -> None:
        means = (self.sums / self.steps_per_epoch).tolist()
        self.sums[:] = 0
        rate = self.settings.learning_rate_at(min(1.0, (self.step - 1) / self.total))
        if not math.isfinite(means[0]):
            raise DDHError(
                f"Training: the loss is {means[0]} in epoch {epoch}; lower learning_rate (it is "
                f"{rate:.3g} there)"
            )
        names = ("loss", "pairs", "quantisation", "regulariser")
        entry = {"epoch": epoch, **dict(zip(names, means, strict=True)), "learning_rate": rate}
        self.history.append(entry)

    # -- checkpoints ------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, NDArray[Any]]:
        named = {"weight": self.weight, "bias": self.bias, "outputs": self.outputs}
        named |= {"gram": self.gram, "sum": self.sum, "group_sums": self.group_sums}
        named |= {f"first.{i}": value for i, value in enumerate(self.first)}
        return named | {f"second.{i}": v for i, v in enumerate(self.second)} | {"sums": self.sums}

    def save(self, path: Path, identity: dict[str, Any]) -> None:
        """Write a checkpoint, as a whole or not at all."""
        arrays = self._arrays()
        checksums = {name: _checksum(array) for name, array in arrays.items()}
        state = {"step": self.step, "history": self.history, "checksums": checksums}
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            save_file(arrays, temporary, metadata={"linear": json.dumps(identity | state)})

    def load(self, path: Path, identity: dict[str, Any]) -> None:
        """Continue from a checkpoint of the same run."""
        try:
            with safe_open(path, "np") as file:
                state = json.loads((file.metadata() or {})["linear"])
                arrays = {name: file.get_tensor(name) for name in self._arrays()}
                if any(_checksum(a) != state["checksums"][n] for n, a in arrays.items()):
                    raise ValueError("an array does not have its checksum")
        except (SafetensorError, KeyError, ValueError) as error:
            raise ModelError(
                f"the checkpoint {path} is damaged; delete it to start again"
            ) from error
        check_same_run(path, state, identity)
        for name, target in self._arrays().items():
            target[...] = arrays[name]
        self.step, self.history = state["step"], state["history"]


def _checksum(array: NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data)
