"""What `ddh doctor` tries in subprocesses, so that nothing can take it down.

A library may be missing, may raise while it is imported, may end the process with an illegal
instruction, or may never return. `run` hands a list of probes to a child; where the child ends
early, the probe that it was running is to blame, and a new child continues with the rest.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

SECONDS = 120
MARK = "ddh-probe: "  # libraries print what they like while they are imported

Outcome = dict[str, Any]


def run(probes: list[str], seconds: float = SECONDS) -> dict[str, Outcome]:
    """What each probe found, or {"error": why it found nothing}."""
    found: dict[str, Outcome] = {}
    while rest := [probe for probe in probes if probe not in found]:
        command = [sys.executable, "-m", "ddh.cli.doctor_probes", *rest]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL
            )
            output, ending = done.stdout, _ending(done.returncode, done.stderr)
        except subprocess.TimeoutExpired as late:
            output, ending = late.stdout or b"", f"no answer after {seconds:.0f} s"
        for line in output.decode("utf-8", "replace").splitlines():
            if line.startswith(MARK):
                answer = json.loads(line.removeprefix(MARK))
                found[answer["probe"]] = answer["found"]
        culprit = next((probe for probe in rest if probe not in found), None)
        if culprit is not None:
            found[culprit] = {"error": ending}
    return found


def _ending(code: int, errors: bytes) -> str:
    if code == 0:
        return "the probe gave no answer"
    if code < 0:
        return f"the process ends with {signal.Signals(-code).name}"
    last = errors.decode("utf-8", "replace").strip().splitlines()[-1:]
    return " ".join([f"the process ends with {code}", *last])


# -- in the child --------------------------------------------------------------------------------


def library(module: str) -> Outcome:
    """Import a library. `missing` is whether it is not there at all."""
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name == module.split(".")[0]
        return {"error": str(error), "missing": missing}
    return {"file": str(getattr(loaded, "__file__", ""))}


def kernel() -> Outcome:
    """Which Hamming kernel runs and why; a small search by it is compared with plain counting."""
    import numpy as np

    from ddh import codes

    name = codes.kernel()
    rows = np.random.default_rng(0).integers(0, 256, (200, 8), dtype=np.uint8)
    counted = np.unpackbits(rows[:3, None] ^ rows[None], axis=2).sum(axis=2)
    right = np.sort(counted, axis=1)[:, :5]
    if not np.array_equal(codes.search(rows[:3], rows, k=5).distances, right):
        return {"error": f"{name} gives wrong distances"}
    asked = os.environ.get("DDH_KERNEL", "")
    if asked:
        why = f"DDH_KERNEL={asked} asks for it"
    elif name.startswith("native"):
        offered = import_module("ddh.codes.kernel_native").VARIANTS
        why = f"the best of what this processor has: {', '.join(offered)}"
    else:
        error = _import_error("ddh.codes._hamming") or "it has no code for this processor"
        why = f"the compiled kernel cannot be used: {error}"
    return {"name": name, "why": why, "native": name.startswith("native"), "asked": bool(asked)}


def overlap() -> Outcome:
    """Whether the compiled loops of the neighbourhood labels are there."""
    from ddh.neighbours.native import available

    return {"native": available(), "why": _import_error("ddh.neighbours._overlap")}


def _import_error(module: str) -> str:
    try:
        import_module(module)
    except ImportError as error:
        return str(error)
    return ""


def device() -> Outcome:
    """Where a network would run, after a small product there."""
    from ddh._core.lazy import has_torch
    from ddh._core.threads import omp_threads

    if not has_torch():
        return {"device": "cpu", "threads": omp_threads()}
    import torch

    from ddh.train.device import choose

    chosen = choose("auto")
    ones = torch.ones(64, 64, device=chosen)
    if float((ones @ ones).sum()) != 64**3:
        return {"error": f"{chosen} computes a wrong product"}
    found: Outcome = {"device": str(chosen), "threads": torch.get_num_threads()}
    if chosen.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(chosen)
        found["gpu_bytes"] = torch.cuda.mem_get_info(chosen)[1]
    found["cuda_build"] = torch.version.cuda
    return found


def encoder() -> Outcome:
    """The network of the package, after encoding a small picture with it."""
    import numpy as np

    from ddh.backbones import OnnxNetwork, default_encoder

    network = OnnxNetwork(default_encoder(), size=32)
    if not np.isfinite(network(np.full((1, 32, 32, 3), 200, np.uint8))).all():
        return {"error": f"{network.encoder} gives features that are not numbers"}
    return {"name": f"{network.name} by {network.encoder}", "origin": network.origin}


def weights(name: str) -> Outcome:
    """Whether the ImageNet weights of a backbone are there, and are the right ones."""
    from ddh._core.errors import MissingDependency
    from ddh.backbones.variants import VARIANTS, packaged_file

    variant = VARIANTS[name]
    try:
        path = packaged_file(variant.package, variant.file, variant.sha256, extra=variant.extra)
    except MissingDependency as error:
        return {"error": str(error), "missing": True}
    return {"bytes": path.stat().st_size, "sha256": variant.sha256}


PROBES: dict[str, Callable[..., Outcome]] = {
    "import": library, "kernel": kernel, "overlap": overlap, "encoder": encoder, "device": device,
    "weights": weights,
}  # fmt: skip


def main(probes: list[str]) -> None:
    """Answer probes such as `kernel` and `import:torch`, a line each, as soon as it is known."""
    for probe in probes:
        kind, _, argument = probe.partition(":")
        try:
            found = PROBES[kind](argument) if argument else PROBES[kind]()
        except Exception as error:  # whatever a broken library raises is what we want to tell
            found = {"error": f"{type(error).__name__}: {error}"}
        print("\n" + MARK + json.dumps({"probe": probe, "found": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
