#include "src/msccl/msccl_races.hpp"

#include <cstring>
#include <optional>
#include <unordered_map>
#include <vector>

#include "src/checker/happens_before.hpp"

namespace weft::internal::msccl {

namespace {

// Clocks of about 1 GiB.
constexpr uint64_t clock_words_most = uint64_t(1) << 28;

class GpuRaces {
  public:
    GpuRaces(const XmlGpu& gpu, const OperandLocations& operands)
        : gpu_(gpu),
          operands_(operands),
          blocks_(std::max<size_t>(1, gpu.blocks.size())),
          clocks_({0}, 1, int(blocks_)),
          releases_(blocks_),
          next_(blocks_),
          waiting_(blocks_) {
        for (const ThreadBlock& block : gpu.blocks)
            for (const Step& step : block.steps)
                if (step.after_block >= 0) releases_[size_t(step.after_block)].try_emplace(step.after_step);
    }

    Status run() {
        for (int block = int(gpu_.blocks.size()) - 1; block >= 0; --block) queue_.push_back(block);
        while (!queue_.empty()) {
            const int block = queue_.back();
            queue_.pop_back();
            WEFT_TRY(advance(block));
        }
        return ok();
    }

  private:
    // Runs until the block waits or ends.
    Status advance(int block) {
        const auto& steps = gpu_.blocks[size_t(block)].steps;
        for (size_t& s = next_[size_t(block)]; s < steps.size(); ++s) {
            const Step& step = steps[s];
            if (step.after_block >= 0) {
                const auto other = size_t(step.after_block);
                if (next_[other] <= size_t(step.after_step)) return waiting_[other].push_back(block), ok();
                clocks_.merge(clocks_.row(block), releases_[other].at(step.after_step).data());
            }
            WEFT_TRY(touch({gpu_.id, block, int32_t(s)}, step));
            release(block, int32_t(s));
        }
        wake(block);
        return ok();
    }

    void release(int block, int32_t step) {
        const auto found = releases_[size_t(block)].find(step);
        if (found == releases_[size_t(block)].end()) return;
        const uint32_t* row = clocks_.row(block);
        found->second.assign(row, row + clocks_.width());
        clocks_.tick(block);
        // The loop counts the step as done only afterwards, so waiting blocks are checked after that.
        wake(block);
    }
    void wake(int block) {
        auto& waiting = waiting_[size_t(block)];
        queue_.insert(queue_.end(), waiting.begin(), waiting.end());
        waiting.clear();
    }

    Status touch(const StepId& here, const Step& step) {
        if (!moves(step.opcode)) return ok();
        for (int i = 0; i < step.count; ++i) {
            bool stays = false;
            WEFT_TRY(operands_.find_stays(here, i, stays));
            if (stays) continue;
            OperandLocation place;
            if (reads_source(step.opcode)) {
                WEFT_TRY(operands_.locate(here, step.source, i, place));
                Cell& cell = memory_[place.key];
                if (!clocks_.ordered(cell.write, here.block))
                    return race(here, {"reads", OperandLocations::text(step.source, i)}, cell.write, "writes",
                                place.key);
                reads_.add(cell, access(here));
            }
            if (writes_targets(step.opcode)) {
                WEFT_TRY(operands_.locate(here, step.target, i, place));
                Cell& cell = memory_[place.key];
                const Touch writes{"writes", OperandLocations::text(step.target, i)};
                if (!clocks_.ordered(cell.write, here.block))
                    return race(here, writes, cell.write, "writes", place.key);
                std::optional<ChunkAccess> read;
                reads_.each(cell, [&](const ChunkAccess& each) {
                    if (!clocks_.ordered(each, here.block)) read = each;
                    return !read;
                });
                if (read) return race(here, writes, *read, "reads", place.key);
                reads_.clear(cell);
                cell.write = access(here);
            }
        }
        return ok();
    }
    ChunkAccess access(const StepId& here) { return {here.block, clocks_.now(here.block), 0, here.step}; }

    struct Touch {
        const char* does;
        std::string place;
    };
    Status race(const StepId& here, const Touch& touch, const ChunkAccess& earlier, const char* did,
                int64_t key) const {
        const StepId there{here.rank, earlier.thread, earlier.step};
        const Step& step = operands_.step_at(there);
        Touch other{did, {}};
        const Operand& operand = strcmp(did, "reads") == 0 ? step.source : step.target;
        for (int i = 0; i < step.count && other.place.empty(); ++i) {
            OperandLocation place;
            WEFT_TRY(operands_.locate(there, operand, i, place));
            if (place.key == key) other.place = OperandLocations::text(operand, i);
        }
        return there < here ? sentence(there, other, here, touch) : sentence(here, touch, there, other);
    }
    Status sentence(const StepId& first, const Touch& one, const StepId& second, const Touch& another) const {
        return operands_.wrong(error::schedule_race, first,
                               "a race: it {} {}, and {} {} {}, in no order: let one depend on the other", one.does,
                               one.place, operands_.name_and_line(second), another.does, another.place);
    }

    const XmlGpu& gpu_;
    const OperandLocations& operands_;
    const size_t blocks_;
    Clocks clocks_;  // a thread is a block of this gpu
    ReadLists reads_;
    std::unordered_map<int64_t, Cell> memory_;
    // By block: for steps that others depend on, the clock at their end.
    std::vector<std::unordered_map<int32_t, std::vector<uint32_t>>> releases_;
    std::vector<size_t> next_;               // by block: its next step
    std::vector<std::vector<int>> waiting_;  // by block: the blocks that wait for a step of it
    std::vector<int> queue_;
};

Status check_size(const File& file) {
    uint64_t words = 0;
    for (const XmlGpu& gpu : file.gpus) {
        const uint64_t blocks = gpu.blocks.size();
        words += blocks * blocks;
        if (words > clock_words_most) return fail_at(gpu.mark, "{} tbs on gpu {} are too many", blocks, gpu.id);
        for (const ThreadBlock& block : gpu.blocks) {
            if (block.steps.size() >= steps_most)
                return fail_at(block.mark, "tb {} of gpu {} has too many steps", block.id, gpu.id);
            for (const Step& step : block.steps) {
                if (step.after_block >= 0) words += blocks;
                if (words > clock_words_most) return fail_at(step.mark, "there are too many dependencies");
            }
        }
    }
    return ok();
}

}  // namespace

Status find_race(const File& file, const OperandLocations& operands) {
    WEFT_TRY(check_size(file));
    for (const XmlGpu& gpu : file.gpus) WEFT_TRY(GpuRaces(gpu, operands).run());
    return ok();
}

}  // namespace weft::internal::msccl
