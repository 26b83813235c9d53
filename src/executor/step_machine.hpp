// step_machine.hpp: the run of any schedule: executes blocks of elementary instructions, tile after tile, as far as
// possible without waiting.
#pragma once
#include "src/executor/message_steps.hpp"
#include "src/executor/run.hpp"

namespace weft::internal {

class StepMachine final : public Run {
  public:
    explicit StepMachine(const Plan& plan);
    void start(const void* send, void* receive, const void* operand, uint64_t sequence) override;
    Progress advance() override;
    void withdraw() override { messages_.withdraw(); }
    void add_wakeups(Wakeups& wakeups) const override { messages_.add_wakeups(wakeups); }
    bool may_be_reading(int peer) const override { return messages_.may_be_reading(peer); }

  private:
    struct BlockState {
        uint64_t tile = 0;
        int32_t step = 0;       // index of the instruction
        int32_t iteration = 0;  // of a repeated instruction
        bool awaits = false;    // a phase of the flag block
        bool ended = false;
    };

    Progress advance_block(size_t index);
    bool reached(const Dependency& dependency, uint64_t tile) const;
    Progress execute(size_t index, const Instruction& instruction);
    Progress post(const Instruction& instruction, uint64_t tile);
    Progress await(const Instruction& instruction, BlockState& state, uint64_t tile);
    void move_piece(const Instruction& instruction, int iteration, uint64_t tile, const Piece& piece);
    void copy_chunk_into(const Instruction& instruction, int iteration, uint64_t tile);
    void copy_out(const Instruction& instruction, int iteration, uint64_t tile, const Piece& from,
                  void* const* destinations, int count);

    CallBuffers buffers_;
    FlagSync flags_;
    Operands operands_;
    MessageSteps messages_;
    std::vector<BlockState> blocks_;
    RankSet phase_waiting_[2];  // places in the flag block that blocks wait for, by phase
    std::vector<const void*> sources_;
};

}  // namespace weft::internal
