#!/usr/bin/env python3
"""tidy.py: checks that no compiler and no formatter makes.

usage: tidy.py ROOT                        prints a line for each objection; exits 1 if there is one
       tidy.py ROOT --shrink               lowers the counts of known.txt to what is left
       tidy.py ROOT --record               writes known.txt anew, if a review has agreed to more
       tidy.py ROOT --show RULE [FILE]     prints where a rule of prose is broken
       tidy.py ROOT --commits              checks the subjects of the commits after COMMITS_AFTER; exits 77 without history

Checked here: includes against the arrows of src/README.md, include cycles, dead files, folders that no build enters, missing test
twins. Also: getenv and environ outside src/base, descriptors not made by Fd, unchecked output, missing head comments, random_device,
local functions of one name in two sources.
structure.py checks cycles and sizes of units, classes and folders. prose.py checks the language. For both, known.txt lists today's
offenders. A count above its entry is an objection, and so is an entry that is too high. Counts of lines may fall behind.
"""
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import prose
import structure

CODE = {".c", ".cpp", ".h", ".hpp", ".def", ".cu", ".cuh", ".inc"}
UNITS = {".c", ".cpp", ".cu"}
TOP_ROOMS = ["include", "src", "algorithms", "transports", "topology", "perf", "tools", "tests", "examples", "python"]
LONG = 500  # lines; above it a file usually has a second noun
COMMITS_AFTER = "654b6a32994ea8f1b362b5a46c345ac9e09699c9"
SUBJECT_MOST = 72


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
    rows = re.findall(r"^WEFT_ALGORITHM\((\w+), (\w+),", tree.text.get("algorithms/algorithms.def", ""), re.M)
    for name, collective in rows:
        if not any(re.fullmatch(rf"{name}_{collective}_\d\w*\.txt", text) for text in golden):
            yield f"algorithms/algorithms.def: {name} has no golden text tests/schedules/{name}_{collective}_N.txt"
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
                yield (f"{file}:{number}: {found.group()} outside src/base: add a row to src/base/options.def, "
                       "or pass on base's whole_environment()")


def check_seeds(tree):
    """A test draws from the seed that it prints, so that WEFT_TEST_SEED repeats it."""
    for file, text in tree.text.items():
        if not file.startswith("tests/") or file == "tests/amount.hpp":
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(r"\brandom_device\b", line.split("//")[0]):
                yield f"{file}:{number}: random_device: draw from seed() of tests/amount.hpp"


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
                yield f"{file}:{number}: {found.group().strip()} makes a descriptor: use Fd (src/base/fd.hpp)"


def check_printing(tree):
    """fmt::print throws where a disk is full."""
    for file, text in tree.text.items():
        if not file.startswith(("src/", "topology/", "transports/", "algorithms/", "tools/", "perf/")):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//")[0]
            found = re.search(r"\bfmt::(?:v?print|println)(?=\s*\()|\bstd::(?:cout|cerr)\b", code)
            if found:
                yield f"{file}:{number}: {found.group()} does not check its output: use src/base/printing.hpp"


def check_ranges(tree):
    """A loop over a member of the object of a smart pointer that a call returned: the pointer dies before the first turn."""
    for file, text in tree.text.items():
        if Path(file).suffix not in UNITS | {".hpp", ".cuh"}:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(r"\bfor \([^;]*[^:]:(?!:)\s*(?:\w+::)*\w+\([^;]*\)->\w+\)", line.split("//")[0]):
                yield f"{file}:{number}: a loop over a member behind a temporary pointer: name the pointer before the loop"


LOCAL_FUNCTION = re.compile(r"(?:template[^>]*> )?(?:static |inline |constexpr |\[\[\w+\]\] )*[\w:<>,&*\s]+?[\s&*](\w+)\(")


def local_functions(text):
    """The functions in anonymous namespaces, each with the name of its enclosing namespace. The code is formatted."""
    inside = []
    for line in text.splitlines():
        if opened := re.match(r"namespace ([\w:]*) ?\{$", line):
            inside.append(opened[1])
        elif re.match(r"\}\s+// namespace", line) and inside:
            inside.pop()
        elif "" in inside and re.match(r"[\w\[]", line) and (found := LOCAL_FUNCTION.match(line)):
            yield "::".join(filter(None, inside)), found[1]


def check_local_names(tree):
    """In a unity build equal names of two sources are overloads, and the order of files can decide which one is called."""
    first = {}
    for file, text in tree.text.items():
        if not file.startswith(("src/", "topology/", "transports/", "algorithms/", "tools/")) or Path(file).suffix != ".cpp":
            continue
        for key in sorted(set(local_functions(text))):
            other = first.setdefault((file.startswith("tools/"), file.startswith("src/nccl/"), *key), file)
            if other != file:
                yield f"{file}: the local function {key[1]} is one of {other}, too: name one anew, since unity builds join them"


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


# Prose: Markdown, and comments of code, scripts and builds.
PROSE = structure.LIBRARY + ("include/", "perf/", "tools/", "tests/", "examples/", "docs/", "python/")
GENERATED = ("docs/options.md", "docs/reference/", "tests/tidy/known.txt", "tests/tidy/retired.txt", "perf/results/", "CHANGELOG.md")


def prose_files(root):
    for path in sorted([*root.glob("*.md"), *root.glob("meson*"), *(each for top in {top.split("/")[0] for top in PROSE} for each in root.glob(top + "/**/*"))]):
        name = str(path.relative_to(root))
        suffixes = {".md"} | prose.COMMENTED_BY_SLASHES | (prose.COMMENTED_BY_HASH - {".txt"})
        if path.is_file() and path.suffix in suffixes and not name.startswith(GENERATED) and "__pycache__" not in name:
            yield name, path


