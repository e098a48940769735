"""Salakhutdinov & Hinton (2009), "Semantic hashing": a stack of RBMs, fine-tuned as autoencoder."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ddh._core.progress import track
from ddh.hashers.deep import DeepHasher
from ddh.hashers.deep_training import DeepTraining, HashLayers, Objective
from ddh.train.features import Pictures


class RBM:
    """A restricted Boltzmann machine: visible units Gaussian (variance 1) or binary, hidden binary.

    E(v, h) = |v - a|^2 / 2 - c.h - v W h (Gaussian) or -a.v - c.h - v W h (binary).
    """

    def __init__(self, visible: int, hidden: int, *, gaussian: bool, device: torch.device) -> None:
        self.gaussian = gaussian
        self.W = 0.01 * torch.randn(visible, hidden, device=device)
        self.a = torch.zeros(visible, device=device)
        self.c = torch.zeros(hidden, device=device)
        self.speed = [torch.zeros_like(part) for part in (self.W, self.a, self.c)]

    def hidden(self, v: Tensor) -> Tensor:
        """P(h = 1 | v)."""
        return torch.sigmoid(self.c + v @ self.W)

    def visible(self, h: Tensor) -> Tensor:
        """The mean of v given h."""
        mean = self.a + h @ self.W.T
        return mean if self.gaussian else torch.sigmoid(mean)

    def contrastive_divergence(
        self, v: Tensor, *, learning_rate: float, momentum: float, decay: float = 2e-4
    ) -> float:
        """One step of CD-1 on a batch; the squared error of the reconstruction, per entry."""
        h = self.hidden(v)
        again = self.visible(torch.bernoulli(h))
        h_again = self.hidden(again)
        gradients = (
            (v.T @ h - again.T @ h_again) / len(v) - decay * self.W,
            (v - again).mean(dim=0),
            (h - h_again).mean(dim=0),
        )
        for part, speed, gradient in zip(
            (self.W, self.a, self.c), self.speed, gradients, strict=True
        ):
            speed.mul_(momentum).add_(gradient, alpha=learning_rate)
            part.add_(speed)
        return float((v - again).square().mean())


def train_rbm(
    rbm: RBM, v: Tensor, *, epochs: int, batch_size: int, learning_rate: float, label: str
) -> None:
    """CD-1 over all rows; momentum 0.5 at first and 0.9 after the fifth epoch."""
    for epoch in track(range(epochs), label, total=epochs, unit="epoch"):
        for batch in torch.randperm(len(v)).split(batch_size):
            rbm.contrastive_divergence(
                v[batch], learning_rate=learning_rate, momentum=0.5 if epoch < 5 else 0.9
            )


class NoisyAutoencoder(nn.Module):
    """The error of the unrolled stack, with noise on the input of the code layer.

    Against noise of this size only a code near 0 or 1 gets through: the noise makes it binary.
    """

    def __init__(self, features: Tensor, decoder: nn.Module, noise: float) -> None:
        super().__init__()
        self.features, self.noise = features, noise
        self.decoder = decoder

    def forward(self, outputs: Tensor, rows: Tensor, progress: float) -> Tensor:
        code = torch.sigmoid(outputs + self.noise * torch.randn_like(outputs))
        return (self.decoder(code) - self.features[rows]).square().mean()


def unrolled(stack: Sequence[RBM]) -> HashLayers:
    """The decoder: the stack upside down, with the transposed weights to start from."""
    sizes = [stack[-1].W.shape[1], *(rbm.W.shape[0] for rbm in reversed(stack))]
    decoder = HashLayers(sizes, nn.Sigmoid).to(stack[0].W.device)
    for layer, rbm in zip(decoder.linear, reversed(stack), strict=True):
        layer.weight.data.copy_(rbm.W)
        layer.bias.data.copy_(rbm.a)
    return decoder


class SemanticHashing(DeepHasher):
    """RBMs trained one upon another by CD-1, then fine-tuned to rebuild the features from codes.

    The first RBM is Gaussian-binary on features of variance one, the others are binary. `noise`
    is the deviation of the noise at the code layer; `pretrain_epochs=None` gives each RBM as many
    epochs as the fine-tuning. A bit is one where its unit is above 0.5; a bit that would be one
    for less than a share of `least_share` of the training rows, or zero for less, is cut at its
    median instead.
    """

    title = "Semantic hashing"
    kind = "unsupervised deep"
    paper = "Salakhutdinov & Hinton, Semantic hashing, Int. J. Approximate Reasoning"
    year = 2009

    hidden: Sequence[int] | None = (256,)
    batch_size: int = 32
    weight_decay: float = 0.0
    pretrain_epochs: int | None = None
    noise: float = 4.0
    least_share: float = 0.05

    scale_each = True

    def _layers(self, dimensions: int) -> HashLayers:
        return HashLayers(self._sizes(dimensions), nn.Sigmoid)

    def _objective(self, layers: HashLayers, features: Tensor, labels: Tensor) -> Objective:
        with torch.no_grad():
            stack = self._pretrained(layers, features)
        return NoisyAutoencoder(features, unrolled(stack), self.noise)

    def _pretrained(self, layers: HashLayers, features: Tensor) -> list[RBM]:
        """Train an RBM for each layer on what the layer below it gives, and start from it."""
        stack: list[RBM] = []
        v = features
        for number, layer in enumerate(layers.linear, start=1):
            first = not stack
            rbm = RBM(layer.in_features, layer.out_features, gaussian=first, device=v.device)
            train_rbm(
                rbm,
                v,
                epochs=self.pretrain_epochs or self._epochs(len(v)),
                batch_size=self.batch_size,
                learning_rate=1e-3 if first else 0.1,
                label=f"RBM {number} of {len(layers.linear)}",
            )
            layer.weight.copy_(rbm.W.T)
            layer.bias.copy_(rbm.c)
            stack.append(rbm)
            v = rbm.hidden(v)
        return stack

    def _finish(self, training: DeepTraining, features: Tensor, pictures: Pictures | None) -> None:
        outputs = training.layers.apply_to_all(features)
        share = (outputs >= 0).float().mean(dim=0)
        uneven = (share < self.least_share) | (share > 1 - self.least_share)
        median = outputs.median(dim=0).values
        training.layers.linear[-1].bias.data.sub_(torch.where(uneven, median, 0.0))
