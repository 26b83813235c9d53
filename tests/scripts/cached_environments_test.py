#!/usr/bin/env python3
# cached_environments_test.py SOURCE: the scripts that fetch packages make an environment once, and again for another
# Python. The environments are empty, and no package is fetched.
import contextlib
import fcntl
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True


class TorchPackages(unittest.TestCase):
    def setUp(self):
        self.cache = tempfile.TemporaryDirectory()
        self.addCleanup(self.cache.cleanup)
        sys.path.insert(0, str(SOURCE / "tools"))
        loader = importlib.machinery.SourceFileLoader("torch_packages", str(SOURCE / "tools/torch-packages"))
        self.script = importlib.util.module_from_spec(importlib.util.spec_from_loader("torch_packages", loader))
        loader.exec_module(self.script)
        self.script.make = self.make
        self.made = 0
        self.folder = Path(self.cache.name) / "weft" / "torch-1.2.3"
        base = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
        tell = "import platform; print(platform.python_version())"
        self.version = subprocess.run([base, "-c", tell], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def make(self, folder, version, *_):
        self.assertEqual((folder, version), (self.folder, "1.2.3"))
        self.made += 1
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {self.version}\n")

    def run_script(self):
        said = io.StringIO()
        kept = sys.argv, os.environ.get("XDG_CACHE_HOME")
        sys.argv, os.environ["XDG_CACHE_HOME"] = ["torch-packages", "1.2.3"], self.cache.name
        try:
            with contextlib.redirect_stdout(said):
                self.script.main()
        finally:
            sys.argv = kept[0]
            del os.environ["XDG_CACHE_HOME"]
            if kept[1] is not None:
                os.environ["XDG_CACHE_HOME"] = kept[1]
        self.assertEqual(said.getvalue().strip(), str(self.folder / "bin" / "python"))
        return self.made

    def test_it_is_made_once(self):
        self.assertEqual([self.run_script(), self.run_script()], [1, 1])

    def test_it_is_made_again_for_another_python(self):
        self.run_script()
        (self.folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 2.7.18\n")
        self.assertEqual([self.run_script(), self.run_script()], [2, 2])

    def test_it_is_made_again_if_it_is_not_complete(self):
        self.run_script()
        (self.folder / "complete").unlink()
        self.assertEqual(self.run_script(), 2)


class Locks(unittest.TestCase):
    def test_a_second_run_waits_for_the_first(self):
        for script, name in (("cuda-toolkit", "build-toolkit"), ("nccl-clients", "build-nccl-clients")):
            with self.subTest(script), tempfile.TemporaryDirectory() as tree:
                tree = Path(tree)
                for each in ("tools", "bin", name, f"{name}/wheels/nvidia/cu13"):
                    (tree / each).mkdir(parents=True, exist_ok=True)
                shutil.copy(SOURCE / "tools" / script, tree / "tools" / script)
                python = tree / "bin" / "python3"
                python.write_text(f"#!/bin/sh\necho called >{tree}/called\nexit 1\n")
                python.chmod(0o755)
                with open(tree / f"{name}.lock", "w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    run = subprocess.Popen(["bash", str(tree / "tools" / script)], stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, env={**os.environ, "PATH": f"{tree}/bin:{os.environ['PATH']}"})
                    time.sleep(0.3)  # a script without the lock would begin meanwhile
                    (tree / name / "complete").touch()
                said, objection = run.communicate()
                self.assertEqual(run.returncode, 0, objection)
                self.assertIn(name, said.decode())
                self.assertFalse((tree / "called").exists())


if __name__ == "__main__":
    SOURCE = Path(sys.argv.pop(1)).resolve()
    unittest.main()
