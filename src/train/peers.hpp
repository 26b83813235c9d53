// peers.hpp: the communicator of a training object, and calls of weft.h as Status.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/base/result.hpp"
#include "weft/weft.h"

namespace weft::internal::train {

// The result of a call of weft.h that this thread made, with the sentence and the facts of its error.
Status called(weftResult_t result);
// The error of a communicator.
Status called(weftResult_t result, weftComm_t comm);
// As called(), after the end of the call: with config.blocking 0 it goes on in the background, in the caller's memory.
Status finished(weftResult_t result, weftComm_t comm);

// A copy of the caller's communicator, or of a part of it. Thread-bound, except abort(), which is thread-safe.
class Peers {
  public:
    // All ranks of `parent` call it. The ranks with one color are peers, in the order of their ranks in `parent`.
    static Result<std::unique_ptr<Peers>> make(weftComm_t parent, int color = 0);
    // The communicator itself, which outlives it.
    static Result<std::unique_ptr<Peers>> over(weftComm_t comm);
    Peers(const Peers&) = delete;
    Peers& operator=(const Peers&) = delete;
    ~Peers();

    weftComm_t comm() const { return comm_; }
    int rank() const { return rank_; }
    int ranks() const { return ranks_; }
    // The rank in `parent` of one of the peers.
    int member(int rank) const { return members_.empty() ? rank : members_[size_t(rank)]; }

    // Without a stream they are for host memory, and block.
    Status all_gather(const void* own, void* all, size_t bytes, weftStream_t stream = nullptr) const;
    // Part r of `from`, which has `bytes`, goes to rank r.
    Status all_to_all(const void* from, void* to, size_t bytes, weftStream_t stream = nullptr) const;
    Status all_reduce(void* data, size_t count, weftDataType_t type, weftRedOp_t op) const;
    Status all_reduce(const void* from, void* to, size_t count, weftDataType_t type, weftRedOp_t op,
                      weftStream_t stream) const;
    // Part r of `from` has counts[r] elements.
    Status reduce_scatter(const void* from, void* to, std::span<const size_t> counts, weftDataType_t type,
                          weftRedOp_t op, weftStream_t stream) const;
    // Part r of `from`, which counts on the root only, has `bytes`.
    Status scatter(const void* from, void* to, size_t bytes, int root, weftStream_t stream) const;
    Status broadcast(void* data, size_t count, weftDataType_t type, int root, weftStream_t stream = nullptr) const;
    // The reduction that sums and divides by `divisor`.
    Result<weftRedOp_t> average(weftDataType_t type, double divisor);

    // The error that has hit the communicator. Does not wait.
    Status state() const;

    // Calls in progress fail, here and on other ranks. No call may follow.
    void abort();
    bool aborted() const { return aborted_.load(std::memory_order_relaxed); }

  private:
    Peers() = default;
    Status learn_members(weftComm_t parent);
    // Errors of a part name ranks of `parent`.
    Status named(Status status) const;
    Status finished(weftResult_t result) const;

    weftComm_t comm_ = nullptr;
    bool owns_ = true;
    int rank_ = 0, ranks_ = 1;
    std::vector<int> members_;  // ranks in `parent`; empty: all
    std::map<std::pair<weftDataType_t, double>, weftRedOp_t> averages_;
    std::atomic<bool> aborted_{false};
};

}  // namespace weft::internal::train
