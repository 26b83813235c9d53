// hosts_fabric.hpp: a fabric of equal hosts, described by a few numbers each: a table of kinds, and hosts made of them.
// Within a host every rank reaches every other alike (a switch of NVLinks; shared memory); between hosts the network
// carries whatever its adapters bring. So what it cannot say is a switch that is too narrow, rails, and hosts that
// differ: a graph can.
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
    int ranks;           // as many as there are devices or, of processors, what is usual
    int channels;        // that fill the links
    bool devices;        // each with memory and links of its own; else ranks are threads that share the host's memory
    double peer_bytes_per_us;    // of a device to and from the others; of a thread, what it copies
    double memory_bytes_per_us;  // of a device, or of the host: bytes copied, which are read and written
    double net_bytes_per_us;     // of a device's adapter, or of the host's
    double block_bytes_per_us;   // what one block copies or adds up
    int gang;                    // blocks that work on a fused instruction
    double step_us, peer_us, net_us, net_overhead_us, signal_us, start_us;
    size_t slot_bytes;
    double packet_bytes_per_us = unlimited;  // of a device, in packets that hold a flag beside each word
    double carrier_us = 0;                   // of a device: what net_us has of its host's thread, at each end
    double cache_bytes = 0;                  // of a thread: what is no larger than this never goes to memory
    // Of with_protocol(); what bandwidths are above has them in it.
    double efficiency = 1;                       // bytes of data in those on links
    double connection_bytes_per_us = unlimited;  // between two devices of a host
};

// A host of threads that work on so many bytes each.
HostKind with_working_set(HostKind kind, size_t bytes);
// A host one of whose constants was measured: a name as above, those that are numbers. weftInvalidArgument lists them.
Result<HostKind> with_constant(HostKind kind, std::string_view name, double value);

// Of each message to another host and of each from one, no more than its latency has room for.
double carrier_us_of(const HostKind& kind);
// What its ranks do by themselves, on so many hosts.
RankCosts rank_costs_of(const HostKind& kind, int hosts);

std::span<const HostKind> host_kinds();
std::string host_kind_names();  // `dgx-a100, dgx-h100, ..`
const HostKind* find_host_kind(std::string_view name);

// NCCL's three ways to move bytes over a connection, with its constants: base, and a step over NVLink and network.
enum class Protocol : uint8_t { simple, ll128, ll };
// A host of devices on which blocks move bytes so. `tree`: its constants for trees, which differ from those for rings.
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
    // By a host; of one host by a rank.
    int rotation() const override { return hosts_ == 1 ? 1 : ranks_a_host_; }
    Turned turned(int link) const override;

    std::vector<int32_t> hosts() const;  // by rank, as Layout has it; empty: one

  private:
    enum Role { out, in, memory, net_out, net_in, roles_ };
    bool by_host(Role role) const { return !kind_.devices && role >= memory; }
    int host_of(int rank) const { return rank / ranks_a_host_; }
    int32_t link(Role role, int rank) const { return firsts_[role] + (by_host(role) ? host_of(rank) : rank); }
    Role role_of(int link) const;

    HostKind kind_;
    int hosts_, ranks_a_host_;
    RankCosts costs_;
    int firsts_[roles_ + 1];  // links by role, those of a role by rank or host
};

}  // namespace weft::internal
