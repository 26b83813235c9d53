// pattern.cpp: chooses inputs and computes their exact results.
#include "pattern.hpp"

#include <algorithm>
#include <cstring>

namespace perf {
namespace {

// Factors of a pre-multiplied sum. Powers of two keep the product exact.
// They differ by rank, so that a check notices exchanged factors.
int scalar_of(int rank) { return 1 + rank % 2; }
constexpr int scalar_largest = 2;

int odd_part(int value) { return value / (value & -value); }

// The low bytes of `bits` as a signed integer of the type.
int64_t sign_extended(const Element& element, uint64_t bits) {
    if (element.kind != Kind::signed_integer) return int64_t(bits);
    const int unused = 64 - int(element.bytes) * 8;
    return int64_t(bits << unused) >> unused;
}

void append(Period& period, uint64_t bits, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) period.push_back(std::byte(bits >> (8 * i)));
}

}  // namespace

Pattern::Pattern(const Element& element, const Reduction& reduction, int ranks, uint64_t seed)
    : element_(element), reduction_(reduction), ranks_(ranks), seed_(seed) {}

uint64_t Pattern::random(uint64_t rank, uint64_t index) const {
    uint64_t x = seed_ * 0x9e3779b97f4a7c15u + rank * 0xbf58476d1ce4e5b9u + index * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

int64_t Pattern::share_of(int64_t limit, int rank, size_t index) const {
    if (limit < 1) return 0;
    const int64_t givers = std::min<int64_t>(limit, ranks_);
    // The contributing rank differs from element to element.
    const uint64_t place = (uint64_t(rank) + random(uint64_t(ranks_), index)) % uint64_t(ranks_);
    if (int64_t(place) >= givers) return 0;
    const int64_t largest = limit / givers;
    const uint64_t draw = random(uint64_t(rank), index);
    if (element_.kind == Kind::unsigned_integer) return int64_t(draw % uint64_t(largest + 1));
    return int64_t(draw % uint64_t(2 * largest + 1)) - largest;
}

// Integer arithmetic wraps, so any bits are exact inputs, with two exceptions.
// The average would become ambiguous, and an even factor would drive a product to zero.
int64_t Pattern::integer_input(int rank, size_t index) const {
    switch (int(reduction_.op)) {
        case weftAvg: return share_of(element_.exact_limit(), rank, index);
        case weftProd: return int64_t(random(uint64_t(rank), index) | 1);
        // With many random words, every bit of `and` is 0 and of `or` is 1. So only two ranks contribute, and they
        // vary.
        case weftBand:
        case weftBor: {
            const bool gives = (uint64_t(rank) + random(uint64_t(ranks_), index)) % uint64_t(ranks_) < 2;
            return gives ? int64_t(random(uint64_t(rank), index)) : reduction_.op == weftBand ? -1 : 0;
        }
        default: return int64_t(random(uint64_t(rank), index));
    }
}

double Pattern::floating_input(int rank, size_t index) const {
    const int64_t limit = element_.exact_limit();
    switch (int(reduction_.op)) {
        case weftProd: {
            // One of 1, 2, -1, -2. The exponent limits the number of twos.
            const int twos = element_.exponent_bits > 5 ? 100 : element_.exponent_bits == 5 ? 14 : 7;
            const uint64_t draw = random(uint64_t(rank), index);
            const uint64_t place = (uint64_t(rank) + random(uint64_t(ranks_), index)) % uint64_t(ranks_);
            return (draw & 1 ? -1.0 : 1.0) * (place < uint64_t(twos) && (draw & 2) ? 2.0 : 1.0);
        }
        case weftMin:
        case weftMax: return double(int64_t(random(uint64_t(rank), index) % uint64_t(2 * limit + 1)) - limit);
        case weftNumOps: return double(share_of(limit / scalar_largest, rank, index));
        case weftAvg: {
            // Multiples of the rank count keep the quotient whole. Only the odd part of the count costs precision.
            const int64_t multiples =
                std::min(limit / odd_part(ranks_), int64_t(std::min(element_.largest / ranks_, 0x1p40)));
            if (multiples > 0) return double(ranks_) * double(share_of(multiples, rank, index));
            // The rank count exceeds the type's precision: two of the ranks cancel.
            const double value = double(1 + random(uint64_t(ranks_) + 1, index) % uint64_t(limit));
            const uint64_t place = (uint64_t(rank) + random(uint64_t(ranks_), index)) % uint64_t(ranks_);
            return place == 0 ? value : place == 1 ? -value : 0;
        }
        default: return double(share_of(limit, rank, index));
    }
}

uint64_t Pattern::reduced_integer(size_t index) const {
    auto input = [&](int rank) { return encode_integer(element_, uint64_t(integer_input(rank, index))); };
    auto value = [&](uint64_t bits) { return sign_extended(element_, bits); };
    uint64_t result = input(0) * uint64_t(reduction_.op == weftNumOps ? scalar_of(0) : 1);
    // Sums for avg are kept as integers of full width; the inputs bound them.
    int64_t total = value(result);
    for (int rank = 1; rank < ranks_; ++rank) {
        const uint64_t next = input(rank);
        const bool unsigned_less = next < result, signed_less = value(next) < value(result);
        const bool less = element_.kind == Kind::signed_integer ? signed_less : unsigned_less;
        switch (int(reduction_.op)) {
            case weftSum: result += next; break;
            case weftProd: result *= next; break;
            case weftMin: result = less ? next : result; break;
            case weftMax: result = less ? result : next; break;
            case weftBand: result &= next; break;
            case weftBor: result |= next; break;
            case weftBxor: result ^= next; break;
            case weftNumOps: result += next * uint64_t(scalar_of(rank)); break;
            default: total += value(next); break;  // avg
        }
    }
    // C++ division truncates toward zero, as Weft's does.
    if (reduction_.op == weftAvg) result = uint64_t(total / ranks_);
    return encode_integer(element_, result);
}

double Pattern::reduced_floating(size_t index) const {
    double result = floating_input(0, index) * (reduction_.op == weftNumOps ? scalar_of(0) : 1);
    for (int rank = 1; rank < ranks_; ++rank) {
        const double next = floating_input(rank, index);
        switch (int(reduction_.op)) {
            case weftProd: result *= next; break;
            case weftMin: result = std::min(result, next); break;
            case weftMax: result = std::max(result, next); break;
            case weftNumOps: result += next * scalar_of(rank); break;
            default: result += next; break;
        }
    }
    return reduction_.op == weftAvg ? result / ranks_ : result;
}

Period Pattern::input(int rank) const {
    Period period;
    period.reserve(period_elements * element_.bytes);
    for (size_t i = 0; i < period_elements; ++i)
        append(period,
               element_.kind == Kind::floating ? encode_floating(element_, floating_input(rank, i))
                                               : encode_integer(element_, uint64_t(integer_input(rank, i))),
               element_.bytes);
    return period;
}

Period Pattern::bits(int rank) const {
    Period period;
    period.reserve(period_elements * element_.bytes);
    for (size_t i = 0; i < period_elements; ++i) append(period, random(uint64_t(rank), i), element_.bytes);
    return period;
}

Period Pattern::reduced() const {
    Period period;
    period.reserve(period_elements * element_.bytes);
    for (size_t i = 0; i < period_elements; ++i)
        append(period,
               element_.kind == Kind::floating ? encode_floating(element_, reduced_floating(i)) : reduced_integer(i),
               element_.bytes);
    return period;
}

uint64_t Pattern::scalar(int rank) const {
    return element_.kind == Kind::floating ? encode_floating(element_, scalar_of(rank))
                                           : encode_integer(element_, uint64_t(scalar_of(rank)));
}

void fill(std::byte* buffer, size_t bytes, const Period& period) {
    for (size_t done = 0; done < bytes; done += period.size())
        std::memcpy(buffer + done, period.data(), std::min(period.size(), bytes - done));
}

size_t count_wrong(const std::byte* buffer, size_t bytes, const Period& period, size_t element_bytes) {
    size_t wrong = 0;
    for (size_t done = 0; done < bytes; done += period.size()) {
        const size_t length = std::min(period.size(), bytes - done);
        if (std::memcmp(buffer + done, period.data(), length) == 0) continue;
        for (size_t at = 0; at < length; at += element_bytes)
            wrong += std::memcmp(buffer + done + at, period.data() + at, element_bytes) != 0;
    }
    return wrong;
}

}  // namespace perf
