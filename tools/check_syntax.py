#!/usr/bin/env python3
# check_syntax.py BUILD: compiles each C and C++ source of a configured build folder by itself, without code generation.
# This finds sources that lack an include, and this compiler's warnings. The status is 0 if it accepts all sources.
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WITH_VALUE = {"-o", "-MQ", "-MF"}  # options for outputs, which are not made


def syntax_command(entry):
    words = iter(entry["arguments"] if "arguments" in entry else shlex.split(entry["command"]))
    command = []
    for word in words:
        if word in WITH_VALUE:
            next(words)
        elif word not in ("-c", "-MD") and not (not command and word.endswith("ccache")):
            command.append(word)
    return command + ["-fsyntax-only"]


def check(entry):
    done = subprocess.run(syntax_command(entry), cwd=entry["directory"], capture_output=True, text=True)
    return entry["file"], done.returncode, done.stdout + done.stderr


def main():
    build = Path(sys.argv[1])
    entries = [entry for entry in json.loads((build / "compile_commands.json").read_text())
               if Path(entry["file"]).suffix in (".c", ".cpp")]
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        for file, status, text in workers.map(check, entries):
            if status != 0:
                failed += 1
                print(f"{file}: status {status}\n{text}", flush=True)
    print(f"{len(entries)} sources, {failed} with errors")
    return 0 if entries and failed == 0 else 1


sys.exit(main())
