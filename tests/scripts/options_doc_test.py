#!/usr/bin/env python3
# The page of options is made from the rows of options.def, and a row that is not understood is an error.
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

SOURCE = """// options.def: what it is for.
// WEFT_OPTION(name, type, default, least, most, help): a number.

// Time
WEFT_OPTION(wait_ms, int64_t, 10'000, 0, INT64_MAX, "Waits (long).")
WEFT_OPTION(rank, int, -1, 0, INT_MAX,
            "This "
            "rank.")

// Words
WEFT_TEXT_OPTION(algo, "", "Names; more names.")
WEFT_SECRET_OPTION(key, "k", "A key.")
WEFT_OPTION_ALIAS(algo, OTHER_ALGO)
"""
CATEGORIES = """// log_category.def: what it is for.
WEFT_LOG_CATEGORY(init, true, "who came (and who did not)")
WEFT_LOG_CATEGORY(mem, false,
                  "what is "
                  "mapped")
"""


class OptionsDocTest(unittest.TestCase):
    def test_a_page_that_cannot_be_written_is_a_sentence_and_an_error(self):
        root = pathlib.Path(options_doc.__file__).parents[1]
        with open("/dev/full", "w") as full:
            ended = subprocess.run([sys.executable, "-B", root / "tools/options_doc.py", root / "src/base/options.def"],
                                   stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(ended.returncode, 1)
        self.assertEqual(ended.stderr, "options_doc: its output: No space left on device\n")

    def test_a_file_that_does_not_fit_stays_as_it_was(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page"
            page.write_text("old")
            import checked_output
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))  # a disk with room for 10 bytes
            try:
                with self.assertRaises(OSError):
                    checked_output.write_text(page, "x" * 100)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            self.assertEqual([page.read_text(), len(list(pathlib.Path(folder).iterdir()))], ["old", 1])
            checked_output.write_text(page, "new")
            self.assertEqual(page.read_text(), "new")

    def test_every_row_becomes_a_line_of_its_section(self):
        lines = options_doc.document(SOURCE).splitlines()
        self.assertEqual([line for line in lines if line.startswith("## ")], ["## Time", "## Words"])
        self.assertIn("| `WEFT_WAIT_MS` | 10000 | 0 and more | Waits (long). |", lines)
        self.assertIn("| `WEFT_RANK` | unset | 0 and more | This rank. |", lines)
        self.assertIn("| `WEFT_ALGO` | unset | text | Names; more names. Also read as `OTHER_ALGO`. |", lines)
        self.assertIn("| `WEFT_KEY` | k | text | A key. |", lines)

    def test_every_category_becomes_a_line_of_the_log_page(self):
        lines = options_doc.log_document(CATEGORIES).splitlines()
        self.assertIn("| `INIT` | yes | who came (and who did not) |", lines)
        self.assertIn("| `MEM` | no | what is mapped |", lines)

    def test_names_of_others_that_are_read_are_listed(self):
        self.assertIn("each if Weft's own is unset.\n\n```\nOTHER_ALGO\n```\n", options_doc.document(SOURCE))

    def test_a_row_that_is_not_understood_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "not understood"):
            options_doc.document(SOURCE + 'WEFT_OPTION(broken, int, 0, 0, 1, "no end)\n')
        with self.assertRaisesRegex(ValueError, "not understood"):
            options_doc.log_document(CATEGORIES + 'WEFT_LOG_CATEGORY(net, maybe, "no end)\n')


if __name__ == "__main__":
    sys.path.insert(0, sys.argv.pop(1))
    import options_doc

    unittest.main()
