#!/usr/bin/env python3
# error_sentences.py ROOT [--check]: writes one sentence for each error id to tests/base/error_sentences.txt.
# The sentence is the format string of the id's first site, so that changes of wording are reviewed as a diff.
# With --check it reports whether the file is current, and ids without sites and sites without ids.
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import checked_output

FOLDERS = ["src", "transports", "algorithms", "topology", "tools"]
RESULTS = "UnhandledCudaError|SystemError|InternalError|InvalidArgument|InvalidUsage|RemoteError|Timeout|Mismatch"
LITERALS = r'(?:"(?:[^"\\]|\\.)*"\s*)+'


def ids_of(rows):
    """{name: id} in the order of the rows of error.def."""
    found = re.findall(r'^WEFT_ERROR\(\s*(\w+),\s*"([^"]+)"', rows, re.M)
    if len(found) != len(re.findall(r"^WEFT_ERROR\(", rows, re.M)):
        raise ValueError("a row of error.def is not understood")
    return dict(found)


def without_comments(source):
    return re.sub(r"^\s*//[^\n]*", "", source, flags=re.M)


def sentence_at(source, place):
    """The first literal behind a site's id, within the statement; None if it is made elsewhere."""
    literals = re.match(r"[^;\"]*?(" + LITERALS + ")", source[place:], re.S)
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals.group(1))) if literals else None


def sites_of(source):
    """(name, sentence or None) of each place where an id is given."""
    source = without_comments(source)
    return [(match.group(1), sentence_at(source, match.end())) for match in re.finditer(r"\berror::(\w+)\b", source)]


def codes_of(source):
    """Sites that fail with a code in place of an id."""
    return re.findall(r"\b(?:fail|Status|raise)\(\s*(weft(?:" + RESULTS + r"))\s*,", without_comments(source))


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cpp", ".hpp"):
                yield path.relative_to(root).as_posix(), path.read_text()


def says_something(sentence):
    """Whether a format string has words of its own, and is not all places for others."""
    return sentence is not None and len(re.findall(r"\w+", re.sub(r"\{[^}]*\}", "", sentence))) >= 3


def document(ids, texts):
    """The golden text, and what is wrong: `texts` are (path, source)."""
    first, objections = {}, []
    for path, source in texts:
        for name, sentence in sites_of(source):
            if name not in ids:
                objections.append(f"{path}: error::{name} is no row of error.def")
            elif not says_something(first.get(name)):
                first[name] = sentence or first.get(name)
        objections += [f"{path}: a site fails with {code}, not with an id" for code in codes_of(source)]
    lines = []
    for name, identifier in ids.items():
        if name in first:
            lines.append(f"{identifier}: {first[name] or '(made of parts)'}")
        else:
            objections.append(f"{identifier} has no site")
    return "\n".join(lines) + "\n", objections


def main():
    root = Path(sys.argv[1])
    texts = [(path, source) for path, source in sources(root) if not re.match(r"src/base/(error|result)\.", path)]
    made, objections = document(ids_of((root / "src/base/error.def").read_text()), texts)
    golden = root / "tests/base/error_sentences.txt"
    if "--check" not in sys.argv:
        checked_output.write_text(golden, made)
    elif golden.read_text() != made:
        objections.append(f"{golden} is stale: run tools/error_sentences.py {sys.argv[1]} and review the difference")
    for objection in objections:
        print(objection)
    return 1 if objections else 0


if __name__ == "__main__":
    checked_output.run(main)
