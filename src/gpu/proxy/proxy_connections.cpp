#include "src/gpu/proxy/proxy_connections.hpp"

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/gpu/kernels/device.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal::cuda {

// Whether the kernel has filled the next slot.
bool ProxyConnections::ProxyChannel::handed_over() const {
    return sender && epoch_of(load_acquire(&end.filled[next % end.depth])) == uint32_t(next + 1);
}

// Whether a message should pass that has not.
bool ProxyConnections::ProxyChannel::needed() const {
    if (sender) return flowing || handed_over();
    return int32_t(load_relaxed(end.wanted) - uint32_t(next)) > 0;  // pairs with StepMachine::await_message()
}

// False: not yet.
Result<bool> ProxyConnections::ProxyChannel::send(const SlotInfo& info) const {
    if (!given_slots) return sender->send(slot(), info);
    auto own = sender->acquire();
    if (!own) return own.take_status();
    if (!*own) return false;
    WEFT_TRY(sender->publish(info));
    return true;
}

Result<bool> ProxyConnections::ProxyChannel::receive(SlotInfo& info) const {
    if (!given_slots) return receiver->receive_into(slot(), end.slot_bytes, info);
    auto own = receiver->look_ahead(next - freed, info);
    if (!own) return own.take_status();
    return bool(*own);
}

Result<bool> ProxyConnections::take(ProxyChannel& channel) {
    const ConnectionEnd& end = channel.end;
    bool moved = false;
    for (uint32_t slots = 0; slots < end.depth; ++slots) {
        const uint64_t index = channel.next % end.depth;
        const uint64_t word = load_acquire(&end.filled[index]);  // pairs with StepMachine::execute()
        if (epoch_of(word) != uint32_t(channel.next + 1)) break;
        auto sent = channel.send({.bytes = end.lengths[index],
                                  .operation = channel.wholes ? channel.wholes[index] : 0,
                                  .fingerprint = uint32_t(word)});
        if (!sent) return sent;
        if (!*sent) break;
        ++channel.next;
        channel.flowing = moved = true;
    }
    if (channel.flowing) {
        auto through = channel.sender->progress();
        if (!through) return through;
        channel.flowing = !*through;
    }
    // A NIC may read a given slot until its message is sent.
    const uint64_t free = channel.given_slots ? std::min(channel.sender->sent(), channel.next) : channel.next;
    if (channel.freed != free) {
        channel.freed = free;
        store_release(end.consumed, uint32_t(free));  // pairs with await_credit() and outgoing_state()
    }
    return moved;
}

Result<bool> ProxyConnections::give(ProxyChannel& channel) {
    const ConnectionEnd& end = channel.end;
    bool moved = false;
    if (channel.given_slots)
        // pairs with StepMachine::execute()
        for (const uint32_t consumed = load_acquire(end.consumed); uint32_t(channel.freed) != consumed; ++channel.freed)
            WEFT_TRY(channel.receiver->release());
    while (uint32_t(channel.next) - load_acquire(end.consumed) < end.depth) {  // pairs with StepMachine::execute()
        SlotInfo info;
        auto there = channel.receive(info);
        if (!there) return there;
        if (!*there) break;
        if (channel.wholes) channel.wholes[channel.next % end.depth] = info.operation;
        uint64_t* const filled = &end.filled[channel.next % end.depth];
        ++channel.next;
        store_release(filled, barrier_word(uint32_t(channel.next),
                                           info.fingerprint));  // pairs with await_message(), incoming_state()
        moved = true;
    }
    return moved;
}

bool ProxyConnections::progress() {
    if (segment_->aborted()) return false;  // kernels end by themselves
    bool any = false, waiting = false;
    for (ProxyChannel& channel : channels_) {
        if (!channel.broken) {
            auto moved = channel.sender ? take(channel) : give(channel);
            channel.broken = !moved;
            if (moved && *moved) {
                any = true;
                moved_.fetch_add(1, std::memory_order_relaxed);
            }
            if (!moved) channel.failure = moved.take_status();
        }
        if (!channel.needed()) continue;
        waiting = true;
        if (!channel.broken || channel.failure.ok()) continue;
        std::lock_guard lock(mutex_);
        if (!trouble_) trouble_ = Trouble{channel.end.peer, channel.failure.failure(), now_us()};
    }
    waiting_.store(waiting, std::memory_order_relaxed);
    return any;
}

bool ProxyConnections::working() const { return !has_ended(ended_, launched_.load(std::memory_order_seq_cst)); }

ProxyConnections::PollRate ProxyConnections::poll_rate() const {
    if (!settled()) return PollRate::busy;
    return captured_.load(std::memory_order_seq_cst) && !segment_->aborted() ? PollRate::occasional : PollRate::idle;
}

bool ProxyConnections::drained(bool but_for_departed) const {
    if (segment_->aborted()) return true;
    const auto there = [&](int peer) {
        return Liveness(*segment_).alive(peer) &&
               !(but_for_departed && segment_->row(peer).state.load(std::memory_order_acquire) == RankState::left);
    };
    for (const ProxyChannel& channel : channels_)
        if (!channel.broken && channel.sender && channel.needed() && there(channel.end.peer)) return false;
    return true;
}

void ProxyConnections::add_wakeups(Wakeups& wakeups) const {
    for (const ProxyChannel& channel : channels_) {
        if (channel.broken) continue;
        if (channel.sender && channel.flowing) channel.sender->add_wakeups(wakeups);
        if (channel.receiver && uint32_t(channel.next) - load_acquire(channel.end.consumed) < channel.end.depth)
            channel.receiver->add_wakeups(wakeups);
    }
}

std::optional<ProxyConnections::Trouble> ProxyConnections::trouble() const {
    std::lock_guard lock(mutex_);
    return trouble_;
}

}  // namespace weft::internal::cuda
