// plan_cache.hpp: plans by key: a small direct-mapped table, and behind it a map of all plans. Keys hold agreed facts only,
// so all ranks hit or miss together.
#pragma once
#include <map>
#include <memory>

#include "src/planning/planner.hpp"

namespace weft::internal {

// Owned by the communicator. Thread-bound to the rank.
template <class Prepared>
class PlansByKey {
  public:
    Prepared* find(const PlanKey& key) {
        CachedPlan& entry = table_[place(key)];
        if (entry.key == key) [[likely]]
            return entry.plan;
        const auto found = plans_.find(key);
        if (found == plans_.end()) return nullptr;
        entry = {key, found->second.get()};
        return entry.plan;
    }

    Prepared* insert(const PlanKey& key, std::unique_ptr<Prepared> plan) {
        if (plans_.size() >= most) clear();
        Prepared* kept = plan.get();
        plans_[key] = std::move(plan);
        table_[place(key)] = {key, kept};
        return kept;
    }

  private:
    static constexpr size_t most = 4096;  // bounds the memory of programs that never repeat a size
    static constexpr size_t table_size = 64;
    struct CachedPlan {
        PlanKey key;
        Prepared* plan = nullptr;
    };
    static size_t place(const PlanKey& key) {
        return ((key.head * 0x9e3779b97f4a7c15u ^ key.count * 0xbf58476d1ce4e5b9u) >> 40) % table_size;
    }
    void clear() {
        for (CachedPlan& entry : table_) entry = {};
        plans_.clear();
    }

    CachedPlan table_[table_size];

  protected:
    std::map<PlanKey, std::unique_ptr<Prepared>> plans_;
};

// The plans of calls on host memory.
class PlanCache : public PlansByKey<PreparedPlan> {
  public:
    // An estimate. Every run counts as a step machine. Plans grow with the number of ranks. Only the scratch of scaled plans grows with the message.
    uint64_t heap_bytes() const;
};

}  // namespace weft::internal
