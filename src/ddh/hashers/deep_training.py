"""What deep methods train: the layers over the features, an `Objective`, and labels of a batch."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ddh.train.inputs import Inputs, Parts
from ddh.train.trainer import Schedule, Trainer, TrainingTask

#: The loss of a batch from its real outputs (b, bits), their row numbers, and the share of the
#: training that is done (0 to 1), which continuation methods anneal by. One that owns parameters
#: (bit weights) or buffers (a memory) is a module.
Objective = Callable[[Tensor, Tensor, float], Tensor]

IDENTITY = ("label", "data", "epochs", "batch_size", "learning_rate", "weight_decay")


class HashLayers(nn.Module):
    """Hidden layers with an activation, then `bits` linear outputs whose sign is the code.

    With `skip` the last layer reads the input beside the last hidden layer.
    """

    def __init__(
        self, sizes: Sequence[int], activation: type[nn.Module] = nn.ReLU, *, skip: bool = False
    ) -> None:
        super().__init__()
        self.skip = skip and len(sizes) > 2
        inputs = list(sizes[:-1])
        if self.skip:
            inputs[-1] += sizes[0]
        self.layers = nn.ModuleList(map(nn.Linear, inputs, sizes[1:]))
        self.activation = activation()

    @property
    def linear(self) -> list[nn.Linear]:
        """The linear layers; the last one is the hash layer."""
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    @torch.no_grad()
    def apply_to_all(self, features: Tensor, rows: int = 8192) -> Tensor:
        """Outputs of many rows, `rows` of them at a time."""
        return torch.cat([self(part) for part in features.split(rows)])

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for layer in self.layers[:-1]:
            h = self.activation(layer(h))
        return self.layers[-1](torch.cat((x, h), dim=1) if self.skip else h)


@dataclass
class DeepTraining(TrainingTask):
    """The training of a deep method: AdamW, and a learning rate that falls to 0 on a cosine.

    `backbone` is there when it learns too, at `backbone_lr_scale` times the learning rate of the
    layers. `checkpoint` is the file to write to, and to continue from when `resume` is set; `data`
    names what is learned from.
    """

    inputs: Inputs
    layers: HashLayers
    objective: Objective
    device: torch.device
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    seed: int
    label: str
    backbone: nn.Module | None = None
    backbone_lr_scale: float = 0.1
    checkpoint: Path | None = None
    resume: bool = False
    data: str = ""

    def modules(self) -> dict[str, nn.Module]:
        parts = {"layers": self.layers, "objective": self.objective, "backbone": self.backbone}
        return {name: part for name, part in parts.items() if isinstance(part, nn.Module)}

    def optimiser(self) -> torch.optim.Optimizer:
        own: dict[str, dict[str, Any]] = {
            "objective": {"weight_decay": 0.0},
            "backbone": {"lr_scale": self.backbone_lr_scale},
        }
        groups = [
            {"params": [p for p in module.parameters() if p.requires_grad], **own.get(name, {})}
            for name, module in self.modules().items()
        ]
        groups = [group for group in groups if group["params"]]
        return torch.optim.AdamW(groups, lr=self.learning_rate, weight_decay=self.weight_decay)

    def loss(self, batch: Tensor, rows: Tensor, progress: float) -> Tensor:
        return self.objective(self.layers(batch), rows, progress)

    def train(self) -> NDArray[np.float64]:
        """Minimise the objective; the mean loss of each epoch."""
        rows = len(self.inputs)
        steps = math.ceil(rows / self.batch_size)
        history = Trainer(
            self,
            self.inputs,
            Schedule(
                self.epochs, steps, lambda t: self.learning_rate * (1 + math.cos(math.pi * t)) / 2
            ),
            batch_size=math.ceil(rows / steps),
            seed=self.seed,
            device=self.device,
            label=self.label,
            checkpoint=self.checkpoint,
            identity={name: getattr(self, name) for name in IDENTITY}
            | {"shapes": [list(parameter.shape) for parameter in self.layers.parameters()]},
        ).run(self.resume)
        return np.array([entry["loss"] for entry in history])


class TwoViews(Inputs):
    """Two random views per image, stacked: a batch of b images gives 2 b rows of features.

    On ready features a view is the row with the share `dropout` of its entries set to 0 and the
    others scaled up, as in torch's dropout; inputs that draw views of their own need none.
    """

    def __init__(self, first: Inputs, second: Inputs, dropout: float = 0.0) -> None:
        self.first, self.second, self.dropout = first, second, dropout

    def __len__(self) -> int:
        return len(self.first)

    def batches(self, parts: Parts, seeds: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
        others = self.second.batches(parts, [seed ^ 1 for seed in seeds])
        for (rows, one), (_, other) in zip(self.first.batches(parts, seeds), others, strict=True):
            yield rows, torch.nn.functional.dropout(torch.cat((one, other)), self.dropout)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from `seed` inside, and leave torch's own generators as they were outside."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def straight_through(bits: Tensor, outputs: Tensor) -> Tensor:
    """The bits in the forward pass, the gradient of the outputs in the backward pass."""
    return bits.detach() + outputs - outputs.detach()


def standardize_batch(outputs: Tensor, eps: float = 1e-5) -> Tensor:
    """Batch normalisation without parameters: each bit has mean 0 and variance 1."""
    centred = outputs - outputs.mean(dim=0)
    return centred * torch.rsqrt(centred.square().mean(dim=0) + eps)


def cosine_similarities(x: Tensor) -> Tensor:
    """Cosine of every pair of rows (b, b)."""
    unit = torch.nn.functional.normalize(x, dim=1)
    return unit @ unit.T


def shared_labels(first: Tensor, second: Tensor) -> Tensor:
    """How many labels (classes, or a 0/1 matrix) row i of `first` and row j of `second` share."""
    if first.ndim == 1:
        return (first[:, None] == second[None, :]).float()
    return first.float() @ second.float().T


def triplets(relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(anchor (p,), better (p,), worse (p, b)): every triplet of a batch in which the anchor
    shares more with `better` than with any other row that the mask `worse` marks."""
    relevance = relevance.clone().fill_diagonal_(0)
    anchor, better = relevance.nonzero(as_tuple=True)
    worse = relevance[anchor] < relevance[anchor, better][:, None]
    worse[torch.arange(len(anchor), device=worse.device), anchor] = False
    return anchor, better, worse