def prose_findings(root):
    """(rule, file, line, what) of all files."""
    list_of_terms = Path(__file__).with_name("retired.txt")
    own = root / "tests/tidy/retired.txt"
    retired = prose.retired_terms((own if own.exists() else list_of_terms).read_text())
    for name, path in prose_files(root):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path.suffix == "" and not text.startswith("#!"):
            continue
        for rule, number, what in prose.findings(path.suffix, text, retired):
            yield rule, name, number, what


def counted(tree):
    """{(rule, what): how much}, of structure and prose."""
    found = {(rule, what): amount for rule, what, amount in structure.findings(tree)}
    for rule, name, _, _ in prose_findings(tree.root):
        found[rule, name] = found.get((rule, name), 0) + 1
    return found


def read_known(path):
    known = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        if line and not line.startswith("#"):
            rule, what, amount = line.split()
            known[rule, what] = int(amount)
    return known


def write_known(path, known):
    head = "# known.txt: what tidy.py finds and does not object to: rule, file or name, how much. It may only shrink (tidy.py --shrink).\n"
    path.write_text(head + "".join(f"{rule} {what} {amount}\n" for (rule, what), amount in sorted(known.items())))


def check_known(tree):
    known, found = read_known(tree.root / "tests/tidy/known.txt"), counted(tree)
    for rule, what in sorted(found.keys() | known.keys()):
        now, then = found.get((rule, what), 0), known.get((rule, what), 0)
        if now > then:
            yield f"{what}: {rule}: {now}, {then} known: {REMEDIES[rule]}"
        elif now < then and (now == 0 or not rule.endswith("-lines")):  # an entry need not follow each line that goes
            yield f"{what}: {rule}: {now}, {then} known: run tests/tidy/tidy.py . --shrink"


REMEDIES = {
    "unit-cycle": "a header and its source include another unit that includes them",
    "unit-lines": f"header and source have more than {structure.UNIT_LINES_MOST} lines: is there a second noun?",
    "folder-lines": f"a folder has more than {structure.FOLDER_LINES_MOST} lines: does it have two captions?",
    "class-functions": f"more than {structure.PUBLIC_FUNCTIONS_MOST} public functions: these are several classes",
    "class-fields": f"more than {structure.FIELDS_MOST} fields: these are several classes",
    "class-sources": "a class is defined in more than one source file: these are several classes",
    "free-who": "name the subject in place of a free who or what (--show free-who FILE)",
    "long-sentence": f"a sentence has more than {prose.WORDS_MOST} words (--show long-sentence FILE)",
    "wide-line": f"a line has more than {prose.COLUMNS_MOST} columns (--show wide-line FILE)",
    "retired-term": "a term of tests/tidy/retired.txt (--show retired-term FILE)",
}


def subject_objection(subject):
    if len(subject) > SUBJECT_MOST:
        return f"{len(subject)} characters, {SUBJECT_MOST} at most"
    if not re.match(r"[\w./+-]+(?:, [\w./+-]+)*: \S", subject):
        return "begins with no area: `area: imperative summary`"
    if subject.endswith("."):
        return "ends with a full stop"
    return None


def commit_subjects(root, after):
    """(hash, subject) of the commits after one, None without it."""
    def git(*words):
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)

    if not (Path(root) / ".git").exists() or git("merge-base", "--is-ancestor", after, "HEAD").returncode != 0:
        return None
    log = git("log", "--no-merges", "--format=%h %s", f"{after}..HEAD")
    return [line.partition(" ")[::2] for line in log.stdout.splitlines()] if log.returncode == 0 else None


def check_commits(root):
    subjects = commit_subjects(root, COMMITS_AFTER)
    if subjects is None:
        print(f"skipped: there is no git history after {COMMITS_AFTER[:7]}")
        return 77
    wrong = [f"{commit} {subject}: {why}" for commit, subject in subjects if (why := subject_objection(subject))]
    print("\n".join([*wrong, f"tidy: {len(subjects)} commit subjects, {len(wrong)} objections"]))
    return 1 if wrong else 0


def objections(root):
    tree = Tree(root)
    arrows = Arrows((tree.root / "src/README.md").read_text())
    found = []
    for check in (lambda: check_arrows(tree, arrows), *(lambda c=c: c(tree) for c in
                  (check_cycles, check_dead, check_entered, check_twins, check_getenv, check_seeds, check_descriptors, check_printing, check_ranges, check_local_names,
                   check_heads,
                   check_known))):
        found += check()
    return tree, found


def main():
    root, arguments = Path(sys.argv[1]), sys.argv[2:]
    if arguments[:1] == ["--commits"]:
        return check_commits(root)
    if arguments[:1] == ["--show"]:
        for rule, name, number, what in prose_findings(root):
            if rule == arguments[1] and name in (arguments[2:] or [name]):
                print(f"{name}:{number}: {what[:200]}")
        return 0
    path = root / "tests/tidy/known.txt"
    if arguments[:1] in (["--shrink"], ["--record"]):
        found, known = counted(Tree(root)), read_known(path)
        if arguments[0] == "--shrink":
            found = {key: min(amount, known[key]) for key, amount in found.items() if key in known}
        write_known(path, found)
        print(f"tidy: {len(found)} entries in {path}, {len(known)} before")
        return 0
    tree, found = objections(root)
    for line in found:
        print(line)
    for line in long_files(tree):
        print("warning:", line)
    print(f"tidy: {len(tree.files)} files, {len(found)} objections")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
