#include "src/gpu/engine/device_steps.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "src/base/name_list.hpp"
#include "src/gpu/domain/program.hpp"
#include "src/gpu/engine/device_calls.hpp"
#include "src/segment/shm_layout.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/selector.hpp"

namespace weft::internal {

namespace {

// Enough blocks to fill the NVLinks to a peer: published results for H100 need about 24, and 16 reach 80 % of that.
// Weft has not measured it.
constexpr int channels_by_default = 16;
// One block is faster than most networks. With two, one sends while the other reduces.
constexpr int channels_remote = 2;
constexpr double block_us_per_byte = 1 / 18e3;
// The processor touches a message between hosts three times (Network::handling_us). A block touches it once at each
// end, or once in all if it forwards the data from registers.
constexpr double processor_passes = 3;
// Through memory: 0.8 us between two blocks of a device, twice that between devices.
constexpr double signal_us = 1.7;
// Weft's own algorithms need no more slots per connection.
constexpr int32_t slots_most = 4;

// The data that all blocks of a rank move per tile, relative to the block that moves most.
double blocks_in_turn_of(const Schedule& schedule) {
    double all = 0, most = 0;
    for (const Block& block : schedule.blocks) {
        double chunks = 0;
        for (const Instruction& it : block.instructions)
            if (moves(it.opcode)) chunks += double(it.repeat) * it.count;
        all += chunks;
        most = std::max(most, chunks);
    }
    return most > 0 ? all / most : 1;
}

}  // namespace

LinkCosts StepAlgorithm::costs(size_t bytes) const {
    LinkCosts costs = network_link_costs(1, link_mbps, true, one_machine);
    if (network) {
        costs = over_network(costs, *network, link_mbps);
        costs.net_message_us = proxied_message_us(*network);
    }
    costs.net_links = net_links;
    costs.net_by_kernels = true;
    costs.signal_us = signal_us;
    costs.switch_us = 0;
    const double links_us_per_byte = links_gbs > 0 ? 1 / (1e3 * links_gbs) : 0;
    costs.tile_bytes =
        std::min<size_t>(most_tile_bytes, size_t(1) << 40) * size_t(parts_of(algorithm->collective, layout.ranks));
    double block = block_us_per_byte / at_once;
    if (layout.host_count() > 1) {
        // A tile passes from block to block, except for data for several peers. With many tiles each block has one.
        const double alone = 1 / double(costs.tiles(bytes)), each = alone + (1 - alone) / blocks_in_turn;
        block *= each / processor_passes;
        costs.side_by_side = 1 / (each * blocks_in_turn);
    }
    costs.cached_us_per_byte = costs.memory_us_per_byte = std::max(block, links_us_per_byte);
    costs.net_latency_us += proxies_us;
    costs.net_slot_bytes = cuda::Connections::slot_bytes;
    if (layout.host_count() > 1) costs.net_slot_bytes *= size_t(at_once);
    return costs;
}

size_t StepAlgorithm::tile_bytes(size_t bytes, size_t wanted) const {
    size_t tile = wanted;
    const size_t whole = size_t(parts_of(algorithm->collective, layout.ranks)) * bytes;
    if (tile == 0) tile = algorithm->tile_bytes ? algorithm->tile_bytes(layout, costs(), whole) : most_tile_bytes;
    return std::max<size_t>(64, std::min({round_to_line(std::min(tile, bytes)), most_tile_bytes}));
}

StepAlgorithms step_algorithms(const StepsWanted& wanted, const Layout& layout, int rank) {
    const std::vector<size_t> sizes = wanted.rules.borders();
    StepAlgorithms all{{}, {}, cuda::Connections(rank, layout.hosts)};
    const int usual = layout.host_count() > 1 ? channels_remote : channels_by_default;
    const int most = std::min(wanted.channels > 0 ? wanted.channels : usual, wanted.blocks_max);
    // The same number of channels on each of the rings along a host's links.
    const int rings = layout.host_count() > 1 ? 1 : std::clamp(int(layout.ring_orders.size()), 1, most);
    const int channels = wanted.channels > 0 ? most : most / rings * rings;
    for (const Algorithm& row : wanted.rows) {
        // Algorithms that sum in rank order over connections need more scratch than kernels have.
        if (row.on_demand || !has_device_form(row.collective) || !(row.of_user || wanted.own(row.collective))) continue;
        if (std::none_of(sizes.begin(), sizes.end(), [&](size_t bytes) {
                return NameList(wanted.rules.names_for(row.collective, bytes)).admits(row.name);
            }))
            continue;
        const bool rooted = facts_of(row.collective).rooted && !row.of_user;
        StepAlgorithm fresh{.algorithm = &row,
                            .parameters = {channels},
                            .layout = layout,
                            .link_mbps = wanted.link_mbps,
                            .network = wanted.network,
                            .one_machine = wanted.one_machine,
                            .links_gbs = wanted.links_gbs,
                            .net_links = wanted.net_links};
        fresh.first_program = all.connections.programs();
        fresh.programs = rooted ? layout.ranks : 1;
        fresh.most_tile_bytes = SIZE_MAX;
        std::string why;
        if (const char* refusal = row.refusal(layout))
            why = refusal;
        else if (row.many_slots)
            why = "needs many slots, and a kernel's connections have few: linear is the same in those";
        else if (wanted.deterministic && facts_of(row.collective).reduces && row.sums != Sums::in_rank_order)
            why = "does not combine in rank order, as WEFT_DETERMINISTIC wants";
        std::vector<std::vector<Schedule>> by_root;
        for (int root = 0; root < fresh.programs && why.empty(); ++root) {
            std::vector<Schedule>& schedules = by_root.emplace_back();
            Layout seen = layout;
            for (seen.rank = 0; seen.rank < layout.ranks && why.empty(); ++seen.rank) {
                schedules.push_back(row.schedule(seen, {channels, rooted ? root : -1}));
                Schedule& schedule = schedules.back();
                // More slots only let senders run ahead (linear), and a kernel's slots are large.
                if (!row.of_user) schedule.fifo_depth = std::min(schedule.fifo_depth, slots_most);
                why = cuda::refusal(schedule);
                if (why.empty() && cuda::slots_of(schedule) > cuda::Connections::depth_max)
                    why = fmt::format("a FIFO depth of {}, and a kernel's connections have at most {} slots",
                                      schedule.fifo_depth, cuda::Connections::depth_max);
                fresh.blocks = std::max(fresh.blocks, int(schedule.blocks.size()));
                fresh.most_tile_bytes = std::min(fresh.most_tile_bytes, cuda::Connections::most_tile_bytes(schedule));
            }
        }
        if (why.empty() && fresh.blocks > wanted.blocks_max)
            why = fmt::format("{} blocks, and there is room for {}", fresh.blocks, wanted.blocks_max);
        if (!why.empty()) {
            std::string& excluded = all.excluded[row.collective];
            excluded += fmt::format("{}{}: {}", excluded.empty() ? "" : "; ", row.name, why);
            continue;
        }
        // Rings share the message. Channels of other algorithms are successive steps.
        if (!row.of_user && row.schedule(layout, {channels + 1, rooted ? 0 : -1}).channels == channels + 1)
            fresh.at_once = channels, fresh.rings = true;
        for (const auto& schedules : by_root)
            for (const Schedule& schedule : schedules)
                fresh.blocks_in_turn = std::max(fresh.blocks_in_turn, blocks_in_turn_of(schedule) / fresh.at_once);
        all.rows.push_back(fresh);
        for (auto& schedules : by_root) all.connections.add(std::move(schedules));
    }
    return all;
}

}  // namespace weft::internal
