"""Predicts the times of all-reduces by packets, from the machine code for sm_90 and the constants of times.txt.

usage: times.py [--most KERNEL=INSTRUCTIONS]... ARGUMENTS OBJECT
ARGUMENTS: the program that writes a kernel's arguments (arguments.cpp). OBJECT: packet_kernels.o.
It follows one thread of 8 ranks that run alike. An instruction waits for what it reads, and a line arrives when the peer's
line has crossed the link. The output is a table in Markdown.
--most: it fails if a thread executes more instructions in a round of that kernel.
WEFT_TEST_DISASSEMBLER: as for sass.py; without it the status is 77: skipped.
"""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

from sass import disassembled
from sass_thread import REGISTER, Instruction, Thread, after, parsed

RANKS, THREADS, BLOCKS, WARP, MASK = 8, 512, 32, 32, 0xFFFFFFFF
EPOCH_LINES, FULL_LINES = 2 * 32 * 512 * RANKS, 2048  # kernel_arguments.hpp: all of a rank, and those of a block and hop
RESULTS = 4  # lines that a thread of two-shot loads together
FLAGS, PACKETS, INPUT = 1, 2, 3  # kinds of memory (arguments.cpp)
EPOCH = 5  # of the operation before


def constants_of(path: Path) -> dict[str, float]:
    rows = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return {row[0]: float(row[1]) for row in rows if row}


