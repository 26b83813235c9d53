#!/usr/bin/env python3
# tidy.py ROOT: what no compiler and no formatter sees: includes against the arrows of src/README.md, include cycles, dead
# files, folders that no build enters, missing test twins, getenv and environ outside src/base, files without a head comment. Prints one line for each objection; exits 1 if there is one.
import re
import sys
from pathlib import Path

CODE = {".c", ".cpp", ".h", ".hpp", ".def", ".cu", ".cuh", ".inc"}
UNITS = {".c", ".cpp", ".cu"}
TOP_ROOMS = ["include", "src", "algorithms", "transports", "topology", "perf", "tools", "tests", "examples"]
LONG = 500  # lines; above it a file usually has a second noun


class Arrows:
    """Who may include whom: the ```arrows block of src/README.md."""

    def __init__(self, text):
        block = re.search(r"```arrows\n(.*?)```", text, re.S)
        if not block:
            raise ValueError("src/README.md has no ```arrows block")
        self.allowed = {}
        for line in block.group(1).splitlines():
            if not line.strip():
                continue
            rooms, colon, targets = line.partition(":")
            if not colon:
                raise ValueError(f"src/README.md: an arrow without a colon: {line.strip()}")
            for room in rooms.split():
                self.allowed[room] = set(targets.split())

    def room_of(self, path):
        parts = path.split("/")
        if parts[0] == "include":
            return "include/weft"
        if parts[0] == "src":
            if len(parts) > 3 and "/".join(parts[1:3]) in self.allowed:
                return "/".join(parts[1:3])
            return parts[1] if len(parts) > 2 else parts[1].split(".")[0]
        for depth in (2, 1):
            room = "/".join(parts[:depth])
            if len(parts) > depth and room in self.allowed:
                return room
        return parts[0]

    def objection(self, source, target):
        """Why `source` may not include `target`; None if it may."""
        room, other = self.room_of(source), self.room_of(target)
        if room == other or target == "include/weft/types.h":
            return None
        if room == "include/weft":
            return "public headers include public headers only"
        if room == "base":
            return "base includes nothing but itself"
        if room not in self.allowed:
            return f"{room} has no arrow in src/README.md"
        allowed = self.allowed[room]
        if "everything" in allowed or other in allowed or target in allowed:
            return None
        if "include/weft" in allowed:
            return "a client sees include/weft and what its arrow names"
        if other == "base" or (room == "api" and other == "include/weft"):
            return None
        return f"no arrow from {room} to {other}"


