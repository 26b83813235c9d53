#include "src/train/sharding/gather_trace.hpp"

namespace weft::internal::train {

std::optional<int> GatherTrace::gathered(int unit) {
    const size_t place = current_.size();
    current_.push_back(unit);
    follows_ = follows_ && place < recorded_.size() && recorded_[place] == unit;
    if (!follows_ || place + 1 == recorded_.size()) return std::nullopt;
    return recorded_[place + 1];
}

void GatherTrace::finish() {
    recorded_.swap(current_);
    current_.clear();
    follows_ = true;
}

}  // namespace weft::internal::train
