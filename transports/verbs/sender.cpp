#include "transports/verbs/sender.hpp"

#include <unistd.h>

#include "src/base/clock.hpp"

namespace weft::internal::verbs {

VerbsSender::~VerbsSender() {
    constexpr int64_t patience_us = 1'000'000;
    const auto lent = [this] {
        return state_->link &&
               (state_->completed < std::min(state_->lent_end, state_->posted) || !state_->transfers.idle());
    };
    for (const int64_t deadline = now_us() + patience_us; lent() && now_us() < deadline; usleep(20)) endpoint_->poll();
    if (lent()) {
        state_->link->end_requests();
        for (const int64_t deadline = now_us() + patience_us; lent() && now_us() < deadline; usleep(20))
            endpoint_->poll();
    }
    // Messages in the caller's memory that were not posted cannot go out any more.
    if (state_->posted < state_->lent_end) state_->next = state_->posted;
    endpoint_->close(state_);
}

Status VerbsSender::failure() {
    const Status* why = &state_->failure;
    if (why->ok() && state_->link) why = &state_->link->failure();
    if (why->ok()) return ok();
    return fail(*why, "rank {} cannot send to rank {} over verbs: {}", state_->shape.self, state_->shape.peer,
                why->sentence());
}

Status VerbsSender::check(const SlotInfo& info) const {
    if (info.bytes <= state_->shape.slot_bytes) return ok();
    return fail(error::internal_state, "rank {} would send {} bytes to rank {} in a slot of {}", state_->shape.self,
                info.bytes, state_->shape.peer, state_->shape.slot_bytes);
}

Result<bool> VerbsSender::has_room() {
    if (state_->has_room()) [[likely]]
        return true;
    endpoint_->poll();
    blocked_ = !state_->has_room();
    if (!blocked_) return true;
    if (Status why = failure(); !why) return why;
    return false;
}

void VerbsSender::append(const std::byte* data, const Registered* memory, const SlotInfo& info) {
    Outgoing& state = *state_;
    auto* header = new (state.header(state.next)) MessageHeader;
    header->fingerprint = info.fingerprint;
    header->number = state.next;
    header->bytes = info.bytes;
    header->operation = info.operation;
    state.message(state.next) = {.data = data, .memory = memory, .bytes = info.bytes, .fence = state.transfers.fence()};
    ++state.next;
    if (memory) state.lent_end = state.next;
    if (state.link) [[likely]]
        state.link->post(state);
    if (state.posted < state.next) [[unlikely]]  // credits may have come
        endpoint_->poll();
    if (state.link && (state.link->failed() || state.link->waits_by_time())) [[unlikely]]
        endpoint_->tell_failures();
}

Result<Slot> VerbsSender::acquire() {
    auto room = has_room();
    if (!room) return room.take_status();
    if (!*room) return Slot{};
    return Slot{state_->slot(state_->next), state_->shape.slot_bytes};
}

Status VerbsSender::publish(const SlotInfo& info) {
    WEFT_TRY(check(info));
    append(state_->slot(state_->next), state_->shape.given_memory, info);
    return failure();
}

Result<bool> VerbsSender::post(const std::byte* data, const RegisteredMemory* memory, const SlotInfo& info) {
    if (memory == nullptr) return send(data, info);
    WEFT_TRY(check(info));
    if (!memory->holds(data, info.bytes))
        return fail(error::internal_state, "rank {} would send {} bytes to rank {} from memory that is not registered",
                    state_->shape.self, info.bytes, state_->shape.peer);
    auto room = has_room();
    if (!room || !*room) return room;
    append(data, static_cast<const Registered*>(memory), info);
    WEFT_TRY(failure());
    return true;
}

// After a lane has failed, this side must act until its messages have moved to other lanes.
bool VerbsSender::through() const {
    const bool moves = state_->link && state_->link->recovery().recovering() && state_->released < state_->posted;
    return !moves && state_->through();
}

Result<bool> VerbsSender::progress() {
    endpoint_->poll();
    // After a failure requests end without having reached the peer.
    const bool lost = state_->link && state_->link->lost();
    flowing_ = lost || !through();
    if (!flowing_) return true;
    if (Status why = failure(); !why) return why;
    return false;
}

uint64_t VerbsSender::sent() {
    const Outgoing& state = *state_;
    return state.completed >= state.lent_end ? state.next : state.completed;
}

Result<std::unique_ptr<RemoteMemory>> VerbsSender::attach(std::span<const std::byte> key) {
    auto range = RemoteRange::of(key, state_->shape.peer_process);
    if (!range) return range.take_status();
    return std::unique_ptr<RemoteMemory>(std::move(*range));
}

Result<bool> VerbsSender::transfer(const Transfer& transfer, const RemoteMemory& peer, size_t offset) {
    const auto& range = static_cast<const RemoteRange&>(peer);
    if (!transfer.memory || !transfer.memory->holds(transfer.own, transfer.bytes) ||
        !range.holds(offset, transfer.bytes))
        return fail(error::internal_state, "rank {} would transfer {} bytes at {} of rank {} outside registered memory",
                    state_->shape.self, transfer.bytes, offset, state_->shape.peer);
    if (!state_->link || !state_->transfers.has_room()) endpoint_->poll();
    WEFT_TRY(failure());
    if (!state_->link || !state_->transfers.has_room()) return false;
    Transfer placed = transfer;
    placed.peer = &range;
    placed.there = range.address() + offset;
    auto posted = state_->link->transfer(*state_, placed);
    if (posted && !*posted) endpoint_->poll();  // places in the send queues
    if (state_->link->failed()) [[unlikely]]
        endpoint_->tell_failures();
    return posted;
}

Result<bool> VerbsSender::put(const std::byte* own, const RegisteredMemory* memory, RemoteMemory& peer, size_t offset,
                              size_t bytes) {
    return transfer({.puts = true,
                     .own = const_cast<std::byte*>(own),
                     .memory = static_cast<const Registered*>(memory),
                     .bytes = bytes},
                    peer, offset);
}

Result<bool> VerbsSender::get(std::byte* own, const RegisteredMemory* memory, RemoteMemory& peer, size_t offset,
                              size_t bytes) {
    return transfer({.puts = false, .own = own, .memory = static_cast<const Registered*>(memory), .bytes = bytes}, peer,
                    offset);
}

uint64_t VerbsSender::transferred() {
    if (state_->link) state_->link->settle(*state_);
    return state_->transfers.confirmed();
}

void VerbsSender::add_wakeups(Wakeups& wakeups) {
    endpoint_->add_wakeups(wakeups);
    if ((blocked_ && state_->has_room()) || (flowing_ && through())) wakeups.ready = true;
}

}  // namespace weft::internal::verbs
