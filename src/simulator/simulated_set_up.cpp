// simulated_set_up.cpp: makes connections, links and flag blocks from schedules and a fabric, and collects the results
// of a run.
#include <algorithm>

#include "src/schedule/tiles.hpp"
#include "src/simulator/simulated_ranks.hpp"

namespace weft::internal {

SimulatedRanks::SimulatedRanks(const Fabric& fabric, const SimulatedCall& call, const Shape& shape)
    : fabric_(fabric),
      costs_(fabric.costs()),
      call_(call),
      shape_(shape),
      tiles_(tiles_of(shape.bytes, shape.tile_bytes)),
      flows_(events_) {
    static_assert(int(Phase::message) == int(Awaited::message) && int(Phase::thread) == int(Awaited::thread));
    schedules_.reserve(size_t(shape.period));
    if (call.observe_load)
        flows_.observe([this](int link, double at_us, double bytes_per_us) {
            const int of_fabric = fabric_link_[size_t(link)];
            call_.observe_load({of_fabric, at_us, bytes_per_us * stays(of_fabric)});
        });
}

int SimulatedRanks::stays(int of_fabric) const {
    return shape_.period == shape_.ranks ? 1 : fabric_.turned(of_fabric).stays;
}

// The number of the link here. Links of one turn are one, which carries its share of the load of all.
int SimulatedRanks::link(int of_fabric) {
    const bool whole = shape_.period == shape_.ranks;
    const Fabric::Turned turned = whole ? Fabric::Turned{of_fabric, 1} : fabric_.turned(of_fabric);
    const auto [place, fresh] = link_of_.try_emplace(turned.link, int(fabric_link_.size()));
    if (fresh) {
        fabric_link_.push_back(turned.link);
        flows_.add_link(fabric_.bytes_per_us(turned.link) / turned.stays);
    }
    return place->second;
}

int SimulatedRanks::path_of(const Route& route) {
    std::vector<int32_t> links;
    for (const int32_t each : route.links) links.push_back(link(each));
    return flows_.add_path(links);
}

int SimulatedRanks::reading_path(int rank, int owner) {
    const auto [place, fresh] = reading_of_.try_emplace(uint64_t(uint32_t(rank)) << 32 | uint32_t(owner), -1);
    if (fresh) place->second = path_within(rank, owner, fabric_.reading(rank, owner));
    return place->second;
}

int SimulatedRanks::path_within(int rank, int owner, const Route& route) {
    if (!route.exists && failure_.ok())
        failure_ = fail(error::schedule_fabric, "no route connects rank {} to the memory of rank {}", rank, owner);
    return path_of(route);
}

Result<int32_t> SimulatedRanks::connection(int channel, int from, int to, int depth) {
    const int distance = (to - from + shape_.ranks) % shape_.ranks, sender = from % shape_.period;
    const uint64_t key = uint64_t(channel) << 52 | uint64_t(sender) << 26 | uint64_t(distance);
    const auto [place, fresh] = connection_of_.try_emplace(key, int32_t(connections_.size()));
    if (!fresh) return place->second;
    const Route route = fabric_.route(sender, (sender + distance) % shape_.ranks);
    if (!route.exists) return fail(error::schedule_fabric, "no route connects rank {} to rank {}", from, to);
    for (const int32_t each : route.links)
        if (each < 0 || each >= fabric_.links())
            return fail(error::schedule_fabric, "the route from rank {} to rank {} names link {} of {}", from, to, each,
                        fabric_.links());
    SimulatedConnection& made = connections_.emplace_back();
    made.channel = channel;
    made.from = sender;
    made.distance = distance;
    made.depth = std::max(1, depth);
    made.slots = made.depth + (route.driven ? 0 : Route::window);
    made.first_slot = slots_.size();
    made.path = path_of(route);
    made.latency_us = route.latency_us;
    made.credit_us = route.credit_us;
    made.overhead_us = route.overhead_us;
    made.carrier_us = route.carrier_us;
    made.most = route.bytes_per_us;
    made.driven = route.driven;
    slots_.resize(slots_.size() + size_t(made.slots), SlotTimes{unlimited, 0, 0});
    return place->second;
}

Status SimulatedRanks::connect_rank(int rank) {
    const Schedule& schedule = schedules_[size_t(rank)];
    SimulatedRank& state = ranks_[size_t(rank)];
    state.first_block = int32_t(blocks_.size());
    state.blocks = int32_t(schedule.blocks.size());
    state.local_path = path_within(rank, rank, fabric_.local(rank));
    if (!failure_) return std::move(failure_);
    state.slowness = fabric_.slowness(rank);
    for (const Block& block : schedule.blocks) {
        const int32_t index = int32_t(blocks_.size());
        SimulatedBlock& made = blocks_.emplace_back();
        made.block = &block;
        made.rank = rank;
        if (block.source >= 0) {
            auto in = connection(block.channel, block.source, schedule.rank, schedule.fifo_depth);
            if (!in) return in.take_status();
            made.in = *in;
            connections_[size_t(*in)].receiver = index;
        }
        if (block.target >= 0) {
            auto out = connection(block.channel, schedule.rank, block.target, schedule.fifo_depth);
            if (!out) return out.take_status();
            made.out = *out;
            connections_[size_t(*out)].sender = index;
        }
    }
    return ok();
}

Status SimulatedRanks::connect() {
    ranks_.resize(schedules_.size());
    size_t blocks = 0;
    for (const Schedule& schedule : schedules_) blocks += schedule.blocks.size();
    blocks_.reserve(blocks);
    connections_.reserve(blocks);
    for (int rank = 0; rank < int(schedules_.size()); ++rank) WEFT_TRY(connect_rank(rank));
    for (const SimulatedConnection& each : connections_)
        if (each.sender < 0 || each.receiver < 0)
            return fail(error::schedule_set, "channel {}: rank {} and rank {}: one end of the connection is missing",
                        each.channel, each.from, (each.from + each.distance) % shape_.ranks);
    return load_flag_blocks();
}

Status SimulatedRanks::load_flag_blocks() {
    std::unordered_map<int, int32_t> flag_block_of;  // by its lowest simulated rank
    for (size_t rank = 0; rank < schedules_.size(); ++rank) {
        const std::vector<int32_t>& members = schedules_[rank].shared_ranks;
        if (members.empty()) continue;
        int lowest = shape_.period, count = 0;
        for (const int32_t member : members) {
            lowest = std::min(lowest, member % shape_.period);
            count += member < shape_.period;
        }
        if (members.size() < size_t(shape_.ranks))
            count = int(members.size());  // all ranks of one turn: see shared_ranks_turn()
        const auto [place, fresh] = flag_block_of.try_emplace(lowest, int32_t(flag_blocks_.size()));
        if (fresh) flag_blocks_.emplace_back().members = count;
        ranks_[rank].flag_block = place->second;
    }
    return ok();
}

RankUse SimulatedRanks::rank_use(int rank) const {
    const SimulatedRank& state = ranks_[size_t(rank)];
    return {state.end_us, now_us_ > 0 ? 1 - state.busy_us / now_us_ : 1};
}

std::vector<BlockUse> SimulatedRanks::block_uses() const {
    std::vector<BlockUse> uses;
    for (size_t index = 0; index < blocks_.size(); ++index) {
        const SimulatedBlock& state = blocks_[index];
        uses.push_back({state.rank, int(index) - ranks_[size_t(state.rank)].first_block, state.end_us,
                        now_us_ > 0 ? 1 - state.busy_us / now_us_ : 1});
    }
    return uses;
}

std::vector<LinkUse> SimulatedRanks::link_uses() const {
    std::vector<LinkUse> uses;
    const int turns = shape_.ranks / shape_.period;
    for (size_t number = 0; number < fabric_link_.size(); ++number) {
        const Flows::LinkLoad& use = flows_.use(int(number));
        if (use.bytes == 0) continue;
        const int its_stays = stays(fabric_link_[number]);
        const double bytes = use.bytes * its_stays;
        uses.push_back({fabric_link_[number], turns / its_stays, bytes, use.busy_us / now_us_,
                        bytes / (fabric_.bytes_per_us(fabric_link_[number]) * now_us_)});
    }
    std::stable_sort(uses.begin(), uses.end(), [](const LinkUse& one, const LinkUse& other) {
        return one.load != other.load ? one.load > other.load : one.link < other.link;
    });
    return uses;
}

std::string SimulatedRanks::waits_for(const SimulatedBlock& state) const {
    const Schedule& schedule = schedules_[size_t(state.rank)];
    switch (state.phase) {
        case Phase::message: return fmt::format("a message of rank {}", state.block->source);
        case Phase::credit: return fmt::format("a free slot of rank {}", state.block->target);
        case Phase::dependency: return "a step of another block";
        case Phase::meeting:
            return fmt::format("the other ranks of its flag block of {}", schedule.shared_ranks.size());
        default: return "nothing";
    }
}

Status SimulatedRanks::deadlock() const {
    std::string who;
    constexpr int named_most = 4;
    int named = 0;
    for (size_t index = 0; index < blocks_.size() && named < named_most; ++index) {
        const SimulatedBlock& state = blocks_[index];
        if (state.phase == Phase::ended) continue;
        ++named;
        who +=
            fmt::format("{}rank {}, block {}, step {}, tile {} for {}", who.empty() ? "" : "; ", state.rank,
                        int(index) - ranks_[size_t(state.rank)].first_block, state.step, state.tile, waits_for(state));
    }
    return fail(error::schedule_deadlock, "{} blocks wait for ever with {} slots a connection: {}",
                int32_t(blocks_.size()) - ended_, schedules_[0].fifo_depth, who);
}

}  // namespace weft::internal
