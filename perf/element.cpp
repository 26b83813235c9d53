// element.cpp: the table of types and reductions, and the encoding of exact values.
#include "element.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <sstream>

namespace perf {

const std::vector<Element>& elements() {
    static const std::vector<Element> table = {
        {"int8", "char", weftInt8, 1, Kind::signed_integer},
        {"uint8", "", weftUint8, 1, Kind::unsigned_integer},
        {"int32", "int", weftInt32, 4, Kind::signed_integer},
        {"uint32", "", weftUint32, 4, Kind::unsigned_integer},
        {"int64", "", weftInt64, 8, Kind::signed_integer},
        {"uint64", "", weftUint64, 8, Kind::unsigned_integer},
        {"half", "float16 fp16", weftFloat16, 2, Kind::floating, 10, 5, 65504},
        {"float", "float32 fp32", weftFloat32, 4, Kind::floating, 23, 8, 0x1.fffffep127},
        {"double", "float64 fp64", weftFloat64, 8, Kind::floating, 52, 11, 0x1.fffffffffffffp1023},
        {"bfloat16", "bf16", weftBfloat16, 2, Kind::floating, 7, 8, 0x1.fep127},
        {"f8e4m3", "fp8_e4m3 e4m3", weftFloat8e4m3, 1, Kind::floating, 3, 4, 448},
        {"f8e5m2", "fp8_e5m2 e5m2", weftFloat8e5m2, 1, Kind::floating, 2, 5, 57344},
    };
    return table;
}

const std::vector<Reduction>& reductions() {
    static const std::vector<Reduction> table = {
        {"sum", weftSum},       {"prod", weftProd}, {"max", weftMax}, {"min", weftMin},   {"avg", weftAvg},
        {"mulsum", weftNumOps}, {"band", weftBand}, {"bor", weftBor}, {"bxor", weftBxor},
    };
    return table;
}

bool serves(const Reduction& reduction, const Element& element) {
    return reduction.op < weftBand || reduction.op > weftBxor || element.kind != Kind::floating;
}

const Element* find_element(const std::string& name) {
    for (const Element& element : elements()) {
        std::istringstream words(std::string(element.name) + " " + element.aliases);
        for (std::string word; words >> word;)
            if (word == name) return &element;
    }
    return nullptr;
}

const Reduction* find_reduction(const std::string& name) {
    for (const Reduction& reduction : reductions())
        if (name == reduction.name) return &reduction;
    return nullptr;
}

int64_t Element::exact_limit() const {
    // A range with enough variety for any check that is far from the limits of 64-bit arithmetic.
    const int64_t enough = int64_t(1) << 40;
    if (kind == Kind::floating) return std::min(enough, int64_t(1) << (mantissa_bits + 1));
    int value_bits = int(bytes) * 8 - (kind == Kind::signed_integer);
    return value_bits > 40 ? enough : (int64_t(1) << value_bits) - 1;
}

uint64_t encode_integer(const Element& element, uint64_t value) {
    return element.bytes == 8 ? value : value & ((uint64_t(1) << (element.bytes * 8)) - 1);
}

uint64_t encode_floating(const Element& element, double value) {
    if (value == 0) return 0;
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    const int bias = (1 << (element.exponent_bits - 1)) - 1;
    const int64_t exponent = int64_t(bits >> 52 & 0x7ff) - 1023 + bias;
    const uint64_t mantissa = bits & ((uint64_t(1) << 52) - 1);
    const int dropped = 52 - element.mantissa_bits;
    assert(std::abs(value) <= element.largest && exponent > 0);
    assert((mantissa & ((uint64_t(1) << dropped) - 1)) == 0);
    return (bits >> 63) << (element.bytes * 8 - 1) | uint64_t(exponent) << element.mantissa_bits | mantissa >> dropped;
}

}  // namespace perf
