"""A small training run for the tests of resuming: `resume_script.py OUT WORK DEPTH SAVES`.

As a script it ends itself by `kill -9` after that many checkpoints.
"""

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np

from ddh import DDH
from ddh.backbones import ResNet
from ddh.hashers import ddh as method
from ddh.train import linear, trainer


def narrow(*given):
    return ResNet("resnet18", 8, tiny_stem=True, width=4)


def train(out: Path, work: Path, depth: str, resume: bool) -> DDH:
    rng = np.random.default_rng(0)
    if depth == "head":
        X = rng.standard_normal((400, 24)).astype(np.float32)
        model = DDH(bits=12, epochs=5, batch_size=32, alpha=2.0)
    else:
        X = rng.integers(0, 256, (48, 8, 8, 3), dtype=np.uint8)
        model = DDH(bits=8, epochs=2, network_epochs=3, batch_size=8, depth=depth)
    with ExitStack() as patches:
        patches.enter_context(patch.object(method, "create", narrow))
        for module in (trainer, linear):
            patches.enter_context(patch.object(module, "CHECKPOINT_SECONDS", 0.0))
        model.fit(X, checkpoint_dir=work, resume=resume)
    model.save(out)
    return model


def kill_after(saves: int, owner: type, name: str) -> None:
    """Let a method of a class end the process when it has been called so many times."""
    save, calls = getattr(owner, name), []

    def counted(*given):
        save(*given)
        calls.append(1)
        if len(calls) == saves:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, counted)


if __name__ == "__main__":
    out, work, depth, saves = sys.argv[1:]
    owner, name = (linear.LinearTraining, "save") if depth == "head" else (trainer.Trainer, "_save")
    kill_after(int(saves), owner, name)
    train(Path(out), Path(work), depth, resume=False)
