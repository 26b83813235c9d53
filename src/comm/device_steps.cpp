#include "src/comm/device_steps.hpp"

#include <fmt/core.h>

#include "src/base/name_list.hpp"
#include "src/executor/cuda/program.hpp"
#include "src/selector/selector.hpp"

namespace weft {

namespace {

// A block is a multiprocessor's: eight of an H100 send 148 GB/s to a peer, sixteen 282, twenty-four 323 of the 343 that
// stores reach at all (published; Weft has measured none of it).
constexpr int channels_by_default = 16;
// Between hosts one block outruns most networks; two, so that one sends while the other adds.
constexpr int channels_abroad = 2;
constexpr double block_us_per_byte = 1 / 18e3;
// Between two blocks through memory 0.8 us within a device, and twice that to the next.
constexpr double signal_us = 1.7;
// From a kernel to the proxy and from the proxy to a kernel, through the host's memory.
constexpr double proxies_us = 4;

size_t round_to_line(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

LinkCosts StepAlgorithm::costs() const {
    LinkCosts costs = network_link_costs(1, link_mbps);
    costs.signal_us = signal_us;
    costs.switch_us = 0;
    costs.cached_us_per_byte = costs.memory_us_per_byte = block_us_per_byte / at_once;
    costs.tile_bytes = std::min<size_t>(most_tile_bytes, size_t(1) << 40);
    costs.net_latency_us += proxies_us;
    costs.net_slot_bytes = cuda::Connections::slot_bytes;
    return costs;
}

size_t StepAlgorithm::tile_bytes(size_t bytes, size_t wanted) const {
    size_t tile = wanted;
    if (tile == 0) tile = algorithm->tile_bytes ? algorithm->tile_bytes(layout, costs(), bytes) : most_tile_bytes;
    return std::max<size_t>(64, std::min({round_to_line(std::min(tile, bytes)), most_tile_bytes}));
}

StepAlgorithms step_algorithms(std::span<const Algorithm> rows, const Layout& layout, int blocks_max,
                               const std::string& algo, int channels, int64_t link_mbps) {
    const NameList allowed(algo);
    StepAlgorithms all{{}, {}, cuda::Connections(layout.hosts)};
    const int usual = layout.host_count() > 1 ? channels_abroad : channels_by_default;
    const Parameters parameters{std::min(channels > 0 ? channels : usual, blocks_max)};
    for (const Algorithm& row : rows) {
        if (row.collective != Collective::all_reduce || !allowed.admits(row.name)) continue;
        std::string why;
        if (const char* refusal = row.refusal(layout)) why = refusal;
        StepAlgorithm fresh{&row, parameters, layout, link_mbps};
        std::vector<Schedule> schedules;
        Layout seen = layout;
        for (seen.rank = 0; seen.rank < layout.ranks && why.empty(); ++seen.rank) {
            schedules.push_back(row.schedule(seen, parameters));
            const Schedule& schedule = schedules.back();
            why = cuda::refusal(schedule);
            fresh.blocks = std::max(fresh.blocks, int(schedule.blocks.size()));
        }
        if (why.empty() && fresh.blocks > blocks_max)
            why = fmt::format("{} blocks, and there is room for {}", fresh.blocks, blocks_max);
        if (!why.empty()) {
            all.excluded += fmt::format("{}{}: {}", all.excluded.empty() ? "" : "; ", row.name, why);
            continue;
        }
        // Rings, as many as are wanted, share the message; channels of others stand for steps one behind the other.
        if (!row.of_user && row.schedule(layout, {parameters.channels + 1}).channels == parameters.channels + 1)
            fresh.at_once = parameters.channels;
        fresh.most_tile_bytes = largest_tile_bytes(schedules[0], cuda::Connections::slot_bytes);
        all.rows.push_back(fresh);
        all.connections.add(std::move(schedules));
    }
    return all;
}

}  // namespace weft
