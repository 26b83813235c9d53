// plan_cache.hpp: plans by key: a small table that a call looks into without a search, and behind it all that were
// made. Keys hold agreed facts only, so all ranks hit or miss together. Thread-bound.
#pragma once
#include <map>
#include <memory>

#include "src/planning/planner.hpp"

namespace weft::internal {

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
    static constexpr size_t most = 4096;  // programs that never repeat a size must not grow for ever
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

// Of the host's plans.
class PlanCache : public PlansByKey<PreparedPlan> {
  public:
    // Roughly: what plans hold grows with the ranks, not with the message, but for the scratch of scaled ones.
    uint64_t heap_bytes() const;
};

}  // namespace weft::internal
