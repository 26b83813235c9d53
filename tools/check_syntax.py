#!/usr/bin/env python3
# check_syntax.py BUILD [--without FOLDER] [--share N]: compiles each C and C++ source of a configured build folder by itself, without
# code generation. It finds sources that lack an include, and this compiler's warnings. FOLDER, a folder of the checkout,
# is left out. With --share, one source in N is compiled, drawn by WEFT_TEST_SEED, and each that the last 50 commits or the
# working tree change. The status is 0 if the compiler accepts all of these sources.
# Tests share a precompiled header of Catch2, which is most of what they parse.
import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
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


def once(entries):
    """The entries without those that compile a source again with the same macros for the same language."""
    found = {}
    for entry in entries:
        words = [word for word in syntax_command(entry) if word.startswith(("-D", "-U", "-std", "-m"))]
        found.setdefault((entry["file"], *words), entry)
    return list(found.values())


def changed_recently(top):
    """Absolute paths. None outside a git repository, where the drawn share must do."""
    names = ""
    for command in (["log", "-50", "--format=", "--name-only"], ["diff", "HEAD", "--name-only"]):
        names += subprocess.run(["git", "-C", top, *command], capture_output=True, text=True, check=False).stdout
    return {top / name for name in names.split("\n") if name}


def draw(entries, share):
    changed = changed_recently(TOP)
    seed = int(os.environ.get("WEFT_TEST_SEED") or random.SystemRandom().getrandbits(32))
    print(f"WEFT_TEST_SEED={seed} repeats the choice of sources")
    drawing = random.Random(seed)
    return [entry for entry in entries
            if drawing.randrange(share) == 0 or Path(entry["directory"], entry["file"]).resolve() in changed]


def is_test(entry):
    file = Path(entry["directory"], entry["file"])
    return file.suffix == ".cpp" and "tests" in file.parts and "catch2" not in file.read_text()


class Precompiled:
    """Catch2's header, compiled once for each set of options that a compiler compares."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.made = {}
        (self.folder / "catch.hpp").write_text("#include <catch2/catch.hpp>\n")

    def options(self, entry):
        command = syntax_command(entry)
        compared = tuple(word for word in command[1:] if word != "-fsyntax-only" and word.startswith(("-f", "-std", "-O", "-m", "-pthread", "-D_", "-g")))
        return command[0], *compared

    def make(self, options):
        header = self.folder / f"{len(self.made)}.pch"
        done = subprocess.run([*options, "-x", "c++-header", str(self.folder / "catch.hpp"), "-o", str(header)], check=False)
        self.made[options] = ["-include-pch", str(header)] if done.returncode == 0 else []


def check(entry, precompiled):
    done = subprocess.run(syntax_command(entry) + precompiled, cwd=entry["directory"], capture_output=True, text=True)
    if done.returncode != 0 and precompiled:
        return check(entry, [])  # a test that does not use Catch2
    return entry["file"], done.returncode, done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--without", type=Path, metavar="FOLDER")
    parser.add_argument("--share", type=int, default=1, metavar="N")
    chosen = parser.parse_args()
    if chosen.share < 1:
        parser.error(f"--share {chosen.share} is not a positive number")
    build = chosen.build
    entries = [entry for entry in json.loads((build / "compile_commands.json").read_text())
               if Path(entry["file"]).suffix in (".c", ".cpp")]
    if chosen.without:
        left_out = (TOP / chosen.without).resolve()
        if not left_out.is_dir():
            parser.error(f"{left_out} is no folder")
        entries = [entry for entry in entries if left_out not in Path(entry["directory"], entry["file"]).resolve().parents]
    entries = once(entries)
    if chosen.share > 1:
        entries = draw(entries, chosen.share)
    failed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as workers:
        catch = Precompiled(folder)
        of_entry = [catch.options(entry) if is_test(entry) else () for entry in entries]
        catch.made[()] = []
        for options in set(of_entry) - {()}:
            catch.make(options)
        for file, status, text in workers.map(check, entries, [catch.made[options] for options in of_entry]):
            if status != 0:
                failed += 1
                print(f"{file}: status {status}\n{text}", flush=True)
    print(f"{len(entries)} sources, {failed} with errors")
    return 0 if entries and failed == 0 else 1


sys.exit(main())
