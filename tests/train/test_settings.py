"""Presets, their adaptation to small collections, and the learning rate that follows from them."""

import math

import numpy as np
import pytest
import torch

from ddh._core.errors import InputError
from ddh.train import Schedule, Trainer, TrainingTask, adapt, settings
from ddh.train.inputs import FeatureInputs
from ddh.train.settings import LEAST_STEPS, current_names


def test_neighbourhoods_stay_a_small_part_of_the_collection():
    fast = settings("fast")
    assert adapt(fast, 1_000_000).k1 == 50
    assert adapt(fast, 2400).k1 == 30  # N / 80
    assert adapt(fast, 2400).k2 == 12  # N / 200
    assert adapt(fast, 2400).batch_size == 120  # N / 20
    assert (adapt(fast, 400).k1, adapt(fast, 400).k2) == (10, 6)
    assert adapt(fast, 9).k1 == adapt(fast, 9).k2 == 3
    assert adapt(fast, 2400, ["k1"]).k1 == 50


def test_a_small_collection_gets_enough_steps():
    assert LEAST_STEPS == 1200
    for images in (40, 300, 5000, 60_000):
        chosen = adapt(settings("fast"), images)
        steps = math.ceil(images / chosen.batch_size) * chosen.epochs
        assert steps >= 1200
        assert chosen.epochs == 20 or steps < 1200 + math.ceil(images / chosen.batch_size)
    assert adapt(settings("fast", epochs=2), 300, ["epochs"]).epochs == 2


@pytest.mark.parametrize(
    ("preset", "middle"), [("fast", (5e-3 + 5e-5) / 2), ("paper", 1e-3)], ids=["cosine", "constant"]
)
def test_learning_rate_falls_from_the_first_to_the_last(preset, middle):
    chosen = settings(preset)
    rates = [chosen.learning_rate_at(progress) for progress in np.linspace(0, 1, 11)]
    assert rates[0] == pytest.approx(chosen.learning_rate)
    assert rates[5] == pytest.approx(middle)
    assert rates[-1] == pytest.approx(chosen.final_learning_rate)
    if preset == "fast":
        assert (np.diff(rates) < 0).all()
    sgd = settings("paper", final_learning_rate=1e-5)
    assert sgd.learning_rate_at(0.5) == pytest.approx(1e-4)  # geometrically


class Line(TrainingTask):
    """Fits a layer to zero and writes down the learning rates of each step."""

    def __init__(self):
        self.layer = torch.nn.Linear(3, 1)
        self.rates, self.taken = [], self.optimiser()

    def modules(self):
        return {"layer": self.layer}

    def optimiser(self):
        first, second = self.layer.parameters()
        groups = [{"params": [first]}, {"params": [second], "lr_scale": 0.5}]
        self.taken = torch.optim.Adam(groups, lr=1.0)
        return self.taken

    def loss(self, batch, rows, progress):
        self.rates.append([group["lr"] for group in self.taken.param_groups])
        return self.layer(batch).square().mean()


def test_the_trainer_steps_at_the_rates_of_the_schedule():
    task, chosen = Line(), settings("fast")
    Trainer(
        task,
        FeatureInputs(torch.randn(20, 3)),
        Schedule(3, 4, chosen.learning_rate_at),
        batch_size=5,
        seed=0,
        device=torch.device("cpu"),
    ).run()
    expected = [chosen.learning_rate_at(step / 12) for step in range(12)]
    assert [rate for rate, _ in task.rates] == pytest.approx(expected)
    assert [rate for _, rate in task.rates] == pytest.approx([rate / 2 for rate in expected])


def test_a_wrong_name_is_answered_by_the_nearest_right_one():
    with pytest.raises(InputError, match="did you mean 'learning_rate'"):
        settings("fast", learning_rat=1)
    with pytest.raises(InputError, match="did you mean 'normalize'"):
        settings("fast", unit=True)  # its name in version 0.1


def test_old_names_are_translated():
    old = {"unit": True, "mirror": False, "network_rate": 0.1, "k1": 5}
    new = {"normalize": True, "flip_tta": False, "backbone_lr_scale": 0.1, "k1": 5}
    assert current_names(old) == new
