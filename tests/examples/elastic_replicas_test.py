"""elastic_replicas_test.py PROGRAM WEFT: ranks go on from copies in memory when one of them has died."""

import subprocess
import sys
import unittest

PROGRAM, WEFT = sys.argv[1:]


class ElasticReplicas(unittest.TestCase):
    def test_the_survivors_reach_the_last_step(self):
        for ranks in 2, 4:
            command = [WEFT, "run", "-n", str(ranks), "--no-kill", PROGRAM]
            done = subprocess.run(command, capture_output=True, text=True, timeout=50)
            self.assertEqual(done.returncode, 137, done.stderr)
            self.assertEqual(done.stdout, f"{ranks - 1} of {ranks} ranks reached step 20\n", done.stderr)
            self.assertEqual(done.stderr.count(f"rank {ranks - 1} is lost"), ranks - 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
