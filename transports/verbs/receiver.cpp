#include "transports/verbs/receiver.hpp"

#include "transports/verbs/flush.hpp"

namespace weft::internal::verbs {

VerbsReceiver::~VerbsReceiver() {
    withdraw();
    if (state_->link && state_->needs_flush()) state_->flushes->settle();
    endpoint_->close(state_);
}

Status VerbsReceiver::failure() {
    const Status* why = &state_->failure;
    if (why->ok() && state_->link) why = &state_->link->failure();
    if (why->ok()) return ok();
    return fail(*why, "rank {} cannot receive from rank {} over verbs: {}", state_->shape.self, state_->shape.peer,
                why->sentence());
}

Status VerbsReceiver::damaged(const MessageHeader& header, uint64_t message) const {
    if (header.magic == MessageHeader::expected_magic && header.number == message)
        return fail(error::internal_damaged, "rank {} got a message from rank {} that claims {} bytes; slots hold {}",
                    state_->shape.self, state_->shape.peer, header.bytes, state_->shape.slot_bytes)
            .about({.rank = state_->shape.peer, .peer = state_->shape.self});
    return fail(error::internal_damaged,
                "rank {} expected message {} from rank {} and got one numbered {}: the data is damaged",
                state_->shape.self, message, state_->shape.peer, header.number)
        .about({.rank = state_->shape.peer, .peer = state_->shape.self});
}

Result<Slot> VerbsReceiver::look_ahead(uint64_t ahead, SlotInfo& info) {
    Incoming& state = *state_;
    const uint64_t message = state.released + ahead;
    if (!state.ready(message)) {
        endpoint_->poll();
        if (!state.ready(message)) {
            if (Status why = failure(); !why) return why;
            return Slot{};
        }
    }
    auto shown = state.flushes->shows(state, message);
    if (!shown) {
        state.link->fail(shown.take_status());
        endpoint_->tell_failures();
        return failure();
    }
    flushing_ = !*shown;
    if (flushing_) return Slot{};
    const MessageHeader& header = *reinterpret_cast<const MessageHeader*>(state.header(message));
    if (header.magic != MessageHeader::expected_magic || header.number != message ||
        header.bytes > state.shape.slot_bytes) [[unlikely]]
        return damaged(header, message);
    info = {.bytes = header.bytes, .operation = header.operation, .fingerprint = header.fingerprint};
    if (header.offered != 0) {
        const OpenOffers::Offer& offer = state.offers.find(message);
        if (offer.target == nullptr || header.bytes > offer.capacity) [[unlikely]]
            return damaged(header, message);
        return Slot{offer.target, offer.capacity};
    }
    return Slot{state.slot(message), state.shape.slot_bytes};
}

Status VerbsReceiver::release() {
    Incoming& state = *state_;
    state.arrival(state.released) = {};
    state.offers.end(state.released);
    ++state.released;
    if (state.link == nullptr) return ok();
    state.link->post_credits(state);
    if (state.link->failed() || state.link->waits_by_time()) [[unlikely]]
        endpoint_->tell_failures();
    return ok();
}

Result<bool> VerbsReceiver::offer(std::byte* target, size_t capacity, RegisteredMemory* memory, uint64_t message) {
    Incoming& state = *state_;
    if (!memory || !memory->holds(target, capacity))
        return fail(error::internal_state, "rank {} would offer {} bytes to rank {} outside registered memory",
                    state.shape.self, capacity, state.shape.peer);
    if (!state.link || message < state.released || message - state.released >= state.shape.depth ||
        state.arrival(message).all != 0 || !state.offers.can_offer(message) ||
        memory->range().kind == RangeKind::device)
        return false;
    const OpenOffers::Offer offer{target, capacity, memory};
    const bool posted = state.link->post_offer(state, message, offer);
    if (posted) state.offers.add(message, offer);
    if (state.link->failed() || state.link->waits_by_time()) [[unlikely]]
        endpoint_->tell_failures();
    return posted;
}

void VerbsReceiver::add_wakeups(Wakeups& wakeups) {
    endpoint_->add_wakeups(wakeups);
    // A flush takes a few microseconds.
    if (flushing_ || state_->ready(state_->released)) wakeups.ready = true;
}

}  // namespace weft::internal::verbs
