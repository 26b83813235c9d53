// call_buffers.hpp: the user's buffers of one call, and how a rank reads its input and combines data as the plan says.
#pragma once
#include "src/executor/plan.hpp"
#include "src/kernels/user_reduction.hpp"

namespace weft::internal {

// Owned by a Run. Thread-bound to the rank.
class CallBuffers {
  public:
    explicit CallBuffers(const Plan& plan);
    // See Run::start().
    void bind(const void* send, void* receive, const void* operand) {
        send_ = static_cast<const std::byte*>(send) - input_begin_;
        receive_ = static_cast<std::byte*>(receive) - output_begin_;
        operand_ = operand;
    }

    // The begin of the whole, of which the rank may hold a part.
    const std::byte* send() const { return send_; }
    std::byte* receive() const { return receive_; }
    // Whether the input is multiplied when the rank reads it.
    bool changes_input() const { return changes_input_; }

    // This rank's contribution. A scaled sum's product lies in scratch. An average's is not divided yet.
    const std::byte* own_input(size_t offset, size_t bytes) {
        return plan_->scaled() ? scaled_input(offset, bytes) : send_ + offset;
    }
    // `stores`: set if the destination is a slot.
    void copy_input(std::byte* destination, size_t offset, size_t bytes, SlotStores* stores = nullptr) {
        if (changes_input_) [[unlikely]]
            copy_changed_input(destination, offset, bytes);
        else if (destination != send_ + offset)
            copy(destination, send_ + offset, bytes, stores);
    }
    void copy(void* destination, const void* source, size_t bytes, SlotStores* stores = nullptr) const {
        if (stores)
            stores->copy(*plan_->cpu_kernels, destination, source, bytes);
        else
            plan_->cpu_kernels->copy({destination, source, bytes, Stores::ordinary});
    }

    // The first `streamed` destinations are stored past the caches, if the plan's stores are. The index `own` names this
    // rank's input among the sources, if it is not multiplied by its share of an average yet. Otherwise it is -1.
    // The last destination may be a slot, which is stored as `of_slot` says.
    ReduceJob reduction(void** destinations, int destination_count, const void* const* sources, int source_count,
                        size_t bytes, bool finish, int streamed, int own = -1, Stores of_slot = Stores::ordinary) const;
    // Throws UserReductionFailed.
    void reduce(const ReduceJob& job) const {
        if (plan_->operation.calls_function()) [[unlikely]]
            return reduce_by(*static_cast<const UserReduction*>(operand_), job);
        plan_->cpu_kernels->reduce[plan_->type()][plan_->op()](job);
    }

  private:
    const std::byte* scaled_input(size_t offset, size_t bytes);
    void copy_changed_input(std::byte* destination, size_t offset, size_t bytes);

    const Plan* plan_;
    size_t input_begin_, output_begin_;  // of the rank's part in the whole
    Averaging average_;
    bool changes_input_;
    const std::byte* send_ = nullptr;
    std::byte* receive_ = nullptr;
    const void* operand_ = nullptr;
    std::vector<std::byte> scaled_;
};

}  // namespace weft::internal
