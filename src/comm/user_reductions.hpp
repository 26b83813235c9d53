// user_reductions.hpp: the reductions that the user made on a communicator, by number.
#pragma once
#include <map>
#include <memory>

#include "src/comm/rank_context.hpp"
#include "src/kernels/user_reduction.hpp"

namespace weft::internal {

struct MadeReduction {
    weftDataType_t type;
    uint8_t op;  // as Operation has it
    alignas(8) std::byte scalar[8] = {};
    UserReduction by = {};
    const void* on_device = nullptr;  // the scalar's device address; calls read it when they run
    const void* operand() const {
        if (on_device) return on_device;
        return by.function ? static_cast<const void*>(&by) : scalar;
    }
};

// Thread-bound to the rank.
class UserReductions {
  public:
    explicit UserReductions(const RankContext& context) : context_(context) {}

    int make(const MadeReduction& reduction) {
        const auto made = std::make_shared<MadeReduction>(reduction);
        made->by.in_function_us = &context_.row().in_function_us;
        reductions_[next_] = made;
        return next_++;
    }
    bool drop(int op) { return reductions_.erase(op) > 0; }
    const MadeReduction* find(int op) const {
        const auto place = reductions_.find(op);
        return place == reductions_.end() ? nullptr : place->second.get();
    }
    // For calls that may run after the reduction was dropped.
    std::shared_ptr<const MadeReduction> share(int op) const { return reductions_.at(op); }

  private:
    const RankContext& context_;
    std::map<int, std::shared_ptr<const MadeReduction>> reductions_;
    int next_ = weftNumOps;
};

}  // namespace weft::internal
