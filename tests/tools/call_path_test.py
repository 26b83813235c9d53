#!/usr/bin/env python3
# call_path_test.py: tools/call_path counts each function of Weft's own once, over a made-up library.
import importlib.machinery
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.dont_write_bytecode = True
sys.path.append(str(TOP / "tools"))
loader = importlib.machinery.SourceFileLoader("call_path", str(TOP / "tools/call_path"))
call_path = importlib.util.module_from_spec(importlib.util.spec_from_loader("call_path", loader))
loader.exec_module(call_path)


@unittest.skipUnless(all(map(shutil.which, ("gcc", "g++", "addr2line", "nm"))), "needs GCC and binutils")
class CallPath(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.libfake = pathlib.Path(cls.folder.name) / "libfake.so"
        subprocess.run(["g++", "-std=c++20", "-O0", "-g1", "-fno-inline", "-fPIC", "-shared", f"-I{TOP}/include", *call_path.RECORDED.split(),
                        HERE / "call_path_fake.cpp", "-o", cls.libfake], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_tool(self, *flags):
        call = [TOP / "tools/call_path", "--library", self.libfake, "--build", self.folder.name, "--calls", "4", *flags]
        run = subprocess.run(call, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_a_function_counts_once_and_accessors_lambdas_and_other_libraries_do_not(self):
        output = self.run_tool()
        names = [line.split()[0] for line in output.splitlines() if line.startswith("    ")]
        self.assertEqual(names, ["add_one", "wait_for_other", "reduce", "weftAllReduce"])
        self.assertIn("tests/tools: 4\n", output)
        self.assertTrue(output.endswith("defined in headers: 0, 0 of them in the usual call\n"
                                        "defined in source files: 4, 3 of them in the usual call\n"
                                        "functions: 4, 3 of them in the usual call\n"), output)

    def test_functions_of_one_line_are_listed_on_request(self):
        self.assertIn("Counter::value  tests/tools/call_path_fake.cpp:12  (some calls)\n", self.run_tool("--all"))

    def test_a_tree_has_each_function_under_its_first_caller(self):
        lines = [line.split("  tests/")[0] for line in self.run_tool("--tree").splitlines()[:-3]]
        self.assertEqual(lines[:2], ["weftAllReduce", "    reduce"])
        self.assertEqual(sorted(lines[2:]), ["        add_one", "        wait_for_other"])


class ShortName(unittest.TestCase):
    def test_parameters_template_arguments_and_namespaces_go(self):
        for name, short in (("weft::internal::Run::advance(int)", "Run::advance"), ("weft::(anonymous namespace)::poll()", "poll"),
                            ("int weft::cast<int, std::vector<int> >(char)", "cast"), ("main", "main"),
                            ("weft::Status::operator bool() const", "Status::operator bool"),
                            ("weft::Run::copy(int) const", "Run::copy")):
            self.assertEqual(call_path.short_name(name), short)


if __name__ == "__main__":
    unittest.main()
