#include "tools/simulate_faults.hpp"

#include <algorithm>
#include <set>

#include "tools/simulate_numbers.hpp"
#include "topology/fabric/graph_fabric.hpp"

namespace weft::internal::tools {

namespace {

Result<std::optional<Scene>> without_hosts(const SimulateRequest& request, const Scene& scene) {
    if (!request.slow_links.empty() || !request.slow_hosts.empty() || !request.slow_ranks.empty() ||
        !request.failed_links.empty())
        return fail(
            error::command_option,
            "--fail-host excludes the other options of faults: the hosts that are left get new numbers, so names of "
            "links and ranks would be ambiguous");
    std::set<int> failed;
    for (const std::string& text : request.failed_hosts) {
        auto host = number_of("--fail-host", text, scene.hosts);
        if (!host) return host.take_status();
        failed.insert(*host);
    }
    if (int(failed.size()) == scene.hosts)
        return fail(error::command_option, "--fail-host leaves none of the {} hosts", scene.hosts);
    const auto is_left = [&](int rank) { return failed.count(scene.layout.host_of(rank)) == 0; };
    int root = 0;  // of a rooted collective, in the current numbering
    if (scene.parameters.root >= 0) {
        if (!is_left(request.root))
            return fail(error::command_option, "--root {} is on host {}, which --fail-host removes; name another root",
                        request.root, scene.layout.host_of(request.root));
        for (int rank = 0; rank < request.root; ++rank) root += is_left(rank);
    }
    Scene after = scene;
    after.notes.clear();
    if (scene.graph) {
        after.job.locations.clear();
        for (int rank = 0; rank < scene.layout.ranks; ++rank)
            if (is_left(rank)) after.job.locations.push_back(scene.job.locations[size_t(rank)]);
        WEFT_TRY(seat_on_graph(request, after));
    } else {
        WEFT_TRY(seat_on_equal(request, scene.hosts - int(failed.size()), scene.layout.ranks / scene.hosts, after));
    }
    WEFT_TRY(find_rows(request, root, after));
    return std::optional(std::move(after));
}

}  // namespace

// Several factors of one part multiply.
static Status slow_down(const char* option, const NamedNumber& slow, double& factor) {
    factor *= slow.value;
    if (factor <= slowed_most) return ok();
    return fail(error::command_option, "{} {}: the factors together are above {:.0f}; say smaller ones", option,
                slow.name, slowed_most);
}

Result<Faults> damage_of(const SimulateRequest& request, const Scene& scene, const Fabric& fabric) {
    Faults damage;
    for (const std::string& text : request.slow_links) {
        auto slow = slowed("--slow-link", text);
        if (!slow) return slow.take_status();
        auto link = link_named(fabric, slow->name);
        if (!link) return link.take_status();
        WEFT_TRY(slow_down("--slow-link", *slow, damage.slow_links.try_emplace(*link, 1).first->second));
    }
    const auto slow_ranks = [&](const char* option, const std::string& text, int count, auto is_one) -> Status {
        auto slow = slowed(option, text);
        if (!slow) return slow.take_status();
        auto number = number_of(option, slow->name, count);
        if (!number) return number.take_status();
        for (int rank = 0; rank < scene.layout.ranks; ++rank)
            if (is_one(rank, *number))
                WEFT_TRY(slow_down(option, *slow, damage.slow_ranks.try_emplace(rank, 1).first->second));
        return ok();
    };
    for (const std::string& text : request.slow_hosts)
        WEFT_TRY(slow_ranks("--slow-host", text, scene.hosts,
                            [&](int rank, int host) { return scene.layout.host_of(rank) == host; }));
    for (const std::string& text : request.slow_ranks)
        WEFT_TRY(slow_ranks("--slow-rank", text, scene.layout.ranks, [](int rank, int slow) { return rank == slow; }));
    for (const std::string& name : request.failed_links) {
        auto link = link_named(fabric, name);
        if (!link) return link.take_status();
        damage.failed_links.push_back(*link);
    }
    return damage;
}

Result<std::optional<Scene>> scene_after(const SimulateRequest& request, const Scene& scene) {
    if (!request.failed_hosts.empty()) return without_hosts(request, scene);
    if (!scene.graph || request.failed_links.empty()) return std::optional<Scene>();
    auto fabric = topology::GraphFabric::make(scene.job, scene.kind);
    if (!fabric) return fabric.take_status();
    std::vector<int> failed;
    for (const std::string& name : request.failed_links) {
        auto link = link_named(*fabric, name);
        if (!link) return link.take_status();
        failed.push_back(*link);
    }
    std::vector<std::unique_ptr<const topology::Graph>> cut;
    const topology::Job left = fabric->job_without(scene.job, failed, cut);
    if (cut.empty()) return std::optional<Scene>();
    Scene after = scene;
    after.notes.clear();
    take_rings_of(request, left, after);
    return std::optional(std::move(after));
}

}  // namespace weft::internal::tools
