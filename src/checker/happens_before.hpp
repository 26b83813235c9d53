// happens_before.hpp: vector clocks over the blocks of all ranks, and memory cells with their accesses. A *thread* here
// is one block of one rank. Its clock rises when it releases something: a post, a step with dependents, the end of an
// operation. An access at clock c happens before all steps that have acquired a release at c or later.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/checker/symbolic.hpp"

namespace weft::internal {

struct ChunkAccess {
    int32_t thread = -1;  // -1: none
    uint32_t clock = 0;
    int32_t operation : 12 = 0;
    int32_t step : 20 = -1;  // -1: the user, before or after the call
};
inline constexpr int operations_most = 1 << 11;
inline constexpr int steps_most = 1 << 19;

class Clocks {
  public:
    // A thread accesses memory of its own rank and of its flag block's ranks, so a row holds their blocks. `places`: by
    // rank, its index in its flag block. `members`: the most ranks of a flag block.
    Clocks(std::vector<int> places, int members, int blocks)
        : blocks_(blocks),
          width_(members * blocks),
          places_(std::move(places)),
          rows_(places_.size() * size_t(blocks) * size_t(width_)) {
        for (int thread = 0; thread < int(places_.size()) * blocks; ++thread) row(thread)[column(thread)] = 1;
    }
    int width() const { return width_; }
    int column(int thread) const { return places_[size_t(thread / blocks_)] * blocks_ + thread % blocks_; }
    uint32_t* row(int thread) { return rows_.data() + size_t(thread) * width_; }
    uint32_t now(int thread) { return row(thread)[column(thread)]; }
    void tick(int thread) { ++row(thread)[column(thread)]; }
    bool ordered(const ChunkAccess& earlier, int thread) {
        return earlier.thread == thread || earlier.thread < 0 || row(thread)[column(earlier.thread)] >= earlier.clock;
    }
    void merge(uint32_t* into, const uint32_t* from) const {
        for (int i = 0; i < width_; ++i) into[i] = std::max(into[i], from[i]);
    }

  private:
    int blocks_;
    int width_;
    std::vector<int> places_;
    std::vector<uint32_t> rows_;
};

// One chunk of memory.
struct Cell {
    Value value;
    ChunkAccess write;
    ChunkAccess read;  // the newest; the others are in a list
    int32_t other_reads = -1;
    int32_t chunk = -1;  // in a cell of scratch: the chunk that it holds
};

// The second and further reads of all cells, in lists.
class ReadLists {
  public:
    // About 1 GiB. Only a schedule that reads one chunk in an endless loop gets there.
    bool full() const { return nodes_.size() >= size_t(1) << 25 && free_ < 0; }
    void add(Cell& cell, const ChunkAccess& access) {
        if (cell.read.thread >= 0 && cell.read.thread != access.thread) {
            const ReadNode node{cell.read, cell.other_reads};
            if (free_ < 0) {
                cell.other_reads = int32_t(nodes_.size());
                nodes_.push_back(node);
            } else {
                cell.other_reads = free_;
                free_ = nodes_[free_].next;
                nodes_[cell.other_reads] = node;
            }
        }
        cell.read = access;
    }
    void clear(Cell& cell) {
        while (cell.other_reads >= 0) {
            const int32_t node = cell.other_reads;
            cell.other_reads = nodes_[node].next;
            nodes_[node].next = free_;
            free_ = node;
        }
        cell.read = {};
    }
    // Calls visit(access) for every read until one returns false.
    template <class Visit>
    bool each(const Cell& cell, Visit visit) const {
        if (cell.read.thread >= 0 && !visit(cell.read)) return false;
        for (int32_t node = cell.other_reads; node >= 0; node = nodes_[node].next)
            if (!visit(nodes_[node].access)) return false;
        return true;
    }

  private:
    struct ReadNode {
        ChunkAccess access;
        int32_t next;
    };
    std::vector<ReadNode> nodes_;
    int32_t free_ = -1;
};

}  // namespace weft::internal
