#include "transports/verbs/offers/offer_posting.hpp"

#include <algorithm>

#include "src/base/log.hpp"
#include "transports/verbs/requests.hpp"

namespace weft::internal::verbs {

namespace {

// Immediate data has 16 bits of a message's number, so entries on their way may not be older.
constexpr uint64_t span_most = 1 << 14;

// The lane for the entry of this message, or null: not now. It chooses another one when the old one is gone.
Lane* lane_of(const PostingLanes& lanes, OpenOffers& offers, uint32_t connection, uint64_t message) {
    OpenOffers::Route& route = offers.route;
    Lane* lane = route.lane < lanes.all.size() ? &lanes.all[route.lane] : nullptr;
    const bool same = lane != nullptr && lane->generation == route.generation;
    // Until the peer has destroyed its queue pair, old entries may still land.
    if (same && (lane->state == LaneState::draining || lane->state == LaneState::drained)) return nullptr;
    if (!same || lane->state != LaneState::living) {
        if (lanes.usable.empty()) return nullptr;
        const size_t place = lanes.usable[connection % lanes.usable.size()];
        lane = &lanes.all[place];
        route = {.lane = place, .generation = lane->generation};
    }
    if (lane->done >= route.index) route.message = message;
    const bool inlines = OfferEntry::bytes(offers.ring().keys.size()) <= size_t(lane->pair->inline_bytes());
    const bool reachable = lane->rail < offers.ring().keys.size();
    return reachable && inlines && !lane->full() && message - route.message <= span_most ? lane : nullptr;
}

// The first lane that has no key of the memory, or null.
const Lane* fill(OfferEntry& entry, uint64_t message, const OpenOffers::Offer& offer, const std::vector<Lane>& lanes) {
    entry.number = message;
    entry.address = uintptr_t(offer.target);
    entry.capacity = offer.capacity;
    for (const Lane& lane : lanes) {
        const uint32_t key = static_cast<const Registered*>(offer.memory)->rkey(lane.device);
        if (lane.rail >= OfferEntry::rails_most || key == 0) return &lane;
        entry.keys[lane.rail] = key;
    }
    return nullptr;
}

}  // namespace

PostingOutcome send_offer(const PostingLanes& lanes, Incoming& of, uint64_t message, const OpenOffers::Offer& offer) {
    OfferEntry entry;
    if (of.closed) return {PostingOutcome::full};
    if (const Lane* without = fill(entry, message, offer, lanes.all)) {
        if (of.offers.declines_first())
            WEFT_LOG_RANK(of.shape.self, info, net,
                          "receives from rank {} through slots, because {} has not registered the buffers",
                          of.shape.peer, without->own.device);
        return {PostingOutcome::full};
    }
    Lane* const lane = lane_of(lanes, of.offers, of.connection, message);
    if (lane == nullptr) return {PostingOutcome::full};
    const Area& ring = of.offers.ring();
    const size_t place = of.offers.route.lane;
    abi::Sge piece{uintptr_t(&entry), uint32_t(OfferEntry::bytes(ring.keys.size())), 0};
    abi::SendRequest request{};
    request.wr_id = RequestId::of(false, lanes.link, place, lane->posted);
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = opcode::write_with_imm;
    request.send_flags = send_flag::signaled | send_flag::inline_data;
    request.remote_addr = ring.place(message % of.shape.depth);
    request.rkey = ring.keys[lane->rail];
    request.imm_data = imm_of(Immediate::of_offer(of.connection, message));
    abi::SendRequest* failed = nullptr;
    if (const int error = lane->pair->post(&request, &failed)) return {PostingOutcome::refused, error, place};
    lane->add({}, true);
    of.offers.route.index = lane->posted;
    if (message >= of.shape.depth) of.credited = std::max(of.credited, message + 1 - of.shape.depth);
    return {};
}

// An offer for a message that is posted already is void. It brings credits all the same.
TakenOffer take_offer(Outgoing* of, uint32_t word) {
    // Void: the receiver knows a connection before its sender, and offers after the sender has closed it.
    if (of == nullptr) return {};
    if (!of->offers) return {.wrong = "an offer to a connection that takes none"};
    const auto ahead = int16_t(Immediate::offered_of(word) - uint16_t(of->posted));
    const int64_t message = int64_t(of->posted) + ahead, depth = int64_t(of->shape.depth);
    if (message < 0 || ahead >= depth) return {.wrong = "an offer for a message beyond its slots"};
    if (ahead >= 0) of->offers->take(uint64_t(message));
    if (message < depth) return {};
    return {.credits = Immediate::of_credits(of->connection(), uint64_t(message + 1 - depth))};
}

void place_in_offer(Outgoing& of, uint64_t message) {
    if (!of.offers || !of.offers->use(message, of.message(message).bytes)) return;
    of.message(message).offered = true;
    reinterpret_cast<MessageHeader*>(of.header(message))->offered = 1;
}

}  // namespace weft::internal::verbs
