"""quickstart_test.py SOURCE PROGRAM WEFT: `tools/quickstart --train` trains on two ranks, and the loss that it prints falls.
Packages, Meson and Ninja are stand-ins, and the build folder has programs of another build. WEFT_TEST_LONG: the half minute
that the script takes; otherwise a smaller model and fewer steps."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, PROGRAM, WEFT = (os.path.abspath(path) for path in sys.argv[1:])
LONG = bool(os.environ.get("WEFT_TEST_LONG"))
SMALL = "--layers 1 --width 32 --heads 2 --context 16 --batch 12 --report 10 --steps 300"

STAND_IN = """#!/bin/sh
case "$(basename "$0")" in
    dpkg-query) echo "install ok installed" ;;
    nvidia-smi) exit 1 ;;
esac
"""


class Quickstart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top, self.bin = Path(folder.name) / "top", Path(folder.name) / "bin"
        for name in ("tools", "docs"):
            (self.top / name).parent.mkdir(exist_ok=True)
            (self.top / name).symlink_to(Path(SOURCE) / name)
        self.bin.mkdir()
        for name in ("dpkg-query", "apt-get", "meson", "ninja", "nvidia-smi"):
            self.program(self.bin / name, STAND_IN)
        self.program(self.top / "build/perf/all_reduce_perf", "#!/bin/sh\n")
        self.program(self.top / "build/tools/weft", f'#!/bin/sh\nexec "{WEFT}" "$@"\n')
        small = "" if LONG else SMALL
        self.program(self.top / "build/examples/train/train", f'#!/bin/sh\nexec "{PROGRAM}" "$@" {small}\n')

    def program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run_script(self):
        # The script finds its folder by its own path, which is a link in `top`.
        script = f'cd "{self.top}" && exec bash "{self.top}/tools/quickstart" --train'
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "CUDA_HOME": "/nonexistent"}
        return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=280)

    def test_the_loss_falls(self):
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        losses = [float(loss) for loss in re.findall(r"step \d+ loss (\d+\.\d+)", done.stdout)]
        self.assertGreaterEqual(len(losses), 3, done.stdout)
        # A loss is of one batch: they differ by 0.5.
        self.assertLess(sum(losses[-3:]) / 3, losses[0] - 0.7, done.stdout)
        self.assertIn("a GPT learns Weft's documentation on 2 ranks", done.stdout)

    def test_a_training_that_fails_is_a_failure(self):
        self.program(self.top / "build/examples/train/train", "#!/bin/sh\necho no memory >&2\nexit 3\n")
        done = self.run_script()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("failed", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
