"""Checks the machine code of the kernels against limits.txt: objects in local memory and spills, registers, size, fences,
and loads of 16 bytes that a thread has in flight.

usage: sass.py [--must-object] LIMITS OBJECT...
--must-object: the check must fail for every kernel.
WEFT_TEST_DISASSEMBLER: the folder of cuobjdump and nvdisasm (tools/cuda-disassembler). Without it, or if the objects have no code
for the architectures of LIMITS, the status is 77: skipped.
"""

import fnmatch
import os
import re
import subprocess
import sys

ARCHITECTURES = ("sm_90", "sm_100")
COLUMNS = ("instructions", "registers", "stack", "local", "fences", "loads")
AT_LEAST = ("loads",)


def disassembled(folder: str, arguments: list[str]) -> str:
    environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
    done = subprocess.run([os.path.join(folder, "cuobjdump"), *arguments], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"cuobjdump {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Code:
    """One kernel's instructions, added in their order."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COLUMNS, 0)
        self._in_flight: set[int] = set()  # registers that loads will write
        self._loads = 0

    def add(self, operation: str, operands: str) -> None:
        self.counts["instructions"] += 1
        self.counts["local"] += operation.startswith(("LDL", "STL"))
        self.counts["fences"] += operation.startswith("MEMBAR")
        registers = {int(number) for number in re.findall(r"\bR(\d+)\b", operands)}
        # LDGMC: a load that the switch combines, of a vector (F16x8), 8 or 4 bytes. One without a target register only fetches.
        loads = re.match(r"LDG?\.", operation) and ".128" in operation or operation.startswith("LDGMC")
        match = re.match(r"\s*R(\d+)", operands)
        read = registers
        if loads and match:
            target = int(match[1])
            read = registers - {target}
        if read & self._in_flight:
            self._in_flight, self._loads = set(), 0
        if loads and match:
            words = 4 if re.search(r"\.128|x\d", operation) else 2 if "64" in operation else 1
            self._in_flight |= set(range(target, target + words))
            self._loads += 1
            self.counts["loads"] = max(self.counts["loads"], self._loads)


def kernels_of(folder: str, path: str, architecture: str) -> dict[str, Code]:
    kernels: dict[str, Code] = {}
    code = None
    for line in disassembled(folder, ["-arch", architecture, "-sass", path]).splitlines():
        if match := re.match(r"\s*Function : (\S+)", line):
            code = kernels.setdefault(match[1], Code())
        elif code and (match := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);", line)):
            code.add(match[1], match[2])
    usage = disassembled(folder, ["-arch", architecture, "-res-usage", path])
    for match in re.finditer(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)", usage):
        if match[1] in kernels:
            kernels[match[1]].counts.update(registers=int(match[2]), stack=int(match[3]))
    return kernels


Rows = list[tuple[str, dict[str, int]]]


def limits_of(path: str) -> dict[str, Rows]:
    """The rows of each architecture. Below a line `target sm_100` rows replace those of the same pattern for it alone."""
    common: Rows = []
    own: dict[str, dict[str, dict[str, int]]] = {architecture: {} for architecture in ARCHITECTURES}
    target = ""
    with open(path) as file:
        for line in file:
            words = line.split()
            if not words or line.startswith("#"):
                continue
            if words[0] == "target":
                target = words[1]
                continue
            row = dict(zip(COLUMNS, map(int, words[1:]), strict=True))
            if not target:
                common.append((words[0], row))
            elif words[0] in (pattern for pattern, _ in common):
                own[target][words[0]] = row
            else:
                sys.exit(f"{path}: {words[0]} of {target} replaces no row")
    return {architecture: [(pattern, own[architecture].get(pattern, row)) for pattern, row in common] for architecture in ARCHITECTURES}


def check(name: str, code: Code, limits: dict[str, int]) -> list[str]:
    wrong = []
    for column in COLUMNS:
        found, limit = code.counts[column], limits[column]
        if found < limit if column in AT_LEAST else found > limit:
            wrong.append(f"{name}: {column} {found}, {'at least' if column in AT_LEAST else 'at most'} {limit} in the list")
    return wrong


def main() -> int:
    arguments = sys.argv[1:]
    must_object = arguments[0] == "--must-object"
    limits_path, *objects = arguments[1:] if must_object else arguments
    folder = os.environ.get("WEFT_TEST_DISASSEMBLER", "")
    if not folder:
        print("skipped: WEFT_TEST_DISASSEMBLER names no folder with cuobjdump and nvdisasm (tools/cuda-disassembler)")
        return 77
    all_limits = limits_of(limits_path)
    wrong, checked = [], 0
    for architecture in ARCHITECTURES:
        kernels: dict[str, Code] = {}
        limits = all_limits[architecture]
        unused = {pattern for pattern, _ in limits}
        for path in objects:
            kernels.update(kernels_of(folder, path, architecture))
        for name, code in sorted(kernels.items()):
            pattern, limit = next(((each, limit) for each, limit in limits if fnmatch.fnmatch(name, each)), ("", {}))
            if not pattern:
                wrong.append(f"{architecture} {name}: no row of the list names it")
                continue
            unused.discard(pattern)
            wrong += [f"{architecture} {each}" for each in check(name, code, limit)]
            checked += 1
            if os.environ.get("WEFT_TEST_VERBOSE"):
                print(architecture, name, *(code.counts[column] for column in COLUMNS))
        if kernels:
            wrong += [f"{architecture} {pattern}: there is no such kernel" for pattern in sorted(unused)]
    if checked == 0:
        print(f"skipped: the objects have no code for {' or '.join(ARCHITECTURES)} (-Dgpu_targets)")
        return 77
    print(*wrong, f"{checked} kernels checked, {len(wrong)} objections", sep="\n")
    if must_object:
        # Size, registers and loads of each.
        return 0 if len(wrong) >= 3 * checked else 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
