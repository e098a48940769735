"""Whole runs: training, resuming, stages, time budgets, and what stops a run."""

import copy
import math
import warnings
from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from small_network import SmallNetwork, settings

from ddh._core import jobs
from ddh._core.errors import DDHError, DDHWarning, InputError, ModelError
from ddh.images import ImageArray, ImageFolder, Preprocessing, open_images
from ddh.pretrain import pretrain, pretrain_stages, pretraining
from ddh.pretrain.byol import BYOL
from ddh.pretrain.inputs import ViewInputs, decode, longer_side
from ddh.pretrain.pretraining import PretrainTask
from ddh.pretrain.pseudo_codes import PseudoCodes
from ddh.pretrain.schedule import MIN_STEPS, PretrainSchedule


@pytest.fixture(autouse=True)
def short_fits(monkeypatch):
    """Hashing heads of pseudo-codes learn in fewer steps."""
    monkeypatch.setattr(import_module("ddh.train.settings"), "LEAST_STEPS", 100)


@pytest.fixture(scope="module")
def pictures():
    grey = (load_digits().images[:200] / 16 * 255).astype(np.uint8)
    return ImageArray(np.repeat(grey[..., None], 3, axis=3))


def test_one_step_an_epoch_keeps_to_the_budget_too(pictures):
    few = ImageArray(pictures.pixels[:40])
    done = pretrain(SmallNetwork(), few, settings(minutes=1e-4), device="cpu")
    assert done.epochs == MIN_STEPS


def test_training_changes_the_backbone_and_tells_its_signs(pictures):
    network = SmallNetwork()
    before = copy.deepcopy(network.state_dict())
    seen = []
    done = pretrain(
        network, pictures, settings(epochs=3), device="cpu",
        on_eval=lambda result, entry: seen.append(result.origin),
    )  # fmt: skip
    assert done.epochs == 3
    assert seen == [f"byol for {epoch} epochs from random" for epoch in (1, 2, 3)]
    assert done.backbone.origin == "byol for 3 epochs from random"
    assert not torch.equal(before["layers.0.weight"], network.state_dict()["layers.0.weight"])
    assert [entry["step"] for entry in done.history] == [4, 8, 12]
    assert done.history[0]["stability"] is None
    assert 0 < done.history[-1]["instance_accuracy"] <= 1
    assert not any(p.requires_grad for p in network.parameters())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"neighbours_from": 0.2, "neighbours_refresh": 0.4},
        {"muon_step": 0.02, "head_width": 48},
        {"objective": "pseudo-codes", "rounds": 2, "code_bits": 8},
        {"objective": "pseudo-codes", "rounds": 2, "code_bits": 8, "muon_step": 0.02},
    ],
)
def test_killed_and_resumed_ends_with_the_same_weights(pictures, tmp_path, monkeypatch, changes):
    plan = settings(epochs=4, **changes)
    whole = pretrain(SmallNetwork(), pictures, plan, device="cpu")
    monkeypatch.setattr(pretraining, "CHECKPOINT_SECONDS", 0)
    loss = PretrainTask.loss

    def dies(task, *batch):
        if task.step == 9:
            raise KeyboardInterrupt
        return loss(task, *batch)

    monkeypatch.setattr(PretrainTask, "loss", dies)
    with pytest.raises(KeyboardInterrupt):
        pretrain(SmallNetwork(), pictures, plan, device="cpu", folder=tmp_path)
    monkeypatch.setattr(PretrainTask, "loss", loss)
    again = pretrain(SmallNetwork(), pictures, plan, device="cpu", folder=tmp_path, resume=True)
    for name, tensor in whole.backbone.state_dict().items():
        assert torch.equal(tensor, again.backbone.state_dict()[name]), name
    drop = {"seconds"}
    for a, b in zip(whole.history, again.history, strict=True):
        assert {k: v for k, v in a.items() if k not in drop} == {
            k: v for k, v in b.items() if k not in drop
        }


@pytest.mark.parametrize("changes", [{}, {"objective": "pseudo-codes", "code_bits": 8}])
def test_small_views_train_a_network_whose_features_are_of_whole_inputs(pictures, changes):
    network = SmallNetwork()
    network.preprocessing = Preprocessing(size=12)
    sides = {"training": set(), "features": set()}

    def record(network, inputs):
        # views come in batches of 50 or 100, all images in one of 200
        kind = "features" if len(inputs[0]) == len(pictures) else "training"
        sides[kind].add(inputs[0].shape[-1])

    network.register_forward_pre_hook(record)
    plan = settings(epochs=1, view_size=8, neighbours_from=0, **changes)
    pretrain(network, ImageArray(resized(pictures.pixels, 16)), plan, device="cpu")
    assert sides["training"] == {8}
    assert 12 in sides["features"]


