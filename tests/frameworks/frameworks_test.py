"""The programs of examples/frameworks train on Weft as on Gloo. WEFT_TEST_FRAMEWORKS is the Python of tools/framework-packages."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "frameworks"
sys.path.insert(0, str(EXAMPLES))

import letters  # noqa: E402

PYTHON = os.environ.get("WEFT_TEST_FRAMEWORKS")
LIMIT = 600  # seconds: only a hang takes so long
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# The package in the build folder does not announce its backend to torch. An installed one does it by this file.
ENTRY_POINT = "[torch.distributed.backends]\nweft = weft.torch:register\n"


class Programs(unittest.TestCase):
    def setUp(self):
        if not PYTHON:
            self.skipTest("the frameworks are not installed: WEFT_TEST_FRAMEWORKS is not set to the Python of tools/framework-packages")
        home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(home.cleanup)
        self.home = Path(home.name)
        metadata = self.home / "weft_in_build-0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: weft-in-build\nVersion: 0\n")
        (metadata / "entry_points.txt").write_text(ENTRY_POINT)
        environment = Path(PYTHON).parents[1]
        self.variables = {
            "HOME": home.name,  # Ray and Lightning write there
            "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{home.name}:{EXAMPLES}",
            "PATH": f"{environment}/bin:{os.environ['PATH']}",  # DeepSpeed asks ninja whether its extensions are complete
            "TORCH_EXTENSIONS_DIR": str(environment / "extensions"),
            "DS_ACCELERATOR": "cpu",
            "RAY_TMPDIR": home.name,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_memory_monitor_refresh_ms": "0",  # other programs of the machine may use its memory
            "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
        }

    def results(self, backend, name, launcher, folder=EXAMPLES):
        """{name: what letters.report printed}"""
        command = [PYTHON, *launcher, str(folder / name), "--backend", backend]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **self.variables}
        )
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher ends its ranks
            output, _ = process.communicate()
            self.fail(f"{name} on {backend} does not end:\n{output[-4000:]}")
        self.assertEqual(process.returncode, 0, f"{name} on {backend}:\n{output[-8000:]}")
        found = [json.loads(each) for each in re.findall(r'\{"name": .*\}\}', output)]
        return {each["name"]: each for each in found}

    def compare(self, name, names, launcher=TORCHRUN, folder=EXAMPLES):
        on_weft, on_gloo = (self.results(backend, name, launcher, folder) for backend in ("weft", "gloo"))
        self.assertEqual(sorted(on_weft), sorted(names))
        self.assertEqual(sorted(on_gloo), sorted(names))
        for each in names:
            # Two ranks: a sum of two numbers has one order.
            self.assertEqual(on_weft[each]["losses"], on_gloo[each]["losses"], each)
            self.assertTrue(all(call.startswith("weft:") for call in on_weft[each]["collectives"]), on_weft[each])

    def test_accelerate(self):
        self.compare("train_accelerate.py", ["Accelerate"])

    def test_lightning(self):
        self.compare("train_lightning.py", ["Lightning DDP", "Lightning FSDP2"])

    def test_lightning_starts_its_ranks(self):
        self.assertEqual(sorted(self.results("weft", "train_lightning.py", ())), ["Lightning DDP", "Lightning FSDP2"])

    def test_deepspeed(self):
        self.compare("train_deepspeed.py", [
            "ZeRO-1", "ZeRO-2", "ZeRO-2, optimizer offloaded", "ZeRO-3", "ZeRO-3, optimizer offloaded",
            "ZeRO-3, all offloaded",
        ])

    def test_deepspeed_parallelism(self):
        self.compare(
            "deepspeed_parallelism.py", ["pipeline", "experts", "checkpoint"], folder=Path(__file__).resolve().parent
        )

    def test_ray(self):
        self.compare("train_ray.py", ["Ray Train"], ())


def trace(*names):
    return SimpleNamespace(events=lambda: [SimpleNamespace(name=name) for name in names])


class Checks(unittest.TestCase):
    """letters.check finds what is wrong."""

    def test_collectives_of_another_backend(self):
        for names in ((), ("aten::add",), ("weft:all_reduce", "gloo:broadcast")):
            with self.assertRaisesRegex(RuntimeError, "did not carry"):
                letters.check("a", "weft", letters.alone(), trace(*names))

    def test_other_losses(self):
        losses = letters.alone()
        losses[-1] *= 1.01
        with self.assertRaisesRegex(RuntimeError, "one process"):
            letters.check("a", "weft", losses, trace("weft:all_reduce"))


if __name__ == "__main__":
    unittest.main()
