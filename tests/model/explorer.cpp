#include "tests/model/explorer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace weft::internal::model {
namespace {

uint64_t hash_of(const State& state) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&state);
    uint64_t hash = sizeof state;
    auto mix = [&](uint64_t word) {
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    };
    size_t offset = 0;
    for (; offset + 8 <= sizeof state; offset += 8) {
        uint64_t word;
        std::memcpy(&word, bytes + offset, 8);
        mix(word);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, bytes + offset, sizeof state - offset);
    mix(rest);
    hash *= 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 32;
    return hash ? hash : 1;
}

// A set of non-zero hashes, open addressing.
class Visited {
  public:
    Visited() : cells_(size_t(1) << 12) {}
    bool insert(uint64_t hash) {
        if (2 * ++count_ > cells_.size()) grow();
        const bool is_new = place(hash);
        if (!is_new) --count_;
        return is_new;
    }

  private:
    bool place(uint64_t hash) {
        for (size_t at = hash & (cells_.size() - 1);; at = (at + 1) & (cells_.size() - 1)) {
            if (cells_[at] == hash) return false;
            if (cells_[at] == 0) {
                cells_[at] = hash;
                return true;
            }
        }
    }
    void grow() {
        std::vector<uint64_t> old(4 * cells_.size());
        old.swap(cells_);
        for (uint64_t hash : old)
            if (hash) place(hash);
    }
    std::vector<uint64_t> cells_;
    size_t count_ = 0;
};

// How a state was first reached; whole states are kept for the newest layer only.
struct Origin {
    uint32_t parent;
    Action action;
};

std::vector<std::string> trace_to(const Model& model, const std::vector<Origin>& origins, uint32_t parent,
                                  Action last) {
    std::vector<Action> actions{last};
    for (uint32_t at = parent; at != 0; at = origins[at].parent) actions.push_back(origins[at].action);
    std::reverse(actions.begin(), actions.end());
    std::vector<std::string> trace;
    State state = model.initial();
    for (Action action : actions) {
        trace.push_back(model.describe(state, action));
        (void)model.apply(state, action);
    }
    return trace;
}

}  // namespace

std::string Report::text() const {
    std::string text = fmt::format("{} states, {} steps deep\n", states, depth);
    for (size_t i = 0; i < trace.size(); ++i) text += fmt::format("{:4} {}\n", i + 1, trace[i]);
    if (!broken.empty()) text += "  => " + broken + "\n";
    return text;
}

Report explore(const Scenario& scenario) {
    const Model model(scenario);
    Visited visited;
    std::vector<Origin> origins{{0, {}}};
    std::vector<State> layer{model.initial()}, next;
    std::vector<Action> possible;
    visited.insert(hash_of(layer[0]));
    Report report;
    uint32_t first = 0;  // number of the layer's first state in `origins`
    for (; !layer.empty(); ++report.depth) {
        const uint32_t first_of_next = uint32_t(origins.size());
        for (size_t i = 0; i < layer.size(); ++i) {
            const uint32_t parent = first + uint32_t(i);
            const bool lively = model.actions(layer[i], possible);
            if (!lively) {
                report.broken = model.judge_quiet(layer[i]);
                if (!report.broken.empty() && parent != 0)
                    report.trace = trace_to(model, origins, origins[parent].parent, origins[parent].action);
            }
            for (Action action : possible) {
                if (!report.broken.empty()) break;
                State state = layer[i];
                report.broken = model.apply(state, action);
                if (!report.broken.empty()) {
                    report.trace = trace_to(model, origins, parent, action);
                } else if (visited.insert(hash_of(state))) {
                    origins.push_back({parent, action});
                    next.push_back(state);
                }
            }
            if (!report.broken.empty()) {
                report.states = origins.size();
                return report;
            }
        }
        first = first_of_next;
        layer.swap(next);
        next.clear();
    }
    report.states = origins.size();
    return report;
}

}  // namespace weft::internal::model
