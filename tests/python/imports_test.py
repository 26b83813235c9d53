"""The import: without other libraries, in sub-interpreters, beside another libweft."""
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import weft

SOURCES = Path(os.environ["GUIDE_PAGE"]).parents[2]


def run(text, **variables):
    return subprocess.run(
        [sys.executable, "-c", text], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60
    )


class Imports(unittest.TestCase):
    def test_no_other_library_is_imported(self):
        done = run(
            "import sys, weft\n"
            "assert not {'numpy', 'torch', 'jax', 'cupy', 'ml_dtypes'} & set(sys.modules), sys.modules"
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_version_is_the_librarys(self):
        header = SOURCES / "include/weft/types.h"
        numbers = re.findall(r"^#define WEFT_(?:MAJOR|MINOR|PATCH) (\d+)$", header.read_text(), re.M)
        self.assertEqual(weft.__version__, ".".join(numbers))

    def test_the_library_that_was_loaded_is_named(self):
        self.assertIn("libweft.so", weft.libweft_path())

    def refused_library(self, text, **variables):
        """The sentence of the ImportError of `import weft` behind the text."""
        done = run(text + "\ntry:\n    import weft\nexcept ImportError as error:\n    print(error)\n", **variables)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("[python.libweft]", done.stdout)
        return done.stdout

    def test_an_older_library_in_the_library_path_is_refused(self):
        self.refused_library("", LD_LIBRARY_PATH=os.path.dirname(os.environ["OLDER_LIBRARY"]))

    def test_an_older_library_that_the_program_has_loaded_is_refused(self):
        self.refused_library("import ctypes, os\nctypes.CDLL(os.environ['OLDER_LIBRARY'])")

    def test_a_library_of_another_version_is_refused_by_its_name_and_version(self):
        sentence = self.refused_library("", LD_PRELOAD=os.environ["OTHER_LIBRARY"])
        for word in (os.environ["OTHER_LIBRARY"], "0.0.1", weft.__version__):
            self.assertIn(word, sentence)

    def test_a_sub_interpreter_is_refused_with_a_sentence(self):
        text = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
number = interpreters.create()
code = '''
try:
    import weft
    print("imported")
except ImportError as error:
    print(error)
'''
interpreters.run_string(number, code)
"""
        done = run(text)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("[python.sub-interpreter]", done.stdout)

    def test_all_public_names_exist_and_have_docstrings(self):
        for name in weft.__all__:
            self.assertTrue(getattr(weft, name).__doc__, name)
        for name, value in vars(weft.Communicator).items():
            if not name.startswith("_"):
                self.assertTrue(value.__doc__, name)

    def test_a_program_adds_lines_to_the_log(self):
        text = "import weft\nweft.log_info('a line of the program')"
        self.assertIn("a line of the program", run(text, WEFT_DEBUG="INFO").stderr)
        self.assertNotIn("a line of the program", run(text).stderr)

    def test_every_function_of_the_c_interface_has_a_form_in_python(self):
        headers = "".join((SOURCES / "include/weft" / name).read_text() for name in ("weft.h", "train.h"))
        functions = set(re.findall(r"^WEFT_API weftResult_t (weft\w+)\(", headers, re.M))
        self.assertGreater(len(functions), 75)
        # Each is another one with a default, but for weftTrainShardGetBox: Shard.boxes makes them of pieces.
        functions -= {"weftTrainShardGetBox", "weftBcast", "weftCommExplain", "weftCommInitRank", "weftStreamCreate"}
        binding = "".join(path.read_text() for path in (SOURCES / "python/binding").rglob("*.cpp"))
        self.assertEqual({each for each in functions if not re.search(rf"\b{each}\b", binding)}, set())

    def test_the_stubs_name_what_the_extension_has(self):
        stubs = (Path(weft.__file__).parent / "_weft.pyi").read_text()
        named = set(re.findall(r"^(?:def|class) (\w+)|^(\w+):", stubs, re.M))
        named = {first or second for first, second in named}
        has = {name for name in vars(weft._weft) if not name.startswith("__") or name == "__version__"}
        self.assertEqual(named, has)


if __name__ == "__main__":
    unittest.main()
