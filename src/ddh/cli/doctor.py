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
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click

import ddh
from ddh._core.threads import cpu_count, thread_map
from ddh.cli import doctor_probes
from ddh.cli.doctor_probes import Outcome

OLDEST_PYTHON = (3, 11)
LITTLE_MEMORY, LITTLE_DISK = 2 << 30, 1 << 30
# Extra: what it is for. Those that are not named here are for work on ddh itself.
EXTRAS = {
    "faiss": "approximate neighbours for millions of images, export to faiss",
    "serve": "the HTTP service and the web page (ddh serve)",
    "lite": "ImageNet weights of EfficientNet-Lite1 and 2",
    "timm": "any timm model as a backbone",
    "postgres": "an index in PostgreSQL",
    "milvus": "an index in Milvus",
    "parquet": "export to Parquet",
    "ray": "work on many machines",
    "bench": "plots, flower descriptors, and the peers of the benches",
}
# Distributions whose module has another name than they have.
MODULES = {
    "faiss-cpu": "faiss",
    "opencv-python-headless": "cv2",
    "pillow": "PIL",
    "scikit-learn": "sklearn",
}
WEIGHTS = {"efficientnet-lite0": "", "efficientnet-lite1": "lite", "efficientnet-lite2": "lite"}
COLOURS = {"ok": "green", "note": "blue", "warning": "yellow", "problem": "red"}
TORCH_PAGE = "https://pytorch.org/get-started/locally/"
COMPILER_ADVICE = (
    "install a C compiler and Python's headers (Debian: apt install gcc python3-dev), "
    "then ddh again"
)


@dataclass(frozen=True)
class Finding:
    """One line of the report; `advice` says what to do about it."""

    part: str
    name: str
    mark: str  # ok, note (optional, and not there), warning (works, but not well), problem
    text: str
    advice: str = ""


@dataclass(frozen=True)
class Requirement:
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
    """Tell what is installed, what runs, what is missing and how to get it.

    Exit code 1 when something is wrong that ddh cannot work with.

    \b
    ddh doctor
    ddh doctor --json
    """
    findings = examine()
    problems = sum(finding.mark == "problem" for finding in findings)
    warnings = sum(finding.mark == "warning" for finding in findings)
    if as_json:
        document = {"problems": problems, "warnings": warnings,
                    "findings": [asdict(finding) for finding in findings]}  # fmt: skip
        click.echo(json.dumps(document, indent=2))
    else:
        _show(findings, problems, warnings)
    sys.exit(1 if problems else 0)


def examine() -> list[Finding]:
    """Every finding, in the order of the report. The imports take most of the time."""
    needed = [entry for entry in requirements() if not entry.extra]
    optional = [entry for entry in requirements() if entry.extra in EXTRAS]
    ours = ["kernel", "overlap", "device", *(f"weights:{name}" for name in WEIGHTS)]
    groups = [[entry.probe for entry in needed] + ours, [entry.probe for entry in optional]]
    required, extra = thread_map(doctor_probes.run, groups, len(groups))
    probed = required | extra
    parts: list[Callable[[], Iterator[Finding]]] = [
        _software,
        lambda: (_library(entry, probed[entry.probe]) for entry in needed),
        lambda: _kernels(probed),
        lambda: _device(probed["device"]),
        lambda: (_weights(name, probed[f"weights:{name}"]) for name in WEIGHTS),
        lambda: _extras(optional, probed),
        _compiler,
        _machine,
        _folders,
    ]
    return [finding for part in parts for finding in _guarded(part)]


