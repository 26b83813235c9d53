#!/usr/bin/env python3
# framework_test.py LIBRARY MODULE CLIENT: runs CLIENT, which imports MODULE, with the library in place of NVIDIA's.
# WEFT_TEST_PYTHONS lists interpreters, separated by colons; tools/nccl-clients installs one that has cupy.
# Without an interpreter that has the module, the test is skipped.
import os
import subprocess
import sys

SKIPPED = 77


def has_module(interpreter, module):
    program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([interpreter, "-c", program]).returncode == 0


def main():
    library, module, client = sys.argv[1:]
    interpreters = os.environ.get("WEFT_TEST_PYTHONS", sys.executable).split(":")
    interpreter = next((each for each in interpreters if has_module(each, module)), None)
    if not interpreter:
        print(f"skipped: none of {', '.join(interpreters)} has {module}")
        return SKIPPED
    return subprocess.run([interpreter, client, library], env=os.environ | {"LD_PRELOAD": library}).returncode


if __name__ == "__main__":
    sys.exit(main())
