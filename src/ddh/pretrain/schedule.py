"""Length and learning rate of a pretraining run: epochs, steps, or what fits a time budget."""

import math

from ddh.pretrain.settings import PretrainSettings
from ddh.train.trainer import Schedule

TRIAL_STEPS = 20  # timed before a budget becomes a number of steps
MIN_STEPS = 2 * TRIAL_STEPS


class PretrainSchedule(Schedule):
    """Warm-up and cosine decay in each round, within a number of epochs, steps or minutes.

    With a time budget `total` is a guess until `TRIAL_STEPS` are done, then it follows the
    measured time per step: a run ends on time even if the machine slows down.
    """

    def __init__(self, settings: PretrainSettings, steps_per_epoch: int) -> None:
        self.settings, self.rounds = settings, settings.rounds
        self.steps_per_epoch = steps_per_epoch
        self.total = settings.steps or (settings.epochs or 100) * steps_per_epoch
        self.is_timed = settings.minutes is not None
        self.reserved = 0.0  # seconds that the preparation of later rounds will take

    def measured(self, step: int, seconds: float, seconds_per_step: float) -> None:
        """Fit the number of steps to the rest of the budget."""
        if self.settings.minutes is None or step < TRIAL_STEPS:
            return
        left = 60 * self.settings.minutes - seconds - self.reserved
        self.total = max(step + math.floor(left / max(seconds_per_step, 1e-9)), MIN_STEPS)

    def segment_end(self, step: int) -> int:
        """The end of the epoch, of the round, or of the trial before the first plan."""
        round_end = -(-(self.round(step) + 1) * self.total // self.rounds)
        trial = TRIAL_STEPS if self.is_timed and step < TRIAL_STEPS else self.total
        return min(super().segment_end(step), round_end, trial)

    def round(self, step: int) -> int:
        """The round that a step belongs to, from 0."""
        return min(self.rounds - 1, self.rounds * step // self.total)

    def round_progress(self, step: int) -> float:
        """Fraction of its round before a step."""
        return min(1.0, self.rounds * step / self.total - self.round(step))

    @property
    def peak(self) -> float:
        """The highest learning rate, for batches of this size."""
        return self.settings.learning_rate * self.settings.batch_size / 256

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then half a cosine wave to zero, in each round."""
        length = self.total / self.rounds
        at = length * self.round_progress(step)
        warmup = min(self.settings.warmup_epochs * self.steps_per_epoch, length / 10)
        if at < warmup:
            return self.peak * (at + 1) / (warmup + 1)
        decayed = (at - warmup) / max(1.0, length - warmup)
        return self.peak * (1 + math.cos(math.pi * min(1.0, decayed))) / 2
