"""Follows one thread through the machine code of a kernel (sm_90), as far as kernels that move packets need it.

Instructions compute what the hardware computes, except that barriers pass and fences do nothing. Memory is what the
subclass makes it. An unknown instruction is an error.
"""

import math
import re
import struct
from dataclasses import dataclass

MASK = 0xFFFFFFFF
REGISTER = re.compile(r"(U?R)(\d+)$")
PREDICATE = re.compile(r"!?U?P(\d|T)$")
IGNORED = ("BSSY", "BSYNC", "BREAK", "YIELD", "NOP", "WARPSYNC", "ERRBAR", "CGAERRBAR", "NANOSLEEP", "CCTL", "MEMBAR")
PARAMETERS = 0x210  # where a kernel's arguments begin in the constant bank


@dataclass
class Instruction:
    guard: str
    name: str  # with modifiers
    operands: list[str]

    @property
    def base(self) -> str:
        return self.name.split(".")[0]

    @property
    def bytes(self) -> int:
        sizes = {".128": 16, ".64": 8, ".U8": 1, ".S8": 1}
        return next((size for mark, size in sizes.items() if mark in self.name), 4)


def parsed(text: str) -> dict[int, Instruction]:
    """The instructions of one kernel by address, from the output of cuobjdump -sass."""
    code = {}
    for match in re.finditer(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)([^;]*);", text):
        operands = re.split(r",(?![^\[]*\])", match[4].replace(".reuse", ""))
        code[int(match[1], 16)] = Instruction(match[2] or "PT", match[3], [each.strip() for each in operands if each.strip()])
    return code


def bits_of(value: float) -> int:
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0x7F800000


def float_of(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits & MASK))[0]


def signed(value: int) -> int:
    value &= MASK
    return value - (1 << 32) if value >> 31 else value


def after(register: str, count: int = 1) -> str:
    match = REGISTER.match(register)
    return f"{match[1]}{int(match[2]) + count}" if match else register


