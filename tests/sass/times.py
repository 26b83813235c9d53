"""Predicts the times of all-reduces by packets, from the machine code for sm_90 and the constants of times.txt.

usage: times.py [--most KERNEL=INSTRUCTIONS]... ARGUMENTS OBJECT
ARGUMENTS: the program that writes a kernel's arguments (arguments.cpp). OBJECT: packet_kernels.o.
It follows one thread of 8 ranks that run alike. An instruction waits for what it reads, and a line arrives when the peer's
line has crossed the link. The output is a table in Markdown.
--most: it fails if a thread executes more instructions in that kernel.
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

RANKS, THREADS, UNIT = 8, 512, 8
FLAGS, PACKETS, INPUT = 1, 2, 3  # kinds of memory (arguments.cpp)
EPOCH = 5  # of the operation before


def constants_of(path: Path) -> dict[str, float]:
    rows = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return {row[0]: float(row[1]) for row in rows if row}


class TimedThread(Thread):
    """A thread whose peers do the same at the same time."""

    def __init__(self, code: dict[int, Instruction], arguments: bytes, blocks: int, hop_bytes: float, constants: dict[str, float]) -> None:
        super().__init__(code, arguments[:-16], 0, THREADS, 0, blocks)
        self.barrier_end, self.epoch_place = struct.unpack("<QQ", arguments[-16:])  # in the flags
        self.constant_us = constants
        self.now = 0.0
        self.ready: dict[str, float] = {}  # when a register has its value
        self.hop_us = hop_bytes / constants["link_bytes_per_us"]
        self.sent: list[float] = []  # lines, 7 of each hop
        self.received = 0
        self.announced = self.prefetched = 0.0

    def before(self, instruction: Instruction, runs: bool) -> None:
        read = " ".join([instruction.guard, *instruction.operands])
        self.now = max([self.now, *(self.ready.get(each, 0.0) for each in re.findall(r"U?R\d+", read))])
        self.now += self.constant_us["instruction_us"]
        target = instruction.operands[0] if instruction.operands else ""
        if runs and instruction.base in ("LD", "LDG"):
            arrives = self.now + self.wait(self.address_of(instruction.operands[-1]))
            for i in range(max(1, instruction.bytes // 4)):
                self.ready[after(target, i)] = arrives
        elif REGISTER.match(target):
            self.ready.pop(target, None)
        if runs and instruction.name.endswith(".PF1"):
            self.prefetched = self.now + self.constant_us["memory_us"]

    def wait(self, address: int) -> float:
        """Until a load has its value."""
        kind = address >> 40
        crossed = self.constant_us["store_us"] - self.now
        if kind == PACKETS:
            lines = self.sent[self.received // 7 * 7 :][:7]
            self.received += 1
            return max(0.0, lines[-1] + self.hop_us + crossed) + self.constant_us["cache_us"]
        if kind == FLAGS and address & 0xFFFFFFFF < self.barrier_end:
            return max(0.0, self.announced + crossed) + self.constant_us["cache_us"]
        if kind == INPUT and self.prefetched:
            return max(self.constant_us["first_cache_us"], self.prefetched - self.now)
        return self.constant_us["memory_us"]

    def load(self, address: int, size: int) -> list[int]:
        if address >> 40 == PACKETS:
            return [0, EPOCH + 1, 0, EPOCH + 1]
        if address >> 40 == FLAGS:
            place = address & 0xFFFFFFFF
            if place < self.barrier_end:
                return [1, EPOCH + 1]  # the fingerprint, and the epoch
            return [EPOCH if place == self.epoch_place else 0]
        return [0] * max(1, size // 4)

    def store(self, address: int, words: list[int]) -> None:
        if address >> 40 == PACKETS:
            self.sent.append(self.now)
        elif address >> 40 == FLAGS and not self.announced:
            self.announced = self.now


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
        ("packet_two_shot", 16 << 10, (32 << 10, 64 << 10, 256 << 10, 512 << 10)),
    ):
        code = kernel_code(folder, path, f"weft_{body}_float_sum")
        if not code:
            print("skipped: the object has no code for sm_90 (-Dgpu_targets)")
            return 77
        for size in sizes:
            blocks = -(-size // bytes_a_block)
            # Packets are twice their data. Two-shot has two hops, each of a share for every peer.
            hop_bytes = size * 2 * 7 if body == "packet_one_shot" else size * 2 * 7 / RANKS
            arguments = subprocess.run([program, str(size)], capture_output=True, check=True).stdout
            thread = TimedThread(code, arguments, blocks, hop_bytes, constants)
            try:
                thread.run()
            except NotImplementedError as unknown:
                print(f"skipped: this compiler uses an instruction that is not known here: {unknown}")
                return 77
            time = constants["launch_gap_us"] + constants["kernel_start_us"] + thread.now
            print(f"| {size} | {body}, {blocks} | {thread.count} | {time:.1f} |")
            if thread.count > int(most.get(body, 1 << 30)):
                wrong.append(f"{body} of {size} bytes: {thread.count} instructions, at most {most[body]} are allowed")
            if len(thread.sent) != thread.received or thread.received == 0:
                wrong.append(f"{body} of {size} bytes: {len(thread.sent)} lines sent, {thread.received} received")
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
