// delivery.hpp: the parts of copies in memory on their way to the ranks that load them.
#pragma once
#include <vector>

#include "src/base/result.hpp"
#include "src/train/checkpoint/plan.hpp"
#include "src/train/checkpoint/state_copy.hpp"

namespace weft::internal::train {

class Peers;

// The parts of boxes that go from holders to readers. Thread-bound.
class Delivery {
  public:
    Delivery(const Peers& peers, const std::vector<const StateCopy*>& sources);

    // Box number `number` of the reader.
    Status add(int reader, const std::vector<Read>& reads, size_t number);
    Status exchange();
    // Into the memory of this rank's boxes.
    Status unpack(const std::vector<StoredBox>& boxes, const std::vector<void*>& memory) const;

  private:
    struct Arrival {
        Read read;
        size_t number;
        int holder;
        size_t begin;  // in the bytes from the holder
    };
    Status pack(const Read& read, std::vector<std::byte>& bytes) const;
    // `begin` counts through all sources.
    const std::byte* memory_of(const StoredBox& stored) const;

    const Peers& peers_;
    const std::vector<const StateCopy*>& sources_;
    std::vector<std::vector<std::byte>> sends_, receives_;  // to and from each rank
    std::vector<Arrival> arrivals_;
};

}  // namespace weft::internal::train
