// placement.hpp: the places of a rank's buffers, out of place and in place, and their contents before and after a call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective.hpp"
#include "pattern.hpp"

namespace perf {

enum Side : uint8_t { sending, receiving };

// Consecutive parts in the memory of a side. No parts: the rank does not use the buffer.
struct Extent {
    Side side = sending;
    int first = 0;
    int parts = 0;
    friend bool operator==(const Extent&, const Extent&) = default;
};

struct Placement {
    Extent send, receive;
};

// The number of parts of the whole.
int parts_of(const Collective& collective, int ranks);

// In place, both buffers lie in the receive memory: the whole at its start, an own part at its place in the whole.
Placement placement_of(const Collective& collective, const Seat& seat, bool in_place);

// The data of one check. Every part has its own pattern, so that a check notices exchanged parts. A value.
class Data {
  public:
    // Seeds of different checks must differ by at least parts_of().
    Data(const Collective& collective, const Element& element, const Reduction& reduction, const Seat& seat,
         uint64_t seed);

    // The contents of each part of a side's memory. An empty period: the part must keep its old contents.
    using Contents = std::vector<Period>;
    Contents before(const Placement& placement, Side side) const;
    Contents after(const Placement& placement, Side side) const;

  private:
    Pattern pattern(int part) const;
    Period input(int rank, int part) const;
    Period received(int part) const;

    const Collective& collective_;
    Element element_;
    Reduction reduction_;
    Seat seat_;
    uint64_t seed_;
};

}  // namespace perf
