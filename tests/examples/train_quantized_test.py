"""train_quantized_test.py PROGRAM WEFT SEEDS STEPS TEXT...: models that are gathered in int8 and reduced in int4 learn.

The validation loss, a mean of the seeds, is within 2 % of the loss of exact messages. The same check refuses a run that
has trained for a tenth of the steps. Four ranks believe to be on two hosts.
"""

import re
import subprocess
import sys
import unittest

PROGRAM, WEFT, SEEDS, STEPS, *TEXTS = sys.argv[1:]
MODEL = "--layers 1 --width 32 --heads 2 --context 16 --batch 16".split()
HOSTS = ["sh", "-c", 'WEFT_HOSTID=node$((WEFT_RANK / 2)) exec "$0" "$@"']


def trained(*options, ranks=2, steps=int(STEPS), seeds=int(SEEDS)):
    """The mean validation loss, and the numbers of the newest line about bytes."""
    total, moved = 0, []
    for seed in range(1, seeds + 1):
        program = [*(HOSTS if ranks == 4 else []), PROGRAM, *MODEL, "--steps", str(steps), "--report", str(steps)]
        command = [WEFT, "run", "-n", str(ranks), *program, *options, "--seed", str(seed), *TEXTS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise AssertionError(done.stderr)
        total += float(done.stdout.split("validation loss ")[1].split(",")[0])
        found = re.search(r"moved: (\d+) .*?(\d+) of.*?(\d+) bytes reduced, (\d+)", done.stdout)
        moved = [int(each) for each in found.groups()] if found else []
    return total / seeds, moved


class Quantized(unittest.TestCase):
    def is_near(self, found, exact):
        print(f"validation loss {found:.4f}, exact {exact:.4f}")
        return abs(found - exact) <= 0.02 * exact

    def test_int8_weights_and_int4_gradients_learn_as_well(self):
        for mode in "zero3", "fsdp":
            exact, _ = trained("--mode", mode)
            with self.subTest(mode=mode):
                self.assertTrue(self.is_near(trained("--mode", mode, "--gather", "int8")[0], exact))
                self.assertTrue(self.is_near(trained("--mode", mode, "--gather", "int8", "--reduce", "int4")[0], exact))
        self.assertFalse(self.is_near(trained("--mode", "zero3", "--gather", "int8", steps=int(STEPS) // 10)[0], exact))

    def test_hosts_exchange_fewer_bytes(self):
        few = {"ranks": 4, "steps": 20, "seeds": 1}
        _, exact = trained("--mode", "zero3", **few)
        _, kept = trained("--mode", "zero3", "--host-ranks", "2", **few)
        _, small = trained("--mode", "zero3", "--host-ranks", "2", "--gather", "int8", "--reduce", "int4", **few)
        print(exact, kept, small)
        self.assertLess(kept[1], 0.7 * exact[1])
        self.assertLess(small[1], 0.3 * kept[1])
        self.assertLess(small[3], 0.08 * exact[3])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
