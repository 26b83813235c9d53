// tuning.hpp: a measurement by `weft tune`: times of algorithms for some sizes and layouts, and fitted constants of the cost
// model. A value. Predictions depend on nothing else, so ranks with the same text choose alike. Reentrant.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/collective.hpp"
#include "src/schedule/layout.hpp"

namespace weft::internal {

struct Tuning {
    static constexpr int ranks_most = 4096;  // of a curve
    struct Point {
        size_t bytes;  // of the whole
        double us;
    };
    // An algorithm's times for a number of ranks on a number of hosts, placed in blocks.
    struct Curve {
        Collective collective = Collective::none;
        std::string algorithm;
        int ranks = 0, hosts = 1;
        std::vector<Point> points;  // by bytes, each once; never empty
        // Whether ranks of one host ran on different NUMA domains. Empty: unknown.
        std::optional<bool> apart = {};
        // Interpolates linearly between two points on logarithmic axes. Constant beyond the ends.
        double us_at(size_t bytes) const;
        // Clamps a size to the measured range.
        size_t within(size_t bytes) const;
    };
    struct Constant {
        const char* name;
        double LinkCosts::*member;
        bool of_network;
    };

    std::string simulated;  // the simulated machines; empty: the times were measured
    std::string version;    // of the Weft that measured
    std::string processor;  // see cpu_model()
    int machine_cores = 0;  // all cores of the machine
    int cores = 0;          // the cores that the ranks shared
    int64_t link_mbps = 0;  // of the network between hosts; 0: unknown, as over loopback
    bool uses_cma = false;
    LinkCosts constants;  // only the members in constant_table() are used; built_in() unless fitted
    std::vector<Curve> curves;
    std::vector<std::string> notes = {};  // about ignored parts of the text; not written

    static std::span<const Constant> constant_table();

    // Whether `links`, not fitted, describe the measured network. For simulated hosts: whether there is a network.
    bool of_network(const LinkCosts& links) const;
    // `links` with the fitted constants, those of the network only if it is the measured one. Constants of `links` that
    // differ from built_in() change in proportion. Tile sizes stay those of `links`, which the measurement used.
    LinkCosts fitted(const LinkCosts& links) const;
    // Whether some curve was measured, not simulated, on shared memory. Then the constants include the distance of this
    // machine's cores.
    bool of_shared_memory() const;
    // Whether some curve on shared memory was measured with another placement on NUMA domains than `apart`.
    bool has_other_placement(bool apart) const;
    // Without those curves. If no curve on shared memory is left, the constants of a machine are the built-in ones.
    Tuning with_placement(bool apart) const;
    // Costs of ranks with a core each, on hosts that are all this machine or simulated.
    LinkCosts built_in() const;
    // Unfitted costs of ranks in blocks on the measured hosts; fitted costs of the ranks of a curve.
    LinkCosts links_here(int ranks, int hosts) const;
    LinkCosts links_of(const Curve& curve) const { return fitted(links_here(curve.ranks, curve.hosts)); }
    // The algorithm's curve with the nearest number of ranks, among those of the same kind of layout: one host, one rank
    // a host, or several ranks on several hosts. Null: there is none.
    const Curve* nearest(Collective collective, std::string_view algorithm, const Layout& layout) const;
};

}  // namespace weft::internal
