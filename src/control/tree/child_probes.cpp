#include "src/control/tree/child_probes.hpp"

namespace weft::internal {

namespace {
constexpr int64_t again_us = 500'000;
constexpr int refusals_of_dead = 2;
}  // namespace

// The child's leader accepts the connection and drops it, because only children connect.
void ChildProbes::call(int child, int64_t now) {
    Probe& probe = probes_[child];
    if (probe.connect || now < probe.next_us) return;
    probe.next_us = now + again_us;
    const HostEntry& entry = rank_table_->hosts[size_t(child)];
    probe.connect = std::make_unique<AsyncConnect>(*service_, identity_,
                                                   net::Purpose{net::control, uint32_t(host_), uint64_t(child)},
                                                   net::TargetProcess{.process = entry.process}, entry.addresses,
                                                   [this, child](const Result<Fd>& socket) { take(child, socket); });
}

void ChildProbes::take(int child, const Result<Fd>& socket) {
    Probe& probe = probes_[child];
    const bool refused = !socket && probe.connect->refused();
    probe.connect.reset();
    probe.refusals = refused ? probe.refusals + 1 : 0;
    if (probe.refusals == refusals_of_dead)
        on_dead_(child, fail(socket.status(), "it has not connected, and {}", socket.status().sentence()));
}

}  // namespace weft::internal
