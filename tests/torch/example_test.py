"""example_test.py PROGRAM: runs a program with the backend registered."""

import runpy
import sys

import weft.torch  # noqa: F401  # the package in the build folder has no entry points

runpy.run_path(sys.argv[1], run_name="__main__")
