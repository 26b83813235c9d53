// chooser.hpp: chooses the algorithm of a call: the selector with a communicator's layout, costs and preferences.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/planning/call_settings.hpp"
#include "src/planning/machines.hpp"
#include "src/selector/catalog.hpp"
#include "src/selector/selector.hpp"

namespace weft::internal {

// Owned by the planner. Thread-bound to the rank. It uses agreed facts alone, so all ranks choose alike.
class Chooser {
  public:
    Chooser(const Segment& group, int rank, std::shared_ptr<const Catalog> catalog,
            std::shared_ptr<const Machines> machines, std::shared_ptr<const Tuning> tuning);

    // The number of a call's preference. 0: rank 0's options. Fails if there are too many.
    bool knows(const CallPreference& wanted) const { return find(wanted) < preferences_.size(); }
    Result<uint8_t> preference(const CallPreference& wanted);
    // Fails alike on all ranks.
    Result<Choice> choose(const Operation& operation, uint8_t preference) const;
    std::string explain(const Operation& operation, uint8_t preference) const;

    const Catalog& catalog() const { return *catalog_; }
    const Layout& layout() const { return layout_; }
    const LinkCosts& links() const { return costs_.links; }

  private:
    size_t find(const CallPreference& wanted) const;
    Preferences preferences(uint8_t number) const {
        return {preferences_[number].algo, preferences_[number].channels, deterministic_};
    }

    int rank_;
    std::shared_ptr<const Catalog> catalog_;
    std::shared_ptr<const Machines> machines_;
    Layout layout_;
    Costs costs_;
    std::vector<CallPreference> preferences_;  // by number
    bool deterministic_ = false;
};

}  // namespace weft::internal
