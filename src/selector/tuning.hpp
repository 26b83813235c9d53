// tuning.hpp: what `weft tune` measured on a machine: times of algorithms at some sizes, for ranks that lie in some ways,
// and the constants of the cost model that fit them. A value; what is predicted of it depends on nothing else, so that
// ranks that have the same text choose alike. Reentrant.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/collective.hpp"
#include "src/base/result.hpp"
#include "src/schedule/layout.hpp"

namespace weft::internal {

struct Tuning {
    static constexpr int ranks_most = 4096;  // of a curve
    struct Point {
        size_t bytes;  // of the whole
        double us;
    };
    // An algorithm's times where so many ranks lie on so many hosts, in blocks.
    struct Curve {
        Collective collective = Collective::none;
        std::string algorithm;
        int ranks = 0, hosts = 1;
        std::vector<Point> points;  // by bytes, each once; never empty
        // Of ranks that shared memory: whether some sat on another NUMA domain than others; nothing: unknown.
        std::optional<bool> apart = {};
        // Between two points on a straight line, both axes logarithmic; beyond the ends as at the ends.
        double us_at(size_t bytes) const;
        // Where times have been measured: the nearest size to these bytes.
        size_t within(size_t bytes) const;
    };
    struct Constant {
        const char* name;
        double LinkCosts::*member;
        bool of_network;
    };

    std::string simulated;  // the machines whose times the simulator made up; empty: they were measured here
    std::string version;    // of the Weft that measured
    std::string processor;  // as cpu_model()
    int machine_cores = 0;  // of the machine, and those that the ranks shared
    int cores = 0;
    int64_t link_mbps = 0;  // of the network between hosts; 0: unknown, as over loopback
    bool uses_cma = false;
    LinkCosts constants;  // of these only constant_table()'s count; unless fitted, built_in()'s
    std::vector<Curve> curves;
    std::vector<std::string> notes = {};  // what of the text counts for nothing; not written

    // weftInvalidUsage: it is cut off, of another form or holds what cannot be; the sentence says where.
    static Result<Tuning> read(std::string_view text);
    std::string text() const;
    static std::span<const Constant> constant_table();

    // Whether the network is as fast as the measured one; of simulated hosts, that there is one. `links`: not fitted.
    bool of_network(const LinkCosts& links) const;
    // `links` with the constants that were fitted, those of the network only if it is the measured one: where they are not
    // built_in()'s they change in proportion. Tiles stay those of `links`, with which the times were measured.
    LinkCosts fitted(const LinkCosts& links) const;
    // Whether ranks that share memory were measured, not simulated: then the constants know how far apart this machine's cores are.
    bool of_shared_memory() const;
    // Whether ranks that shared memory sat otherwise than ranks that are apart, or are not, in some curve.
    bool sat_otherwise(bool apart) const;
    // Without those; if no other ranks that shared memory are left the constants of a machine are the built-in ones.
    Tuning of_those_who_sat(bool apart) const;
    // Between ranks that have a core each, on hosts that are all this machine, or are simulated.
    LinkCosts built_in() const;
    // As ranks in blocks on such hosts had them, unfitted; and as the ranks of a curve had them.
    LinkCosts links_here(int ranks, int hosts) const;
    LinkCosts links_of(const Curve& curve) const { return fitted(links_here(curve.ranks, curve.hosts)); }
    // Of this algorithm, among ranks that lie in the same way (one host, a host for each, or between), the number of
    // ranks nearest to the layout's; null: there is none.
    const Curve* nearest(Collective collective, std::string_view algorithm, const Layout& layout) const;
};

// As host_link_costs() or network_link_costs() have them for ranks in blocks on hosts, and these on machines of so many
// cores.
LinkCosts link_costs_in_blocks(int ranks, int hosts, int machines, int cores, int64_t link_mbps, bool uses_cma);

}  // namespace weft::internal
