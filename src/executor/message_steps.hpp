// message_steps.hpp: the instructions that move data over connections: through slots, past them over a network, and as
// zero-copy messages, whose slot holds the address of the data (docs/design/connections.md, Zero-copy).
#pragma once
#include <optional>
#include <vector>

#include "src/base/wakeups.hpp"
#include "src/executor/offered_receives.hpp"

namespace weft::internal {

// Owned by a StepMachine. Thread-bound to the rank.
class MessageSteps {
  public:
    MessageSteps(const Plan& plan, const Operands& operands, RunReport& report)
        : plan_(&plan),
          operands_(&operands),
          report_(&report),
          offers_(plan, operands),
          waits_(plan.schedule->blocks.size()) {}
    void begin(uint64_t sequence) {
        sequence_ = sequence;
        zero_copy_sent_ = false;
        posted_from_ = nullptr;
        offers_.begin();
        std::fill(waits_.begin(), waits_.end(), Wait::none);
    }

    // A blocked instruction has done nothing.
    Progress execute(const StepAt& at);
    // True: no sender has unsent data.
    Result<bool> flush();
    // Whether all zero-copy messages have been read. Otherwise the run waits for their receivers.
    bool zero_copy_done();
    // Whether a peer may be reading zero-copy messages of this call.
    bool may_be_reading(int peer) const;
    // After a failure: afterwards no network writes to the call's buffers.
    void withdraw() { offers_.withdraw(); }
    void add_wakeups(Wakeups& wakeups) const;

  private:
    enum class Wait : uint8_t { none, source, target };

    std::optional<Progress> move_past_slots(const StepAt& at, const ChunkSpan& span);
    Progress move(const StepAt& at, const ChunkSpan& span, const Slot& incoming, const SlotInfo& info,
                  const Slot& outgoing);
    Result<bool> send_past_slots(const StepAt& at, const std::byte* data, const SlotInfo& info);
    uint64_t zero_copy_address(const StepAt& at, const ChunkSpan& span) const;
    Progress blocked_on(const StepAt& at, Wait end);
    SlotInfo info_of(size_t bytes) const { return {bytes, sequence_, plan_->operation_fingerprint}; }
    bool of_this_call(const SlotInfo& info) const {
        return info.fingerprint == plan_->operation_fingerprint && info.operation == sequence_;
    }

    const Plan* plan_;
    const Operands* operands_;
    RunReport* report_;
    OfferedReceives offers_;
    uint64_t sequence_ = 0;
    bool zero_copy_sent_ = false;                    // some message was zero-copy
    const RegisteredMemory* posted_from_ = nullptr;  // the registered memory of the newest posted message
    std::vector<Wait> waits_;                        // by block: the connection that it waits for
    std::vector<std::byte> fetched_;                 // a zero-copy message that is reduced
};

}  // namespace weft::internal
