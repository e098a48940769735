"""Pretraining: views, formulas of the objectives, plans, resuming, and bad ends."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_digits

from ddh._core.errors import DDHError, InputError, ModelError
from ddh.backbones import Backbone
from ddh.hashers import DDH
from ddh.images import ImageArray, Preprocessing
from ddh.neighbours import knn
from ddh.pretrain import (
    ViewSettings,
    pretrain,
    pretrain_settings,
    pretrain_stages,
    random_view,
)
from ddh.pretrain import loop as loop_module
from ddh.pretrain.byol import BYOL
from ddh.pretrain.diagnostics import diagnostics, neighbours
from ddh.pretrain.neighbour_positives import NeighbourPositives, find_neighbour_positives
from ddh.pretrain.plan import MIN_STEPS, TRIAL_STEPS, Plan
from ddh.pretrain.pseudo_codes import PseudoCodes, neighbourhood_codes

STILL = ViewSettings(min_scale=1.0, jitter_prob=0.0, grayscale_prob=0.0)


class SmallNetwork(Backbone):
    """Two convolutions: enough to learn from, quick enough for a test."""

    name = "small"
    dimensions = 16

    def __init__(self):
        super().__init__(Preprocessing(size=8))
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(
                torch.nn.Conv2d(3, 16, 3, 2, 1, bias=False),
                torch.nn.BatchNorm2d(16),
                torch.nn.ReLU(),
                torch.nn.Conv2d(16, 16, 3, 2, 1),
            )

    def forward(self, pixels):
        return self.layers(pixels).mean(dim=(2, 3))

    def last_stage(self):
        return [self.layers]


@pytest.fixture(scope="module")
def pictures():
    grey = (load_digits().images[:200] / 16 * 255).astype(np.uint8)
    return ImageArray(np.repeat(grey[..., None], 3, axis=3))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class TestViews:
    def test_nothing_changes_but_the_side(self):
        pixels = torch.randint(0, 256, (20, 8, 8, 3), dtype=torch.uint8, generator=generator())
        view = random_view(pixels, 8, STILL, generator())
        plain = pixels.permute(0, 3, 1, 2) / 255
        mirrored = plain.flip(3)
        for got, a, b in zip(view, plain, mirrored, strict=True):
            # The proportions may change a little even at full area: width and height end at 1.
            assert min((got - a).abs().mean(), (got - b).abs().mean()) < 0.2

    def test_grey_has_one_colour_and_the_luminance(self):
        pixels = torch.randint(0, 256, (5, 8, 8, 3), dtype=torch.uint8, generator=generator())
        all_grey = ViewSettings(min_scale=1.0, jitter_prob=0.0, grayscale_prob=1.0)
        grey, coloured = (
            random_view(pixels, 8, settings, generator(3)) for settings in (all_grey, STILL)
        )
        luminance = torch.einsum("nchw,c->nhw", coloured, torch.tensor([0.299, 0.587, 0.114]))
        for channel in range(3):
            torch.testing.assert_close(grey[:, channel], luminance, atol=2e-3, rtol=0)

    def test_a_turn_of_the_hue_keeps_the_luminance(self):
        pixels = torch.randint(96, 160, (50, 8, 8, 3), dtype=torch.uint8, generator=generator())
        turned = ViewSettings(min_scale=1.0, jitter=0.0, hue=0.5, jitter_prob=1.0, grayscale_prob=0)
        a = random_view(pixels, 8, turned, generator(1))
        b = random_view(pixels, 8, STILL, generator(1))
        weights = torch.tensor([0.299, 0.587, 0.114])
        gaps = [torch.einsum("nchw,c->nhw", x, weights) for x in (a, b)]
        torch.testing.assert_close(*gaps, atol=3e-3, rtol=0)
        assert (a - b).abs().max() > 0.05

    def test_blur_is_a_weighted_mean_and_solarisation_turns_light_over(self):
        pixels = torch.randint(0, 256, (6, 32, 32, 3), dtype=torch.uint8, generator=generator())
        plain = random_view(pixels, 32, STILL, generator(2))
        blurred = random_view(pixels, 32, replace(STILL, blur_prob=1.0), generator(2))
        assert blurred.var() < plain.var()
        torch.testing.assert_close(blurred.mean(), plain.mean(), atol=0.01, rtol=0)
        turned = random_view(pixels, 32, replace(STILL, solarise_prob=1.0), generator(2))
        assert turned.max() <= 0.5 + 1e-6

    def test_a_warp_keeps_most_of_the_picture_and_a_hole_hides_some(self):
        pixels = torch.full((400, 16, 16, 3), 255, dtype=torch.uint8)
        still = replace(STILL, jitter=0.0)
        warped = random_view(pixels, 16, replace(still, affine_prob=1.0), generator())
        torch.testing.assert_close(warped, torch.ones_like(warped))  # beyond it lies its mirror
        holed = random_view(pixels, 16, replace(still, cutout=0.5), generator())
        hidden = (holed == 0.5).all(dim=1)
        assert ((holed > 0.999).all(dim=1) | hidden).all()
        assert 0 < hidden.sum(dim=(1, 2)).max() <= 8 * 8
        # a side has 4 pixels in the mean, less what lies outside
        assert 0.5 * 4 < hidden.any(dim=1).sum(dim=1).float().mean() < 4

    def test_tones_stay_in_range_and_stretch_to_it(self):
        pixels = torch.randint(90, 160, (60, 8, 8, 3), dtype=torch.uint8, generator=generator())
        changed = random_view(pixels, 8, replace(STILL, tone_prob=1.0), generator())
        assert changed.min() == 0
        assert changed.max() == 1

    def test_the_same_generator_gives_the_same_views(self):
        pixels = torch.randint(0, 256, (4, 8, 8, 3), dtype=torch.uint8, generator=generator())
        a, b = (random_view(pixels, 8, ViewSettings(), generator(7)) for _ in range(2))
        assert torch.equal(a, b)
        assert a.min() >= 0
        assert a.max() <= 1


class TestBYOL:
    def test_the_loss_is_the_formula(self):
        objective = BYOL(SmallNetwork(), settings(epochs=1), 6).double()
        for module in objective.modules():
            module.training = True
        a, b = (
            torch.randn(6, 3, 8, 8, dtype=torch.float64, generator=generator(s)) for s in (0, 1)
        )
        views = torch.cat([a, b])
        online = objective.predictor(objective.projector(objective.backbone(views)))
        target = objective.target_projector(objective.target_backbone(views))
        expected = 0.0
        for i in range(6):
            for p, t in ((online[i], target[i + 6]), (online[i + 6], target[i])):
                expected += 2 - 2 * float((p @ t / (p.norm() * t.norm())).detach())
        # The loss leaves the device in float32.
        assert objective(a, b, torch.arange(6)).item() == pytest.approx(expected / 6, abs=1e-5)

    def test_no_gradient_reaches_the_target(self):
        objective = BYOL(SmallNetwork(), settings(epochs=1), 6)
        objective(torch.randn(4, 3, 8, 8), torch.randn(4, 3, 8, 8), torch.arange(4)).backward()
        assert all(p.grad is None for p in objective.target_backbone.parameters())
        assert all(p.grad is not None for p in objective.backbone.parameters())

    @pytest.mark.parametrize(("progress", "tau"), [(0.0, 0.99), (0.5, 0.995), (1.0, 1.0)])
    def test_the_target_follows(self, progress, tau):
        objective = BYOL(SmallNetwork(), settings(epochs=1), 6)
        before = copy.deepcopy(objective.target_backbone)
        with torch.no_grad():
            for parameter in objective.backbone.parameters():
                parameter.add_(1.0)
        objective.after_step(progress)
        for now, old in zip(objective.result.parameters(), before.parameters(), strict=True):
            torch.testing.assert_close(now, tau * old + (1 - tau) * (old + 1.0))


class TestCodes:
    def test_labels_are_votes_of_neighbourhoods(self):
        rng = np.random.default_rng(0)
        X = (rng.standard_normal((4, 6))[rng.integers(0, 4, 90)] * 2).astype("f4")
        X += 0.9 * rng.standard_normal(X.shape).astype("f4")
        labels, confidence = neighbourhood_codes(X, 5, 7, 3, "cpu")
        unit = X / np.linalg.norm(X, axis=1, keepdims=True)
        codes = DDH(bits=5, random_state=3, device="cpu").fit(unit).transform(unit)
        lists = knn(unit, 7, centre=True)
        for i in range(90):
            votes = codes[i].astype(float) + sum(codes[j].astype(float) for j in lists[i])
            np.testing.assert_array_equal(labels[i], np.where(votes >= 0, 1, -1))
            assert confidence[i] == pytest.approx(np.abs(votes / 8).mean())
        assert 0.2 < confidence.min() < confidence.max() <= 1

    @pytest.mark.parametrize("consistency", [0.0, 4.0])
    def test_the_loss_is_the_formula(self, consistency):
        objective = PseudoCodes(
            SmallNetwork(), settings(epochs=1, objective="pseudo-codes", code_bits=3), 9
        )
        objective.labels.copy_(torch.randint(0, 2, (9, 3), generator=generator()) * 2 - 1)
        objective.labelled[::2] = True
        objective.train()
        mild, strong = (torch.randn(6, 3, 8, 8, generator=generator(s)) for s in (1, 2))
        rows = torch.tensor([8, 0, 3, 5, 2, 7])

        def logits(network, head, x):
            f = network(x)
            return 5 * head(f / f.norm(dim=1, keepdim=True))

        said = torch.sigmoid(logits(objective.teacher, objective.teacher_head, mild))
        sureness = (2 * said - 1).abs()
        enough = sureness.flatten().sort().values[8:10].mean().item()  # half of the 18 are sure
        objective.settings = replace(
            objective.settings, min_confidence=enough, consistency=consistency
        )
        loss = objective(mild, strong, rows).item()
        outputs = logits(objective.backbone, objective.head, strong)
        by_label, by_teacher = [], []
        for place, row in enumerate(rows.tolist()):
            chance = torch.sigmoid(outputs[place] * objective.labels[row])
            if objective.labelled[row]:
                by_label.append(-chance.log().mean().item())
            for bit in range(3):
                if sureness[place, bit] >= enough:
                    sign = 1 if said[place, bit] >= 0.5 else -1
                    by_teacher.append(-torch.sigmoid(sign * outputs[place, bit]).log().item())
        assert (len(by_label), len(by_teacher)) == (3, 9)
        predicted = objective.predictor(objective.projector(objective.backbone(strong)))
        target = objective.teacher_projector(objective.teacher(mild))
        cosines = [
            (p @ t / (p.norm() * t.norm())).item() for p, t in zip(predicted, target, strict=True)
        ]
        expected = sum(by_label) / 3 + sum(by_teacher) / 18 + consistency * (1 - np.mean(cosines))
        assert loss == pytest.approx(expected, rel=1e-5)

    def test_the_teacher_follows_with_its_statistics_and_is_not_trained(self):
        objective = PseudoCodes(
            SmallNetwork(), settings(epochs=1, objective="pseudo-codes"), 4
        ).train()
        assert not objective.teacher.training
        with torch.no_grad():
            for value in (*objective.backbone.parameters(), *objective.backbone.buffers()):
                if value.is_floating_point():
                    value.add_(1.0)
        before = copy.deepcopy(objective.teacher.state_dict())
        objective.after_step(0.5)
        for name, value in objective.teacher.state_dict().items():
            if value.is_floating_point():
                student = objective.backbone.state_dict()[name]
                torch.testing.assert_close(value, before[name] + 0.005 * (student - before[name]))
        objective(torch.randn(4, 3, 8, 8), torch.randn(4, 3, 8, 8), torch.arange(4)).backward()
        assert all(p.grad is None for p in objective.teacher.parameters())

    def test_a_round_starts_from_the_teacher(self):
        plan = settings(epochs=1, objective="pseudo-codes", code_bits=4, labelled_fraction=0.4)
        objective = PseudoCodes(SmallNetwork(), plan, 30)
        with torch.no_grad():
            objective.teacher.layers[0].weight.add_(1.0)
        features = np.random.default_rng(0).standard_normal((30, 16)).astype("f4")
        objective.begin_round(features, 0)
        student, teacher = objective.backbone.layers[0].weight, objective.teacher.layers[0].weight
        assert torch.equal(student, teacher)
        assert set(objective.labels.unique().tolist()) == {-1, 1}
        confidence = neighbourhood_codes(features, 4, plan.k1, 0, "cpu")[1]
        labelled = objective.labelled.numpy()
        assert 12 <= labelled.sum() < 20  # two fifths, and those that are as sure as the last
        assert confidence[labelled].min() > confidence[~labelled].max()
        assert objective.diagnostics()["confidence"] == pytest.approx(confidence.mean())


class TestPlan:
    def test_every_round_warms_up_and_falls(self):
        plan = Plan(pretrain_settings(32, True, {"epochs": 9, "rounds": 3, "warmup_epochs": 0}), 7)
        assert [plan.round(step) for step in (0, 20, 21, 41, 42, 62, 63)] == [0, 0, 1, 1, 2, 2, 2]
        assert [plan.round_ends(step) for step in (0, 20, 21, 42, 62)] == [21, 21, 42, 63, 63]
        assert plan.round_progress(63) == 1
        rates = np.array([plan.rate(step) for step in range(63)]).reshape(3, 21)
        np.testing.assert_allclose(rates, np.tile(rates[0], (3, 1)))
        assert (np.diff(rates[0]) < 0).all()

    def test_rate_warms_up_and_falls_to_zero(self):
        plan = Plan(pretrain_settings(32, False, {"epochs": 100, "warmup_epochs": 5}), 10)
        rates = [plan.rate(step) for step in range(plan.total + 1)]
        assert np.argmax(rates) == 50
        assert max(rates) == pytest.approx(0.24)
        assert rates[-1] == pytest.approx(0, abs=1e-9)
        assert (np.diff(rates[:50]) > 0).all()
        assert (np.diff(rates[51:]) < 0).all()

    def test_a_budget_becomes_steps_and_follows_the_machine(self):
        plan = Plan(pretrain_settings(32, False, {"minutes": 10}), 98)
        plan.fit_budget(TRIAL_STEPS, 5.0, 0.1)
        assert plan.total == TRIAL_STEPS + 5950
        plan.fit_budget(3000, 300.0, 0.2)  # the machine has slowed down
        assert plan.total == 3000 + 1500
        assert plan.progress(4500) == 1.0

    def test_large_pictures_learn_codes_at_a_lower_rate(self):
        changes = {"epochs": 1, "objective": "pseudo-codes"}
        rates = [pretrain_settings(size, True, changes).learning_rate for size in (64, 65)]
        assert rates == [0.025, 0.01]

    def test_wrong_settings_are_refused(self):
        for changes in ({}, {"epochs": 1, "minutes": 1}, {"epochs": 0}, {"minutes": -1}):
            with pytest.raises(InputError):
                pretrain_settings(32, False, changes)
        with pytest.raises(InputError, match="up to 1, not 70"):
            pretrain_settings(32, False, {"epochs": 1, "labelled_fraction": 70.0})
        with pytest.raises(InputError, match="no setting 'epoch'"):
            pretrain_settings(32, False, {"epoch": 3})
        with pytest.raises(InputError, match="byol first"):
            pretrain_settings(32, False, {"epochs": 1, "objective": "pseudo-codes"})
        with pytest.raises(InputError, match="no objective"):
            pretrain_settings(32, False, {"epochs": 1, "objective": "magic"})


class TestPartners:
    def test_they_are_mutual_neighbours_with_lists_in_common(self):
        rng = np.random.default_rng(0)
        X = (rng.integers(0, 6, 120)[:, None] + 0.3 * rng.standard_normal((120, 5))).astype("f4")
        k, least = 8, 0.4
        lists = [set(row) for row in knn(X, k, centre=True).tolist()]
        expected = {
            (i, j)
            for i in range(120)
            for j in range(120)
            if j in lists[i] and i in lists[j] and len(lists[i] & lists[j]) >= least * k
        }
        found = find_neighbour_positives(X, k, least).graph.tocoo()
        assert set(zip(*(c.tolist() for c in found.coords), strict=True)) == expected
        assert 50 < len(expected) < 120 * k

    def test_partners_share_the_chance_and_the_picture_has_the_rest(self):
        graph = sparse.csr_array(np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]], np.int8))
        rows = np.repeat(np.arange(3), 6000)
        drawn = NeighbourPositives(graph).draw(rows, 0.6, np.random.default_rng(0)).reshape(3, -1)
        for row, chances in enumerate([[0.4, 0.3, 0.3], [0.6, 0.4, 0], [0, 0, 1]]):
            shares = np.bincount(drawn[row], minlength=3) / 6000
            np.testing.assert_allclose(shares, chances, atol=0.03)


class TestSigns:
    def test_a_constant_is_a_collapse(self):
        constant = torch.ones(50, 8) + 1e-6 * torch.randn(50, 8, generator=generator())
        assert diagnostics(constant, constant, None).collapsed

    def test_one_line_is_a_collapse(self):
        line = torch.randn(50, 1, generator=generator()) * torch.ones(1, 8)
        assert diagnostics(line, line, None).collapsed

    def test_isotropic_features(self):
        x = torch.randn(2000, 8, generator=generator())
        found = diagnostics(x, x, neighbours(x.double()))
        assert not found.collapsed
        assert found.instance_accuracy == 1.0
        assert found.stability == 1.0
        assert found.rank == pytest.approx(8, abs=0.1)
        assert found.spread == pytest.approx(1, abs=0.05)
        assert found.entropy > 0.9

    def test_other_views_do_not_agree(self):
        a, b = torch.randn(2, 500, 8, generator=generator())
        assert diagnostics(a, b, None).instance_accuracy < 0.05


def settings(**changes):
    return pretrain_settings(8, True, {"batch_size": 50, "learning_rate": 0.2} | changes)


class TestRun:
    def test_one_step_an_epoch_keeps_to_the_budget_too(self, pictures):
        few = ImageArray(pictures.pixels[:40])
        done = pretrain(SmallNetwork(), few, settings(minutes=1e-4), device="cpu")
        assert done.epochs == MIN_STEPS

    def test_training_changes_the_backbone_and_tells_its_signs(self, pictures):
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
            {"objective": "pseudo-codes", "rounds": 3, "code_bits": 8},
        ],
    )
    def test_killed_and_resumed_ends_with_the_same_weights(
        self, pictures, tmp_path, monkeypatch, changes
    ):
        plan = settings(epochs=4, **changes)
        whole = pretrain(SmallNetwork(), pictures, plan, device="cpu")
        monkeypatch.setattr(loop_module, "CHECKPOINT_SECONDS", 0)
        step = loop_module._Run._one_step

        def dies(run, *batch):
            if run.step == 9:
                raise KeyboardInterrupt
            return step(run, *batch)

        monkeypatch.setattr(loop_module._Run, "_one_step", dies)
        with pytest.raises(KeyboardInterrupt):
            pretrain(SmallNetwork(), pictures, plan, device="cpu", folder=tmp_path)
        monkeypatch.setattr(loop_module._Run, "_one_step", step)
        again = pretrain(SmallNetwork(), pictures, plan, device="cpu", folder=tmp_path, resume=True)
        for name, tensor in whole.backbone.state_dict().items():
            assert torch.equal(tensor, again.backbone.state_dict()[name]), name
        drop = {"seconds"}
        for a, b in zip(whole.history, again.history, strict=True):
            assert {k: v for k, v in a.items() if k not in drop} == {
                k: v for k, v in b.items() if k not in drop
            }

    def test_codes_make_new_labels_in_every_round(self, pictures, monkeypatch):
        made = []
        begin = PseudoCodes.begin_round

        def counted(objective, features, seed):
            made.append((len(features), seed))
            begin(objective, features, seed)

        monkeypatch.setattr(PseudoCodes, "begin_round", counted)
        plan = settings(
            epochs=5, objective="pseudo-codes", rounds=3, code_bits=8, learning_rate=0.01
        )
        done = pretrain(SmallNetwork(), pictures, plan, device="cpu")
        assert made == [(200, 0), (200, 1), (200, 2)]
        assert done.epochs == 5
        assert 0.25 <= done.history[-1]["confidence"] <= 1
        assert done.backbone.origin == "pseudo-codes for 5 epochs from random"

    def test_stages_follow_each_other_and_those_at_their_end_are_not_run_again(
        self, pictures, tmp_path, monkeypatch
    ):
        shared = {"batch_size": 50, "epochs": 1}
        stages = [shared, shared | {"objective": "pseudo-codes", "rounds": 1, "code_bits": 8}]
        whole = pretrain_stages(SmallNetwork(), pictures, stages, device="cpu")
        assert whole.epochs == 2
        assert [entry["objective"] for entry in whole.history] == ["byol", "pseudo-codes"]
        assert whole.seconds == pytest.approx(whole.history[-1]["seconds"], abs=0.2)
        assert (
            whole.backbone.origin == "pseudo-codes for 1 epochs from byol for 1 epochs from random"
        )

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

    def test_resuming_with_other_settings_is_refused(self, pictures, tmp_path):
        pretrain(SmallNetwork(), pictures, settings(epochs=1), device="cpu", folder=tmp_path)
        with pytest.raises(ModelError, match="delete the folder"):
            pretrain(
                SmallNetwork(), pictures, settings(epochs=2), device="cpu", folder=tmp_path,
                resume=True,
            )  # fmt: skip

    def test_a_time_budget_is_kept_on_a_machine_that_slows_down(self, pictures, monkeypatch):
        clock = [0.0]
        monkeypatch.setattr(loop_module.time, "monotonic", lambda: clock[0])
        step = loop_module._Run._one_step

        def timed(run, *batch):
            clock[0] += 0.1 if run.step < 60 else 0.2
            return step(run, *batch)

        monkeypatch.setattr(loop_module._Run, "_one_step", timed)
        done = pretrain(SmallNetwork(), pictures, settings(minutes=0.2), device="cpu")
        assert done.seconds == pytest.approx(12, abs=1)
        assert done.epochs == pytest.approx((60 + 30) / 4, abs=1)
        assert done.history[-1]["learning_rate"] < 0.001

    def test_a_rate_that_blows_up_is_told(self, pictures, monkeypatch):
        monkeypatch.setattr(
            loop_module._Run, "_one_step", lambda run, *batch: torch.tensor(math.nan)
        )
        with pytest.raises(DDHError, match="lower the learning rate"):
            pretrain(SmallNetwork(), pictures, settings(epochs=1), device="cpu")

    def test_a_collapse_is_told(self, pictures, monkeypatch):
        def collapse(run, *batch):
            with torch.no_grad():
                for parameter in run.objective.result.parameters():
                    parameter.zero_()
            run.step += 1
            return torch.tensor(0.0)

        monkeypatch.setattr(loop_module._Run, "_one_step", collapse)
        with pytest.raises(DDHError, match="collapsed at step 4"):
            pretrain(SmallNetwork(), pictures, settings(epochs=2), device="cpu")

    def test_too_few_pictures(self):
        few = ImageArray(np.zeros((3, 8, 8, 3), np.uint8))
        with pytest.raises(InputError, match="at least 8"):
            pretrain(SmallNetwork(), few, settings(epochs=1), device="cpu")

    def test_files_are_decoded_once(self, tmp_path):
        from PIL import Image

        from ddh.images import ImageFolder

        folder = tmp_path / "photos"
        folder.mkdir()
        for i in range(12):
            Image.fromarray(
                np.random.default_rng(i).integers(0, 255, (30, 20, 3), dtype=np.uint8)
            ).save(folder / f"{i:02}.png")
        (folder / "bad.png").write_bytes(b"not a picture")
        work = tmp_path / "work"
        done = pretrain(
            SmallNetwork(), ImageFolder(folder), settings(epochs=1, batch_size=6), device="cpu",
            folder=work,
        )  # fmt: skip
        assert [failure.name for failure in done.failures] == ["bad.png"]
        kept = next(work.glob("pixels-*.npy"))
        assert np.load(kept, mmap_mode="r").shape == (13, 9, 9, 3)
