"""The code of guides runs, block by block, as one program of two ranks."""
import os
import re
import tempfile
import unittest
from pathlib import Path

from ranks import run_job


class Guide(unittest.TestCase):
    def runs(self, page, least_blocks, first=""):
        text = Path(os.environ["GUIDE_PAGE"]).with_name(page).read_text()
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
        self.assertGreaterEqual(len(blocks), least_blocks)
        run_job(2, "\n".join([first, *blocks]))

    def test_the_blocks_of_python_md_run_in_their_order(self):
        self.runs("python.md", 9)

    def test_the_block_of_training_md_runs(self):
        self.runs("training.md", 1)

    def test_the_block_of_sharded_training_md_runs(self):
        self.runs("sharded-training.md", 1)

    def test_the_block_of_training_checkpoints_md_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            self.runs("training-checkpoints.md", 1, f"import os\nos.chdir({folder!r})")

    def test_the_blocks_of_training_hooks_md_run_in_their_order(self):
        self.runs("training-hooks.md", 2)

    def test_the_blocks_of_training_async_md_run_in_their_order(self):
        self.runs("training-async.md", 2)

    def test_the_block_of_parameter_server_md_runs(self):
        self.runs("parameter-server.md", 1)

    def test_the_block_of_training_own_hooks_md_runs(self):
        self.runs("training-own-hooks.md", 1)

    def test_the_block_of_elastic_training_md_runs(self):
        self.runs("elastic-training.md", 1)

    def test_the_blocks_of_optimizers_md_run_in_their_order(self):
        self.runs("optimizers.md", 5)


if __name__ == "__main__":
    unittest.main()
