#!/usr/bin/env python3
# options_doc.py OPTIONS_DEF [--log] [--check DOCUMENT]: writes docs/reference/options.md from src/base/options.def.
# With --log it writes docs/reference/log.md from log_category.def in the same folder.
# With --check it reports whether the document is current.
import re
import sys
import textwrap
from pathlib import Path

sys.dont_write_bytecode = True
import checked_output

HEAD = """# Options

After reading this page you know every environment variable that Weft reads.
`weft info` shows each with its value and origin.
A misspelt name is a warning.
A value that is no number or out of range fails `weftCommInitRank`.

This page is generated from `src/base/options.def`:
`tools/options_doc.py src/base/options.def > docs/reference/options.md`."""
ALIASES = """
These variables of NCCL and UCX are read, each if Weft's own is unset.

```
{}
```

All others are ignored, also `NCCL_ALGO` and `NCCL_PROTO`.

- If Weft cannot use a value of theirs, a warning names it and the default applies.
  One case is an error: `NCCL_SOCKET_IFNAME` selects no interface, and the job has several hosts.
- `NCCL_GRAPH_FILE` and `NCCL_COMM_ID` cause a warning: Weft reads neither.
- A variable of Weft's that is set but empty hides theirs."""
LOG_HEAD = """# Log

After reading this page you can turn on the log and read its lines.

| variable | |
|---|---|
| `WEFT_DEBUG` | the level; also `NCCL_DEBUG` |
| `WEFT_DEBUG_SUBSYS` | the categories; also `NCCL_DEBUG_SUBSYS` |
| `WEFT_DEBUG_FILE` | a file to append to, `%h` is the host and `%p` the process; also `NCCL_DEBUG_FILE` |

## Levels

Each level includes those above it.

| level | shows |
|---|---|
| `NONE` | nothing |
| `VERSION` | one line a process: version, transports, kernels |
| `WARN` | what is wrong or slow, with a remedy; without `WEFT_DEBUG` warnings are shown alone |
| `INFO` | what was chosen and why, once for each new kind of call |
| `TRACE` | why other choices are out |

## Categories

`WEFT_DEBUG_SUBSYS` selects categories at INFO and TRACE; warnings are always shown.
A list replaces the default: `COLL` shows that category alone, `^NET` all others, `ALL` everything.

| category | shown by default | |
|---|---|---|"""
LOG_TAIL = """
## Lines

A line begins with host, process, thread and rank, and is written by one system call.
No line has a `=`: a double click selects a value.

```
$ WEFT_DEBUG=INFO weft run -n 2 ./sharded_training
node1:28695:28695 [0] WEFT INFO rank 0 of 2, started by weft run
node1:28695:28695 [0] WEFT INFO all_gather of 8 float (64 bytes) on 2 ranks: one_shot over shm, 0.12 us predicted; halving_doubling 0.22 us, all_pairs 0.22 us, pat 0.22 us, ring 0.22 us
```

The second line names the call, the algorithm and transport chosen, and the predicted times of the
others.
A warning or error ends with an [error id](errors.md) in brackets."""
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


def log_document(categories):
    return "\n".join([LOG_HEAD, *categories_of(categories), LOG_TAIL]) + "\n"


def document(source):
    aliases = {}
    for name, variable in re.findall(r"^WEFT_OPTION_ALIAS\(\s*(\w+),\s*(\w+)\s*\)", source, re.M):
        aliases.setdefault(name, []).append(variable)
    lines = [HEAD]
    names = " ".join(variable for variables in aliases.values() for variable in variables)
    lines.append(ALIASES.format(textwrap.fill(names, 98)))
    table = False
    # A section comment directly before rows, or a row.
    token = re.compile(r'^//\s*(?P<title>[^\n]+)\n(?=WEFT_)|^WEFT_(?P<kind>TEXT_|SECRET_)?OPTION\((?P<row>(?:"(?:[^"\\]|\\.)*"|[^")])*)\)', re.M)
    for match in token.finditer(source):
        if match.group("title"):
            # Only the last line of a comment block is directly before a row. A block of several lines is no title.
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
    return "\n".join(lines) + "\n"


def main():
    arguments = sys.argv[1:]
    options = Path(arguments.pop(0))
    log = " --log" if "--log" in arguments else ""
    source = options.with_name("log_category.def") if log else options
    made = log_document(source.read_text()) if log else document(source.read_text())
    if "--check" not in arguments:
        sys.stdout.write(made)
        return 0
    page = arguments[arguments.index("--check") + 1]
    with open(page) as file:
        if file.read() == made:
            return 0
    print(f"{page} does not fit {source}: run tools/options_doc.py {options}{log} > {page}")
    return 1


if __name__ == "__main__":
    checked_output.run(main)
