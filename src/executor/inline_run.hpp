// inline_run.hpp: calls on one host whose every message and copy is short. All blocks become one list of steps with
// precomputed places, because interpreting an instruction takes longer than copying its bytes:
// perf/results/2026-11-27-special-cases.md.
#pragma once
#include "src/executor/call_buffers.hpp"
#include "src/executor/run.hpp"

namespace weft::internal {

struct InlineStep {
    Opcode opcode;
    bool finish, left, from_input;  // as in the instruction
    int32_t block = 0, place = 0;   // the instruction; in a block each step comes after the one before it
    int32_t after = -1;             // also after this step; -1: none
    Receiver* source = nullptr;
    Sender* target = nullptr;
    size_t bytes = 0, from = 0, to = 0;  // `from` and `to` in the call's buffers
    uint64_t ended = 0;                  // the last call that executed it
};

class InlineRun final : public Run {
  public:
    // Empty: some instruction is of another kind, or moves more bytes.
    static std::vector<InlineStep> steps_of(const Plan& plan);

    InlineRun(const Plan& plan, std::vector<InlineStep> steps) : Run(plan), buffers_(plan), steps_(std::move(steps)) {}
    void start(const void* send, void* receive, const void* operand, uint64_t sequence) override;
    Progress advance() override;

  private:
    Progress take(const InlineStep& step);
    Status read_zero_copy(size_t block, const SlotInfo& info, Slot& incoming);
    Progress blocked_on(int rank) {
        report_.missing.insert(rank);
        return Progress::blocked;
    }

    CallBuffers buffers_;
    std::vector<InlineStep> steps_;
    uint64_t call_ = 0;  // the number of the call
    size_t first_ = 0;   // all steps before it are done
    std::vector<std::byte> fetched_;
};

}  // namespace weft::internal
