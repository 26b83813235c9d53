"""torch's own tests of a CPU backend, from the wheel: torch.testing._internal.distributed.distributed_test."""

import importlib.util
import os
import random
import re
import sys
import tempfile
import types
import unittest

os.environ["BACKEND"] = "weft"
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
_folder = tempfile.TemporaryDirectory()
os.environ["TEMP_DIR"] = _folder.name
os.environ.setdefault("TORCH_FR_DUMP_TEMP_FILE", os.path.join(_folder.name, "flight_"))

import torch
from torch.testing._internal import common_distributed

import ranks

# Tests that cannot pass, with the reason.
EXCLUDED = {
    "test_barrier_timeout_full_group": "it wants the words of Gloo's time-out",
    "test_barrier_timeout_global": "it wants the words of Gloo's time-out",
    "test_barrier_timeout_group": "it wants the words of Gloo's time-out",
    "test_ddp_logging_data_cpu": "torch calls the backend of every plugin `custom`",
}
if torch.__version__ < (2, 15):
    for _name in ("test_monitored_barrier_gloo", "test_monitored_barrier_gloo_subgroup"):
        EXCLUDED[_name] = "monitored_barrier refuses all backends but Gloo"
# The short form leaves out DDP, which training_test.py covers, and draws half of the rest.
SHORT = re.compile(r"test_(?!ddp|DistributedDataParallel|Ddp|SyncBatchNorm|post_localSGD|accumulate|undefined_grad)")


class CpuBackend(str):
    """The name of the backend. It equals those of torch's CPU backends, so that their tests are not skipped."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other in ("gloo", "mpi")

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def _load():
    """The module with CpuBackend as its BACKEND, and with tests for all CPU backends."""
    for feature in ("plugin", "ddp", "subgroup"):
        common_distributed.DistTestCases.backend_feature[feature].add("weft")
    spec = importlib.util.find_spec("torch.testing._internal.distributed.distributed_test")
    with open(spec.origin) as file:
        text = file.read()
    assert text.count('BACKEND = os.environ["BACKEND"]') == 1, "torch's tests have another form"
    text = text.replace('BACKEND = os.environ["BACKEND"]', "BACKEND = CpuBackend('weft')")
    text = re.sub(r"\bdef require_backend", "def _unused_require_backend", text)

    def require(backends):
        named = {"gloo", "mpi"} & set(backends)
        return (lambda function: function) if named else unittest.skip("not for a CPU backend")

    module = types.ModuleType(spec.name)
    module.__file__ = spec.origin
    module.CpuBackend = CpuBackend
    module.require_backend = module.require_backend_is_available = require
    common_distributed.require_backend = common_distributed.require_backend_is_available = require
    sys.modules[spec.name] = module
    exec(compile(text, spec.origin, "exec"), module.__dict__)
    return module


_module = _load()


class TorchSuite(_module.TestDistBackend, _module.DistributedTest._DistTestBase):
    """The name is part of what the children of a test print."""

    @property
    def world_size(self):
        return int(os.environ["WORLD_SIZE"])

    def setUp(self):
        super().setUp()
        # The children begin with the parent's imports, which take seconds.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def _names():
    for name in unittest.defaultTestLoader.getTestCaseNames(TorchSuite):
        is_skipped = getattr(getattr(TorchSuite, name), "__unittest_skip__", False)
        is_long = ranks.SMALL and not SHORT.match(name)
        if not is_skipped and not is_long and name not in EXCLUDED:
            yield name


class Coverage(unittest.TestCase):
    def test_tests_were_found(self):
        """A new torch may name its tests otherwise."""
        self.assertGreater(len(list(_names())), 60)


def _drawn(names):
    if not ranks.SMALL:
        return names
    seed = int(os.environ.get("WEFT_TEST_SEED") or random.SystemRandom().getrandbits(32))
    print(f"WEFT_TEST_SEED={seed} repeats the choice of tests", file=sys.stderr)
    return sorted(random.Random(seed).sample(names, len(names) // 2))


def load_tests(loader, tests, pattern):
    """What unittest runs of this module."""
    suite = unittest.TestSuite([Coverage("test_tests_were_found")])
    suite.addTests(TorchSuite(name) for name in _drawn(list(_names())))
    return suite


if __name__ == "__main__":
    unittest.main()
