#!/usr/bin/env python3
# count_tests.py [--broken=WHAT]... LOG...: counts test cases in meson's testlog.json files; the last line is
# "N passed, N failed". Programs of Catch2 and unittest count by their cases, others as one; a build that broke is one failure.
# Before it comes the end of what each failed program said: who keeps no more than the end of a long log has it there.
import json
import re
import sys


def cases(test):
    """(passed, failed) of one program, from its own summary and the way it ended."""
    output = test.get("stdout", "") + "\n" + test.get("stderr", "")
    passed, failed = (1, 0) if test["result"] in ("OK", "EXPECTEDFAIL") else (0, 1)
    if match := re.search(r"^All tests passed \(.* in (\d+) test cases?\)", output, re.M):
        passed = int(match.group(1))
    elif match := re.search(r"^test cases:\s*(\d+)((?:\s*\|\s*\d+ [a-z ]+)*)", output, re.M):
        counts = {word.strip(): int(count) for count, word in re.findall(r"(\d+) ([a-z ]+)", match.group(2))}
        passed = counts.get("passed", 0)
        failed = max(failed, counts.get("failed", 0))
    elif match := re.search(r"^Ran (\d+) tests? in ", output, re.M):
        bad = sum(int(count) for count in re.findall(r"(?:failures|errors|unexpected successes)=(\d+)", output))
        failed = max(failed, bad)
        passed = int(match.group(1)) - bad
    return passed, failed


def show(tests):
    lines = max(15, 120 // max(1, len(tests)))
    for test in tests:
        print(f"---- {test['name']} ({test['result']}) said last:")
        for stream in ("stdout", "stderr"):
            print("\n".join(test.get(stream, "").splitlines()[-lines:]))


def main():
    passed = failed = skipped = 0
    ends = []
    for argument in sys.argv[1:]:
        if argument.startswith("--broken="):
            print("failed:", argument[len("--broken=") :])
            failed += 1
            continue
        with open(argument) as log:
            for line in log:
                test = json.loads(line)
                if test["result"] == "SKIP":
                    skipped += 1
                    print("skipped:", test["name"])
                    continue
                more_passed, more_failed = cases(test)
                passed += more_passed
                failed += more_failed
                if more_failed:
                    ends.append(test)
                    print(f"failed: {test['name']} ({test['result']}), see {argument}")
    show(ends)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
