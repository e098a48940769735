"""A killed run goes on to the same weights, bit for bit; the same seed gives the same codes."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import ddh
from ddh._core.errors import DDHError, InputError, ModelError
from ddh.train import settings
from ddh.train.augmentation import augment

SCRIPT = textwrap.dedent(
    """
    import sys, numpy as np, torch
    from ddh import DDH
    from ddh.backbones import ResNet
    from ddh.hashers import ddh as method
    from ddh.train import linear, trainer
    method.create = lambda *given: ResNet("resnet18", 8, tiny_stem=True, width=4)
    torch.set_num_threads(1)
    trainer.CHECKPOINT_SECONDS = linear.CHECKPOINT_SECONDS = 0.0
    out, work, depth, resume = sys.argv[1:5]
    rng = np.random.default_rng(0)
    if depth == "head":
        X = rng.standard_normal((400, 24)).astype(np.float32)
        model = DDH(bits=12, epochs=60, batch_size=32, alpha=2.0)
    else:
        X = rng.integers(0, 256, (48, 8, 8, 3), dtype=np.uint8)
        model = DDH(bits=8, epochs=2, network_epochs=15, batch_size=8, depth=depth)
    model.fit(X, checkpoint_dir=work, resume=resume == "resume")
    model.save(out)
    """
)


def start(tmp_path: Path, name: str, depth: str, resume: bool) -> subprocess.Popen:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    arguments = [str(tmp_path / name), str(tmp_path / f"{name}.work"), depth]
    return subprocess.Popen(
        [sys.executable, str(script), *arguments, "resume" if resume else "start"],
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def kill_in_the_middle(process: subprocess.Popen, checkpoint: Path) -> bool:
    """kill -9 soon after a checkpoint appears; False when the run was quicker."""
    deadline = time.monotonic() + 120
    while not checkpoint.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    time.sleep(0.15)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("depth", ["head", "network"])
def test_kill_and_resume_give_the_same_weights_bit_for_bit(tmp_path, depth):
    assert start(tmp_path, "whole", depth, resume=False).wait() == 0
    process = start(tmp_path, "cut", depth, resume=False)
    assert kill_in_the_middle(process, tmp_path / "cut.work" / "ddh-run" / "training.safetensors")
    assert not (tmp_path / "cut").exists()
    resumed = start(tmp_path, "cut", depth, resume=True)
    assert resumed.wait() == 0, resumed.stderr.read().decode()
    whole, cut = (ddh.load(tmp_path / name) for name in ("whole", "cut"))
    assert np.array_equal(whole.hash_weight_, cut.hash_weight_)
    assert np.array_equal(whole.hash_bias_, cut.hash_bias_)
    assert whole.model_id == cut.model_id
    assert not (tmp_path / "cut.work").exists()


def test_a_run_is_not_resumed_with_other_settings(tmp_path, monkeypatch):
    X = np.random.default_rng(0).standard_normal((60, 5)).astype(np.float32)
    monkeypatch.setattr("shutil.rmtree", lambda *args, **kwargs: None)
    ddh.DDH(bits=4, epochs=2).fit(X, checkpoint_dir=tmp_path / "work")
    with pytest.raises(ModelError, match="bits = 4"):
        ddh.DDH(bits=8, epochs=2).fit(X, checkpoint_dir=tmp_path / "work", resume=True)
    with pytest.raises(ModelError, match="resume with the same images"):
        ddh.DDH(bits=4, epochs=2).fit(X + 1, checkpoint_dir=tmp_path / "work", resume=True)


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
