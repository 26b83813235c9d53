#!/usr/bin/env python3
"""find_nccl.py: the NCCL libraries of this machine, one a line: version and path, the newest last.

PERF_NCCL_LIBRARY, if set, is the only candidate. Otherwise: the loader's libnccl.so.2, and the package nvidia-nccl of
python3, of the user's site, of VIRTUAL_ENV and of CONDA_PREFIX. Weft's own libnccl.so.2 is none of them.
"""
import ctypes
import glob
import os
import site
import sys
import sysconfig

sys.dont_write_bytecode = True
import checked_output


def candidates():
    given = os.environ.get("PERF_NCCL_LIBRARY")
    if given:
        return [given]
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()]
    folders += site.getsitepackages()
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        root = os.environ.get(variable)
        if root:
            folders += sorted(glob.glob(glob.escape(root) + "/lib*/python3*/site-packages"))
    # The loader's NCCL comes first: after another libnccl.so.2 is loaded, the bare name would mean that one.
    paths = ["libnccl.so.2"] + [os.path.join(folder, "nvidia/nccl/lib/libnccl.so.2") for folder in folders]
    paths += [os.path.join(os.environ["CONDA_PREFIX"], "lib/libnccl.so.2")] if os.environ.get("CONDA_PREFIX") else []
    return [path for path in dict.fromkeys(paths) if "/" not in path or os.path.exists(path)]


def version_of(path):
    """2.30.4 as (2, 30, 4)."""
    number = ctypes.c_int()
    library = ctypes.CDLL(path)
    # A comparison of Weft with itself tells nothing. Symbols of the libraries that it needs count.
    if not os.environ.get("PERF_NCCL_LIBRARY") and hasattr(library, "weftGetVersion"):
        raise OSError("it is Weft's")
    if library.ncclGetVersion(ctypes.byref(number)) != 0:
        raise OSError("ncclGetVersion fails")
    code = number.value
    if code < 10000:  # up to 2.8
        return code // 1000, code % 1000 // 100, code % 100
    return code // 10000, code % 10000 // 100, code % 100


def main():
    found = []
    for path in candidates():
        try:
            found.append((version_of(path), path))
        except (OSError, AttributeError) as error:
            if "/" in path:
                print(f"find_nccl: {path} is not used: {error}", file=sys.stderr)
    for version, path in sorted(found):
        print(".".join(map(str, version)), path)


if __name__ == "__main__":
    checked_output.run(main)
