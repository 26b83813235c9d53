#!/usr/bin/env python3
# count_tests.py [--broken=WHAT]... [--skipped=WHAT]... LOG...: counts test cases in meson's testlog.json files.
# The last line is "N passed, N failed". Programs of Catch2 and unittest count by their cases, others as one test.
# A build that broke is one failure. Skipped suites and cases are named; they are neither passed nor failed.
# The line before it adds up the retries of tests with a time limit. More than 2 % are a failure (tests/patience.hpp).
# Before these lines come the last lines of failed programs, then the reasons: the end of a long log keeps them.
import json
import re
import sys

sys.dont_write_bytecode = True
import checked_output


def cases(test):
    """(passed, failed, skipped) of one program, from its own summary and the way it ended."""
    output = test.get("stdout", "") + "\n" + test.get("stderr", "")
    passed, failed = (1, 0) if test["result"] in ("OK", "EXPECTEDFAIL") else (0, 1)
    skipped = 0
    if match := re.search(r"^All tests passed \(.* in (\d+) test cases?\)", output, re.M):
        passed = int(match.group(1))
    elif match := re.search(r"^test cases:\s*(\d+)((?:\s*\|\s*\d+ [a-z ]+)*)", output, re.M):
        counts = {word.strip(): int(count) for count, word in re.findall(r"(\d+) ([a-z ]+)", match.group(2))}
        passed = counts.get("passed", 0)
        failed = max(failed, counts.get("failed", 0))
    elif match := re.search(r"^Ran (\d+) tests? in ", output, re.M):
        bad = sum(int(count) for count in re.findall(r"(?:failures|errors|unexpected successes)=(\d+)", output))
        failed = max(failed, bad)
        if match_skipped := re.search(r"^(?:OK|FAILED) \(.*?skipped=(\d+)", output, re.M):
            skipped = int(match_skipped.group(1))
        passed = int(match.group(1)) - bad - skipped
    return passed, failed, skipped


RETRIES_PERCENT = 2
RETRIES_ALWAYS = 2  # for a small number of tests, one retry is more than 2 %

# The lines in which Catch2, unittest and the sanitizers report an error, and the lines that end such a report.
REASON = re.compile(r": FAILED:?$|^(FAIL|ERROR): |(Address|Thread|Leak)Sanitizer: |: runtime error: |^terminate called|libFuzzer: ")
RULE = re.compile(r"^([-=])\1{60,}$")
BEFORE, AFTER = 12, 30  # lines of one reason, at most


def reasons(lines):
    """The passages of a program's output that say why it failed: a case's name, what was expected, what was found."""
    kept = []
    for at, line in enumerate(lines):
        if not REASON.search(line) or (kept and at < kept[-1][1]):
            continue
        first = at
        rules = 0
        while first > 0 and at - first < BEFORE and rules < 2:  # Catch2 prints a rule below the case's name
            first -= 1
            rules += bool(RULE.match(lines[first]))
        if rules < 2:
            first = at
        last = at + 1
        while last < len(lines) and last - at < AFTER and not RULE.match(lines[last]):
            last += 1
        kept.append((max(first, kept[-1][1] if kept else 0), last))
    return [line for first, last in kept for line in lines[first:last]]


def show(tests):
    """The reasons come last: what a program logs beside them may be long."""
    budget = 160 // max(1, len(tests))
    why = []
    for test in tests:
        outputs = [test.get(stream, "").splitlines() for stream in ("stderr", "stdout")]
        told = [line for lines in outputs for line in reasons(lines)][:budget]
        if told:
            why += [f"---- {test['name']} ({test['result']}): why", *told]
        rest = max(5, (budget - len(told)) // 4)
        print(f"---- {test['name']} ({test['result']}) said last:")
        for lines in outputs:
            print("\n".join(line[:400] for line in lines[-rest:]))
    if why:
        print("\n".join(line[:400] for line in why))


def retries(test):
    """(tests with a time limit, retries) of one program: tests/patience.hpp prints a line for each process."""
    found = re.findall(r"^time limits: (\d+) tests, (\d+) retries$", test.get("stdout", "") + "\n" + test.get("stderr", ""), re.M)
    return sum(int(tests) for tests, _ in found), sum(int(again) for _, again in found)


def main():
    passed = failed = limited = retried = 0
    ends = []
    for argument in sys.argv[1:]:
        if argument.startswith("--broken="):
            print("failed:", argument[len("--broken=") :])
            failed += 1
            continue
        if argument.startswith("--skipped="):
            print("skipped:", argument[len("--skipped=") :])
            continue
        with open(argument) as log:
            for line in log:
                test = json.loads(line)
                if test["result"] == "SKIP":
                    print("skipped:", test["name"])
                    continue
                more_limited, more_retried = retries(test)
                limited += more_limited
                retried += more_retried
                if more_retried:
                    print(f"retries: {more_retried} of {more_limited} in {test['name']}")
                more_passed, more_failed, skipped = cases(test)
                if skipped:
                    print(f"skipped: {skipped} cases of {test['name']}")
                passed += more_passed
                failed += more_failed
                if more_failed:
                    ends.append(test)
                    print(f"failed: {test['name']} ({test['result']}), see {argument}")
    show(ends)
    if limited:
        print(f"{retried} retries in {limited} tests with a time limit")
    if retried > max(RETRIES_ALWAYS, limited * RETRIES_PERCENT // 100):
        print(f"failed: more than {RETRIES_PERCENT} % of the tests with a time limit ran again")
        failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    checked_output.run(main)
