#include "src/train/membership.hpp"

#include <algorithm>

#include "src/train/peers.hpp"

namespace weft::internal::train {

Membership::Membership(int ranks) : states_(size_t(ranks), State::synchronizes), highest_last_active_(ranks - 1) {}

Status Membership::exchange(const Peers& peers, bool active, weftTrainMode_t mode, bool records) {
    const State own = !active ? State::joined : mode == weftTrainSynchronize ? State::synchronizes : State::accumulates;
    struct Message {
        State state;
        bool records;
    };
    const Message sent{own, active && records};
    std::vector<Message> all(states_.size());
    WEFT_TRY(peers.all_gather(&sent, all.data(), sizeof sent));
    std::transform(all.begin(), all.end(), states_.begin(), [](const Message& each) { return each.state; });
    recording_ = std::any_of(all.begin(), all.end(), [](const Message& each) { return each.records; });
    if (this->active() == 0) return ok();
    for (size_t i = 0; i < states_.size(); ++i)
        if (states_[i] != State::joined) highest_last_active_ = int(i);
    const auto synchronizes = std::find(states_.begin(), states_.end(), State::synchronizes);
    const auto accumulates = std::find(states_.begin(), states_.end(), State::accumulates);
    if (synchronizes == states_.end() || accumulates == states_.end()) return ok();
    const int left = int(synchronizes - states_.begin()), right = int(accumulates - states_.begin());
    return fail(error::train_modes,
                "rank {} began an iteration with weftTrainSynchronize, but rank {} with weftTrainAccumulate: all ranks "
                "pass one mode to weftTrainDdpBegin",
                left, right)
        .about({.rank = right, .peer = left});
}

int Membership::active() const {
    return int(states_.size()) - int(std::count(states_.begin(), states_.end(), State::joined));
}

int Membership::lowest_active() const {
    const auto first = std::find_if(states_.begin(), states_.end(), [](State state) { return state != State::joined; });
    return first == states_.end() ? 0 : int(first - states_.begin());
}

weftTrainMode_t Membership::mode() const {
    return std::find(states_.begin(), states_.end(), State::accumulates) == states_.end() ? weftTrainSynchronize
                                                                                          : weftTrainAccumulate;
}

}  // namespace weft::internal::train
