"""How long a pretraining is: a number of epochs, or as many steps as a time budget holds."""

import math
from dataclasses import dataclass

from ddh.pretrain.settings import PretrainSettings

TRIAL_STEPS = 20  # measured before a time budget becomes a number of steps
MIN_STEPS = 2 * TRIAL_STEPS


@dataclass
class Plan:
    """The steps of a run and its learning rate at each.

    With a time budget `total` is a first guess until `TRIAL_STEPS` are done; from then on
    `fit_budget` sets it by the measured time of a step, again and again, so that a machine that
    slows down ends in time too. The rate depends on the share done, so it falls smoothly.
    """

    settings: PretrainSettings
    steps_per_epoch: int
    total: int = 0

    def __post_init__(self) -> None:
        if not self.total:
            epochs = self.settings.epochs or 100
            self.total = epochs * self.steps_per_epoch

    @property
    def timed(self) -> bool:
        return self.settings.minutes is not None

    def fit_budget(self, step: int, seconds: float, seconds_per_step: float) -> None:
        """`step` steps took `seconds` in all, and one takes so long now."""
        if not self.timed or step < TRIAL_STEPS:
            return
        assert self.settings.minutes is not None
        left = 60 * self.settings.minutes - seconds
        self.total = max(step + math.floor(left / max(seconds_per_step, 1e-9)), MIN_STEPS)

    def progress(self, step: int) -> float:
        return min(1.0, step / self.total)

    def round(self, step: int) -> int:
        """Which round a step belongs to, from 0."""
        return min(self.settings.rounds - 1, self.settings.rounds * step // self.total)

    def round_progress(self, step: int) -> float:
        """Share of its round that lies before a step."""
        return min(1.0, self.settings.rounds * step / self.total - self.round(step))

    def round_ends(self, step: int) -> int:
        """The first step of the next round, or the end."""
        return -(-(self.round(step) + 1) * self.total // self.settings.rounds)

    def rate(self, step: int) -> float:
        """In each round a linear warm-up, then half a cosine wave to zero."""
        length = self.total / self.settings.rounds
        at = length * self.round_progress(step)
        warmup_epochs = min(self.settings.warmup_epochs * self.steps_per_epoch, length / 10)
        peak = self.settings.learning_rate * self.settings.batch_size / 256
        if at < warmup_epochs:
            return peak * (at + 1) / (warmup_epochs + 1)
        share = (at - warmup_epochs) / max(1.0, length - warmup_epochs)
        return peak * (1 + math.cos(math.pi * min(1.0, share))) / 2
