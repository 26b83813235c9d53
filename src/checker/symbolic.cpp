#include "src/checker/symbolic.hpp"

#include <fmt/core.h>

#include <unordered_map>

namespace weft::internal {

Contributions::Contributions(int ranks) : ranks_(ranks), weights_(size_t(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
        weights_[rank] = mix((uint64_t(rank) + 1) * 0x9e3779b97f4a7c15u);
        all_ += weights_[rank];
    }
}

std::string Contributions::fault(const Value& value, int chunk) const {
    std::unordered_map<uint64_t, int> rank_of;
    const auto weight = [&](int rank) { return weights_[size_t(rank)] * scale(uint32_t(chunk)); };
    for (int rank = 0; rank < ranks_; ++rank) rank_of[weight(rank)] = rank;
    const uint64_t excess = value.weight - all_ * scale(uint32_t(chunk));
    if (auto it = rank_of.find(-excess); it != rank_of.end())
        return fmt::format("lacks the contribution of rank {}", it->second);
    if (auto it = rank_of.find(excess); it != rank_of.end())
        return fmt::format("has the contribution of rank {} twice", it->second);
    for (int rank = 0; rank < ranks_; ++rank)
        if (auto it = rank_of.find(weight(rank) - excess); it != rank_of.end())
            return fmt::format("has the contribution of rank {} twice and lacks that of rank {}", rank, it->second);
    if (value.count == uint32_t(ranks_)) return "has other contributions than one of each rank to it";
    return fmt::format("has {} contributions where {} ranks give one each", value.count, ranks_);
}

}  // namespace weft::internal