def _guarded(part: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """The findings of a part; an error in one part is a finding, and the others still speak."""
    try:
        return list(part())
    except Exception as error:
        name = getattr(part, "__name__", "part").strip("_")
        return [Finding("Doctor", name, "warning", f"could not look: {error!r}")]


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
    version, system = platform.python_version(), f"{platform.system()} {platform.machine()}"
    old = sys.version_info < OLDEST_PYTHON
    advice = f"ddh needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer" if old else ""
    yield Finding("Software", "python", "problem" if old else "ok", f"{version}, {system}", advice)
    if requirements():
        yield Finding("Software", "ddh", "ok", ddh.__version__)
    else:
        yield Finding(
            "Software", "ddh", "warning", f"{ddh.__version__}, which pip has not installed",
            "run pip install . in the folder of ddh; libraries cannot be checked until then",
        )  # fmt: skip


def _library(entry: Requirement, outcome: Outcome) -> Finding:
    """A library that ddh cannot do without."""
    advice = f'pip install "{entry.line}"'
    if outcome.get("missing"):
        return Finding("Software", entry.distribution, "problem", "not installed", advice)
    if "error" in outcome:
        text = f"{_version(entry)}, cannot be imported: {outcome['error']}"
        return Finding(
            "Software", entry.distribution, "problem", text, f"{advice} --force-reinstall"
        )
    version = _version(entry)
    if older(version, entry.line):
        text = f"{version}, older than ddh needs"
        return Finding("Software", entry.distribution, "problem", text, advice)
    return Finding("Software", entry.distribution, "ok", version)


def _version(entry: Requirement) -> str:
    try:
        return metadata.version(entry.distribution)
    except metadata.PackageNotFoundError:
        return "version not known"


def older(version: str, requirement: str) -> bool:
    """Whether a version is below the `>=` or `==` of a requirement line."""
    least = re.search(r"[>=]=([0-9.]+)", requirement)
    have = re.match(r"[0-9.]+", version)
    if not least or not have:
        return False
    wanted, given = (
        [int(number) for number in text.strip(".").split(".")] for text in (least[1], have[0])
    )
    return given < wanted


def _extras(optional: list[Requirement], probed: dict[str, Outcome]) -> Iterator[Finding]:
    for extra, purpose in EXTRAS.items():
        entries = [entry for entry in optional if entry.extra == extra]
        missing = [e.distribution for e in entries if probed[e.probe].get("missing")]
        broken = [
            f"{e.distribution}: {probed[e.probe]['error']}"
            for e in entries
            if "error" in probed[e.probe] and not probed[e.probe].get("missing")
        ]
        advice = f'pip install "ddh[{extra}]"'
        if not entries:
            continue
        if broken:
            yield Finding(
                "Extras", extra, "warning", f"{purpose}; broken: {'; '.join(broken)}",
                f"{advice} --force-reinstall",
            )  # fmt: skip
        elif missing:
            yield Finding(
                "Extras", extra, "note", f"{purpose}; not here: {', '.join(missing)}", advice
            )
        else:
            yield Finding("Extras", extra, "ok", purpose)


# -- what runs -----------------------------------------------------------------------------------


def _kernels(probed: dict[str, Outcome]) -> Iterator[Finding]:
    hamming, overlap = probed["kernel"], probed["overlap"]
    if "error" in hamming:
        yield Finding(
            "What runs", "search", "problem", hamming["error"],
            "unset DDH_KERNEL" if os.environ.get("DDH_KERNEL") else "install the libraries above",
        )  # fmt: skip
    else:
        good = hamming["native"] or hamming["asked"]
        yield Finding(
            "What runs", "search", "ok" if good else "warning",
            f"{hamming['name']} ({hamming['why']})", "" if good else COMPILER_ADVICE,
        )  # fmt: skip
    if "error" in overlap:
        yield Finding("What runs", "labels", "problem", overlap["error"])
    elif overlap["native"]:
        yield Finding("What runs", "labels", "ok", "native (compiled loops)")
    else:
        text = f"NumPy and SciPy, slower: {overlap['why']}"
        yield Finding("What runs", "labels", "warning", text, COMPILER_ADVICE)


def _device(outcome: Outcome) -> Iterator[Finding]:
    if "error" in outcome:
        yield Finding("What runs", "device", "problem", outcome["error"], "see torch above")
        return
    if "gpu" in outcome:
        text = f"{outcome['device']}: {outcome['gpu']}, {_size(outcome['gpu_bytes'])}"
        yield Finding("What runs", "device", "ok", text)
        return
    text = f"{outcome['device']}, {outcome['threads']} threads"
    if not _has_nvidia() or outcome["device"] != "cpu":
        yield Finding("What runs", "device", "ok", text)
        return
    build = f"is built for CUDA {outcome['cuda_build']}" if outcome["cuda_build"] else "is for CPUs"
    yield Finding(
        "What runs", "device", "warning",
        f"{text}; there is an NVIDIA driver, but this torch {build} and sees no GPU",
        f"install the torch build for your driver: {TORCH_PAGE}",
    )  # fmt: skip


def _has_nvidia() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def _weights(name: str, outcome: Outcome) -> Finding:
    extra = WEIGHTS[name]
    line = next((e.line for e in requirements() if e.distribution.startswith(name)), "ddh")
    advice = f'pip install "ddh[{extra}]"' if extra else f'pip install "{line}"'
    if "error" not in outcome:
        text = f"{_size(outcome['bytes'])}, SHA-256 checked ({outcome['sha256'][:12]}...)"
        return Finding("Weights", name, "ok", text)
    if outcome.get("missing"):
        return Finding("Weights", name, "note" if extra else "problem", "not installed", advice)
    mark = "warning" if extra else "problem"
    return Finding("Weights", name, mark, outcome["error"], f"{advice} --force-reinstall")


def _compiler() -> Iterator[Finding]:
    """Whether a C extension can be compiled and linked here; needed at installation only."""
    program = (
        os.environ.get("CC", "").split()
        or [name for name in ("cc", "gcc", "clang") if shutil.which(name)][:1]
    )
    if not program or shutil.which(program[0]) is None:
        text = f"{program[0]} is not there" if program else "none"
        yield Finding("Machine", "C compiler", "note", text, COMPILER_ADVICE)
        return
    with tempfile.TemporaryDirectory(prefix="ddh-doctor-") as folder:
        source = Path(folder) / "extension.c"
        source.write_text("#include <Python.h>\nint answer(void) { return PY_MAJOR_VERSION; }\n")
        command = [*program, "-shared", "-fPIC", f"-I{sysconfig.get_paths()['include']}",
                   str(source), "-o", str(source.with_suffix(".so"))]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        yield Finding("Machine", "C compiler", "ok", f"{program[0]} compiles extensions")
    else:
        why = next((line for line in done.stderr.splitlines() if "error" in line), "it fails")
        yield Finding("Machine", "C compiler", "note", f"{program[0]}: {why}", COMPILER_ADVICE)


# -- the machine ---------------------------------------------------------------------------------


def _machine() -> Iterator[Finding]:
    yield Finding("Machine", "processors", "ok", str(cpu_count()))
    memory = free_memory()
    if memory is not None:
        little = memory < LITTLE_MEMORY
        yield Finding(
            "Machine", "memory", "warning" if little else "ok", f"{_size(memory)} free",
            "learning may need more; close other programs" if little else "",
        )  # fmt: skip


def free_memory() -> int | None:
    """Bytes that programs can still get; None where the system does not tell."""
    try:
        text = Path("/proc/meminfo").read_text()
        found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
        return int(found[1]) * 1024 if found else None
    except OSError:
        return None


def _folders() -> Iterator[Finding]:
    from ddh._core.jobs import jobs_folder
    from ddh.serve.settings import Settings

    places = {
        "working folder": (Path.cwd(), "choose another"),
        "temporary files": (Path(tempfile.gettempdir()), "set TMPDIR to a folder of yours"),
        "cache of the page": (Settings().cache_folder(), "set DDH_CACHE to a folder of yours"),
        "records of jobs": (jobs_folder(), "set DDH_STATE to a folder of yours"),
    }
    for name, (folder, advice) in places.items():
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        why = _cannot_write(there)
        free = shutil.disk_usage(there).free
        if why:
            mark = "problem" if name == "temporary files" else "warning"
            yield Finding("Machine", name, mark, f"{folder}: {why}", advice)
        elif free < LITTLE_DISK:
            text = f"{folder}: {_size(free)} free"
            yield Finding("Machine", name, "warning", text, "make room on this disk")
        else:
            yield Finding("Machine", name, "ok", f"{folder}, {_size(free)} free")


def _cannot_write(folder: Path) -> str:
    """Why a file cannot be made in a folder, by trying; empty where it can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"ddh")
    except OSError as error:
        return f"cannot be written to ({error.strerror})"
    return ""


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
    click.echo("")
    if problems or warnings:
        click.echo(f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}.")
    else:
        click.echo("All is well.")


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