def test_a_network_of_small_views_is_judged_by_views_of_whole_inputs(pictures, monkeypatch):
    network, seen, judged = SmallNetwork(), [], []
    network.preprocessing = Preprocessing(size=12)
    network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[-1]))

    def agreement(first, second):
        judged.append(seen[-1])
        return len(judged)  # it grows: the result is kept

    monkeypatch.setattr(pretraining, "agreement", agreement)
    plan = settings(epochs=1, view_size=8, keep_better=True)
    pretrain(network, ImageArray(resized(pictures.pixels, 16)), plan, device="cpu")
    assert judged == [12, 12]  # before the training and after it


def resized(pixels, side):
    return np.stack([np.asarray(Image.fromarray(image).resize((side, side))) for image in pixels])


def test_steps_are_counted_and_an_epoch_has_five_of_them(pictures):
    plan = settings(steps=7, batch_size=512)
    done = pretrain(SmallNetwork(), pictures, plan, device="cpu")
    assert done.history[-1]["step"] == 7
    assert done.epochs == 7 / 5


def test_a_run_of_few_steps_draws_a_sample_of_many_images(pictures, monkeypatch, tmp_path):
    n = len(pictures)
    monkeypatch.setattr(pretraining, "LEAST_SAMPLE", 20)
    given = {"device": "cpu", "folder": tmp_path}
    few = settings(steps=3, batch_size=4)
    done = pretrain(SmallNetwork(), pictures, few, **given)
    assert (done.images, done.history[-1]["step"]) == (20, 3)
    again = pretrain(SmallNetwork(), pictures, few, resume=True, **given)  # of the same images
    assert again.history == done.history
    often = settings(steps=3, batch_size=pretraining.VISITS * n // 3 + 1)
    assert pretrain(SmallNetwork(), pictures, often, device="cpu").images == n
    whole = settings(epochs=1, batch_size=50)
    assert pretrain(SmallNetwork(), pictures, whole, device="cpu").images == n


@pytest.mark.parametrize(("sizes", "side"), [((20, 40), 40), ((20, 65), 115), ((20, 64), 64)])
def test_tiny_images_are_not_decoded_to_more_than_they_have(tmp_path, sizes, side):
    for name, size in zip("ab", sizes, strict=True):
        Image.new("RGB", (size, 10)).save(tmp_path / f"{name}.png")
    pixels, _ = decode(open_images(tmp_path), Preprocessing(100), None)
    assert pixels.shape == (2, side, side, 3)
    smaller, _ = decode(open_images(tmp_path), Preprocessing(8), None)
    assert smaller.shape == (2, 9, 9, 3)


def test_the_longer_side_of_files_some_of_them_broken(tmp_path):
    Image.new("RGB", (20, 50)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"broken")
    assert longer_side(open_images(tmp_path)) == 50
    (tmp_path / "a.png").unlink()
    assert longer_side(open_images(tmp_path)) == 0


def new_task(pictures, plan):
    inputs = ViewInputs(pictures.pixels, SmallNetwork(), plan, torch.device("cpu"))
    return PretrainTask(inputs, PretrainSchedule(plan, 2), seed=0, on_eval=None)


@pytest.mark.parametrize(("objective", "most"), [("byol", 60), ("pseudo-codes", 30)])
def test_batches_are_halved_until_a_step_fits_the_memory(pictures, limit_memory, objective, most):
    task = new_task(pictures, settings(epochs=1, batch_size=50, objective=objective))
    before = copy.deepcopy(task.objective.state_dict())
    assert task.fitting_batch(50) == 50
    features = task._features()
    limit_memory(SmallNetwork, most)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        task._features()
    assert task.fitting_batch(50) == 25
    assert np.allclose(task._features(), features, atol=1e-5)
    after = task.objective.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(weight.grad is None for weight in task.objective.parameters())
    limit_memory(SmallNetwork, 10)
    with pytest.raises(DDHError, match="too small for 25 images at once; use a smaller size"):
        task.fitting_batch(50)


def test_memory_that_is_used_up_in_the_middle_of_a_training(pictures, limit_memory):
    limit_memory(SmallNetwork, 4)
    with pytest.raises(DDHError, match=r"too small for batches of 5 images; lower batch_size"):
        pretrain(SmallNetwork(), pictures, settings(epochs=1, batch_size=5), device="cpu")


@pytest.mark.parametrize("better", [True, False])
def test_initial_weights_are_kept_unless_neighbours_agree_more(
    pictures, tmp_path, monkeypatch, better
):
    network = SmallNetwork()
    network.origin = "elsewhere"
    before = copy.deepcopy(network.state_dict())
    seen = iter([0.3, 0.4 if better else 0.3, 0.4 if better else 0.3])
    monkeypatch.setattr(pretraining, "agreement", lambda first, second: next(seen))
    plan = settings(epochs=2, keep_better=True)

    def run(resume):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            done = pretrain(network, pictures, plan, device="cpu", folder=tmp_path, resume=resume)
        told = [str(w.message) for w in said if issubclass(w.category, DDHWarning)]
        return done, told

    done, told = run(resume=False)
    assert done.improved is better
    same = torch.equal(before["layers.0.weight"], network.state_dict()["layers.0.weight"])
    assert same is not better
    assert network.origin == ("byol for 2 epochs from elsewhere" if better else "elsewhere")
    assert len(told) == (not better)
    if not better:
        assert "initial weights are kept" in told[0]
        assert "(0.300) than before (0.300)" in told[0]
        again, _ = run(resume=True)  # at its end: judged by the agreement that was stored
        assert not again.improved


def test_codes_make_new_labels_in_every_round(pictures, monkeypatch):
    made = []
    begin = PseudoCodes.begin_round

    def counted(objective, features, seed):
        made.append((len(features), seed))
        begin(objective, features, seed)

    monkeypatch.setattr(PseudoCodes, "begin_round", counted)
    plan = settings(epochs=5, objective="pseudo-codes", rounds=3, code_bits=8, learning_rate=0.01)
    done = pretrain(SmallNetwork(), pictures, plan, device="cpu")
    assert made == [(200, 0), (200, 1), (200, 2)]
    assert done.epochs == 5
    assert 0.25 <= done.history[-1]["confidence"] <= 1
    assert done.backbone.origin == "pseudo-codes for 5 epochs from random"


def test_stages_follow_each_other_and_those_at_their_end_are_not_run_again(
    pictures, tmp_path, monkeypatch
):
    shared = {"batch_size": 50, "epochs": 1}
    stages = [shared, shared | {"objective": "pseudo-codes", "rounds": 1, "code_bits": 8}]
    whole = pretrain_stages(SmallNetwork(), pictures, stages, device="cpu")
    assert whole.epochs == 2
    assert [entry["objective"] for entry in whole.history] == ["byol", "pseudo-codes"]
    assert whole.seconds == pytest.approx(whole.history[-1]["seconds"], abs=0.2)
    assert whole.backbone.origin == "pseudo-codes for 1 epochs from byol for 1 epochs from random"

    def dies(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PseudoCodes, "begin_round", dies)
        with pytest.raises(KeyboardInterrupt):
            pretrain_stages(SmallNetwork(), pictures, stages, device="cpu", folder=tmp_path)
    monkeypatch.setattr(BYOL, "forward", dies)  # its stage is at its end
    again = pretrain_stages(
        SmallNetwork(), pictures, stages, device="cpu", folder=tmp_path, resume=True
    )
    for name, tensor in whole.backbone.state_dict().items():
        assert torch.equal(tensor, again.backbone.state_dict()[name]), name


def test_resuming_from_other_initial_weights_is_refused(pictures, tmp_path):
    pretrain(SmallNetwork(), pictures, settings(epochs=1), device="cpu", folder=tmp_path)
    other = SmallNetwork()
    with torch.no_grad():
        other.layers[0].weight.add_(1.0)
    with pytest.raises(ModelError, match="made with weights"):
        pretrain(other, pictures, settings(epochs=1), device="cpu", folder=tmp_path, resume=True)


def test_resuming_with_other_settings_is_refused(pictures, tmp_path):
    """The message names the settings that differ, and no others."""
    pretrain(SmallNetwork(), pictures, settings(epochs=1), device="cpu", folder=tmp_path)
    other = settings(epochs=2, cutout=0.25)
    expected = (
        f"the checkpoint in {tmp_path} was made with settings.epochs = 1, not 2 and "
        "settings.views.0.cutout = 0.0, not 0.25 and settings.views.1.cutout = 0.0, not 0.25; "
        "resume with the same images and settings, or delete the folder to start again"
    )
    with pytest.raises(ModelError) as refused:
        pretrain(SmallNetwork(), pictures, other, device="cpu", folder=tmp_path, resume=True)
    assert str(refused.value) == expected


def test_a_time_budget_is_kept_on_a_machine_that_slows_down(pictures, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    loss = PretrainTask.loss

    def timed(task, *batch):
        clock[0] += 0.1 if task.step < 60 else 0.2
        return loss(task, *batch)

    monkeypatch.setattr(PretrainTask, "loss", timed)
    done = pretrain(SmallNetwork(), pictures, settings(minutes=0.2), device="cpu")
    assert done.seconds == pytest.approx(12, abs=1)
    assert done.epochs == pytest.approx((60 + 30) / 4, abs=1)
    assert done.history[-1]["learning_rate"] < 0.001


@pytest.mark.parametrize("decay_all", [False, True])
def test_batch_norms_are_decayed_on_request(pictures, monkeypatch, decay_all):
    forward = BYOL.forward
    monkeypatch.setattr(BYOL, "forward", lambda *given: 0 * forward(*given))
    network = SmallNetwork()
    before = copy.deepcopy(network.state_dict())
    plan = settings(epochs=3, decay_all=decay_all)
    after = pretrain(network, pictures, plan, device="cpu").backbone.state_dict()
    assert (after["layers.0.weight"].abs() < before["layers.0.weight"].abs()).all()
    assert (after["layers.1.weight"] < 1).all() == decay_all


def test_a_rate_that_blows_up_is_told(pictures, monkeypatch):
    forward = BYOL.forward
    monkeypatch.setattr(BYOL, "forward", lambda *given: math.nan * forward(*given))
    with pytest.raises(DDHError, match="lower learning_rate"):
        pretrain(SmallNetwork(), pictures, settings(epochs=1), device="cpu")


def test_a_collapse_is_told(pictures, monkeypatch):
    @torch.no_grad()
    def collapse(objective, progress):
        for parameter in objective.result.parameters():
            parameter.zero_()

    monkeypatch.setattr(BYOL, "after_step", collapse)
    with pytest.raises(DDHError, match="collapsed at step 4"):
        pretrain(SmallNetwork(), pictures, settings(epochs=2), device="cpu")


def test_too_few_pictures():
    few = ImageArray(np.zeros((3, 8, 8, 3), np.uint8))
    with pytest.raises(InputError, match="at least 8"):
        pretrain(SmallNetwork(), few, settings(epochs=1), device="cpu")


def write_images(folder, seed, count=12):
    folder.mkdir()
    rng = np.random.default_rng(seed)
    for i in range(count):
        pixels = rng.integers(0, 255, (30, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    return ImageFolder(folder)


def test_files_are_decoded_once(tmp_path):
    write_images(tmp_path / "photos", 0)
    (tmp_path / "photos" / "bad.png").write_bytes(b"not a picture")
    source, plan, work = (
        ImageFolder(tmp_path / "photos"),
        settings(epochs=1, batch_size=6),
        tmp_path / "work",
    )
    done = pretrain(SmallNetwork(), source, plan, device="cpu", folder=work)
    assert [failure.name for failure in done.failures] == ["bad.png"]
    (kept,) = work.glob("pixels-*.npy")
    assert np.load(kept, mmap_mode="r").shape == (13, 9, 9, 3)
    before = kept.stat().st_mtime_ns
    again = pretrain(SmallNetwork(), source, plan, device="cpu", folder=work)
    assert kept.stat().st_mtime_ns == before
    assert again.failures == done.failures


def test_decoded_images_of_another_folder_are_not_used(tmp_path):
    """As many images of the same names, in the same work folder: they are others."""
    first, second = (write_images(tmp_path / name, seed) for seed, name in enumerate("ab"))
    plan, work = settings(epochs=1, batch_size=6), tmp_path / "work"
    pretrain(SmallNetwork(), first, plan, device="cpu", folder=work)
    reused = pretrain(SmallNetwork(), second, plan, device="cpu", folder=work)
    alone = pretrain(SmallNetwork(), second, plan, device="cpu")
    for name, tensor in alone.backbone.state_dict().items():
        assert torch.equal(tensor, reused.backbone.state_dict()[name]), name
    with pytest.raises(ModelError, match="resume with the same images"):
        pretrain(SmallNetwork(), first, plan, device="cpu", folder=work, resume=True)


def test_a_file_that_has_changed_is_decoded_again(tmp_path):
    source, work = write_images(tmp_path / "photos", 0), tmp_path / "work"
    plan = settings(epochs=1, batch_size=6)
    pretrain(SmallNetwork(), source, plan, device="cpu", folder=work)
    Image.new("RGB", (40, 40)).save(tmp_path / "photos" / "03.png")
    pretrain(SmallNetwork(), source, plan, device="cpu", folder=work)
    assert len(list(work.glob("pixels-*.npy"))) == 2


def test_a_job_knows_the_length_that_the_time_budget_gives(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("DDH_STATE", str(tmp_path))
    with jobs.job("pretrain", "weights") as job:
        done = pretrain(SmallNetwork(), pictures, settings(minutes=1e-4), device="cpu")
        assert job.stage.total == job.stage.done == round(4 * done.epochs)
        assert job.stage.seconds_left() == 0
        assert set(job.curves) == {"loss", "instance_accuracy"}
