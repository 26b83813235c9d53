"""Finds the compiled backend for the installed torch, or compiles it once for this user."""

import fcntl
import hashlib
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import torch

import weft

from . import _build

_here = Path(__file__).parent


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def file_name() -> str:
    """The name of the file for this torch and this Python."""
    return f"_backend_torch{_minor(torch.__version__)}{sysconfig.get_config_var('EXT_SUFFIX')}"


def _cached(sources: Path) -> Path:
    """The file that this user's builds make: another one for other sources, torch, Python and Weft."""
    key = hashlib.sha256(f"{torch.__version__} {sys.version} {weft.__version__}".encode())
    for source in sorted(sources.iterdir()):
        key.update(source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "weft" / key.hexdigest()[:16] / file_name()


def _compiled_here() -> Path:
    sources = _here / "source"
    if not sources.is_dir():
        raise ImportError(
            f"this build of weft has no backend for torch {_minor(torch.__version__)} and no sources to compile one; "
            "install weft by pip [driver.missing]"
        )
    file = _cached(sources)
    file.parent.mkdir(parents=True, exist_ok=True)
    # The ranks of a job start together: one compiles, the others wait.
    with open(file.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            print(
                f"weft: compiles its backend for torch {torch.__version__} to {file} (once, about a minute)",
                file=sys.stderr,
                flush=True,
            )
            _build.build(sources, _here.parent / "include", Path(weft.libweft_path()), file)
    return file


def load() -> ModuleType:
    file = _here / file_name()
    if not file.exists():
        file = _compiled_here()
    spec = importlib.util.spec_from_file_location("weft.torch._backend", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if _minor(module.torch_version) != _minor(torch.__version__):
        raise ImportError(
            f"{file} was built for torch {module.torch_version}, and torch {torch.__version__} is loaded; "
            "install weft again [driver.missing]"
        )
    return module
