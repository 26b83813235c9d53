#include "tools/simulate_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "src/base/json_text.hpp"
#include "src/base/printing.hpp"

namespace weft::internal::tools {

namespace {

using Json = nlohmann::ordered_json;

double bus_factor(Collective collective, int ranks) {
    const double others = double(ranks - 1) / ranks;
    if (ranks == 1) return 1;
    if (collective == Collective::all_reduce) return 2 * others;
    return facts_of(collective).parted ? others : 1;
}

double idle_share(const Simulation& found) {
    double idle = 0;
    for (const RankUse& each : found.ranks) idle += each.idle;
    return idle / double(found.ranks.size());
}

double algorithm_gbs(const SimulateRequest& request, double us) { return double(request.bytes) / us / 1e3; }

double bus_gbs(const SimulateRequest& request, const Scene& scene, double us) {
    return algorithm_gbs(request, us) * bus_factor(scene.rows[0]->collective, scene.layout.ranks);
}

Json json_of_scene(const SimulateRequest& request, const Scene& scene) {
    return {{"collective", request.collective}, {"host", scene.machines}, {"hosts", scene.hosts},
            {"ranks", scene.layout.ranks},      {"bytes", request.bytes}, {"channels", scene.parameters.channels}};
}

Json json_of(const SimulateRequest& request, const Scene& scene, const SimulatedRow& row) {
    Json all = {{"algorithm", row.row->name}};
    if (row.healthy_us) all["healthy_us"] = *row.healthy_us;
    if (row.old_rings_us) all["old_rings_us"] = *row.old_rings_us;
    if (!row.found) {
        all["objection"] = row.objection;
        return all;
    }
    const Simulation& found = *row.found;
    all.update({{"tile_bytes", found.tile_bytes},
                {"tiles", found.tiles},
                {"us", found.us},
                {"algbw", algorithm_gbs(request, found.us)},
                {"busbw", bus_gbs(request, scene, found.us)},
                {"idle", idle_share(found)},
                {"critical_rank", found.critical_rank},
                {"messages", found.messages},
                {"message_bytes", found.message_bytes},
                {"ranks_simulated", found.ranks_simulated},
                {"chunks_of_mean_size", found.even},
                {"events", found.events}});
    return all;
}

void print_json(const SimulateRequest& request, const Scene& scene, const Fabric& fabric, const SimulatedRow& row) {
    Json all = json_of(request, scene, row);
    all.update(json_of_scene(request, scene));
    Json links = Json::array();
    for (size_t each = 0; each < row.found->links.size() && each < size_t(request.links_shown); ++each) {
        const LinkUse& use = row.found->links[each];
        links.push_back({{"name", fabric.link_name(use.link)},
                         {"alike", use.alike},
                         {"bytes", use.bytes},
                         {"load", use.load},
                         {"busy", use.busy}});
    }
    all["links"] = std::move(links);
    print_output("{}\n", json_text(all, 2));
}

void print_links(const SimulateRequest& request, const Fabric& fabric, const Simulation& found) {
    std::vector<std::string> names;
    size_t width = 32;
    for (size_t each = 0; each < found.links.size() && each < size_t(request.links_shown); ++each) {
        names.push_back(fabric.link_name(found.links[each].link));
        width = std::max(width, names.back().size());
    }
    print_output("{:<{}} {:>8} {:>8} {:>8} {:>16}\n", "busiest links", width, "alike", "load %", "busy %", "bytes");
    for (size_t each = 0; each < names.size(); ++each) {
        const LinkUse& use = found.links[each];
        print_output("{:<{}} {:>8} {:>8.1f} {:>8.1f} {:>16.0f}\n", names[each], width, use.alike, 100 * use.load,
                     100 * use.busy, use.bytes);
    }
}

}  // namespace

void print_simulation(const SimulateRequest& request, const Scene& scene, const Fabric& fabric,
                      const SimulatedRow& row) {
    if (request.as_json) return print_json(request, scene, fabric, row);
    const Simulation& found = *row.found;
    print_output("{} {} of {} bytes, {} ranks on {} {}, {} tile{} of {} bytes a part\n\n", row.row->name,
                 request.collective, request.bytes, scene.layout.ranks, scene.hosts, scene.machines, found.tiles,
                 found.tiles == 1 ? "" : "s", found.tile_bytes);
    print_output("{:>14} {:>12} {:>12} {:>8} {:>14} {:>10}\n", "time us", "algbw GB/s", "busbw GB/s", "idle %",
                 "critical rank", "messages");
    print_output("{:>14.2f} {:>12.3f} {:>12.3f} {:>8.1f} {:>14} {:>10}\n\n", found.us, algorithm_gbs(request, found.us),
                 bus_gbs(request, scene, found.us), 100 * idle_share(found), found.critical_rank, found.messages);
    if (row.healthy_us)
        print_output("without the damage {:.2f} us: it costs {:.2f} times the time\n", *row.healthy_us,
                     found.us / *row.healthy_us);
    if (row.old_rings_us) print_output("by the rings of before {:.2f} us\n", *row.old_rings_us);
    if (row.healthy_us || row.old_rings_us) print_output("\n");
    print_links(request, fabric, found);
    if (found.ranks_simulated < scene.layout.ranks)
        print_output("\n{} rank{} simulated, which stand for all{}\n", found.ranks_simulated,
                     found.ranks_simulated == 1 ? "" : "s",
                     found.even ? "; all chunks count as of one size, empty ones too" : "");
}

namespace {

// The distance of Weft's choice from the fastest algorithm.
std::string text_of_choice(const std::vector<SimulatedRow>& rows, const Result<WeftChoice>& choice) {
    if (!choice) return fmt::format("Weft would choose none: {}", choice.status().sentence());
    const auto chosen = std::find_if(rows.begin(), rows.end(),
                                     [&](const SimulatedRow& row) { return choice->algorithm == row.row->name; });
    if (chosen == rows.end() || !chosen->found) return fmt::format("Weft would choose {}", choice->algorithm);
    const auto best =
        std::find_if(rows.begin(), rows.end(), [&](const SimulatedRow& row) { return choice->is_able(row.row); });
    return fmt::format("Weft would choose {}: {:.2f} times the least time{}", choice->algorithm,
                       chosen->found->us / best->found->us,
                       choice->unable.empty() ? "" : " of those that it has for device memory");
}

}  // namespace

void print_comparison(const SimulateRequest& request, const Scene& scene, std::vector<SimulatedRow> rows,
                      const Result<WeftChoice>& choice) {
    const auto is_able = [&](const SimulatedRow& row) { return !choice || choice->is_able(row.row); };
    const auto prediction_of = [&](const SimulatedRow& row) -> std::optional<double> {
        if (!choice) return {};
        const auto found = choice->predicted_us.find(row.row);
        return found == choice->predicted_us.end() ? std::nullopt : std::optional(found->second);
    };
    std::stable_sort(rows.begin(), rows.end(), [](const SimulatedRow& one, const SimulatedRow& other) {
        return (one.found ? one.found->us : unlimited) < (other.found ? other.found->us : unlimited);
    });
    if (request.as_json) {
        Json all = json_of_scene(request, scene);
        for (const SimulatedRow& row : rows) {
            all["algorithms"].push_back(json_of(request, scene, row));
            all["algorithms"].back()["served"] = is_able(row);
            if (const auto predicted = prediction_of(row)) all["algorithms"].back()["predicted_us"] = *predicted;
        }
        all["choice"] = choice ? Json(choice->algorithm) : Json();
        print_output("{}\n", json_text(all, 2));
        return;
    }
    const bool damaged =
        std::any_of(rows.begin(), rows.end(), [](const SimulatedRow& row) { return row.healthy_us.has_value(); });
    print_output("{} of {} bytes, {} ranks on {} {}\n\n", request.collective, request.bytes, scene.layout.ranks,
                 scene.hosts, scene.machines);
    print_output("{:<28} {:>14} {:>12} {:>14}", "algorithm", "time us", "busbw GB/s", "Weft predicts");
    print_output("{}", damaged ? fmt::format(" {:>14} {:>8}\n", "undamaged us", "times") : "\n");
    for (const SimulatedRow& row : rows) {
        if (!row.found) continue;
        const auto predicted = prediction_of(row);
        print_output("{:<28} {:>14.2f} {:>12.3f} {:>14}", row.row->name, row.found->us,
                     bus_gbs(request, scene, row.found->us), predicted ? fmt::format("{:.2f}", *predicted) : "");
        if (row.healthy_us) print_output(" {:>14.2f} {:>8.2f}", *row.healthy_us, row.found->us / *row.healthy_us);
        print_output("{}\n", is_able(row) ? "" : "  not for device memory yet");
    }
    for (const SimulatedRow& row : rows)
        if (!row.found) print_output("{:<28} {}\n", row.row->name, row.objection);
    print_output("\n{}\n", text_of_choice(rows, choice));
}

}  // namespace weft::internal::tools
