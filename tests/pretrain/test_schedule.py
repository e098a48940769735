"""Learning rates, rounds, and how a time budget becomes a number of steps."""

import numpy as np
import pytest

from ddh._core.errors import InputError
from ddh.pretrain import pretrain_settings
from ddh.pretrain.schedule import TRIAL_STEPS, PretrainSchedule


def test_every_round_warms_up_and_falls():
    plan = PretrainSchedule(
        pretrain_settings(32, True, {"epochs": 9, "rounds": 3, "warmup_epochs": 0}), 7
    )
    assert [plan.round(step) for step in (0, 20, 21, 41, 42, 62, 63)] == [0, 0, 1, 1, 2, 2, 2]
    assert [plan.segment_end(step) for step in (0, 20, 21, 42, 62)] == [7, 21, 28, 49, 63]
    assert plan.round_progress(63) == 1
    rates = np.array([plan.learning_rate(step) for step in range(63)]).reshape(3, 21)
    np.testing.assert_allclose(rates, np.tile(rates[0], (3, 1)))
    assert (np.diff(rates[0]) < 0).all()


def test_rate_warms_up_and_falls_to_zero():
    plan = PretrainSchedule(pretrain_settings(32, False, {"epochs": 100, "warmup_epochs": 5}), 10)
    rates = [plan.learning_rate(step) for step in range(plan.total + 1)]
    assert np.argmax(rates) == 50
    assert max(rates) == pytest.approx(0.24)
    assert rates[-1] == pytest.approx(0, abs=1e-9)
    assert (np.diff(rates[:50]) > 0).all()
    assert (np.diff(rates[51:]) < 0).all()


def test_a_budget_becomes_steps_and_follows_the_machine():
    plan = PretrainSchedule(pretrain_settings(32, False, {"minutes": 10}), 98)
    plan.measured(TRIAL_STEPS, 5.0, 0.1)
    assert plan.total == TRIAL_STEPS + 5950
    plan.measured(3000, 300.0, 0.2)  # the machine has slowed down
    assert plan.total == 3000 + 1500
    assert plan.progress(4500) == 1.0


def test_photographs_have_a_default_length():
    changes = {"objective": "pseudo-codes"}
    plan = pretrain_settings(224, True, changes)
    assert (plan.epochs, plan.steps, plan.minutes) == (None, 1800, None)
    assert plan.keep_better
    steps = [pretrain_settings(224, True, changes, n).steps for n in (23_040, 30_720, 10**9)]
    assert steps == [1800, 2400, 3600]  # each image forty times, within bounds
    timed = pretrain_settings(224, True, changes | {"minutes": 2.0}, 10**9)
    assert (timed.steps, timed.minutes) == (None, 2.0)
    assert PretrainSchedule(plan, 23).total == 1800
    with pytest.raises(InputError, match="epochs, steps or minutes"):
        pretrain_settings(32, True, changes)


def test_large_pictures_learn_codes_at_a_lower_rate():
    changes = {"epochs": 1, "objective": "pseudo-codes"}
    rates = [pretrain_settings(size, True, changes).learning_rate for size in (64, 65)]
    assert rates == [0.025, 0.01]


def test_the_former_name_of_pseudo_codes_is_still_read():
    stored = pretrain_settings(32, True, {"epochs": 1, "objective": "codes"})
    assert stored == pretrain_settings(32, True, {"epochs": 1, "objective": "pseudo-codes"})
    assert stored.objective == "pseudo-codes"


def test_wrong_settings_are_refused():
    for changes in ({}, {"epochs": 1, "minutes": 1}, {"epochs": 0}, {"minutes": -1}):
        with pytest.raises(InputError):
            pretrain_settings(32, False, changes)
    with pytest.raises(InputError, match="up to 1, not 70"):
        pretrain_settings(32, False, {"epochs": 1, "labelled_fraction": 70.0})
    with pytest.raises(InputError, match="target_momentum is up to 1, not 99"):
        pretrain_settings(32, False, {"epochs": 1, "target_momentum": 99.0})
    with pytest.raises(InputError, match="no setting 'epoch'"):
        pretrain_settings(32, False, {"epoch": 3})
    with pytest.raises(InputError, match="byol first"):
        pretrain_settings(32, False, {"epochs": 1, "objective": "pseudo-codes"})
    with pytest.raises(InputError, match="no objective"):
        pretrain_settings(32, False, {"epochs": 1, "objective": "magic"})
