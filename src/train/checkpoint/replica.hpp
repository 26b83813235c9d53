// replica.hpp: copies of each rank's boxes in the memory of other ranks, and recovery from them.
// docs/design/training.md explains the protocol.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/checkpoint/checkpoint.hpp"
#include "src/train/checkpoint/state_copy.hpp"

namespace weft::internal::train {

class Peers;

// Boxes that make whole tensors with those of the other ranks.
struct CheckedBoxes {
    int rank = -1;
    std::string own;   // its boxes
    uint64_t all = 0;  // a hash of all ranks' boxes
};

// Outlives communicators: after a failure the copies are loaded through another one. save() and load() are calls of all
// ranks, and fail on all if they fail on one. `own` is a rank's failure to read its arguments. Thread-bound.
class Replica {
  public:
    Replica(int jump, int copies) : jump_(jump), copies_(copies) {}

    Status save(const Peers& peers, Status own, uint64_t version, const std::vector<OwnBox>& boxes);
    // The version that was loaded: the newest one that all ranks had saved.
    // `arrive` is called once the boxes have their elements.
    Result<uint64_t> load(const Peers& peers, Status own, const std::vector<OwnBox>& wanted,
                          const std::function<Status()>& arrive);
    // Of the version that was loaded last: the common items, and those of this rank's number. Null: there is none.
    const std::vector<std::byte>* item(const std::string& name, bool of_rank) const;
    // For the handle: there is nothing to wait for, and the communicator is the caller's.
    Status settle() { return ok(); }
    void end_by_exception() noexcept {}

  private:
    Status check_settings(const Peers& peers, Status own, uint64_t version) const;
    // The boxes of all ranks make whole tensors.
    Status check_boxes(const Peers& peers, const std::vector<OwnBox>& boxes);
    // Of a save, equal on all ranks, and larger than those of the ranks' saves before.
    Result<uint64_t> draw_id(const Peers& peers);
    // The copies of the other ranks of the group.
    Result<std::vector<StateCopy>> exchange(const Peers& peers, const StateCopy& own) const;
    // From the sources of all ranks to the wanted boxes of all ranks.
    Status deliver(const Peers& peers, const std::vector<const StateCopy*>& sources, const std::vector<OwnBox>& wanted);
    // The chosen copies that this rank sends from.
    std::vector<const StateCopy*> sources(const Peers& peers, const std::vector<HeldCopy>& chosen) const;

    int jump_, copies_;
    std::vector<StateCopy> held_;  // of the newest save; after one that failed here, also of the ones before
    uint64_t saves_ = 0;           // that this rank has heard of
    std::map<std::string, std::vector<std::byte>> items_;
    int rank_ = 0;  // of the load
    CheckedBoxes checked_;
};

}  // namespace weft::internal::train