class Thread:
    def __init__(self, code: dict[int, Instruction], arguments: bytes, thread: int, threads: int, block: int, blocks: int) -> None:
        self.code = code
        self.registers: dict[str, int] = {}
        self.predicates: dict[str, bool] = {}
        self.special = {"SR_TID.X": thread, "SR_CTAID.X": block}
        self.constants = bytearray(PARAMETERS) + bytearray(arguments)
        struct.pack_into("<4I", self.constants, 0, threads, 1, 1, blocks)
        struct.pack_into("<Q", self.constants, 0x198, PARAMETERS)
        self.count = 0
        self.barrier_predicate = "PT"

    # For subclasses.
    def before(self, instruction: Instruction, runs: bool) -> None:
        """Called before each instruction; `runs`: its guard is true."""

    def load(self, address: int, size: int) -> list[int]:
        raise NotImplementedError

    def store(self, address: int, words: list[int]) -> None:
        raise NotImplementedError

    def run(self, most: int = 100_000) -> None:
        address = 0
        while True:
            instruction = self.code[address]
            runs = self.predicate(instruction.guard)
            self.count += 1
            if self.count > most:
                raise RuntimeError(f"no end after {most} instructions, at {address:#x}")
            self.before(instruction, runs)
            address += 16
            if not runs or instruction.base in IGNORED:
                continue
            if instruction.base == "EXIT":
                return
            execute = getattr(self, "do_" + instruction.base.lower().removeprefix("u"), None)
            if execute is None:
                raise NotImplementedError(f"{instruction.name} at {address - 16:#x}")
            address = execute(instruction, *instruction.operands) or address

    # Operands.
    def get(self, register: str) -> int:
        return self.registers.get(register, 0)

    def set(self, register: str, value: int) -> None:
        if register not in ("RZ", "URZ"):
            self.registers[register] = value & MASK

    def pair(self, register: str) -> int:
        return self.get(register) | self.get(after(register)) << 32 if REGISTER.match(register) else self.value(register)

    def set_pair(self, register: str, value: int) -> None:
        self.set(register, value)
        self.set(after(register), value >> 32)

    def predicate(self, name: str) -> bool:
        plain = name.lstrip("!")
        value = True if plain in ("PT", "UPT") else self.predicates.get(plain, False)
        return value != name.startswith("!")

    def set_predicate(self, name: str, value: bool) -> None:
        if name not in ("PT", "UPT"):
            self.predicates[name] = bool(value)

    def constant(self, operand: str, size: int = 4) -> int:
        inside = operand[len("c[0x0][") : -1]
        address = sum(int(term, 16) if term.startswith("0x") else self.get(term) for term in inside.split("+")) & MASK
        return int.from_bytes(self.constants[address : address + size], "little")

    def value(self, operand: str) -> int:
        if operand[0] == "~":
            return ~self.value(operand[1:]) & MASK
        if operand[0] == "-" and not operand[1].isdigit():
            return -self.value(operand[1:]) & MASK
        if operand[0] == "c":
            return self.constant(operand)
        if operand[0] in "RUS":
            return self.get(operand)
        try:
            return int(operand, 0) & MASK
        except ValueError:
            return bits_of(float(operand.replace("INF", "inf")))

    def addend(self, operand: str) -> int:
        """As the adder takes it: minus is the complement and a carry."""
        if operand[0] == "-" and not operand[1].isdigit():
            return (~self.value(operand[1:]) & MASK) + 1
        return self.value(operand)

    def number(self, operand: str) -> float:
        if operand[0] == "-" and not operand[1].isdigit():
            return -self.number(operand[1:])
        if operand[0] == "|":
            return abs(self.number(operand[1:-1]))
        return float_of(self.value(operand)) if operand[0] in "RUc" or operand.startswith("0x") else float(operand)

    def address_of(self, operand: str) -> int:
        inside = operand[operand.rindex("[") + 1 : -1]
        terms = (term.strip() for term in inside.replace("+-", "+ -").split("+"))
        return sum(self.pair(term[:-3]) if term.endswith(".64") else int(term, 16) if "0x" in term else self.get(term) for term in terms)

    def outputs(self, operands: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """The predicates that follow the target register, and the other operands."""
        first = next(i for i, each in enumerate(operands) if i > 0 and not PREDICATE.match(each))
        return list(operands[1:first]), list(operands[first:])

    # Control.
    def do_bra(self, _: Instruction, *operands: str) -> int:
        return int(operands[-1], 16) if len(operands) == 1 or self.predicate(operands[0]) else 0

    def do_call(self, _: Instruction, target: str) -> int:
        return int(target, 16)

    def do_ret(self, _: Instruction, register: str, *__: str) -> int:
        return self.get(register.split()[0])

    def do_bar(self, _: Instruction, *operands: str) -> None:
        self.barrier_predicate = operands[-1] if len(operands) > 1 else "PT"

    def do_b2r(self, _: Instruction, *operands: str) -> None:
        if len(operands) > 1:
            self.set_predicate(operands[1], self.predicate(self.barrier_predicate))

    # Memory.
    def do_ldc(self, it: Instruction, target: str, source: str) -> None:
        value = self.constant(source, it.bytes)
        self.set_pair(target, value) if it.bytes == 8 else self.set(target, value)

    def do_ld(self, it: Instruction, target: str, *rest: str) -> None:
        for i, word in enumerate(self.load(self.address_of(rest[-1]), it.bytes)):
            self.set(after(target, i), word)

    do_ldg = do_ld

    def do_st(self, it: Instruction, address: str, source: str) -> None:
        self.store(self.address_of(address), [self.get(after(source, i)) for i in range(max(1, it.bytes // 4))])

    do_stg = do_st

    # Moves and selections.
    def do_mov(self, _: Instruction, target: str, source: str) -> None:
        self.set(target, self.value(source))

    def do_r2ur(self, _: Instruction, *operands: str) -> None:
        self.set(operands[-2], self.value(operands[-1]))

    def do_s2r(self, _: Instruction, target: str, source: str) -> None:
        self.set(target, self.special[source])

    def do_cs2r(self, it: Instruction, target: str, _: str) -> None:
        self.set(target, 0) if ".32" in it.name else self.set_pair(target, 0)

    def do_sel(self, _: Instruction, target: str, one: str, other: str, which: str) -> None:
        self.set(target, self.value(one if self.predicate(which) else other))

    do_fsel = do_sel

    def do_prmt(self, _: Instruction, target: str, low: str, selector: str, high: str) -> None:
        source = (self.value(low) | self.value(high) << 32).to_bytes(8, "little")
        result, which = 0, self.value(selector)
        for i in range(4):
            nibble = which >> 4 * i & 15
            byte = source[nibble & 7]
            result |= ((0xFF if byte & 0x80 else 0) if nibble & 8 else byte) << 8 * i
        self.set(target, result)

    def do_p2r(self, _: Instruction, target: str, __: str, source: str, mask: str) -> None:
        bits = sum(self.predicate(f"P{i}") << i for i in range(7))
        self.set(target, bits & int(mask, 16) | self.value(source) & ~int(mask, 16))

    def do_r2p(self, _: Instruction, __: str, source: str, mask: str) -> None:
        for i in range(7):
            if int(mask, 16) >> i & 1:
                self.set_predicate(f"P{i}", self.value(source) >> i & 1 != 0)

    # Integers.
    def do_iadd3(self, it: Instruction, *operands: str) -> None:
        carries, rest = self.outputs(operands)
        total = sum(self.addend(each) for each in rest[:3])
        if ".X" in it.name:
            total += sum(self.predicate(each) for each in rest[3:])
        self.set(operands[0], total)
        for i, carry in enumerate(carries):
            self.set_predicate(carry, total >> 32 > i)

    def do_viadd(self, _: Instruction, target: str, one: str, other: str) -> None:
        self.set(target, self.value(one) + self.value(other))

    def do_hfma2(self, it: Instruction, target: str, one: str, other: str, high: str, low: str) -> None:
        if {one.lstrip("-"), other} != {"RZ"}:
            raise NotImplementedError(it.name)
        self.set(target, int.from_bytes(struct.pack("<ee", float(low), float(high)), "little"))  # a constant

    def do_vimnmx(self, it: Instruction, target: str, one: str, other: str, lesser: str) -> None:
        number = int if ".U32" in it.name else signed
        values = (number(self.value(one)), number(self.value(other)))
        self.set(target, min(values) if self.predicate(lesser) else max(values))

    def do_viaddmnmx(self, it: Instruction, target: str, one: str, other: str, third: str, lesser: str) -> None:
        number = int if ".U32" in it.name else signed
        values = (number(self.value(one) + self.value(other) & MASK), number(self.value(third)))
        self.set(target, min(values) if self.predicate(lesser) else max(values))

    def do_iabs(self, _: Instruction, target: str, source: str) -> None:
        self.set(target, abs(signed(self.value(source))))

    def do_imad(self, it: Instruction, *operands: str) -> None:
        carries, (one, other, third, *extra) = self.outputs(operands)
        wide = ".WIDE" in it.name or ".HI" in it.name
        as_number = signed if wide and ".U32" not in it.name else int
        product = as_number(self.value(one)) * as_number(self.value(other))
        if wide:
            total = (product & (1 << 64) - 1) + self.pair(third)
            self.set_pair(operands[0], total) if ".WIDE" in it.name else self.set(operands[0], total >> 32)
        else:
            total = product + self.addend(third) + (self.predicate(extra[0]) if ".X" in it.name and extra else 0)
            self.set(operands[0], total)
        for carry in carries:
            self.set_predicate(carry, total >> (64 if wide else 32) != 0)

    def do_lea(self, it: Instruction, *operands: str) -> None:
        carries, rest = self.outputs(operands)
        carry = self.predicate(rest.pop()) if ".X" in it.name else 0
        shift = int(rest[-1], 0)
        if ".SX32" in it.name:
            shifted = signed(self.value(rest[0])) >> 32 - shift
        elif ".HI" in it.name:
            shifted = (self.value(rest[0]) | self.value(rest[2]) << 32) >> 32 - shift
        else:
            shifted = self.value(rest[0]) << shift
        total = (shifted & MASK) + self.addend(rest[1]) + carry
        self.set(operands[0], total)
        for each in carries:
            self.set_predicate(each, total >> 32 != 0)

    def do_shf(self, it: Instruction, target: str, low: str, shift: str, high: str) -> None:
        count, pair = self.value(shift), self.value(low) | self.value(high) << 32
        if ".L." in it.name:
            result = pair << count
        else:
            result = signed(pair >> 32) >> min(count, 31) << 32 if ".S32" in it.name and ".HI" in it.name else pair >> count
        self.set(target, result >> 32 if ".HI" in it.name else result)

    def do_isetp(self, it: Instruction, *operands: str) -> None:
        target, inverse, one, other, with_, *carry = operands
        kind = it.name.split(".")[1]
        as_number = int if ".U32" in it.name else signed
        x, y = as_number(self.value(one)), as_number(self.value(other))
        result = {"EQ": x == y, "NE": x != y, "LT": x < y, "GT": x > y, "LE": x <= y, "GE": x >= y}[kind]
        if ".EX" in it.name:  # the upper halves; the predicate is the comparison of the lower ones
            lower = self.predicate(carry[0])
            if kind in ("EQ", "NE"):
                result = result and lower if kind == "EQ" else result or lower
            else:
                result = (x < y if kind[0] == "L" else x > y) or (x == y and lower)
        self.combine(it, target, inverse, result, with_)

    def combine(self, it: Instruction, target: str, inverse: str, result: bool, with_: str) -> None:
        second = self.predicate(with_)
        for name, value in ((target, result), (inverse, not result)):
            self.set_predicate(name, value or second if ".OR" in it.name else value and second)

    def do_lop3(self, _: Instruction, *operands: str) -> None:
        predicate, rest = (operands[0], operands[1:]) if PREDICATE.match(operands[0]) else ("PT", operands)
        x, y, z = (self.value(each) for each in rest[1:4])
        table, result = int(rest[4], 16), 0
        for i in range(8):
            if table >> i & 1:
                result |= (x if i & 4 else ~x) & (y if i & 2 else ~y) & (z if i & 1 else ~z)
        self.set(rest[0], result)
        self.set_predicate(predicate, result & MASK != 0)

    def do_plop3(self, _: Instruction, *operands: str) -> None:
        index = sum(self.predicate(each) << 2 - i for i, each in enumerate(operands[2:5]))
        for target, table in zip(operands[:2], operands[5:7], strict=True):
            self.set_predicate(target, int(table, 16) >> index & 1 != 0)

    # Numbers.
    def do_fadd(self, _: Instruction, target: str, one: str, other: str) -> None:
        self.set(target, bits_of(self.number(one) + self.number(other)))

    def do_fmul(self, _: Instruction, target: str, one: str, other: str) -> None:
        self.set(target, bits_of(self.number(one) * self.number(other)))

    def do_ffma(self, _: Instruction, target: str, one: str, other: str, third: str) -> None:
        self.set(target, bits_of(self.number(one) * self.number(other) + self.number(third)))

    def do_fchk(self, _: Instruction, target: str, *__: str) -> None:
        self.set_predicate(target, False)  # the operands of a division are ordinary

    def do_mufu(self, _: Instruction, target: str, source: str) -> None:  # 1 / x
        value = self.number(source)
        self.set(target, bits_of(1 / value if value else math.inf))

    def do_i2fp(self, _: Instruction, target: str, source: str) -> None:
        self.set(target, bits_of(float(self.value(source))))

    def do_i2f(self, it: Instruction, target: str, source: str) -> None:  # rounds up
        value = self.pair(source) if ".U64" in it.name else self.value(source)
        bits = bits_of(float(value))
        self.set(target, bits + (float_of(bits) < value))

    def do_f2i(self, _: Instruction, target: str, source: str) -> None:
        value = self.number(source)
        self.set(target, min(int(value), MASK) if math.isfinite(value) else MASK)
