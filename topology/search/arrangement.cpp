#include "topology/search/arrangement.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "topology/search/rails.hpp"
#include "topology/search/rank_orders.hpp"
#include "topology/search/search.hpp"

namespace weft::internal::topology {

namespace {

// For several hosts: the NICs by which ranks leave them, and the hosts that NVLinks join.
void note_neighbours(const char* what, const Layout& layout, std::vector<std::string>& notes) {
    const HostCrossings crossings = host_crossings_of(layout, 0);
    const int rails = 1 + *std::max_element(layout.rails.begin(), layout.rails.end());
    if (rails > 0)
        notes.push_back(fmt::format(
            "{}: rails by the NIC nearest to each rank, {} of them: {}; of {} ways from host to host of the first ring "
            "{} keep{} their rail",
            what, rails, shortened(layout.rails), crossings.all, crossings.on_rail, crossings.on_rail == 1 ? "s" : ""));
    if (layout.domains.empty()) return;
    const int domains = 1 + *std::max_element(layout.domains.begin(), layout.domains.end());
    notes.push_back(fmt::format("{}: {} NVLink domain{} of several hosts, by host {}; {} of those ways lie{} in one",
                                what, domains, domains == 1 ? "" : "s", shortened(layout.domains), crossings.in_domain,
                                crossings.in_domain == 1 ? "s" : ""));
}

}  // namespace

std::string shortened(const std::vector<int32_t>& numbers, size_t most) {
    std::string text;
    for (size_t i = 0; i < std::min(most, numbers.size()); ++i)
        text += fmt::format("{}{}", i == 0 ? "" : " ", numbers[i]);
    return numbers.size() > most ? text + " .." : text;
}

std::vector<int32_t> domains_of(const std::vector<std::string>& names) {
    std::map<std::string, int> hosts;
    for (const std::string& name : names) ++hosts[name];
    std::map<std::string, int32_t> numbers;
    std::vector<int32_t> all;
    for (const std::string& name : names) {
        const bool shared = !name.empty() && hosts[name] > 1;
        all.push_back(shared ? numbers.try_emplace(name, int32_t(numbers.size())).first->second : -1);
    }
    return numbers.empty() ? std::vector<int32_t>() : all;
}

ArrangementReport arrange(const Job& job, const char* what, std::vector<int32_t> domains, Layout& layout) {
    ArrangementReport found;
    if (layout.host_count() > 1) {
        layout.rails = rails_of(job);
        layout.domains = std::move(domains);
    }
    const auto channels = search(job);
    if (!channels) {
        found.notes.push_back(
            fmt::format("{}: rings pass hosts and ranks in their order, for {}", what, channels.status().sentence()));
        return found;
    }
    found.gbs = channels->found_gbs;
    take_rings(*channels, layout);
    const auto& orders = layout.ring_orders;
    found.notes.push_back(
        fmt::format("{}: {} kind{} of machines; {}{}", what, job.graphs.size(), job.graphs.size() == 1 ? "" : "s",
                    orders.empty() ? std::string("rings pass the ranks in their order")
                                   : fmt::format("{} ring{} along the links, the first {}", orders.size(),
                                                 orders.size() == 1 ? "" : "s", shortened(orders[0])),
                    found.gbs > 0 ? fmt::format("; links of {:.3g} GB/s in all", found.gbs) : ""));
    if (layout.host_count() > 1) note_neighbours(what, layout, found.notes);
    return found;
}

}  // namespace weft::internal::topology
