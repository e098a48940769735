"""Fixtures that all tests share: the real image sets, where they are at hand."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# With several workers these files come first, in this order: one of them at the end of the queue
# would keep one worker busy alone.
LONGEST = (
    "docs/test_docs_blocks.py",
    "train/test_training_processes.py",
    "page/test_page_browse.py",
    "page/test_page_duplicates.py",
    "cli/test_kill_and_resume.py",
    "bench/test_bench_tables.py",
    "index/test_index_shared.py",
    "codes/test_codes_asymmetric.py",
    "serve/test_serve_process.py",
    "page/test_page_states.py",
    "page/test_page_search.py",
    "cli/test_cli_core.py",
    "cli/test_doctor.py",
    "train/test_training_resume.py",
    "index/test_refit.py",
    "serve/test_serve_duplicates.py",
    "hashers/test_deep_digits.py",
    "test_without_torch.py",
    "hashers/test_ddh.py",
    "bench/test_bench_chaos.py",
    "duplicates/test_actions.py",
    "hashers/test_shallow_memory.py",
)
ARCHIVES = ROOT.parent / "shared" / "data"
# The commands read DDH_DATA too: taken away here, so that no test depends on who runs it.
GIVEN_DATA = os.environ.pop("DDH_DATA", None)

# Ray reads these when it is first imported, by whichever test: with its own authentication, but no
# token in the home folder, and with patience where others work too.
os.environ |= {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_gcs_server_port_wait_time_s": "120",
    "RAY_worker_niceness": "0",  # 15 by default: workers would wait for all other tests
}

# A shell has its background jobs ignore Ctrl-C, and so would the commands that tests start there.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        turn = {ROOT / "tests" / name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: turn.get(item.path, len(turn)))


@pytest.fixture(scope="session", autouse=True)
def user_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Records of jobs and caches of the commands under test stay away from the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDH_STATE", str(tmp_path_factory.mktemp("state")))
        patch.setenv("DDH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    return ROOT


@pytest.fixture
def limit_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, int], None]:
    """Let a network run out of a GPU's memory with more than so many images."""
    import torch

    def limit(network: type, most: int) -> None:
        forward = network.forward

        def limited(self, x):
            if len(x) > most:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
            return forward(self, x)

        monkeypatch.setattr(network, "forward", limited)

    return limit


def _unpacked(name: str, folder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set from the folder DDH_DATA, or unpacked from the archives beside the checkout."""
    if GIVEN_DATA and (Path(GIVEN_DATA) / folder).is_dir():
        return Path(GIVEN_DATA) / folder
    if not (ARCHIVES / "unpack.py").is_file():
        pytest.skip(f"the real {name} images are not here: set DDH_DATA to a folder with {folder}")
    import fcntl

    base = tmp_path_factory.getbasetemp()  # with several workers, a folder of each of them
    target = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"data-{name}"
    target.mkdir(exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "done").exists():
            command = [sys.executable, str(ARCHIVES / "unpack.py"), str(target), name]
            subprocess.run(command, check=True, capture_output=True)
            (target / "done").touch()
    return target / folder


@pytest.fixture(scope="session")
def cifar10_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the official CIFAR-10 Python batches."""
    return _unpacked("cifar10", "cifar-10-batches-py", tmp_path_factory)


@pytest.fixture(scope="session")
def flowers17_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the 1,360 Oxford-17 photographs."""
    return _unpacked("flowers17", "flowers17", tmp_path_factory)
