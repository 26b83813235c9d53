#!/usr/bin/env python3
# embedding_test.py NINJA BUILD-FOLDER LIBRARY: a changed kernel comes into the library. From the library back to each
# source of device code, every build step depends on the one before by content, not only by order. Each family of kernels is
# embedded and listed.
# A build with such an order-only step must fail this test.
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def inputs(ninja, folder, target):
    """(path, how) of each input of `target`; how is '' for a real input, '|' for an implicit one, '||' for order alone."""
    text = subprocess.run([ninja, "-C", folder, "-t", "query", target], check=True, capture_output=True, text=True).stdout
    found, inside = [], False
    for line in text.splitlines():
        if re.match(r"  input:", line):
            inside = True
        elif re.match(r"  outputs:", line):
            inside = False
        elif inside:
            match = re.match(r"\s+(\|\|?)?\s*(\S.*)", line)
            found.append((match.group(2), match.group(1) or ""))
    return found


def reached(ninja, folder, target, seen=None):
    """All that `target` is built again for."""
    seen = set() if seen is None else seen
    for path, how in inputs(ninja, folder, target):
        if how != "||" and path not in seen:
            seen.add(path)
            if not path.endswith((".cpp", ".hpp", ".c", ".S", ".cu")):
                reached(ninja, folder, path, seen)
    return seen


def main():
    ninja, folder, library = sys.argv[1:]
    sources = [path for path in reached(ninja, folder, library) if path.endswith("_kernels.cu")]
    print(f"{library} is built again for {len(sources)} sources of device code: {' '.join(sorted(sources))}")
    with tempfile.TemporaryDirectory() as trap:
        (Path(trap) / "build.ninja").write_text(
            "rule make\n  command = true\n"
            "build a.fatbin: make a_kernels.cu\n"
            "build fatbins.o: make fatbins.S || a.fatbin\n"
            "build lib.so: make fatbins.o\n")
        caught = not any(path.endswith(".cu") for path in reached(ninja, trap, "lib.so"))
    if not caught:
        print("this test does not see a dependency that is order alone")
    kernels = Path(__file__).parents[3] / "src/gpu/kernels"
    there = {path.name.removesuffix("_kernels.cu") for path in kernels.rglob("*_kernels.cu")}
    # The fake driver finds kernels by name, so it would miss none.
    embedded = set(re.findall(r"^\s+embed (\w+), ", (kernels / "fatbins.S").read_text(), re.MULTILINE))
    loaded = set(re.findall(r"\bweft_(\w+)_fatbin_begin, ", (kernels / "device_code.cpp").read_text()))
    for name in there - embedded | there - loaded:
        print(f"{name}_kernels.cu is compiled, but its code is not in the library: see fatbins.S and device_code.cpp")
    return 0 if len(sources) == len(there) > 0 and there == embedded == loaded and caught else 1


if __name__ == "__main__":
    sys.exit(main())
