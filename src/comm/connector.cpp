#include "src/comm/connector.hpp"

#include <cstring>

#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "src/registry.hpp"

namespace weft {

namespace {

// Both ends name a connection alike: by the wiring, channel and block of the receiver's rank and of the sender's.
uint64_t letter_key(uint64_t name, int channel, int sender) {
    return name ^ (uint64_t(channel) << 32 | uint64_t(unsigned(sender))) * 0x9e3779b97f4a7c15u;
}

}  // namespace

Status Connector::listen(uint64_t name, Wiring& wiring) const {
    const Schedule& schedule = wiring.schedule;
    for (size_t index = 0; index < schedule.blocks.size(); ++index) {
        const Block& block = schedule.blocks[index];
        if (!concerns(block.source)) continue;
        Blob address;
        const ConnectionOptions options = this->options(wiring, block.channel, block.source, true);
        auto transport = transport_to(options);
        if (!transport) return transport.take_status();
        auto receiver = (*transport)->listen(options, address);
        if (!receiver) return receiver.take_status();
        WEFT_TRY(group_->post_letter(rank_, block.source, letter_key(name, block.channel, block.source), &address,
                                     sizeof address));
        wiring.ends[index].source = receiver->get();
        wiring.ends[index].source_abroad = true;
        wiring.receivers.push_back(std::move(*receiver));
    }
    return ok();
}

Result<bool> Connector::connect(uint64_t name, Wiring& wiring, RankSet& missing) const {
    const Schedule& schedule = wiring.schedule;
    missing.clear();
    bool all = true;
    for (size_t index = 0; index < schedule.blocks.size(); ++index) {
        const Block& block = schedule.blocks[index];
        if (!concerns(block.target) || wiring.ends[index].target) continue;
        const std::byte* letter = group_->find_letter(block.target, letter_key(name, block.channel, rank_));
        if (!letter) {
            missing.insert(block.target);
            all = false;
            continue;
        }
        Blob address;
        memcpy(&address, letter, sizeof address);
        const ConnectionOptions options = this->options(wiring, block.channel, block.target, false);
        auto transport = transport_to(options);
        if (!transport) return transport.take_status();
        auto sender = (*transport)->connect(options, address);
        if (!sender) return sender.take_status();
        WEFT_LOG_RANK(rank_, info, net, "connects to {} over {}, channel {}, {} slots of {} KiB",
                      group_->name_of(block.target), (*transport)->name, block.channel, schedule.fifo_depth,
                      slot_bytes_ >> 10);
        wiring.ends[index].target = sender->get();
        wiring.ends[index].target_abroad = true;
        wiring.senders.push_back(std::move(*sender));
    }
    return all;
}

ConnectionOptions Connector::options(Wiring& wiring, int channel, int peer, bool incoming) const {
    // The first connection to a peer goes with the first from it, and so on, by channel: both ends reckon alike.
    int place = 0, opposite = 0;
    for (const Block& block : wiring.schedule.blocks) {
        place += (incoming ? block.source : block.target) == peer && block.channel < channel;
        opposite += (incoming ? block.target : block.source) == peer;
    }
    return {rank_,
            peer,
            channel,
            wiring.schedule.fifo_depth,
            slot_bytes_,
            nullptr,
            nullptr,
            identity_,
            place < opposite ? &wiring.shared[{peer, place}] : nullptr};
}

// The first that can; both ends see the same facts.
Result<const Transport*> Connector::transport_to(const ConnectionOptions& options) const {
    std::string reasons;
    const NameList allowed(weft::options().transports);
    for (const Transport& transport : registry::transports()) {
        std::string why =
            allowed.admits(transport.name) ? transport.can_connect(options) : "excluded by WEFT_TRANSPORTS";
        if (why.empty()) return &transport;
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", transport.name, why);
    }
    return fail(weftSystemError, "rank {} has no way to {} ({})", rank_, group_->name_of(options.peer), reasons);
}

}  // namespace weft
