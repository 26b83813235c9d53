// per_process.hpp: a value that each process has for itself. A child after fork gets a fresh one, in whatever state its
// parent's was at that moment, a lock held by another thread above all; the parent's stays reachable and untouched.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "src/base/host_group.hpp"
#include "src/base/result.hpp"

namespace weft {

// For static variables: never destroyed, so that threads may use it until the process ends. Thread-safe.
template <class T>
class PerProcess {
  public:
    T& get() {
        Node* current = current_.load(std::memory_order_acquire);  // pairs with the exchange below
        while (current == nullptr || current->process != process_token()) {
            auto* fresh = new Node{process_token(), {}, current};
            if (current_.compare_exchange_strong(current, fresh, std::memory_order_acq_rel)) return fresh->value;
            delete fresh;
        }
        return current->value;
    }

  private:
    struct Node {
        uint64_t process;
        T value;
        Node* parents;
    };
    std::atomic<Node*> current_{nullptr};
};

// The T that the process's users share: made by `make` when first asked for, gone with its last owner. Thread-safe.
template <class T, class Make>
Result<std::shared_ptr<T>> shared_by_process(Make&& make) {
    struct Current {
        std::mutex mutex;
        std::weak_ptr<T> shared;
    };
    static PerProcess<Current> processes;  // one for each Make, so one for each place that asks
    Current& current = processes.get();
    std::lock_guard lock(current.mutex);
    if (auto shared = current.shared.lock()) return shared;
    Result<std::shared_ptr<T>> made = make();
    if (made) current.shared = *made;
    return made;
}

}  // namespace weft
