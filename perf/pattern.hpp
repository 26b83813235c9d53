// pattern.hpp: the data of a benchmark and its exact results. Inputs are chosen for type, reduction and rank count so
// that every partial result in any order is exact in the type: what comes out is right to the last bit, or wrong.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "element.hpp"

namespace perf {

// One period of elements as bytes. A buffer holds it over and over, so tables are made once and checking runs at the
// speed of memory.
using Period = std::vector<std::byte>;

// A value: the inputs of all ranks for one check; another seed, other data. Reentrant.
class Pattern {
  public:
    // Prime: no displacement by chunks, slots or tiles, all powers of two or shares of them, maps the data onto itself.
    static constexpr size_t period_elements = 4093;

    Pattern(const Element& element, const Reduction& reduction, int ranks, uint64_t seed);

    Period input(int rank) const;
    // What the reduction over all ranks must be.
    Period reduced() const;
    // Of data that are only moved: any bits, so infinities and NaNs among them.
    Period bits(int rank) const;
    // The factor of `rank` in a pre-multiplied sum, as bits of the type.
    uint64_t scalar(int rank) const;

  private:
    int64_t integer_input(int rank, size_t index) const;  // integer types: to be cut to the type's width
    double floating_input(int rank, size_t index) const;
    uint64_t reduced_integer(size_t index) const;
    double reduced_floating(size_t index) const;
    // An integer of at most limit / ranks in size; where that is below 1, only `limit` of the ranks have one and the
    // others 0.
    int64_t share_of(int64_t limit, int rank, size_t index) const;
    uint64_t random(uint64_t rank, uint64_t index) const;

    Element element_;
    Reduction reduction_;
    int ranks_;
    uint64_t seed_;
};

// Writes the period over and over; the last one is cut off.
void fill(std::byte* buffer, size_t bytes, const Period& period);
// Elements of the buffer that differ, in any bit, from what fill() would have written.
size_t count_wrong(const std::byte* buffer, size_t bytes, const Period& period, size_t element_bytes);

}  // namespace perf
