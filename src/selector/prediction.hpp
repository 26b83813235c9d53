// prediction.hpp: the predicted time of a call by an algorithm: measured, if a tuning has it, else by the cost model.
// A pure function of agreed facts. Reentrant.
#pragma once
#include <memory>

#include "algorithms/algorithm.hpp"
#include "src/selector/tuning.hpp"

namespace weft::internal {

// The input of predictions, equal on all ranks.
struct Costs {
    Costs(const LinkCosts& links = {}, std::shared_ptr<const Tuning> tuning = nullptr)
        : links(links), tuning(std::move(tuning)) {}
    LinkCosts links;                       // built-in costs
    std::shared_ptr<const Tuning> tuning;  // null: the built-in costs alone
    const char* network = "tcp";           // the transport between hosts, for texts
};

enum class Basis : uint8_t {
    model,             // not measured
    scaled,            // measured with other ranks or sizes, and scaled by the model
    measured,          // measured with this layout, between two measured sizes
    scaled_simulated,  // as scaled, but simulated
    simulated,         // as measured, but simulated
};

struct Prediction {
    double us;
    Basis basis;
};

// `layout`: as rank 0 sees it.
Prediction predict(const Algorithm& row, const Layout& layout, const Costs& costs, size_t bytes);

}  // namespace weft::internal
