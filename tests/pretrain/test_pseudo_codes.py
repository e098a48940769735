"""Pseudo-codes: labels, loss, teacher and rounds."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_network import SmallNetwork, generator, settings

from ddh.hashers import DDH
from ddh.neighbours import knn
from ddh.pretrain.pseudo_codes import PseudoCodes, neighbourhood_codes


def test_labels_are_votes_of_neighbourhoods():
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((4, 6))[rng.integers(0, 4, 90)] * 2).astype("f4")
    X += 0.9 * rng.standard_normal(X.shape).astype("f4")
    labels, confidence = neighbourhood_codes(X, 5, 7, 3, "cpu")
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    codes = DDH(bits=5, targets="binary", random_state=3, device="cpu").fit(unit).transform(unit)
    lists = knn(unit, 7, centre=True)
    for i in range(90):
        votes = codes[i].astype(float) + sum(codes[j].astype(float) for j in lists[i])
        np.testing.assert_array_equal(labels[i], np.where(votes >= 0, 1, -1))
        assert confidence[i] == pytest.approx(np.abs(votes / 8).mean())
    assert 0.2 < confidence.min() < confidence.max() <= 1


@pytest.mark.parametrize("consistency", [0.0, 4.0])
def test_the_loss_is_the_formula(consistency):
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
    objective.settings = replace(objective.settings, min_confidence=enough, consistency=consistency)
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


def test_the_teacher_follows_with_its_statistics_and_is_not_trained():
    objective = PseudoCodes(SmallNetwork(), settings(epochs=1, objective="pseudo-codes"), 4).train()
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


def test_a_round_starts_from_the_teacher():
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
    assert 12 <= labelled.sum() < 30  # two fifths, and those that are as sure as the last
    assert confidence[labelled].min() > confidence[~labelled].max()
    assert objective.diagnostics()["confidence"] == pytest.approx(confidence.mean())
