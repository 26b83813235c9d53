#include "src/planning/chooser.hpp"

#include <algorithm>

#include "src/base/log.hpp"
#include "src/registry.hpp"
#include "src/segment/host_cpus.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/network_kinds.hpp"

namespace weft::internal {

namespace {

const char* placement_text(bool apart) { return apart ? "several NUMA domains" : "one NUMA domain of a host"; }

}  // namespace

Chooser::Chooser(const Segment& group, int rank, std::shared_ptr<const Catalog> catalog,
                 std::shared_ptr<const Machines> machines, std::shared_ptr<const Tuning> tuning)
    : rank_(rank),
      catalog_(std::move(catalog)),
      machines_(std::move(machines)),
      layout_(machines_->layout(rank)),
      costs_({}, std::move(tuning)) {
    const AgreedOptions& agreed = group.header().agreed;
    const auto& facts = group.header().facts;
    const bool cma = agreed.cma_messages != 0;
    // Ranks of one process send zero-copy messages whether or not CMA is allowed.
    costs_.links = group.one_host()
                       ? host_link_costs(group.ranks(), cores_of(group), cma || one_process(group))
                       : network_link_costs(facts.ranks_per_core, facts.link_mbps, cma, facts.machines == 1);
    if (!group.one_host()) {
        const NetworkLinks network = network_links(layout_, facts.network.speed);
        if (network.kind) costs_.links = over_network(std::move(costs_.links), *network.kind, network.mbps);
        costs_.links.net_links = network.links;
        if (const Transport* transport = registry::transport_of(facts.network.mark)) costs_.network = transport->name;
    }
    preferences_ = {{agreed.algo, int(agreed.channels)}};
    deterministic_ = agreed.deterministic != 0;
    if (rank == 0)
        for (const std::string& note : machines_->notes()) WEFT_LOG_RANK(rank, info, init, "{}", note);
    const std::optional<bool> apart = machines_->apart();
    if (apart && costs_.tuning && costs_.tuning->has_other_placement(*apart)) {
        costs_.tuning = std::make_shared<const Tuning>(costs_.tuning->with_placement(*apart));
        if (rank == 0)
            WEFT_LOG_RANK(rank, info, init,
                          "WEFT_TUNE_FILE: ranks here run on {}, so times of ranks on {} are left out{}",
                          placement_text(*apart), placement_text(!*apart),
                          costs_.tuning->of_shared_memory() ? "" : ": inside a host the built-in costs are used");
    }
    // A tuning of shared memory includes the distance of the cores.
    const bool measured = costs_.tuning && costs_.tuning->of_shared_memory();
    if (apart.value_or(false) && !measured) costs_.links.signal_us = LinkCosts::far_signal_us;
}

Result<uint8_t> Chooser::preference(const CallPreference& wanted) {
    WEFT_TRY(catalog_->check("algo", wanted.algo));
    const size_t number = find(wanted);
    if (number > UINT8_MAX)
        return fail(
            error::usage_limit,
            "calls on a communicator may ask for {} different sets of algo, channels, minBlocks and maxBlocks at "
            "most",
            UINT8_MAX);
    if (number == preferences_.size()) preferences_.push_back(wanted);
    return uint8_t(number);
}

size_t Chooser::find(const CallPreference& wanted) const {
    return size_t(std::find(preferences_.begin(), preferences_.end(), wanted) - preferences_.begin());
}

Result<Choice> Chooser::choose(const Operation& operation, uint8_t preference) const {
    const Preferences wanted = preferences(preference);
    auto choice = select(operation, layout_, costs_, wanted, catalog_->rows());
    if (!choice) return choice;
    choice->rings = machines_->rings();
    // All ranks choose alike, so one of them logs it.
    if (rank_ == 0) {
        WEFT_LOG_RANK(rank_, info, algo, "{}",
                      choice_text(operation, layout_, *choice,
                                  candidates(operation, layout_, costs_, wanted, catalog_->rows()), costs_.network));
        WEFT_LOG_RANK(rank_, trace, algo, "{}", explain(operation, preference));
    }
    return choice;
}

std::string Chooser::explain(const Operation& operation, uint8_t preference) const {
    return weft::internal::explain(operation, layout_, costs_, preferences(preference), catalog_->rows());
}

}  // namespace weft::internal
