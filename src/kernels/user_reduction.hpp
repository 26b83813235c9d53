// user_reduction.hpp: reductions whose operator is a function of the user (weftRedOpCreate).
#pragma once
#include <atomic>
#include <exception>
#include <string>

#include "src/base/operation.hpp"
#include "src/base/result.hpp"
#include "src/kernels/cpu_kernels.hpp"

namespace weft::internal {

struct UserReduction {
    weftRedOpFunction_t function = nullptr;
    void* context = nullptr;
    weftDataType_t type = weftInt8;
    // When the function was entered; other ranks read it for their reports (RankRow::in_function_us).
    std::atomic<int64_t>* in_function_us = nullptr;
};

// The function threw an exception, whose text is `what()`.
class UserReductionFailed : public std::exception {
  public:
    explicit UserReductionFailed(std::string sentence) : sentence_(std::move(sentence)) {}
    const char* what() const noexcept override { return sentence_.c_str(); }
    // The failure that all ranks return.
    Status status(int rank, uint64_t sequence, const Operation& operation) const {
        return fail(error::usage_function_threw,
                    "rank {}: the function of the user's reduction threw an exception ({}) in operation {}, {}", rank,
                    sentence_, sequence, operation.text())
            .about({.rank = rank, .operation = operation.collective, .sequence = sequence});
    }

  private:
    std::string sentence_;
};

// Combines the sources of `job` in their order, the left operand first; ignores averages and streaming. All sources are
// read before a destination that equals one of them is written. Throws UserReductionFailed; the destinations are then
// undefined. Reentrant if the function is.
void reduce_by(const UserReduction& reduction, const ReduceJob& job);

}  // namespace weft::internal