class Tree:
    def __init__(self, root):
        self.root = Path(root)
        self.files = sorted(
            str(path.relative_to(self.root))
            for top in TOP_ROOMS
            for path in self.root.glob(top + "/**/*")
            if path.is_file() and path.suffix in CODE
        )
        self.known = set(self.files)
        self.text = {file: (self.root / file).read_text(errors="replace") for file in self.files}
        self.includes = {file: self._includes(file) for file in self.files}

    def _includes(self, file):
        """(line number, name, the file it names or None) of each include that may be of this project."""
        found = []
        for number, line in enumerate(self.text[file].splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
            if not match:
                continue
            name = match.group(2)
            beside = str((self.root / file).parent.joinpath(name).resolve())
            candidates = [name, "include/" + name]
            if match.group(1) == '"' and beside.startswith(str(self.root.resolve()) + "/"):
                candidates.insert(0, beside[len(str(self.root.resolve())) + 1 :])
            target = next((candidate for candidate in candidates if candidate in self.known), None)
            if target or match.group(1) == '"':
                found.append((number, name, target))
        return found


def check_arrows(tree, arrows):
    for file, includes in tree.includes.items():
        for number, name, target in includes:
            if target is None:
                yield f"{file}:{number}: includes \"{name}\", which is not in the tree"
                continue
            objection = arrows.objection(file, target)
            if objection:
                yield f"{file}:{number}: includes {target}: {objection}"


def check_cycles(tree):
    state, path = {}, []

    def visit(file):
        state[file] = "open"
        path.append(file)
        for _, _, target in tree.includes[file]:
            if target and state.get(target) == "open":
                yield f"{target}: include cycle: {' -> '.join(path[path.index(target):] + [target])}"
            elif target and target not in state:
                yield from visit(target)
        path.pop()
        state[file] = "closed"

    for file in tree.files:
        if file not in state:
            yield from visit(file)


def meson_names(text):
    """A pattern for each file name a meson.build mentions, also for those it puts together: name + '_test.c', '@0@.c'."""
    text = re.sub(r"(?m)^\s*#.*$", "", text)
    for joined in re.findall(r"(?:[\w.]+(?:\(\))?\s*\+\s*)?'[^'\n]*'(?:\s*\+\s*(?:'[^'\n]*'|[\w.]+(?:\(\))?))*", text):
        pieces = re.findall(r"'([^'\n]*)'|([\w.]+)", joined)
        name = "".join(re.escape(quoted) if not word else ".+" for quoted, word in pieces)
        yield re.sub(r"@\w+@", ".+", name)


def scripts_beside(path):
    """The text of the scripts in its folder: they may build it too."""
    beside = (each for each in path.parent.iterdir() if each.is_file() and each.suffix in ("", ".sh", ".py"))
    return "\n".join(each.read_text(errors="replace") for each in beside)


def check_dead(tree):
    mentioned = []
    for path in tree.root.glob("**/meson.build"):
        folder = str(path.parent.relative_to(tree.root))
        if folder.split("/")[0].startswith(("build", ".")) and folder != ".":
            continue
        prefix = "" if folder == "." else re.escape(folder + "/")
        mentioned += [prefix + name for name in meson_names(path.read_text())]
    built = re.compile("|".join(f"(?:{name})" for name in mentioned) or "(?!)")
    included = {target for includes in tree.includes.values() for _, _, target in includes}
    for file in tree.files:
        if file in included or built.fullmatch(file):
            continue
        if re.search(rf"\b{re.escape(Path(file).name)}\b", scripts_beside(tree.root / file)):
            continue
        what = "in no meson.build" if Path(file).suffix in UNITS else "included by nothing and in no meson.build"
        yield f"{file}: dead: {what}"


def check_entered(tree):
    """A meson.build that no other one names is never read, and its tests never run."""
    folders = {str(path.parent.relative_to(tree.root)): path.read_text() for path in tree.root.glob("**/meson.build")}
    folders = {folder: text for folder, text in folders.items() if not folder.startswith(("build", "."))}
    if not (tree.root / "meson.build").exists():
        return
    folders["."] = (tree.root / "meson.build").read_text()
    for folder in sorted(set(folders) - {"."}):
        above = Path(folder).parents
        if not any(f"'{Path(folder).relative_to(up)}'" in folders.get(str(up), "") for up in above):
            yield f"{folder}/meson.build: never entered: name its folder in the meson.build above it"


# Rooms that only whole ranks can test, and the folder of these tests.
TESTED_BY_RANKS = {"calls": "comm", "p2p": "comm", "peer_access": "executor", "rma": "comm", "streams": "c_api"}


def check_twins(tree):
    """What is tested by the look of it: rooms that have tests of their name or that a test looks into, golden texts."""
    seen = {target for file in tree.files if file.startswith("tests/") for _, _, target in tree.includes[file] if target}
    rooms = {}
    for file in tree.files:
        parts = file.split("/")
        if parts[0] == "src" and len(parts) > 2 and Path(file).suffix in (".h", ".hpp", ".cuh"):
            rooms.setdefault(parts[1], []).append(file)
    for room, headers in rooms.items():
        folder = TESTED_BY_RANKS.get(room, room)
        named = any(file.startswith((f"tests/{folder}/", f"tests/c_{folder}/")) for file in tree.files)
        if not named and not seen.intersection(headers):
            yield f"src/{room}: no test twin: no folder tests/{room}, and nothing in tests/ includes a header of it"

    golden = {path.name for path in (tree.root / "tests/schedules").glob("*.txt")}
    rows = re.findall(r'\{"(\w+)",\s*Collective::(\w+)', tree.text.get("src/registry.cpp", ""))
    for name, collective in rows:
        if not any(re.fullmatch(rf"{name}_{collective}_\d\w*\.txt", text) for text in golden):
            yield f"src/registry.cpp: {name} has no golden text tests/schedules/{name}_{collective}_N.txt"
    tests = "\n".join(text for file, text in tree.text.items() if file.startswith("tests/"))
    for text in sorted(golden):
        if f'"{text}"' not in tests:
            yield f"tests/schedules/{text}: no test compares a schedule with it"


def check_getenv(tree):
    for file, text in tree.text.items():
        if file.startswith(("src/base/", "tests/")):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0]
            found = re.search(r"\b(?:secure_getenv|getenv)(?=\s*\()|\b(?:__)?environ\b", code)
            if found:
                yield (f"{file}:{number}: {found.segment()} outside src/base: add a row to src/base/options.def, "
                       "or pass on base's whole_environment()")


