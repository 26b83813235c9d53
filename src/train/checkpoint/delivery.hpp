// delivery.hpp: the parts of copies in memory on their way to the ranks that load them.
#pragma once
#include <vector>

#include "src/base/result.hpp"
#include "src/train/checkpoint/plan.hpp"
#include "src/train/checkpoint/state_copy.hpp"

namespace weft::internal::train {

class Peers;

// The parts of boxes that go from holders to readers. Parts that this rank holds itself need no message. Thread-bound.
class Delivery {
  public:
    Delivery(const Peers& peers, const std::vector<const StateCopy*>& sources);

    // Box number `number` of the reader. `reads` point to stored boxes, which outlive the delivery.
    void add(int reader, std::vector<Read> reads, size_t number);
    // Memory for all messages, after the last add(). Later steps need none.
    void allocate();
    Status exchange();
    // Into the memory of this rank's boxes.
    Status unpack(const std::vector<StoredBox>& boxes, const std::vector<void*>& memory) const;

  private:
    struct Part {
        Read read;
        int peer;       // the reader or the holder
        size_t number;  // of the reader's box
        size_t begin;   // in the bytes to or from the peer
    };
    // The messages to or from all ranks, one behind the other.
    struct Messages {
        std::vector<Part> parts;
        std::vector<size_t> counts, places;  // bytes, of each rank
        std::vector<std::byte> data;

        void add(Part part);
        void allocate();
        std::byte* memory_of(const Part& part);
        const std::byte* memory_of(const Part& part) const;
    };
    // `begin` counts through all sources.
    const std::byte* memory_of(const StoredBox& stored) const;

    const Peers& peers_;
    const std::vector<const StateCopy*>& sources_;
    Messages sends_, receives_;
    std::vector<Part> own_;
};

}  // namespace weft::internal::train
