#include "src/planning/connector.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "src/registry.hpp"
#include "src/schedule/tiles.hpp"
#include "src/segment/oob_store.hpp"

namespace weft::internal {

// The word of the receiver's address that says how it can read zero-copy messages.
static constexpr size_t reads_word = Blob::of_transport;
static uint64_t word_of(CanRead reads) { return uint64_t(reads.addresses) | uint64_t(reads.arena) << 1; }
static CanRead reads_of(uint64_t word) { return {.addresses = (word & 1) != 0, .arena = (word & 2) != 0}; }

// Bytes of slots of one connection from each rank of a host to each other (perf/results). Both directions between two ranks
// exceed a second-level cache. All connections stay within a share of the last-level cache.
static constexpr size_t rings_of_all = size_t(6) << 20;

// Both ends name a connection by channel, slots and the sender's rank. The receiver puts the entry.
uint64_t Connector::oob_key(const Key& key, int sender) const {
    return settings_.name ^
           (uint64_t(key.channel) << 48 | uint64_t(unsigned(key.depth)) << 32 | uint64_t(unsigned(sender))) *
               0x9e3779b97f4a7c15u;
}

Status Connector::listen(ConnectionSet& set) {
    const auto key_of = [&](int channel, int peer) { return Key{channel, peer, set.depth}; };
    set.ends.resize(set.wanted.size());
    for (size_t index = 0; index < set.wanted.size(); ++index) {
        const ConnectionSet::Wanted& each = set.wanted[index];
        BlockEnds& ends = set.ends[index];
        if (const auto there = receivers_.find(key_of(each.channel, each.source)); there != receivers_.end()) {
            ends.source = there->second.receiver.get();
            ends.source_transport = there->second.transport;
        }
        if (const auto there = senders_.find(key_of(each.channel, each.target)); there != senders_.end()) {
            ends.target = there->second.sender.get();
            ends.target_reads = there->second.reads;
            ends.target_transport = there->second.transport;
        }
        ends.source_is_remote = each.source >= 0 && !segment_->local(each.source);
        ends.target_is_remote = each.target >= 0 && !segment_->local(each.target);
        const auto in_process = [&](int peer) {
            return peer >= 0 && segment_->local(peer) && segment_->same_process(rank_, peer);
        };
        ends.source_in_process = in_process(each.source);
        if (ends.source) ends.source_arena = arena_in_use(each.source);
        ends.target_in_process = in_process(each.target);
        set.is_new.push_back({concerns(each.source) && !ends.source, concerns(each.target) && !ends.target});
    }
    for (size_t index = 0; index < set.wanted.size(); ++index) {
        const ConnectionSet::Wanted& each = set.wanted[index];
        if (!set.is_new[index].source) continue;
        Blob address;
        const Key key = key_of(each.channel, each.source);
        const ConnectionOptions options = this->options(set, index, true);
        auto transport = transport_to(options);
        if (!transport) return transport.take_status();
        auto receiver = (*transport)->listen(options, address);
        if (!receiver) return receiver.take_status();
        const CanRead reads = settings_.peer_access ? settings_.peer_access->can_read(each.source) : CanRead{};
        address.words[reads_word] = word_of(reads);
        // Use the arena that can_read() announced: the peer may allocate its first memory at any time.
        if (reads.arena) set.ends[index].source_arena = settings_.peer_access->arena(each.source);
        WEFT_TRY(OobStore(*segment_).put(rank_, each.source, oob_key(key, each.source), &address, sizeof address));
        set.ends[index].source = receiver->get();
        set.ends[index].source_transport = *transport;
        receivers_[key] = {std::move(*receiver), *transport};
    }
    return ok();
}

Result<bool> Connector::connect(ConnectionSet& set, RankSet& missing) {
    if (set.connected) return true;
    if (set.is_new.empty()) WEFT_TRY(listen(set));
    missing.clear();
    bool all = true;
    for (size_t index = 0; index < set.wanted.size(); ++index) {
        const ConnectionSet::Wanted& each = set.wanted[index];
        if (!set.is_new[index].target || set.ends[index].target) continue;
        const Key key{each.channel, each.target, set.depth};
        const std::byte* info = OobStore(*segment_).get(each.target, oob_key(key, rank_));
        if (!info) {
            missing.insert(each.target);
            all = false;
            continue;
        }
        Blob address;
        memcpy(&address, info, sizeof address);
        const ConnectionOptions options = this->options(set, index, false);
        auto transport = transport_to(options);
        if (!transport) return transport.take_status();
        auto sender = (*transport)->connect(options, address);
        if (!sender) return sender.take_status();
        WEFT_LOG_RANK(rank_, info, net, "connects to {} over {}, channel {}, {} slots of {} KiB",
                      segment_->name_of(each.target), (*transport)->name, each.channel, set.depth,
                      options.slot_bytes >> 10);
        set.ends[index].target = sender->get();
        set.ends[index].target_reads = reads_of(address.words[reads_word]);
        set.ends[index].target_transport = *transport;
        senders_[key] = {std::move(*sender), reads_of(address.words[reads_word]), *transport};
    }
    set.connected = all;
    return all;
}

void Connector::end(int peer) {
    std::erase_if(senders_, [&](const auto& each) { return each.first.peer == peer; });
    std::erase_if(receivers_, [&](const auto& each) { return each.first.peer == peer; });
}

ConnectionOptions Connector::options(ConnectionSet& set, size_t place_in_set, bool incoming) const {
    const ConnectionSet::Wanted& wanted = set.wanted[place_in_set];
    const int channel = wanted.channel, peer = incoming ? wanted.source : wanted.target;
    // The first new connection to a peer shares state with the first one from it, and so on, by channel. Both ends find
    // the same pairs.
    int place = 0, opposite = 0;
    for (size_t index = 0; index < set.wanted.size(); ++index) {
        const ConnectionSet::Wanted& each = set.wanted[index];
        const bool comes = set.is_new[index].source && each.source == peer,
                   goes = set.is_new[index].target && each.target == peer;
        place += (incoming ? comes : goes) && each.channel < channel;
        opposite += incoming ? goes : comes;
    }
    return {.self = rank_,
            .peer = peer,
            .channel = channel,
            .depth = set.depth,
            .slot_bytes = wanted.slot_bytes > 0 ? wanted.slot_bytes : slot_bytes(set.depth),
            .host = segment_->local(peer) ? segment_ : nullptr,
            .heap_used = settings_.heap_used,
            .identity = settings_.identity,
            .shared = place < opposite ? &set.shared[{peer, place}] : nullptr,
            .ring_bytes = rings_of_all / (segment_->locals().size() * segment_->locals().size()),
            .slots = wanted.slots,
            .slot_memory = wanted.slot_memory,
            .driver = settings_.driver,
            .gpu = settings_.gpu};
}

Result<const Transport*> Connector::transport_to(int peer) {
    return transport_to({.self = rank_,
                         .peer = peer,
                         .host = segment_->local(peer) ? segment_ : nullptr,
                         .identity = settings_.identity});
}

size_t Connector::slot_bytes(int depth) const { return slot_bytes_of(settings_.slot_bytes, depth); }

// The first transport that can connect the two ranks. Both ends see the same facts.
Result<const Transport*> Connector::transport_to(const ConnectionOptions& options) {
    std::string reasons;
    const NameList allowed(weft::internal::options().transports);
    const Networks &own = segment_->rank_info(rank_).networks, &peers = segment_->rank_info(options.peer).networks;
    const Transport* const agreed = registry::agreed_transport(*segment_, rank_, options.peer);
    for (const Transport* transport : registry::transports()) {
        std::string why = !allowed.admits(transport->name) ? "excluded by WEFT_TRANSPORTS"
                          : transport->networks()[0].network != 0 && transport != agreed
                              ? "the ranks have not agreed on it"
                              : transport->can_connect(options);
        if (why.empty()) {
            const bool peer_has_none = peers == Networks{};
            if (!options.host && !agreed && !(own == Networks{} && peer_has_none))
                tell_fallback(options.peer, *transport, peer_has_none);
            return transport;
        }
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", transport->name, why);
    }
    return fail(error::shm_no_path, "no transport connects rank {} to {} ({})", rank_, segment_->name_of(options.peer),
                reasons);
}

// Once: every pair of these hosts has the same reason.
void Connector::tell_fallback(int peer, const Transport& transport, bool peer_has_none) {
    if (std::exchange(told_fallback_, true)) return;
    WEFT_LOG_RANK(rank_, warn, net,
                  "connects to {} over {}, because {}: give all ranks the same transports (WEFT_TRANSPORTS, "
                  "WEFT_TRANSPORT_PLUGIN), and see `weft info` on both hosts",
                  segment_->name_of(peer), transport.name,
                  peer_has_none ? "that rank has no other transport, and this one has"
                                : "this rank does not have the transports of that one");
}

}  // namespace weft::internal
