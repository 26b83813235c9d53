// hosts_fabric.hpp: a fabric of equal hosts, each described by a few numbers: a table of kinds of hosts. Within a host
// all paths are equal (a switch of NVLinks, or shared memory). Between hosts the network carries all that the adapters
// send. It cannot describe narrow switches, rails or different hosts; a graph can.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/base/result.hpp"
#include "src/simulator/fabric.hpp"

namespace weft::internal {

// Bytes a microsecond (1000 are a GB/s) in each direction, and microseconds.
struct HostKind {
    const char* name;
    const char* source;  // of the numbers
    int ranks;           // the number of devices; for processors, a usual number
    int channels;        // channels that use all links
    // true: each rank is a device with its own memory and links; false: ranks are threads that share the host's memory
    bool devices;
    double peer_bytes_per_us;    // of a device to and from the others; of a thread, its copies
    double memory_bytes_per_us;  // of a device or the host: copied bytes, which are both read and written
    double net_bytes_per_us;     // of the adapter of a device or host
    double block_bytes_per_us;   // copies or reductions of one block
    int gang;                    // blocks that work on one fused instruction
    double step_us, peer_us, net_us, net_overhead_us, signal_us, start_us;
    size_t slot_bytes;
    double packet_bytes_per_us = unlimited;  // of a device, in packets with a flag beside each word
    double carrier_us = 0;   // of a device: the part of net_us in which the proxy thread works, at each end
    double cache_bytes = 0;  // of a thread: buffers up to this size stay in the cache
    // Set by with_protocol(); the bandwidths above already contain it.
    double efficiency = 1;                       // payload bytes over bytes on the links
    double connection_bytes_per_us = unlimited;  // between two devices of a host
};

// A host of threads whose buffers have `bytes` each.
HostKind with_working_set(HostKind kind, size_t bytes);
// A host with another value of one constant: a name of a numeric field above. weftInvalidArgument lists the names.
Result<HostKind> with_constant(HostKind kind, std::string_view name, double value);

// For each message to and from another host, at most the latency of the network.
double carrier_us_of(const HostKind& kind);
// The costs of its ranks on so many hosts.
RankCosts rank_costs_of(const HostKind& kind, int hosts);

std::span<const HostKind> host_kinds();
std::string host_kind_names();  // for example `dgx-a100, dgx-h100`
const HostKind* find_host_kind(std::string_view name);

// NCCL's three protocols, with its constants: base, and a step over NVLink and network.
enum class Protocol : uint8_t { simple, ll128, ll };
// A host of devices whose blocks use this protocol. `tree`: with the constants for trees in place of rings.
HostKind with_protocol(HostKind kind, Protocol protocol, bool tree);
std::optional<Protocol> protocol_named(std::string_view name);

class HostsFabric : public Fabric {
  public:
    HostsFabric(const HostKind& kind, int hosts, int ranks_a_host);

    int ranks() const override { return hosts_ * ranks_a_host_; }
    const RankCosts& costs() const override { return costs_; }
    int links() const override { return firsts_[roles_]; }
    double bytes_per_us(int link) const override;
    std::string link_name(int link) const override;
    Route route(int from, int to) const override;
    Route local(int rank) const override;
    Route reading(int rank, int owner) const override;
    // One host; within one host, one rank.
    int rotation() const override { return hosts_ == 1 ? 1 : ranks_a_host_; }
    Turned turned(int link) const override;

    std::vector<int32_t> hosts() const;  // by rank, as in Layout; empty: one host

  private:
    enum Role { out, in, memory, net_out, net_in, roles_ };
    bool by_host(Role role) const { return !kind_.devices && role >= memory; }
    int host_of(int rank) const { return rank / ranks_a_host_; }
    int32_t link(Role role, int rank) const { return firsts_[role] + (by_host(role) ? host_of(rank) : rank); }
    Role role_of(int link) const;

    HostKind kind_;
    int hosts_, ranks_a_host_;
    RankCosts costs_;
    int firsts_[roles_ + 1];  // links are ordered by role, those of a role by rank or host
};

}  // namespace weft::internal
