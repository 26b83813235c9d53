// rank.hpp: one rank of the job and its exchanges with the other ranks.
// Without MPI, ranks exchange data by all-reduce on the measured communicator, always outside the timed region.
#pragma once
#include <weft/weft.h>

#include <span>
#include <string>
#include <vector>

#include "failure.hpp"
#include "gpu.hpp"

namespace perf {

// Owns neither the communicator nor the GPU. Thread-bound to the thread that drives the rank.
class Rank {
  public:
    // Throws Failure if the communicator does not return its rank and size.
    explicit Rank(weftComm_t comm, Gpu* gpu = nullptr);

    int index() const { return index_; }
    int count() const { return count_; }
    bool is_first() const { return index_ == 0; }
    weftComm_t comm() const { return comm_; }
    Gpu* gpu() const { return gpu_; }  // null if the buffers are in host memory
    weftStream_t stream() const { return gpu_ ? static_cast<weftStream_t>(gpu_->stream()) : nullptr; }

    // Throws Failure with the library's message unless the call succeeded.
    void expect(weftResult_t result, const char* call) const {
        if (result != weftSuccess) [[unlikely]]
            fail(result, call);
    }

    // Waits until the calls on a GPU's stream have ended; throws Failure if one of them failed.
    void settle() const;
    void barrier();
    // Every rank gets the reduction of all ranks' values.
    void combine(std::span<double> values, weftRedOp_t op);
    double combine(double value, weftRedOp_t op);
    // Every rank gets all ranks' texts, in rank order; each is truncated to text_bytes - 1.
    std::vector<std::string> gather(const std::string& text);
    static constexpr size_t text_bytes = 256;

  private:
    [[noreturn]] void fail(weftResult_t result, const char* call) const;

    weftComm_t comm_;
    Gpu* gpu_;
    int index_ = 0;
    int count_ = 0;
    double token_[2] = {};  // the barrier's message
};

}  // namespace perf
