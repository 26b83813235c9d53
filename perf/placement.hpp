// placement.hpp: where a rank's buffers lie, out of place and in place, and what must be there before and after a call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective.hpp"
#include "pattern.hpp"

namespace perf {

enum Side : uint8_t { sending, receiving };

// Parts in a row, in the memory of a side. None: the rank has no use for the buffer.
struct Extent {
    Side side = sending;
    int first = 0;
    int parts = 0;
    friend bool operator==(const Extent&, const Extent&) = default;
};

struct Placement {
    Extent send, receive;
};

// Parts of the whole.
int parts_of(const Collective& collective, int ranks);

// In place both lie in the receiving memory: the whole at its start, an own part where the whole has it.
Placement placement_of(const Collective& collective, const Seat& seat, bool in_place);

// The data of one check: every part has a pattern of its own, so that parts in each other's place show. A value.
class Data {
  public:
    // Seeds of another check lie `parts_of` further.
    Data(const Collective& collective, const Element& element, const Reduction& reduction, const Seat& seat,
         uint64_t seed);

    // What each part of a side's memory holds; an empty period: what was there before, which nobody may write.
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
