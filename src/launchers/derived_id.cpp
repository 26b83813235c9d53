#include "src/launchers/derived_id.hpp"

#include <algorithm>

#include "src/base/log.hpp"
#include "src/launchers/node_list.hpp"
#include "src/launchers/pmi.hpp"
#include "src/net/resolution.hpp"

namespace weft::internal {

namespace {

constexpr int first_port = 20000, ports = 10000;  // below Linux's ephemeral ports, which start at 32768

// A pod's short name is unknown to other pods.
Result<std::string> root_among_pods(int index, Deadline deadline) {
    auto name = net::look_up_own_name().take(deadline.remaining_ms());
    if (!name)
        return fail(error::launcher_name_lookup,
                    "this pod's full name, from which pod 0's follows, was still being looked up after {} ms: set "
                    "WEFT_ROOT_HOST to pod 0's name or address on all ranks, or check the resolver",
                    deadline.all_ms());
    if (!*name) return name->take_status();
    return first_pod(**name, index);
}

Result<std::string> root_of(const Family& family, const LaunchedRank& place, const Options& options,
                            Deadline deadline) {
    if (!options.root_host.empty()) return options.root_host;
    switch (family.root) {
        case RootSource::master_addr: return environment("MASTER_ADDR").value_or("");
        case RootSource::slurm_nodes: {
            const auto list = environment("SLURM_STEP_NODELIST");
            if (!list) return std::string();
            auto nodes = parse_node_list(*list);
            if (!nodes) return fail(nodes.status(), "SLURM_STEP_NODELIST: {}", nodes.status().sentence());
            return nodes->front();
        }
        case RootSource::pod_0: return root_among_pods(place.rank, deadline);
        case RootSource::unknown: break;
    }
    return std::string();
}

// MASTER_PORT, at which another service listens already; 0: not set.
uint16_t taken_port() {
    const auto port = parse_integer(environment("MASTER_PORT").value_or(""));
    return port && *port > 0 && *port <= UINT16_MAX ? uint16_t(*port) : 0;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0; }

std::string pmi_identity() {
    const auto descriptor = parse_integer(environment("PMI_FD").value_or(""));
    return descriptor ? pmi_server_identity(int(*descriptor)) : std::string();
}

}  // namespace

std::string first_pod(const std::string& host, int index) {
    const size_t dot = host.find('.');
    const std::string name = host.substr(0, dot), end = fmt::format("-{}", index);
    if (name.size() <= end.size() || name.compare(name.size() - end.size(), end.size(), end) != 0) return {};
    return name.substr(0, name.size() - end.size()) + "-0" + (dot == std::string::npos ? "" : host.substr(dot));
}

uint16_t derived_port(const std::string& identity, uint16_t taken) {
    const UniqueId id = UniqueId::derive("port of " + identity);
    const Digest digest = id.prove("port", 4);
    const int hash = (digest[0] << 8 | digest[1]) % ports;
    const int port = first_port + hash;
    return uint16_t(port == taken ? first_port + (hash + 1) % ports : port);
}

Result<UniqueId> derive_id(const Family& family, const LaunchedRank& place, const Options& options,
                           const std::string& reason, Deadline deadline) {
    const std::string why = reason.empty() ? fmt::format("{} carries no unique id", family.name) : reason;
    // With these options ranks of one host may need the network too.
    const bool over_network = !options.hostid.empty() || !options.transports.empty();
    const bool one_host = place.on_one_host() && !over_network;
    std::string root;
    if (!one_host) {
        auto found = root_of(family, place, options, deadline);
        if (!found) return found.take_status();
        root = found->empty() && place.on_one_host() ? "127.0.0.1" : *found;
        if (root.empty())
            return fail(
                error::launcher_root_host,
                "{}, and the host of rank 0 is unknown: set WEFT_ROOT_HOST to its name or address on all ranks, "
                "or pass a weftUniqueId to all ranks (by MPI_Bcast, say) and call weftCommInitRank",
                why);
    }
    std::string identity = family_identity(family);
    if (family.id_transport == IdTransport::pmi && place.on_one_host()) identity += pmi_identity();
    if (family.root == RootSource::pod_0) identity += root;
    if (identity.empty() && options.secret.empty())
        return fail(error::launcher_secret,
                    "{}, and nothing distinguishes this job from another: set WEFT_SECRET on all ranks to a text that "
                    "is different for each job",
                    why);
    identity = fmt::format("{} {}", place.ranks, identity);
    if (options.secret.empty() && !place.on_one_host() && !is_loopback(root))
        WEFT_LOG_RANK(place.rank, warn, init,
                      "{}: it is derived from the job's variables, so others in this network can guess it; set "
                      "WEFT_SECRET to a random text on all ranks",
                      why);
    if (one_host) return UniqueId::derive(identity);
    const uint16_t port = options.root_port ? uint16_t(options.root_port) : derived_port(identity, taken_port());
    return UniqueId::derive(identity, root, port);
}

}  // namespace weft::internal
