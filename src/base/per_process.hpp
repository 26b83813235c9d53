// per_process.hpp: a value that each process has for itself. A child after fork gets a fresh one, in whatever state its
// parent's was at that moment, a lock held by another thread above all; the parent's stays reachable and untouched.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "src/base/process_token.hpp"
#include "src/base/result.hpp"

namespace weft::internal {

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

// The T of a key that the process's users share: made by `make` when first asked for, one at a time, gone with its last
// owner. Thread-safe.
template <class T, class Key, class Make>
Result<std::shared_ptr<T>> shared_by_process(const Key& key, Make&& make) {
    struct Known {
        std::mutex mutex;
        std::map<Key, std::weak_ptr<T>> all;
    };
    static PerProcess<Known> processes;  // one for each Make, so one for each place that asks
    Known& known = processes.get();
    std::lock_guard lock(known.mutex);
    std::erase_if(known.all, [](const auto& entry) { return entry.second.expired(); });
    if (const auto place = known.all.find(key); place != known.all.end())
        if (auto shared = place->second.lock()) return shared;
    Result<std::shared_ptr<T>> made = make();
    if (made) known.all[key] = *made;
    return made;
}
// The only T.
template <class T, class Make>
Result<std::shared_ptr<T>> shared_by_process(Make&& make) {
    return shared_by_process<T>(0, std::forward<Make>(make));
}

}  // namespace weft::internal
