// registry.cpp: the tables of algorithms (algorithms/algorithms.def) and transports. A row is the registration.
#include "src/registry.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "transports/nccl_net/nccl_net.hpp"
#include "transports/plugin/plugin.hpp"
#include "transports/shm/shm.hpp"
#include "transports/tcp/tcp.hpp"
#include "transports/ucx/ucx.hpp"
#include "transports/verbs/verbs.hpp"

namespace weft::internal::registry {

// The traits of a row of algorithms.def.
enum Traits : unsigned {
    no_trait = 0,
    trait_in_rank_order = 1,
    trait_on_demand = 2,
    trait_many_slots = 4,
    trait_tree = 8,
};
static constexpr Algorithm with_traits(Algorithm row, unsigned traits) {
    if (row.refuses == any_layout) row.refuses = nullptr;
    if (row.tile_bytes == largest_tile) row.tile_bytes = nullptr;
    if (traits & trait_in_rank_order) row.sums = Sums::in_rank_order;
    row.on_demand = traits & trait_on_demand;
    row.many_slots = traits & trait_many_slots;
    row.tree = traits & trait_tree;
    return row;
}

static constexpr Algorithm algorithm_table[] = {
#define WEFT_ALGORITHM(name, collective, build, predict_us, refuses, tile_bytes, traits, cost) \
    with_traits({#name, Collective::collective, build, predict_us, cost, refuses, tile_bytes}, traits),
#include "algorithms/algorithms.def"
#undef WEFT_ALGORITHM
};

std::span<const Algorithm> algorithms() { return algorithm_table; }

const Algorithm* find_algorithm(std::string_view name, Collective collective) {
    for (const Algorithm& row : algorithms())
        if (name == row.name && collective == row.collective) return &row;
    return nullptr;
}

std::span<const Transport* const> transports() {
    struct Table {
        std::once_flag once;
        std::vector<const Transport*> rows;
    };
    static PerProcess<Table> tables;  // a child after fork prepares its plugins again
    Table& table = tables.get();
    std::call_once(table.once, [&] {
        table.rows.push_back(&shm_transport());
        for (const auto& transport : plugin::plugins_of_process().transports) table.rows.push_back(transport.get());
        // A plugin that is installed, but not named, comes after Weft's own RDMA.
        const Transport* const plugin = nccl_net::plugin_of_process().transport.get();
        const bool named = !options().nccl_net_plugin.empty();
        if (plugin && named) table.rows.push_back(plugin);
        if (const Transport* transport = ucx_transport()) table.rows.push_back(transport);
        table.rows.push_back(&verbs_transport());
        if (plugin && !named) table.rows.push_back(plugin);
        table.rows.push_back(&tcp_transport());
    });
    return table.rows;
}

Status plugin_trouble() {
    WEFT_TRY(plugin::plugins_of_process().trouble.copy());
    WEFT_TRY(nccl_net::plugin_of_process().trouble.copy());
    return ucx_trouble();
}

Status rdma_trouble() { return NameList(options().transports).admits("verbs") ? verbs_trouble() : ok(); }

// Not 0. FNV-1a of name and network: other ranks may number their transports differently.
static uint16_t mark_of(const Transport& transport, uint32_t network) {
    uint32_t hash = 2166136261u ^ network;
    for (const char each : std::string_view(transport.name)) hash = (hash ^ uint8_t(each)) * 16777619u;
    return uint16_t(std::max(1u, (hash ^ hash >> 16) & 0xffff));
}

// The marks that this process has announced. They stand for their transports also if ports have gone down since.
namespace {
struct Announced {
    std::mutex mutex;
    std::map<uint16_t, const Transport*> transports;
};
Announced& announced() {
    static PerProcess<Announced> processes;
    return processes.get();
}
}  // namespace

const Transport* transport_of(uint16_t mark) {
    Announced& all = announced();
    std::lock_guard lock(all.mutex);
    const auto found = all.transports.find(mark);
    return mark == 0 || found == all.transports.end() ? nullptr : found->second;
}

Networks own_networks() {
    const NameList allowed(options().transports);
    Networks networks{};
    size_t count = 0;
    Announced& all = announced();
    std::lock_guard lock(all.mutex);
    for (const Transport* transport : transports()) {
        if (!allowed.admits(transport->name)) continue;
        for (const Reached& reached : transport->networks()) {
            if (reached.network == 0 || count == networks.size() || !transport->available().empty()) continue;
            networks[count] = {mark_of(*transport, reached.network), reached.speed};
            all.transports[networks[count++].mark] = transport;
        }
    }
    return networks;
}

int64_t longest_repeat_us() {
    const NameList allowed(options().transports);
    int64_t longest = 0;
    for (const Transport* transport : transports())
        if (allowed.admits(transport->name)) longest = std::max(longest, transport->repeat_us());
    return longest;
}

const Transport* agreed_transport(const Networks& lower, const Networks& higher) {
    for (const NetworkFacts& own : lower)
        if (find_network(higher, own.mark))
            if (const Transport* transport = transport_of(own.mark)) return transport;
    return nullptr;
}

const Transport* agreed_transport(const Segment& group, int one, int other) {
    return agreed_transport(group.rank_info(std::min(one, other)).networks,
                            group.rank_info(std::max(one, other)).networks);
}

}  // namespace weft::internal::registry
