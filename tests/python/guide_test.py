"""The code of docs/guide/python.md runs, block by block, as one program of two ranks."""
import os
import re
import unittest
from pathlib import Path

from ranks import run_job


class Guide(unittest.TestCase):
    def test_the_blocks_run_in_their_order(self):
        text = Path(os.environ["GUIDE_PAGE"]).read_text()
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
        self.assertGreater(len(blocks), 8)
        run_job(2, "\n".join(blocks))


if __name__ == "__main__":
    unittest.main()
