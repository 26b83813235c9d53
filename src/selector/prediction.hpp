// prediction.hpp: how long a call would take by an algorithm: as measured, if a tuning knows it, else by the cost model.
// A pure function of agreed facts. Reentrant.
#pragma once
#include <memory>

#include "algorithms/algorithm.hpp"
#include "src/selector/tuning.hpp"

namespace weft::internal {

// What predictions are made of, alike on all ranks.
struct Costs {
    Costs(const LinkCosts& links = {}, std::shared_ptr<const Tuning> tuning = nullptr)
        : links(links), tuning(std::move(tuning)) {}
    LinkCosts links;                       // what this library knows of such a machine
    std::shared_ptr<const Tuning> tuning;  // null: that alone
};

enum class Basis : uint8_t {
    model,             // nothing of the kind has been measured
    scaled,            // measured among other ranks, or at other sizes, which the model carries over
    measured,          // of ranks that lie so, and between two sizes that were measured
    scaled_simulated,  // the same of times that the simulator made up
    simulated,
};

struct Prediction {
    double us;
    Basis basis;
};

// `layout`: as rank 0 sees it.
Prediction predict(const Algorithm& row, const Layout& layout, const Costs& costs, size_t bytes);

}  // namespace weft::internal
