#include "src/comm/links.hpp"

#include <algorithm>

namespace weft {

namespace {

constexpr int depth = 4;  // slots: the sender fills one, the receiver empties one, and neither waits for a late look
// Of a rank's heap what links may take together, and one of them at most: larger slots leave the second-level cache.
constexpr size_t heap_share = size_t(16) << 20, slot_bytes_most = 64 << 10, slot_bytes_least = 1 << 10;

// The same on all ranks of a host.
size_t slot_bytes_here(size_t ranks) {
    const size_t share = heap_share / std::max<size_t>(1, ranks) / depth / line_bytes * line_bytes;
    return std::clamp(share, slot_bytes_least, slot_bytes_most);
}

}  // namespace

Links::Links(HostGroup& group, int rank, const Settings& settings)
    : group_(&group),
      settings_(settings),
      slot_bytes_(slot_bytes_here(group.locals().size())),
      here_(group, rank,
            {.identity = settings.identity,
             .slot_bytes = slot_bytes_,
             .name = settings.name,
             .heap_used = settings.heap_used,
             .cross_memory = settings.cross_memory}),
      abroad_(group, rank,
              {.identity = settings.identity,
               .slot_bytes = settings.abroad_slot_bytes,
               .name = settings.name,
               .heap_used = settings.heap_used,
               .only_abroad = true}) {}

// Whoever is first listens, both ways are there when the second has come.
Status Links::connect(int peer, PeerLink& link) {
    const auto [place, fresh] = bindings_.try_emplace(peer);
    Binding& binding = place->second;
    if (fresh) begin(peer, link, binding);
    RankSet missing;
    auto connected = (link.abroad ? abroad_ : here_).connect(binding, missing);
    if (!connected) return connected.take_status();
    link.source = binding.ends[0].source;
    link.same_process = binding.ends[0].source_in_process;
    if (!*connected) return ok();
    link.target = binding.ends[0].target;
    link.reads_us = binding.ends[0].target_reads;
    link.connected = true;
    return ok();
}

bool Links::called_by(int peer) const { return (group_->local(peer) ? here_ : abroad_).called_by(peer, depth); }

void Links::begin(int peer, PeerLink& link, Binding& binding) const {
    binding.schedule.fifo_depth = depth;
    binding.schedule.blocks = {{.channel = 0, .source = peer, .target = peer, .instructions = {}}};
    link.abroad = !group_->local(peer);
    link.slot_bytes = link.abroad ? settings_.abroad_slot_bytes : slot_bytes_;
}

}  // namespace weft
