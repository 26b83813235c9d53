"""examples/train/train_torch.py: each mode has the losses of one process that sees the whole batch."""

import importlib.util
import tempfile
import unittest
from pathlib import Path

import torch
import torch.nn.functional as F

import ranks

SOURCE = Path(__file__).parents[2] / "examples/train/train_torch.py"
SPEC = importlib.util.spec_from_file_location("train_torch", SOURCE)
program = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(program)
SMALL = "--layers 2 --width 16 --heads 2 --context 8 --steps 6 --batch 8 --report 100".split()


def train(rank, size, options):
    with program.communicator() as comm:
        return {mode: program.trained(mode, options, comm)[:2] for mode in program.MODES}


def alone(options):
    model, text = program.Gpt(options), program.Text(options.texts, options.context)
    optimizer = program.optimizer_of(list(model.parameters()))
    losses = []
    for step in range(options.steps):
        x, y = text.training_batch(options.seed, step, 0, options.batch)
        for group in optimizer.param_groups:
            group["lr"] = program.rate_at(options, step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        x, y = text.validation_batch(128)
        return losses, float(F.cross_entropy(model(x).flatten(0, 1), y.flatten()))


class TrainExample(unittest.TestCase):
    def test_each_mode_learns_as_one_process(self):
        with tempfile.NamedTemporaryFile("w") as text:
            text.write("".join(f"{number} times {number} is {number * number}.\n" for number in range(300)))
            text.flush()
            options = program.parsed([*SMALL, text.name])
            wanted, validation = alone(options)
            self.assertLess(wanted[-1], wanted[0])
            for answers in ranks.run(2, train, options):
                for mode, (losses, last) in answers.items():
                    with self.subTest(mode=mode):
                        for loss, near in zip(losses, wanted):
                            self.assertAlmostEqual(loss, near, delta=1e-4)
                        self.assertAlmostEqual(last, validation, delta=1e-4)


if __name__ == "__main__":
    unittest.main()
