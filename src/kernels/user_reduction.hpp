// user_reduction.hpp: a reduction whose operator is a function of the user's: what the CPU kernels do for the built-in ones.
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
    // Others look here to say where a rank is that does not come back; see RankRow.
    std::atomic<int64_t>* in_function_us = nullptr;
};

// The function threw; what() says what.
class UserReductionFailed : public std::exception {
  public:
    explicit UserReductionFailed(std::string sentence) : sentence_(std::move(sentence)) {}
    const char* what() const noexcept override { return sentence_.c_str(); }
    // What all ranks are told.
    Status status(int rank, uint64_t sequence, const Operation& operation) const {
        return fail(weftInvalidUsage,
                    "rank {}: the function of the user's reduction threw an exception ({}) in operation {}, {}", rank,
                    sentence_, sequence, operation.text());
    }

  private:
    std::string sentence_;
};

// Whether this thread is in the function of a reduction whose UserReduction::in_function_us that is.
bool in_function_of(const std::atomic<int64_t>* in_function_us);

// As a kernel of ReduceJob: sources combined in their order, the left operand first; averages and streaming are none of
// its business. All sources are read before a destination that is one of them is written. Throws
// UserReductionFailed: destinations hold anything then. Reentrant, but as the function is.
void reduce_by(const UserReduction& reduction, const ReduceJob& job);

}  // namespace weft::internal
