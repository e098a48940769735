"""A killed run goes on to the same weights, bit for bit; the same seed gives the same codes."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from resume_script import train

import ddh
from ddh._core.errors import DDHError, InputError, ModelError
from ddh.train import settings
from ddh.train.augmentation import augment
from ddh.train.identity import check_same_run

SCRIPT = Path(__file__).with_name("resume_script.py")


@pytest.mark.filterwarnings("ignore:depth 'network' did not make")
@pytest.mark.parametrize(("depth", "saves"), [("head", 20), ("network", 20)])
def test_kill_and_resume_give_the_same_weights_bit_for_bit(tmp_path, depth, saves):
    whole = train(tmp_path / "whole", tmp_path / "whole.work", depth, resume=False)
    out, work = tmp_path / "cut", tmp_path / "cut.work"
    arguments = [sys.executable, str(SCRIPT), str(out), str(work), depth, str(saves)]
    assert subprocess.run(arguments).returncode == -signal.SIGKILL
    assert (work / "ddh-run" / "training.safetensors").exists()
    assert not out.exists()
    cut = train(out, work, depth, resume=True)
    assert np.array_equal(whole.hash_weight_, cut.hash_weight_)
    assert np.array_equal(whole.hash_bias_, cut.hash_bias_)
    assert whole.model_id == cut.model_id == ddh.load(out).model_id
    assert not work.exists()


def test_a_run_is_not_resumed_with_other_settings(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((60, 5)).astype(np.float32)
    monkeypatch.setattr("shutil.rmtree", lambda *args, **kwargs: None)
    ddh.DDH(bits=4, epochs=2).fit(X, checkpoint_dir=tmp_path / "work")
    with pytest.raises(ModelError, match="bits = 4"):
        ddh.DDH(bits=8, epochs=2).fit(X, checkpoint_dir=tmp_path / "work", resume=True)
    with pytest.raises(ModelError, match="resume with the same images"):
        ddh.DDH(bits=4, epochs=2).fit(X + 1, checkpoint_dir=tmp_path / "work", resume=True)


def test_a_checkpoint_without_a_setting_is_that_of_another_run(tmp_path):
    """One of another version, whose settings lack a name: not even None stands for it."""
    expected = {"bits": 4, "settings": {"epochs": 2, "steps": None}}
    check_same_run(tmp_path / "checkpoint", expected, expected)
    lacking = {"bits": 4, "settings": {"epochs": 2}}
    with pytest.raises(ModelError, match=r"with settings\.steps = absent, not None;"):
        check_same_run(tmp_path / "checkpoint", lacking, expected)
    with pytest.raises(ModelError, match=r"with settings\.steps = None, not absent;"):
        check_same_run(tmp_path / "checkpoint", expected, lacking)


def test_same_seed_same_codes_and_another_seed_others():
    X = np.random.default_rng(1).standard_normal((150, 16)).astype(np.float32)
    first, again, other = (
        ddh.DDH(bits=16, epochs=3, random_state=seed).fit(X).transform(X) for seed in (5, 5, 6)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_training_does_not_disturb_the_global_random_state():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    ddh.DDH(bits=4, epochs=1).fit(np.random.default_rng(0).standard_normal((30, 4)))
    assert torch.equal(torch.rand(1), expected)


def test_divergence_is_noticed_and_said():
    X = 1e3 * np.random.default_rng(0).standard_normal((60, 6))
    model = ddh.DDH(bits=4, preset="paper", learning_rate=1e6, epochs=5)
    with pytest.raises(DDHError, match="lower learning_rate"):
        model.fit(X)


@pytest.mark.parametrize("preset", ["fast", "paper"])
@pytest.mark.parametrize("pairs", ["all", "batch"])
def test_the_objective_falls(preset, pairs):
    rng = np.random.default_rng(2)
    centres = 4 * rng.standard_normal((5, 20))
    X = centres[rng.integers(0, 5, 400)] + rng.standard_normal((400, 20))
    model = ddh.DDH(bits=16, preset=preset, pairs=pairs, epochs=8, batch_size=64).fit(X)
    losses = [entry["loss"] for entry in model.history_]
    assert losses[-1] < losses[0]


def test_unknown_settings_and_presets_are_named():
    with pytest.raises(InputError, match="no preset 'quick'"):
        settings("quick")
    with pytest.raises(InputError, match="no setting 'depht'"):
        settings("fast", depht=1)
    with pytest.raises(InputError, match="epochs must be at least 1"):
        settings("fast", epochs=0)


def test_paper_preset_is_the_papers():
    chosen = settings("paper")
    assert (chosen.k1, chosen.k2, chosen.batch_size) == (15, 6, 128)
    assert (chosen.learning_rate, chosen.lambda1, chosen.lambda2) == (1e-3, 15.0, 1e-5)
    assert chosen.alpha == 1.0
    assert chosen.optimiser == "sgd"


def test_augmentation_repeats_from_its_seed_and_keeps_a_full_view_possible():
    pixels = torch.rand(6, 3, 16, 16)
    first, again = augment(pixels, 4), augment(pixels, 4)
    assert torch.equal(first, again)
    assert not torch.equal(first, augment(pixels, 5))
    whole = augment(pixels, 0, min_scale=1.0)
    assert whole.shape == pixels.shape


def test_a_refusal_before_the_work_leaves_no_folder(tmp_path):
    with pytest.raises(InputError, match="NaN"):
        ddh.DDH(bits=4).fit(np.full((9, 4), np.nan), checkpoint_dir=tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_steps_on_small_weights_are_small():
    from ddh.train.head_training import relative_step

    def share(size):
        return relative_step(torch.nn.Parameter(torch.full((3, 4), size)))

    assert share(0.5) == share(0.1) == 1.0
    assert share(0.005) == pytest.approx(0.05)
    assert share(0.0) == pytest.approx(0.01)  # a bias that starts at zero moves too
