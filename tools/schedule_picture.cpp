#include "tools/schedule_picture.hpp"

#include <fmt/format.h>

#include <utility>

#include "src/schedule/expand.hpp"
#include "src/simulator/hosts_fabric.hpp"
#include "src/simulator/simulator.hpp"
#include "tools/pictures/timeline.hpp"
#include "tools/simulated_call.hpp"

namespace weft::internal::tools {
namespace {

constexpr int ranks_drawn_most = 16;

Result<HostKind> kind_of(const PictureRequest& request, const Algorithm& row, int ranks) {
    const HostKind* kind = find_host_kind(request.host);
    if (!kind)
        return fail(error::command_option, "kind of host `{}` does not exist; the kinds are {}", request.host,
                    host_kind_names());
    if (ranks > ranks_drawn_most)
        return fail(error::command_option, "a picture shows at most {1} ranks, not {0}", ranks, ranks_drawn_most);
    if (ranks % request.hosts != 0)
        return fail(error::command_option, "{} ranks cannot be divided equally among {} hosts", ranks, request.hosts);
    if (kind->devices && ranks / request.hosts > kind->ranks)
        return fail(error::command_option, "a {} has {} devices, not {}", kind->name, kind->ranks,
                    ranks / request.hosts);
    return with_protocol(*kind, Protocol::simple, row.tree);
}

std::string size_text(uint64_t bytes) {
    for (const auto& [unit, name] : {std::pair(uint64_t(1) << 20, "MiB"), std::pair(uint64_t(1) << 10, "KiB")})
        if (bytes >= unit && bytes % unit == 0) return fmt::format("{} {}", bytes / unit, name);
    return fmt::format("{} bytes", bytes);
}

}  // namespace

Result<std::string> picture_of(const std::vector<Schedule>& schedules, const Algorithm& row,
                               const PictureRequest& request) {
    const int ranks = int(schedules.size());
    const auto kind = kind_of(request, row, ranks);
    if (!kind) return kind.status().copy();
    const HostsFabric fabric(*kind, request.hosts, ranks / request.hosts);
    const bool data = row.collective != Collective::barrier;  // a barrier has no data, only words to exchange
    const uint64_t bytes = data ? request.bytes : uint64_t(ranks);
    SimulatedCall call = simulated_call(row, *kind, {ranks, 0, fabric.hosts()}, bytes, 0);
    DrawnRun run;
    for (const Schedule& each : schedules) run.schedules.push_back(expand(each, call.mode));
    call.schedule = [&run](int rank) { return run.schedules[size_t(rank)]; };
    call.symmetry = Symmetry::none;
    call.observe = [&run](const SimulatedStep& step) {
        if (run.steps.size() <= steps_drawn_most) run.steps.push_back(step);
    };
    auto found = simulate(fabric, call);
    if (!found) return found.take_status();
    run.tiles = found->tiles;
    run.title = fmt::format("{} {}, {} ranks", row.name, name_of(row.collective), ranks);
    const double start_us = fabric.costs().start_us;
    run.subtitle =
        fmt::format("{}{} host{} of kind {}, as `weft schedule simulate` has it: {:.4g} us{}",
                    data ? size_text(bytes) + " on " : "", request.hosts, request.hosts == 1 ? "" : "s", kind->name,
                    found->us, start_us > 0 ? fmt::format(", {:.4g} of them to start", start_us) : "");
    Svg svg;
    WEFT_TRY(draw_timeline(svg, run, {16, 16}));
    return svg.finish(run.title);
}

}  // namespace weft::internal::tools
