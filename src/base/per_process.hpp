// per_process.hpp: a value per process. A child after fork gets a fresh one, because the parent's may be in any state,
// for instance locked by another thread. The parent's stays reachable and untouched.
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

// The T of a key, shared by all users in the process. `make` creates it at first use, one at a time; it is destroyed
// with its last owner. Thread-safe.
template <class T, class Key, class Make>
Result<std::shared_ptr<T>> shared_by_process(const Key& key, Make&& make) {
    struct Known {
        std::mutex mutex;
        std::map<Key, std::weak_ptr<T>> all;
    };
    static PerProcess<Known> processes;  // one for each Make, so one for each call site
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
