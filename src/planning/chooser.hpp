// chooser.hpp: chooses the algorithm of a call: the selector with a communicator's layout, costs and preferences.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/planning/machines.hpp"
#include "src/selector/catalog.hpp"
#include "src/selector/selector.hpp"

namespace weft::internal {

// Owned by the planner. Thread-bound to the rank. It uses agreed facts alone, so all ranks choose alike.
class Chooser {
  public:
    Chooser(const Segment& group, int rank, std::shared_ptr<const Catalog> catalog,
            std::shared_ptr<const Machines> machines, std::shared_ptr<const Tuning> tuning);

    // The number of a call's preference for algorithms and channels. 0: rank 0's options. Fails if there are too many.
    bool knows(const std::string& algo, int channels) const { return find(algo, channels) < preferences_.size(); }
    Result<uint8_t> preference(const std::string& algo, int channels);
    // Fails alike on all ranks.
    Result<Choice> choose(const Operation& operation, uint8_t preference) const;
    std::string explain(const Operation& operation, uint8_t preference) const;

    const Catalog& catalog() const { return *catalog_; }
    const Layout& layout() const { return layout_; }
    const LinkCosts& links() const { return costs_.links; }

  private:
    size_t find(const std::string& algo, int channels) const;

    int rank_;
    std::shared_ptr<const Catalog> catalog_;
    std::shared_ptr<const Machines> machines_;
    Layout layout_;
    Costs costs_;
    std::vector<Preferences> preferences_;  // by number
};

}  // namespace weft::internal
