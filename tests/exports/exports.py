#!/usr/bin/env python3
# exports.py LIBRARY [--declared-in HEADER]... [--most-megabytes N] [--must-object OBJECTION]
#
# Checks the library's dynamic symbol table, which holds weft* and nothing else.
# The library needs only the C and C++ runtime, defines every function that the HEADERs declare, and loads at most N MB.
# The option --must-object is for libraries that are wrong: this must be the one objection.
import argparse
import re
import subprocess
import sys

RUNTIME = re.compile(r"(libc|libm|libstdc\+\+|libgcc_s|libpthread|librt|libdl|ld-linux[\w-]*)\.so\.\d+")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shared_object", metavar="LIBRARY")
    parser.add_argument("--declared-in", action="append", default=[])
    parser.add_argument("--most-megabytes", type=float)
    parser.add_argument("--must-object")
    arguments = parser.parse_args()
    library = arguments.shared_object
    # The version scripts' own names (WEFT_1) are absolute symbols, no code.
    lines = [line.split() for line in output("nm", "-D", "--defined-only", library).splitlines()]
    exported = {line[-1].split("@")[0] for line in lines if line[-2] != "A"}
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library))
    objections = [f"exports {name}" for name in sorted(exported) if not re.fullmatch(r"weft[A-Z]\w*", name)]
    objections += [f"needs {name}" for name in needed if not RUNTIME.fullmatch(name)]
    if arguments.declared_in:
        declared = set()
        for header in arguments.declared_in:
            with open(header) as file:
                declared |= set(re.findall(r"^WEFT_API[^;(]*?\b(weft\w+)\(", file.read(), re.M))
        objections += [f"does not export {name}" for name in sorted(declared - exported)]
        print(f"{len(declared)} functions declared")
    if arguments.most_megabytes:
        loaded = sum(int(size, 16) for size in re.findall(r"^ +LOAD +\S+ +\S+ +\S+ +(0x\w+)", output("readelf", "-lW", library), re.M))
        print(f"{loaded / 1e6:.1f} MB loaded")
        if loaded > arguments.most_megabytes * 1e6:
            objections.append(f"has more than {arguments.most_megabytes:g} MB that are loaded")
    for objection in objections:
        print(f"{library} {objection}")
    print(f"{len(exported)} symbols, {len(needed)} libraries needed, {len(objections)} objections")
    return 0 if objections == ([arguments.must_object] if arguments.must_object else []) else 1


if __name__ == "__main__":
    sys.exit(main())
