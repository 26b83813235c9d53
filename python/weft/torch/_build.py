"""Compiles the backend for the installed torch. The package uses it at run time, and the build of the wheel as a program."""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path


def command(name: str, arguments: list[str], optimization: str = "-O2") -> list[str]:
    """The compiler's command for an extension `name` of torch."""
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths

    compiler = shlex.split(os.environ.get("CXX", "c++"))
    includes = [flag for path in include_paths() for flag in ("-isystem", path)]
    libraries = [f"-L{path}" for path in library_paths()]
    return (
        compiler
        + ["-std=c++20", optimization, "-fPIC", "-shared", "-fvisibility=hidden"]
        + ["-Wall", "-Wextra", "-Wno-unused-parameter"]
        + [f"-DTORCH_EXTENSION_NAME={name}", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
        + ["-isystem", sysconfig.get_paths()["include"]]
        + includes
        + arguments
        + libraries
        + ["-lc10", "-ltorch_cpu", "-ltorch_python", "-Wl,--as-needed"]
    )


def _first_errors(text: str) -> str:
    errors = [line for line in text.splitlines() if "error" in line]
    return "\n".join(errors[:10]) or text[-2000:]


def build(sources: Path, headers: Path, library: Path, output: Path) -> None:
    """Raises ImportError with the compiler's text if it fails. Other processes see `output` only when it is whole."""
    if not shutil.which(shlex.split(os.environ.get("CXX", "c++"))[0]):
        raise ImportError("no C++ compiler was found; install g++ 12 or newer, or set CXX [driver.missing]")
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "all_sources.cpp"
        unit.write_text("".join(f'#include "{source.name}"\n' for source in sorted(sources.glob("*.cpp"))))
        made = Path(folder) / "backend.so"
        # torch's headers take most of the time, so that all sources are one unit. The package has loaded libweft.so before,
        # so that the loader finds it by its name.
        arguments = [f"-I{sources}", f"-I{headers}", str(unit), "-o", str(made), str(library)]
        done = subprocess.run(
            command("_backend", arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            raise ImportError(
                f"the backend did not compile; it needs g++ 12 or newer and Python's headers. The compiler said:\n"
                f"{_first_errors(done.stdout)} [driver.missing]"
            )
        beside = output.with_name(f".{output.name}.{os.getpid()}")
        shutil.copyfile(made, beside)
        os.replace(beside, output)


if __name__ == "__main__":
    build(*(Path(argument).resolve() for argument in sys.argv[1:5]))
