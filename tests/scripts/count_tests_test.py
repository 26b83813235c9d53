#!/usr/bin/env python3
# tools/test counts cases, not programs, and counts no failed case as passed.
import json
import subprocess
import sys
import tempfile
import unittest


def run(*tests, broken=(), skipped=()):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
        for result, output in tests:
            log.write(json.dumps({"name": "t", "result": result, "stdout": output, "stderr": ""}) + "\n")
        log.flush()
        command = [sys.executable, SCRIPT, *(f"--broken={each}" for each in broken), *(f"--skipped={each}" for each in skipped), log.name]
        return subprocess.run(command, capture_output=True, text=True)


def count(*tests, broken=()):
    ended = run(*tests, broken=broken)
    return ended.stdout.splitlines()[-1], ended.returncode


class CountTest(unittest.TestCase):
    def test_catch_cases_are_counted(self):
        self.assertEqual(count(("OK", "All tests passed (40 assertions in 7 test cases)\n")), ("7 passed, 0 failed", 0))
        self.assertEqual(count(("OK", "All tests passed (1 assertion in 1 test case)\n")), ("1 passed, 0 failed", 0))

    def test_failed_catch_cases_are_counted(self):
        summary = "test cases:  8 |  5 passed | 3 failed\nassertions: 10 | 7 passed | 3 failed\n"
        self.assertEqual(count(("FAIL", summary)), ("5 passed, 3 failed", 1))
        self.assertEqual(count(("FAIL", "test cases: 1 | 1 failed\n")), ("0 passed, 1 failed", 1))

    def test_a_program_that_fails_after_its_cases_passed_is_one_failure(self):
        self.assertEqual(count(("FAIL", "All tests passed (4 assertions in 2 test cases)\nLeakSanitizer\n")),
                         ("2 passed, 1 failed", 1))

    def test_a_crash_without_a_summary_is_one_failure(self):
        self.assertEqual(count(("FAIL", "Segmentation fault")), ("0 passed, 1 failed", 1))
        self.assertEqual(count(("TIMEOUT", "")), ("0 passed, 1 failed", 1))

    def test_unittest_is_counted(self):
        self.assertEqual(count(("OK", "Ran 17 tests in 0.1s\n\nOK\n")), ("17 passed, 0 failed", 0))
        self.assertEqual(count(("FAIL", "Ran 5 tests in 0.1s\n\nFAILED (failures=1, errors=1)\n")), ("3 passed, 2 failed", 1))

    def test_skipped_cases_of_unittest_are_named_and_count_nowhere(self):
        lines = run(("OK", "Ran 5 tests in 0.1s\n\nOK (skipped=2)\n")).stdout.splitlines()
        self.assertEqual(lines, ["skipped: 2 cases of t", "3 passed, 0 failed"])
        self.assertEqual(count(("FAIL", "Ran 5 tests in 0.1s\n\nFAILED (failures=1, skipped=3)\n")), ("1 passed, 1 failed", 1))

    def test_a_suite_that_was_skipped_is_named(self):
        lines = run(("OK", "fine"), skipped=["the suite python: no network"]).stdout.splitlines()
        self.assertEqual(lines, ["skipped: the suite python: no network", "1 passed, 0 failed"])

    def test_other_programs_count_as_one(self):
        self.assertEqual(count(("OK", "fine"), ("EXPECTEDFAIL", "objects"), ("UNEXPECTEDPASS", "")), ("2 passed, 1 failed", 1))

    def test_skipped_programs_count_nowhere(self):
        self.assertEqual(count(("SKIP", ""), ("OK", "")), ("1 passed, 0 failed", 0))

    def test_the_end_of_a_failed_programs_output_is_shown(self):
        lines = run(("OK", "quiet"), ("FAIL", "long ago\n" * 500 + "the reason\n")).stdout.splitlines()
        self.assertIn("the reason", lines)
        self.assertNotIn("quiet", lines)
        self.assertLess(len(lines), 150)

    def test_the_reason_comes_after_the_other_output(self):
        rule = "-" * 79 + "\n"
        failure = rule + "ranks meet\n" + rule + "meet_test.cpp:7\n\nmeet_test.cpp:9: FAILED:\n  CHECK( a == b )\nwith expansion:\n  1 == 2\n\n"
        output = "early\n" * 300 + failure + "=" * 79 + "\n" + "late\n" * 300
        lines = run(("FAIL", output), ("FAIL", "==1==ERROR: AddressSanitizer: use after free\n" + "late\n" * 300)).stdout.splitlines()
        told = lines[lines.index("---- t (FAIL): why") :]
        self.assertEqual(told[1:9], failure.splitlines()[:8])
        self.assertIn("==1==ERROR: AddressSanitizer: use after free", told)
        self.assertNotIn("early", told)
        self.assertLess(len(lines), 250)

    def test_a_broken_build_is_a_failure(self):
        self.assertEqual(count(("OK", ""), broken=["the build"]), ("1 passed, 1 failed", 1))

    def test_retries_are_added_up_before_the_last_line(self):
        said = "time limits: 100 tests, 1 retries\n"
        lines = run(("OK", said), ("OK", "All tests passed (1 assertion in 1 test case)\n" + said)).stdout.splitlines()
        self.assertEqual(lines[-2:], ["2 retries in 200 tests with a time limit", "2 passed, 0 failed"])

    def test_more_than_two_percent_of_retries_fail(self):
        self.assertEqual(count(("OK", "time limits: 200 tests, 4 retries\n")), ("1 passed, 0 failed", 0))
        self.assertEqual(count(("OK", "time limits: 200 tests, 5 retries\n")), ("1 passed, 1 failed", 1))
        self.assertEqual(count(("OK", "time limits: 3 tests, 2 retries\n")), ("1 passed, 0 failed", 0))
        self.assertEqual(count(("OK", "time limits: 3 tests, 3 retries\n")), ("1 passed, 1 failed", 1))

    def test_nothing_run_is_no_success(self):
        self.assertEqual(count(), ("0 passed, 0 failed", 1))


if __name__ == "__main__":
    SCRIPT = sys.argv.pop(1)
    unittest.main()
