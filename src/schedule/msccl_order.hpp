// msccl_order.hpp: which steps of a gpu come before which, and who has touched a place in no order with whom. Order is
// what blocks and dependencies say: messages order more, but no file should rely on that, nor does the checker.
#pragma once
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/schedule/happens_before.hpp"
#include "src/schedule/msccl_xml.hpp"

namespace weft::msccl {

struct StepPlace {
    int32_t rank = -1, block = -1, step = -1;
};

class Order {
  public:
    // Too large a file is refused: the clocks of each block and of each step that others depend on take as many words
    // as a gpu has blocks.
    Status load(const File& file);
    // Before a step that depends on another, and behind every step.
    void acquire(const StepPlace& here, const Step& step);
    void release(const StepPlace& here);

    struct Conflict {
        StepPlace earlier;
        const char* did;  // "read", "written"
    };
    // Notes that the step touches the place; an earlier one that is in no order with it.
    std::optional<Conflict> read(const StepPlace& here, Cell& place);
    std::optional<Conflict> write(const StepPlace& here, Cell& place);

  private:
    int clock_of(const StepPlace& at) const { return at.rank * blocks_ + at.block; }
    ChunkAccess access(const StepPlace& here) { return {clock_of(here), clocks_->now(clock_of(here)), 0, here.step}; }
    StepPlace place_of(const ChunkAccess& access) const {
        return {access.thread / blocks_, access.thread % blocks_, access.step};
    }

    int blocks_ = 1;  // most of any gpu
    std::optional<Clocks> clocks_;
    ReadLists reads_;
    // By clock: of steps that others depend on, the clock when they ended.
    std::vector<std::unordered_map<int32_t, std::vector<uint32_t>>> releases_;
};

}  // namespace weft::msccl