# Calls that make a descriptor, by a name that nothing else has; `open` and `socket` are also names of Weft's own.
MAKERS = re.compile(
    r"(?<![\w.>:])(?:::\s*)?(?:accept4?|openat|creat|memfd_create|shm_open|epoll_create1?|eventfd|timerfd_create|signalfd"
    r"|inotify_init1?|pidfd_open|userfaultfd|socketpair|pipe2?|dup[23]?|mkstemp|mkostemp|tmpfile|fopen|freopen|popen|opendir)\s*\("
    r"|(?<![\w.>:])(?:::\s*)?open\s*\([^;]*\bO_[A-Z]|(?<!\w)::\s*open\s*\("
    r"|(?<![\w.>:])(?<!Fd )(?<!int )(?:::\s*)?socket\s*\((?!int\b)"
    r"|\bF_DUPFD|\bstd::[io]?fstream\b")


def check_descriptors(tree):
    """The library's descriptors are all made by Fd, which keeps them above 2 and raises the limit."""
    for file, text in tree.text.items():
        if not file.startswith(("src/", "topology/", "transports/", "algorithms/")) or file in ("src/base/fd.cpp", "src/base/fd.hpp"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0]
            found = None if code.lstrip().startswith("#") else MAKERS.search(code)
            if found:
                yield f"{file}:{number}: {found.segment().strip()} makes a descriptor: use Fd (src/base/fd.hpp)"


def check_printing(tree):
    """fmt::print throws where a disk is full."""
    for file, text in tree.text.items():
        if not file.startswith(("src/", "topology/", "transports/", "algorithms/", "tools/", "perf/")):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0]
            found = re.search(r"\bfmt::(?:v?print|println)(?=\s*\()|\bstd::(?:cout|cerr)\b", code)
            if found:
                yield f"{file}:{number}: {found.segment()} does not check its output: use src/base/printing.hpp"


def check_heads(tree):
    for file, text in tree.text.items():
        # A unit with a header of its own says there what it is for.
        twin = any(str(Path(file).with_suffix(suffix)) in tree.known for suffix in (".hpp", ".h", ".cuh"))
        if Path(file).suffix in UNITS and twin:
            continue
        if not re.match(r"\s*(//|/\*)", text):
            yield f"{file}: no head comment: say what the file is for"


def long_files(tree):
    for file, text in tree.text.items():
        lines = text.count("\n")
        if lines > LONG:
            yield f"{file}: {lines} lines: is there a second noun in it?"


def objections(root):
    tree = Tree(root)
    arrows = Arrows((tree.root / "src/README.md").read_text())
    found = []
    for check in (lambda: check_arrows(tree, arrows), *(lambda c=c: c(tree) for c in
                  (check_cycles, check_dead, check_entered, check_twins, check_getenv, check_descriptors, check_printing, check_heads))):
        found += check()
    return tree, found


def main():
    tree, found = objections(sys.argv[1])
    for line in found:
        print(line)
    for line in long_files(tree):
        print("warning:", line)
    print(f"tidy: {len(tree.files)} files, {len(found)} objections")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
