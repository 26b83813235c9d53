"""train_hooks_test.py PROGRAM WEFT TEXT...: hooks that lose bits learn as well as the average.

After 500 steps the validation loss, a mean of three seeds, is within 2 % of the loss of exact averages. The same check
refuses a hook that sends zeros.
"""

import subprocess
import sys
import unittest

PROGRAM, WEFT, *TEXTS = sys.argv[1:]
MODEL = "--mode ddp --layers 1 --width 32 --heads 2 --context 16 --steps 500 --batch 16 --report 500".split()
SEEDS = range(1, 4)


def loss(hook, *options):
    """The mean validation loss after training by `hook`."""
    total = 0
    for seed in SEEDS:
        command = [WEFT, "run", "-n", "2", PROGRAM, *MODEL, "--hook", hook, *options, "--seed", str(seed), *TEXTS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise AssertionError(done.stderr)
        total += float(done.stdout.split("validation loss ")[1].split(",")[0])
    return total / len(SEEDS)


class Hooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.exact = loss("average")

    def is_near(self, hook, *options, exact=None):
        exact = exact or self.exact
        found = loss(hook, *options)
        print(f"{hook}: validation loss {found:.4f}, exact {exact:.4f}")
        return abs(found - exact) <= 0.02 * exact

    def test_hooks_that_lose_bits_learn_as_well(self):
        for hook in "fp16", "bf16", "fp8", "int8", "powersgd", "topk", "onebit":
            with self.subTest(hook=hook):
                self.assertTrue(self.is_near(hook))

    def test_one_bit_lamb_learns_as_well_as_lamb(self):
        lamb = ["--optimizer", "lamb", "--rate", "0.02"]
        self.assertTrue(self.is_near("onebit-lamb", *lamb, exact=loss("average", *lamb)))

    def test_a_hook_that_sends_zeros_is_found(self):
        self.assertFalse(self.is_near("zeros"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
