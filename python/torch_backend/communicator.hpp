// communicator.hpp: one communicator of Weft, made through a store of torch.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "process.hpp"
#include "weft/weft.h"

namespace weft_torch {

// The user's settings of a communicator, as in weftConfig_t.
struct Settings {
    std::string name;
    std::string algo;
    int deterministic = WEFT_CONFIG_UNDEF_INT;
};

// weftConfig_t wants 0 for no limit; torch gives none as a very long time.
int64_t timeout_ms(std::chrono::milliseconds timeout);

// Waits until the store has the key, without keeping other threads from the store. False: `timeout` passed, or `aborted`.
bool appears(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout,
             const std::atomic<bool>* aborted = nullptr);
// A store need not have this function.
void forget(c10d::Store& store, const std::string& key);

// Owns the handle. One thread at a time uses get(); abort() and has_failed() are thread-safe.
class Communicator {
  public:
    // Joins as `rank` of `size`. Rank 0 makes the id and sends it by `key` of the store. Blocks until all have joined.
    static std::unique_ptr<Communicator> join(c10d::Store& store, const std::string& key, int rank, int size,
                                              std::chrono::milliseconds timeout, const Settings& settings);
    // The same by an id that all ranks know.
    static std::unique_ptr<Communicator> make(const weftUniqueId& id, int rank, int size,
                                              std::chrono::milliseconds timeout, const Settings& settings);
    explicit Communicator(weftComm_t comm) : comm_(comm) {}
    Communicator(const Communicator&) = delete;
    // Leaves it. Calls that peers can still complete succeed.
    ~Communicator();

    // Throws if it was aborted.
    weftComm_t get();
    // Lets calls from now on fail after `timeout` without progress.
    void set_timeout(std::chrono::milliseconds timeout);
    // Whether a failure has hit it. Thread-safe.
    bool has_failed();
    // Ends calls in progress on all ranks.
    void abort();

  private:
    std::mutex mutex_;
    const Origin origin_;
    weftComm_t comm_;  // null: aborted
    int64_t timeout_ms_ = -1;
};

}  // namespace weft_torch
