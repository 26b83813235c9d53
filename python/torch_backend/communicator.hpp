// communicator.hpp: one communicator of Weft, made through a store of torch.
#pragma once
#include <c10/core/Device.h>
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
    int device = WEFT_DEVICE_NONE;  // of CUDA
};

// weftConfig_t wants 0 for no limit; torch gives none as a very long time.
int64_t timeout_ms(std::chrono::milliseconds timeout);

// Waits until the store has the key, without keeping other threads from the store. False: `timeout` passed, or `aborted`.
bool appears(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout,
             const std::atomic<bool>* aborted = nullptr);
// Throws if a call failed. Waits for one that a communicator does in the background. False: `aborted`.
bool finish(weftResult_t result, weftComm_t comm, const std::atomic<bool>* aborted = nullptr);
// A store need not have this function.
void forget(c10d::Store& store, const std::string& key);

// Owns the handle. One thread at a time uses get() and leave().
class Communicator {
  public:
    // Joins as `rank` of `size`. Rank 0 makes the id and sends it by `key` of the store. Blocks until all have joined.
    // `aborted`: if given, the wait ends when another thread sets it. Such a communicator is for device memory only.
    static std::unique_ptr<Communicator> join(c10d::Store& store, const std::string& key, int rank, int size,
                                              std::chrono::milliseconds timeout, const Settings& settings,
                                              const std::atomic<bool>* aborted = nullptr);
    // The same by an id that all ranks know.
    static std::unique_ptr<Communicator> make(const weftUniqueId& id, int rank, int size,
                                              std::chrono::milliseconds timeout, const Settings& settings,
                                              const std::atomic<bool>* aborted = nullptr);
    // `number`: as number() says.
    Communicator(weftComm_t comm, uint64_t number) : comm_(comm), number_(number) {}
    Communicator(const Communicator&) = delete;
    ~Communicator() { leave(); }
    // Ends it here. Calls that peers can still complete succeed; failure() knows those that did not.
    void leave();
    // Refuses tensors of this device if Weft did not find it to be the communicator's.
    void check_device(const c10::Device& device);

    // The same on all ranks, and another one for a later communicator on the same store.
    uint64_t number() const { return number_; }
    // Throws if it was aborted.
    weftComm_t get();
    // Lets calls from now on fail after `timeout` without progress.
    void set_timeout(std::chrono::milliseconds timeout);
    // The failure that has hit it; weftSuccess: none. Thread-safe.
    weftResult_t error();
    bool has_failed() { return error() != weftSuccess; }
    // Whether the failure is a rank that left before this rank had done its last call. Thread-safe.
    bool peer_has_left();
    // The same as torch's exception, also after abort() and leave(); null: none. Thread-safe.
    std::exception_ptr failure();
    // After leave(): its failure, unless failure() has returned it before. Null: none, or it was aborted. Thread-safe.
    std::exception_ptr unknown_failure();
    // Ends calls in progress on all ranks. Thread-safe.
    void abort();

  private:
    // The caller holds mutex_.
    std::exception_ptr current_failure();

    std::mutex mutex_;
    const Origin origin_;
    weftComm_t comm_;  // null: aborted or left
    const uint64_t number_;
    bool aborted_ = false;
    std::exception_ptr left_failure_;  // when leave() ended it
    std::atomic<bool> failure_known_{false};
    int64_t timeout_ms_ = -1;
};

}  // namespace weft_torch
