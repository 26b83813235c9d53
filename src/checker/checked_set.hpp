// checked_set.hpp: the schedules of all operations and ranks of one proof, each valid and all matching each other: their
// headers, connections and flag blocks, within the limits of a proof.
#pragma once
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/result.hpp"
#include "src/checker/checked_operation.hpp"

namespace weft::internal {

struct LoadedOperation {
    const CheckedOperation* call = nullptr;
    std::vector<Schedule> schedules;  // by rank
    // By rank and block: connections received from and sent to, -1: none.
    std::vector<std::vector<std::pair<int, int>>> ends;
    std::vector<std::vector<std::vector<bool>>> depended;  // by rank, block and step: whether others run after it
    int tiles = 0;                                         // runs * schedule.tiles
    uint32_t first_tile = 0;                               // of the sequence
    std::vector<uint32_t> first_flag_tile;                 // by rank
    std::vector<bool> empty_chunks[2];                     // of ordinary tiles and of the last
    bool empty(int tile, int chunk) const { return empty_chunks[tile + 1 == tiles][size_t(chunk)]; }
};
// The ranks that share a flag block, the same in all operations that use one.
struct CheckedFlagBlock {
    std::vector<int32_t> ranks;
    uint32_t tiles = 0;
    size_t first_phase = 0;  // among the phases of all flag blocks
};
struct ConnectionEnds {
    int channel = 0, source = 0, target = 0;  // source: the sending rank
};

// Load once, then read. `operations` must outlive it.
class CheckedSet {
  public:
    CheckedSet(int ranks, std::span<const CheckedOperation> operations, const CheckOptions& options);
    Status load();

    int ranks() const { return ranks_; }
    const CheckOptions& options() const { return options_; }
    const std::vector<LoadedOperation>& operations() const { return operations_; }
    int blocks() const { return blocks_; }  // the most of any rank
    const std::vector<ConnectionEnds>& connections() const { return connections_; }
    const std::vector<CheckedFlagBlock>& flag_blocks() const { return flag_blocks_; }
    int flag_block_of(int rank) const { return flag_block_of_[size_t(rank)]; }  // -1: it has none
    const std::vector<int>& places() const { return place_of_; }                // by rank: its index in its flag block
    // The ranks whose memory this rank accesses: those of its flag block.
    const std::vector<int32_t>& members(int rank) const { return flag_blocks_[size_t(flag_block_of(rank))].ranks; }
    int members_most() const { return members_most_; }
    size_t phases() const { return phases_; }  // of all flag blocks and tiles

  private:
    Status load_operation(LoadedOperation& operation);
    Status load_schedules(LoadedOperation& operation);
    Status load_flag_blocks(LoadedOperation& operation);
    Status load_connections(LoadedOperation& operation);
    Status check_limits();

    const int ranks_;
    const CheckOptions options_;
    std::vector<LoadedOperation> operations_;
    int blocks_ = 1;
    std::vector<ConnectionEnds> connections_;
    std::unordered_map<uint64_t, int> connection_of_;
    std::vector<CheckedFlagBlock> flag_blocks_;
    std::vector<int> flag_block_of_, place_of_;
    int members_most_ = 1;
    size_t phases_ = 0;
    uint64_t steps_ = 0;
    uint32_t tiles_ = 0;
};

}  // namespace weft::internal
