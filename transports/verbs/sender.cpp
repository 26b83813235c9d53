#include "transports/verbs/sender.hpp"

#include <unistd.h>

#include "src/base/clock.hpp"

namespace weft::internal::verbs {

VerbsSender::~VerbsSender() {
    constexpr int64_t patience_us = 1'000'000;
    const auto lent = [this] { return state_->link && state_->completed < std::min(state_->lent_end, state_->posted); };
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
    auto* header = new (state.slot(state.next)) MessageHeader;
    header->fingerprint = info.fingerprint;
    header->number = state.next;
    header->bytes = info.bytes;
    header->operation = info.operation;
    state.message(state.next) = {.data = data, .memory = memory, .bytes = info.bytes};
    ++state.next;
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
    return Slot{state_->slot(state_->next) + sizeof(MessageHeader), state_->shape.slot_bytes};
}

Status VerbsSender::publish(const SlotInfo& info) {
    WEFT_TRY(check(info));
    append(state_->slot(state_->next) + sizeof(MessageHeader), nullptr, info);
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
    state_->lent_end = state_->next;
    WEFT_TRY(failure());
    return true;
}

// After a lane has failed, this side must act until its messages have moved to other lanes.
bool VerbsSender::through() const {
    const bool moves = state_->link && state_->link->recovering() && state_->released < state_->posted;
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

void VerbsSender::add_wakeups(Wakeups& wakeups) {
    endpoint_->add_wakeups(wakeups);
    if ((blocked_ && state_->has_room()) || (flowing_ && through())) wakeups.ready = true;
}

}  // namespace weft::internal::verbs
