#!/usr/bin/env python3
# header_test.py LIBRARY WEFT SOURCE_ROOT CUDA_INCLUDE COMPILER...: compiles client_test.c against the nccl.h of NVIDIA's wheel,
# which is newer than the toolkit's, and runs it on the library. WEFT is libweft.so, which the linker asks for.
# WEFT_TEST_PYTHONS lists interpreters, separated by colons, as framework_test.py describes.
import os
import subprocess
import sys
import tempfile

SKIPPED = 77
FIND = "import importlib.util as util; found = util.find_spec('nvidia.nccl'); print(list(found.submodule_search_locations)[0] if found else '')"


def include_of(interpreter):
    found = subprocess.run([interpreter, "-c", FIND], capture_output=True, text=True).stdout.strip()
    return os.path.join(found, "include") if found else None


def main():
    library, weft, root, cuda, *compiler = sys.argv[1:]
    interpreters = os.environ.get("WEFT_TEST_PYTHONS", sys.executable).split(":")
    include = next((found for found in map(include_of, interpreters) if found), None)
    if not include:
        print(f"skipped: none of {', '.join(interpreters)} has NVIDIA's wheel of NCCL")
        return SKIPPED
    with open(os.path.join(include, "nccl.h")) as header:
        print(*[line.strip() for line in header if line.startswith(("#define NCCL_MAJOR", "#define NCCL_MINOR", "#define NCCL_PATCH"))], sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "client")
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_POSIX_C_SOURCE=200809L", "-DNCCL_HEADER_OF_TOOLKIT"]
        headers = ["-I", root, "-isystem", include, "-isystem", cuda]
        libraries = [library, "-Wl,-rpath," + os.path.dirname(library), "-Wl,-rpath-link," + os.path.dirname(weft), "-pthread"]
        subprocess.run([*compiler, *flags, *headers, "-o", program, os.path.join(root, "tests/nccl/client_test.c"), *libraries], check=True)
        return subprocess.run([program, "threads", "3"]).returncode


if __name__ == "__main__":
    sys.exit(main())
