"""Environments in which libraries are really missing."""

import fnmatch
import shutil
import sysconfig
import venv
from pathlib import Path

SITE = Path(sysconfig.get_paths()["purelib"])


def installation(folder: Path, repository: Path, hidden: tuple[str, ...]) -> Path:
    """The interpreter of a new environment: all that is installed here but for some names.

    ddh itself is a copy without its compiled parts, as an installation without a compiler has it.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    for entry in SITE.iterdir():
        if not any(fnmatch.fnmatch(entry.name, f"{name}*") for name in (*hidden, "__editable__")):
            (site / entry.name).symlink_to(entry)
    leave = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(repository / "src" / "ddh", site / "ddh", ignore=leave)
    return folder / "bin" / "python"
