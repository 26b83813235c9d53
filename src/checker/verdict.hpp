// verdict.hpp: the present step of a thread, and the first error that a proof finds, with its place.
#pragma once
#include <string>
#include <utility>

#include "src/base/result.hpp"
#include "src/checker/checked_set.hpp"
#include "src/checker/happens_before.hpp"

namespace weft::internal {

struct StepContext {
    int thread, rank, block, step, iteration;
    int number;  // of the operation
    const LoadedOperation* operation;
    const Schedule* schedule;
    const Instruction* it;
    int tile;   // of the operation
    int chunk;  // the checked one of the span
    StepContext at(int offset) const {
        StepContext there = *this;
        there.chunk = it->chunk.at(iteration, offset);
        return there;
    }
    bool empty() const { return operation->empty(tile, chunk % schedule->chunks); }
    // Both ends skip messages that have only empty chunks.
    bool skipped() const {
        if (!moves(it->opcode)) return false;
        for (int offset = 0; offset < it->count; ++offset)
            if (!at(offset).empty()) return false;
        return true;
    }
    // In an all-to-all, a chunk has different places at its sender and receiver; its expression identifies it.
    bool alike_chunks() const { return !facts_of(schedule->collective).transposes; }
    int64_t flag_tile() const { return int64_t(operation->first_flag_tile[size_t(rank)]) + tile; }
};

class Verdict {
  public:
    explicit Verdict(const CheckedSet& set) : set_(set) {}

    std::string step_name(int rank, int block, int step) const;
    std::string place(const StepContext& here) const;
    std::string place(const ChunkAccess& access) const;
    // Each keeps the error and returns false.
    template <class... Arguments>
    bool object(const StepContext& here, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        return object(error::schedule_result, here, format, std::forward<Arguments>(arguments)...);
    }
    template <class... Arguments>
    bool object(ErrorId error, const StepContext& here, fmt::format_string<Arguments...> format,
                Arguments&&... arguments) {
        return object(fail(error, "{}: {}", place(here), fmt::format(format, std::forward<Arguments>(arguments)...)));
    }
    bool object_to_race(const StepContext& here, const char* what, const ChunkAccess& earlier, const char* did,
                        Buffer buffer, int rank);
    bool object(Status failure) { return failure_ = std::move(failure), false; }
    Status take() { return std::move(failure_); }

  private:
    const CheckedSet& set_;
    Status failure_;
};

}  // namespace weft::internal
