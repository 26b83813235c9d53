// pattern.hpp: the data of a benchmark and its exact results.
// Inputs depend on type, reduction and rank count. Every partial result in any order is exact in the type.
// Thus a correct output matches to the last bit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "element.hpp"

namespace perf {

// One period of elements as bytes. Buffers repeat it, so one small table serves and checks run at memory speed.
using Period = std::vector<std::byte>;

// A value: the inputs of all ranks for one check. Another seed gives other data. Reentrant.
class Pattern {
  public:
    // A prime: a displacement by chunks, slots or tiles (powers of two or shares of them) never maps the data onto
    // itself.
    static constexpr size_t period_elements = 4093;

    Pattern(const Element& element, const Reduction& reduction, int ranks, uint64_t seed);

    Period input(int rank) const;
    // The expected reduction over all ranks.
    Period reduced() const;
    // Data for collectives that only move it: arbitrary bits, so infinities and NaNs occur.
    Period bits(int rank) const;
    // The factor of `rank` in a pre-multiplied sum, as bits of the type.
    uint64_t scalar(int rank) const;

  private:
    int64_t integer_input(int rank, size_t index) const;  // integer types: the caller truncates it to the type's width
    double floating_input(int rank, size_t index) const;
    uint64_t reduced_integer(size_t index) const;
    double reduced_floating(size_t index) const;
    // An integer of at most limit / ranks in size. If that is below 1, only `limit` ranks have one and the others 0.
    int64_t share_of(int64_t limit, int rank, size_t index) const;
    uint64_t random(uint64_t rank, uint64_t index) const;

    Element element_;
    Reduction reduction_;
    int ranks_;
    uint64_t seed_;
};

// Writes the period repeatedly; the last copy is cut off.
void fill(std::byte* buffer, size_t bytes, const Period& period);
// The elements of the buffer that differ in any bit from the output of fill().
size_t count_wrong(const std::byte* buffer, size_t bytes, const Period& period, size_t element_bytes);

}  // namespace perf
