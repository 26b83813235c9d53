#include "src/simulator/simulated_flags.hpp"

#include <algorithm>
#include <unordered_map>

namespace weft::internal {

void SimulatedFlags::load(const std::vector<Schedule>& schedules, int ranks) {
    const int period = int(schedules.size());
    flag_block_of_.assign(schedules.size(), -1);
    std::unordered_map<int, int32_t> flag_block_of;  // by its lowest simulated rank
    for (size_t rank = 0; rank < schedules.size(); ++rank) {
        const std::vector<int32_t>& members = schedules[rank].shared_ranks;
        if (members.empty()) continue;
        int lowest = period, count = 0;
        for (const int32_t member : members) {
            lowest = std::min(lowest, member % period);
            count += member < period;
        }
        if (members.size() < size_t(ranks)) count = int(members.size());  // all of one turn: see shared_ranks_turn()
        const auto [place, fresh] = flag_block_of.try_emplace(lowest, int32_t(flag_blocks_.size()));
        if (fresh) flag_blocks_.emplace_back().members = count;
        flag_block_of_[rank] = place->second;
    }
}

std::vector<int32_t> SimulatedFlags::post(int rank, int phase, uint64_t tile, double now_us) {
    SimulatedFlagBlock& flag_block = flag_blocks_[size_t(flag_block_of_[size_t(rank)])];
    PhaseArrivals& arrivals = flag_block.phases[phase][tile % phases_kept];
    if (arrivals.tile != tile) arrivals = {tile, 0, 0};
    arrivals.last_us = now_us;
    if (++arrivals.posted < flag_block.members) return {};
    return std::exchange(flag_block.waiting, {});
}

double SimulatedFlags::complete_us(int rank, int phase, uint64_t tile, int32_t block) {
    SimulatedFlagBlock& flag_block = flag_blocks_[size_t(flag_block_of_[size_t(rank)])];
    const PhaseArrivals& arrivals = flag_block.phases[phase][tile % phases_kept];
    if (arrivals.tile == tile && arrivals.posted == flag_block.members) return arrivals.last_us;
    flag_block.waiting.push_back(block);
    return unlimited;
}

}  // namespace weft::internal
