// server_state.hpp: the parameters of one server, and the rules by which workers change and get them. No
// communication.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/model.hpp"
#include "weft/train.h"

namespace weft::internal::train {

struct ServerRules {
    int servers = 1;
    uint64_t staleness = 0;  // of a worker's values, in clocks of the slowest one; UINT64_MAX: any
    int accepted = 0;        // gradients that make a step, the others are dropped; 0: each one makes a step
    double learning_rate = 0;
    int64_t timeout_ms = 0;
    weftTrainUpdate_t update = nullptr;  // null: SGD
    void* update_context = nullptr;
};

// A parameter of the server, and its place in messages.
struct ServerKey {
    int parameter = 0;
    Tensor tensor;
    size_t offset_bytes = 0;
};

// For the worker, as its call found it.
struct ServerAnswer {
    uint64_t steps = 0, slowest_clock = 0;
};

struct ServerCounters {
    uint64_t steps = 0;                 // updates of the parameters
    uint64_t applied = 0, dropped = 0;  // gradients of one worker and step
    uint64_t largest_lead = 0;          // of a pull: the worker's clock minus that of the slowest worker
};

// A worker's clock is how many steps it has pushed. Thread-safe: one thread serves each worker.
class ServerState {
  public:
    ServerState(ServerRules rules, std::vector<ServerKey> keys, int workers);

    // The gradients of a worker's step, in `message`. With rules.accepted, `step` is the one that it had pulled.
    Result<ServerAnswer> push(int worker, uint64_t step, const std::byte* message);
    // Waits until the rules allow it. Then writes the parameters to `message`.
    Result<ServerAnswer> pull(int worker, std::byte* message);
    // The worker makes no more calls.
    Result<ServerAnswer> finish(int worker);
    // Ends all waits, now and later. The first failure counts.
    void fail_all(const Status& failure);
    Status failure();
    ServerCounters counters();

  private:
    // The caller of these holds the lock.
    int slowest() const;
    ServerAnswer answer() const;
    bool may_pull(int worker) const;
    Status take(int worker, uint64_t step, const std::byte* message);
    Status update(const ServerKey& key, const void* gradient) const;
    Status apply(const std::byte* message);
    Status apply_accepted();
    Status ended_by(Status status);
    Status too_slow(int worker) const;

    const ServerRules rules_;
    const std::vector<ServerKey> keys_;
    std::mutex mutex_;
    std::condition_variable changed_;  // a clock, the step, the failure
    std::vector<uint64_t> clocks_;
    std::vector<bool> finished_;
    std::vector<std::vector<std::byte>> sums_;  // of each key's accepted gradients, in the type of a state
    int accepted_ = 0;
    ServerCounters counters_;
    Status failure_;
};

}  // namespace weft::internal::train