class TimedThread(Thread):
    """A thread whose peers do the same at the same time."""

    def __init__(self, code: dict[int, Instruction], arguments: bytes, thread: int, blocks: int, hop_bytes: float, constants: dict[str, float]) -> None:
        super().__init__(code, arguments[:-16], thread, THREADS, 0, blocks)
        self.barrier_end, self.epoch_place = struct.unpack("<QQ", arguments[-16:])  # in the flags
        self.constant_us = constants
        self.now = 0.0
        self.ready: dict[str, float] = {}  # when a register has its value
        self.hop_us = hop_bytes / constants["link_bytes_per_us"]
        self.sent: list[float] = []  # lines, 7 of each hop
        self.received = 0
        self.announced = self.prefetched = 0.0
        self.prefetches = 0  # of one round each

    def before(self, instruction: Instruction, runs: bool) -> None:
        read = " ".join([instruction.guard, *instruction.operands])
        self.now = max([self.now, *(self.ready.get(each, 0.0) for each in re.findall(r"U?R\d+", read))])
        self.now += self.constant_us["instruction_us"]
        target = instruction.operands[0] if instruction.operands else ""
        if runs and instruction.base in ("LD", "LDG"):
            waits = self.wait(self.address_of(instruction.operands[-1]))  # may also move the time on
            arrives = self.now + waits
            for i in range(max(1, instruction.bytes // 4)):
                self.ready[after(target, i)] = arrives
        elif REGISTER.match(target):
            self.ready.pop(target, None)
        if runs and instruction.name.endswith(".PF1"):
            self.prefetched = self.now + self.constant_us["memory_us"]
            self.prefetches += 1

    def wait(self, address: int) -> float:
        """Until a load has its value."""
        kind = address >> 40
        crossed = self.constant_us["store_us"] - self.now
        if kind == PACKETS:
            self.received += 1
            return max(0.0, self.crossed(address) + crossed) + self.constant_us["cache_us"]
        if kind == FLAGS and address & MASK < self.barrier_end:
            return max(0.0, self.announced + crossed) + self.constant_us["cache_us"]
        if kind == INPUT and self.prefetched:
            return max(self.constant_us["first_cache_us"], self.prefetched - self.now)
        return self.constant_us["memory_us"]

    def crossed(self, _: int) -> float:
        """When the line that is loaded has crossed the link."""
        return self.sent[-1] + self.hop_us

    def load(self, address: int, size: int) -> list[int]:
        if address >> 40 == PACKETS:
            return [0, EPOCH + 1, 0, EPOCH + 1]
        if address >> 40 == FLAGS:
            place = address & MASK
            if place < self.barrier_end:
                return [1, EPOCH + 1]  # the fingerprint, and the epoch
            return [EPOCH if place == self.epoch_place else 0]
        return [0] * max(1, size // 4)

    def store(self, address: int, words: list[int]) -> None:
        if address >> 40 == PACKETS:
            if any(words):  # not cleared
                self.sent.append(self.now)
        elif address >> 40 == FLAGS and not self.announced:
            self.announced = self.now


class TwoShotThread(TimedThread):
    """A thread of two-shot packets that reduces units of the last wave. A wave is a line of each thread that sends. Waves of
    contributions and of results cross the link in turn."""

    def __init__(self, *arguments, waves: int, rounds: int) -> None:
        super().__init__(*arguments)
        self.waves = waves  # of a round
        self.results_loaded = -(-waves // RESULTS) * RESULTS
        self.wave_us = self.hop_us / waves / rounds
        self.contributions: list[float] = []  # when they were sent
        self.results: list[list[float]] = []  # of each round, to each rank
        self.loaded = {False: 0, True: 0}  # lines, by whether they carry results
        self.turn, self.begun = 0.0, 0  # when the turn began; its round
        self.cleared: set[int] = set()  # lines that this turn has cleared

    @staticmethod
    def carries_results(address: int) -> bool:
        return ((address & MASK) // 16 - EPOCH_LINES) // FULL_LINES % 2 == 1

    def store(self, address: int, words: list[int]) -> None:
        super().store(address, words)
        if address >> 40 != PACKETS:
            return
        if not any(words):
            self.cleared.add(address)
            return
        if self.carries_results(address):
            if not self.results or len(self.results[-1]) == RANKS:
                self.results.append([])
            self.results[-1].append(self.now)
            return
        if not self.contributions:
            self.turn = self.now
        self.contributions.append(self.now)

    def load(self, address: int, size: int) -> list[int]:
        return [0, 0, 0, 0] if address in self.cleared else super().load(address, size)

    def wait(self, address: int) -> float:
        us = self.constant_us
        if address in self.cleared:
            return us["cache_us"]
        number = len(self.contributions) // self.waves
        if address >> 40 != INPUT or number == 0:
            return super().wait(address)
        if number > self.begun:
            self.begin_round(number)
        # The wait for the other ranks has emptied the first-level cache.
        return max(us["cache_us"], self.prefetched - self.now) if self.prefetches > number else us["memory_us"]

    def begin_round(self, number: int) -> None:
        """A rank sends when all have announced the round before, at the beginning of its turn."""
        us = self.constant_us
        self.now = self.turn = max(self.now, self.turn + us["store_us"] + us["cache_us"])
        self.begun = number
        self.cleared.clear()

    def crossed(self, address: int) -> float:
        of_results = self.carries_results(address)
        number = self.loaded[of_results] // (self.results_loaded if of_results else RANKS)
        self.loaded[of_results] += 1
        queue = [(sent, i // self.waves, False, i % self.waves) for i, sent in enumerate(self.contributions)]
        for i, sent in enumerate(self.results):
            # Threads with units of earlier waves send their results earlier.
            queue += [(sent[-1] - (self.waves - 1 - wave) * self.wave_us, i, True, wave) for wave in range(self.waves)]
        end = 0.0
        for sent, *line in sorted(queue):
            end = max(end, sent) + self.wave_us
            if line == [number, of_results, self.waves - 1]:
                return end
        raise RuntimeError("a line is awaited that was not sent")


def kernel_code(folder: str, path: str, name: str) -> dict[int, Instruction]:
    """Empty: there is no code for sm_90."""
    functions = disassembled(folder, ["-arch", "sm_90", "-fun", name, "-sass", path]).split("Function : ")
    return parsed(next((text for text in functions if text.startswith(name)), ""))


def main() -> int:
    folder = os.environ.get("WEFT_TEST_DISASSEMBLER", "")
    if not folder:
        print("skipped: WEFT_TEST_DISASSEMBLER names no folder with cuobjdump and nvdisasm (tools/cuda-disassembler)")
        return 77
    *options, program, path = sys.argv[1:]
    most = dict(each.removeprefix("--most=").split("=") for each in options)
    constants = constants_of(Path(__file__).with_name("times.txt"))
    print("| bytes | kernel, blocks | instructions | us |", "|---|---|---|---|", sep="\n")
    wrong = []
    for body, bytes_a_block, sizes in (
        ("packet_one_shot", 2 << 10, (8, 1 << 10, 16 << 10)),
        ("packet_two_shot", 8 << 10, (32 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 32 << 20)),
    ):
        code = kernel_code(folder, path, f"weft_{body}_float_sum")
        if not code:
            print("skipped: the object has no code for sm_90 (-Dgpu_targets)")
            return 77
        for size in sizes:
            blocks = min(-(-size // bytes_a_block), BLOCKS)
            arguments = subprocess.run([program, str(size)], capture_output=True, check=True).stdout
            rounds = 1
            if body == "packet_one_shot":  # lines are twice their data
                thread = TimedThread(code, arguments, 0, blocks, size * 2 * 7, constants)
                lines = {"sent": 7, "received": 7}
            else:  # full lines of 16 bytes
                rounds = -(-size // (BLOCKS * FULL_LINES * 16))
                share = size // rounds // blocks // 16 // RANKS
                waves = share * RANKS // THREADS
                thread = TwoShotThread(
                    code, arguments, share - WARP, blocks, size * 7 / RANKS, constants, waves=waves, rounds=rounds
                )
                lines = {"sent": rounds * (waves + RANKS), "received": rounds * (RANKS + thread.results_loaded)}
            try:
                thread.run()
            except NotImplementedError as unknown:
                print(f"skipped: this compiler uses an instruction that is not known here: {unknown}")
                return 77
            time = constants["launch_gap_us"] + constants["kernel_start_us"] + thread.now
            print(f"| {size} | {body}, {blocks} | {thread.count} | {time:.1f} |")
            if thread.count > rounds * int(most.get(body, 1 << 30)):
                wrong.append(f"{body} of {size} bytes: {thread.count} instructions, at most {most[body]} a round are allowed")
            counted = {"sent": len(thread.sent), "received": thread.received}
            if counted != lines:
                wrong.append(f"{body} of {size} bytes: lines {counted}, expected {lines}")
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
