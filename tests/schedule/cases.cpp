#include "tests/schedule/cases.hpp"

#include "src/schedule/builder.hpp"

namespace weft::internal::test {

static const char* name_of(Way way) {
    switch (way) {
        case Way::plain: return "plain";
        case Way::mixed: return "mixed";
        case Way::all_readable: return "all readable";
        case Way::direct: return "direct";
        case Way::pipelined: return "pipelined";
        case Way::pipelined_mixed: return "pipelined mixed";
    }
    return "unknown way";
}

static const char* name_of(Hosts hosts) {
    switch (hosts) {
        case Hosts::one: return "one host";
        case Hosts::two: return "two hosts";
        case Hosts::lonely: return "rank 0 alone on its host";
        case Hosts::dealt: return "dealt to three hosts";
        case Hosts::pairs: return "two ranks a host";
        case Hosts::rails: return "32 ranks a host";
    }
    return "unknown hosts";
}

std::vector<int32_t> hosts_of(Hosts hosts, int ranks) {
    std::vector<int32_t> of;
    for (int rank = 0; rank < ranks; ++rank) {
        if (hosts == Hosts::two) of.push_back(2 * rank / ranks);
        if (hosts == Hosts::lonely) of.push_back(rank > 0);
        if (hosts == Hosts::dealt) of.push_back(rank % 3);
        if (hosts == Hosts::pairs) of.push_back(rank / 2);
        if (hosts == Hosts::rails) of.push_back(rank / 32);
    }
    return of;
}

bool made_of_two(const std::string& algorithm) {
    for (const char* beginning : {"two_level", "leader", "rail"})
        if (algorithm.find(beginning) == 0) return true;
    return false;
}

std::string Case::text() const {
    const char* where = place == InPlaceMode::out  ? "out of place"
                        : place == InPlaceMode::in ? "in place"
                                                   : "partly in place";
    return fmt::format("{} by {}, {}, {} channels, {} tiles, {}, {}{}", weft::internal::name_of(collective), algorithm,
                       name_of(way), channels, tiles, where, name_of(hosts),
                       root < 0 ? "" : fmt::format(", root {}", root));
}

bool anywhere(const Algorithm& algorithm, int ranks) {
    return !algorithm.refusal({ranks, 0, {}}) && !algorithm.refusal({ranks, 0, hosts_of(Hosts::two, ranks)});
}

std::vector<Case> cases_of(const Algorithm& algorithm, int channels_most, int ranks) {
    const std::string name = algorithm.name;
    std::vector<Way> ways = {Way::plain};
    if (name == "one_shot" && algorithm.collective == Collective::all_reduce)
        ways = {Way::plain, Way::mixed, Way::all_readable, Way::direct};
    if (name == "two_shot" && algorithm.collective == Collective::all_reduce)
        ways = {Way::plain, Way::mixed, Way::all_readable, Way::direct, Way::pipelined, Way::pipelined_mixed};
    std::vector<int> roots = {-1};
    if (facts_of(algorithm.collective).rooted) {
        roots.clear();
        for (int root = 0; root < ranks; root += ranks <= 12 ? 1 : std::max(1, (ranks - 1) / 3)) roots.push_back(root);
    }
    std::vector<Case> cases;
    for (Hosts hosts : all_hosts) {
        if (algorithm.refusal({ranks, 0, hosts_of(hosts, ranks)})) continue;
        if (anywhere(algorithm, ranks) && hosts != Hosts::one && hosts != Hosts::dealt) continue;
        for (Way way : ways)
            for (int channels = 1; channels <= (name == "ring" ? channels_most : 1); ++channels)
                for (InPlaceMode place : in_place_modes)
                    for (int root : roots) {
                        // NCCL has no all-to-all in place.
                        if (place != InPlaceMode::out && algorithm.collective == Collective::all_to_all) continue;
                        // Long enough on several hosts that a slot of the flag block is used again.
                        const int tiles = way == Way::direct                                  ? 1
                                          : anywhere(algorithm, ranks) || hosts == Hosts::one ? 2
                                                                                              : 6;
                        cases.push_back({name, way, channels, place, tiles, hosts, algorithm.collective, root});
                    }
    }
    return cases;
}

std::vector<bool> every_second(int ranks) {
    std::vector<bool> chosen(ranks);
    for (int rank = 0; rank < ranks; rank += 2) chosen[rank] = true;
    return chosen;
}

DirectMode mode_of(Way way, int ranks) {
    switch (way) {
        case Way::mixed:
        case Way::pipelined_mixed: return {every_second(ranks), false};
        case Way::all_readable: return {std::vector<bool>(ranks, true), false};
        case Way::direct: return {std::vector<bool>(ranks, true), true};
        default: return {};
    }
}

static bool pipelines(const Case& one, int ranks) {
    return ranks > 1 && (one.way == Way::pipelined || one.way == Way::pipelined_mixed);
}

Schedule schedule_of(const Case& one, int ranks, int rank) {
    if (one.algorithm == "two_block_ring") return two_block_ring(ranks, rank);
    const Algorithm* row = registry::find_algorithm(one.algorithm, one.collective);
    const Schedule schedule = row->build(one.layout(ranks, rank), {.channels = one.channels, .root = one.root});
    const DirectMode mode = mode_of(one.way, ranks);
    return pipelines(one, ranks) ? expand_pipelined(schedule, mode, one.tiles) : expand(schedule, mode);
}

CheckedOperation operation_of(const Case& one, int ranks) {
    CheckedOperation operation;
    operation.schedule = [one, ranks](int rank) { return schedule_of(one, ranks, rank); };
    operation.runs = pipelines(one, ranks) ? 1 : one.tiles;
    operation.mode = mode_of(one.way, ranks);
    if (one.place == InPlaceMode::in) operation.in_place.assign(ranks, true);
    if (one.place == InPlaceMode::mixed) operation.in_place = every_second(ranks);
    return operation;
}

Schedule two_block_ring(int ranks, int rank) {
    Builder schedule("two_block_ring", Collective::all_reduce, {.ranks = ranks, .rank = rank},
                     {.chunks = ranks, .fifo_depth = 1});
    const Ring ring = Layout{.ranks = ranks, .rank = rank}.ring(0);
    BlockBuilder receiver = schedule.block({.source = ring.previous});
    BlockBuilder sender = schedule.block({.target = ring.next});
    auto chunk = [&](int distance) { return Chunk{0, rank + distance, ranks}; };
    // Partial sums are kept in the output until the sender has passed them on; only then may results replace them.
    std::vector<StepBuilder> sent = {sender.send(chunk(-1))};
    for (int distance = 2; distance < ranks; ++distance) {
        StepBuilder sum = receiver.recv_reduce_copy(chunk(-distance));
        sent.push_back(sender.send(chunk(-distance)).from(Buffer::output).after(sum));
    }
    StepBuilder own = receiver.recv_reduce_copy(chunk(0)).finish();
    sender.send(chunk(0)).from(Buffer::output).after(own);
    for (int distance = 1; distance < ranks; ++distance) {
        StepBuilder result = receiver.recv(chunk(-distance)).after(sent[distance - 1]);
        if (distance + 1 < ranks) sender.send(chunk(-distance)).from(Buffer::output).after(result);
    }
    return schedule.finish();
}

}  // namespace weft::internal::test
