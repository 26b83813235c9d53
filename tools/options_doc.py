#!/usr/bin/env python3
# options_doc.py OPTIONS_DEF [--check DOCUMENT]: docs/options.md from src/base/options.def and log_category.def beside it;
# --check says whether it still fits.
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import checked_output

HEAD = """# Options

Every option is an environment variable. `weft info` shows each with its value and where that came from. A misspelt name is a
warning, a value that is no number or out of range is an error when a communicator is made.

This page is made from `src/base/options.def` and `log_category.def`: `tools/options_doc.py src/base/options.def > docs/options.md`."""
ALIASES = """
Of NCCL's variables these are read, each where Weft's own is unset: {}. No other `NCCL_` variable is: `NCCL_ALGO` and
`NCCL_PROTO`, say, whose words are not Weft's, do nothing.

If Weft cannot use a value of NCCL's variables, a warning names the variable.
The option then has its default.
`NCCL_GRAPH_FILE` is a warning too: Weft reads no graph file in a job.
The exception is `NCCL_SOCKET_IFNAME`: if it chooses no interface, jobs of several hosts fail.
A variable of Weft's that is set but empty hides NCCL's.
`WEFT_TOPO_FILE=` means no file, whatever `NCCL_TOPO_FILE` says."""
CATEGORIES = """
## Log categories

What `WEFT_DEBUG_SUBSYS` chooses among at INFO and TRACE; warnings are shown whatever their category. A list replaces what
is shown unless asked: `COLL` shows those lines alone, `^NET` all but those.

| category | shown unless asked | |
|---|---|---|"""
EXAMPLE = """
`WEFT_DEBUG=INFO weft run -n 2 ./sharded_training` (an example) says among others; host, process, thread and rank stand first:

```
node1:28695:28695 [0] WEFT INFO all_gather of 8 float (64 bytes) on 2 ranks: one_shot over shm, 0.12 us predicted; halving_doubling 0.22 us, all_pairs 0.22 us, pat 0.22 us, ring 0.22 us
```"""
LIMITS = {"INT_MAX", "INT64_MAX"}


def text_of(literals):
    """The text of adjacent C string literals."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals))


def number(word):
    return word.replace("'", "")


def categories_of(source):
    """A line for each category, in the order of the rows."""
    rows = re.findall(r'^WEFT_LOG_CATEGORY\((\w+),\s*(true|false),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)', source, re.M)
    if not rows or len(rows) != len(re.findall(r"^WEFT_LOG_CATEGORY\(", source, re.M)):
        raise ValueError("a row of log_category.def is not understood")
    return [f"| `{name.upper()}` | {'yes' if shown == 'true' else 'no'} | {text_of(help_text)} |" for name, shown, help_text in rows]


def document(source, categories):
    aliases = {}
    for name, variable in re.findall(r"^WEFT_OPTION_ALIAS\(\s*(\w+),\s*(\w+)\s*\)", source, re.M):
        aliases.setdefault(name, []).append(variable)
    lines = [HEAD]
    lines.append(ALIASES.format(", ".join(f"`{variable}`" for variables in aliases.values() for variable in variables)))
    table = False
    # A section comment directly before rows, or a row.
    token = re.compile(r'^//\s*(?P<title>[^\n]+)\n(?=WEFT_)|^WEFT_(?P<kind>TEXT_|SECRET_)?OPTION\((?P<row>(?:"(?:[^"\\]|\\.)*"|[^")])*)\)', re.M)
    for match in token.finditer(source):
        if match.group("title"):
            # Only the last line of a comment block stands directly before a row; a block that explains is no title.
            if not source[: match.start()].rstrip(" ").endswith("\n\n"):
                continue
            lines += ["", f"## {match.group('title')}", ""]
            table = False
            continue
        if not table:
            lines += ["| variable | default | range | |", "|---|---|---|---|"]
            table = True
        head, quote, literals = match.group("row").partition('"')
        fields = [field.strip() for field in head.split(",")]
        name = fields[0]
        if match.group("kind"):
            standard, _, literals = literals.partition('"')
            default, limits = standard or "unset", "text"
        else:
            standard, least, most = (number(field) for field in fields[2:5])
            unset = standard.lstrip("-").isdigit() and least.isdigit() and int(standard) < int(least)
            default = "unset" if unset else standard
            limits = f"{least} and more" if most in LIMITS else f"{least} to {most}"
            literals = quote + literals
        help_text = text_of(literals)
        if name in aliases:
            help_text += " Also read as " + ", ".join(f"`{variable}`" for variable in aliases[name]) + "."
        lines.append(f"| `WEFT_{name.upper()}` | {default} | {limits} | {help_text} |")
    rows = len(re.findall(r"^WEFT_(?:TEXT_|SECRET_)?OPTION\(", source, re.M))
    if rows != sum(line.startswith("| `WEFT_") for line in lines):
        raise ValueError("a row of options.def is not understood")
    return "\n".join([*lines, CATEGORIES, *categories_of(categories), EXAMPLE]) + "\n"


def main():
    options = Path(sys.argv[1])
    made = document(options.read_text(), options.with_name("log_category.def").read_text())
    if len(sys.argv) < 4 or sys.argv[2] != "--check":
        sys.stdout.write(made)
        return 0
    with open(sys.argv[3]) as file:
        if file.read() == made:
            return 0
    print(f"{sys.argv[3]} does not fit {sys.argv[1]}: run tools/options_doc.py {sys.argv[1]} > {sys.argv[3]}")
    return 1


if __name__ == "__main__":
    checked_output.run(main)
