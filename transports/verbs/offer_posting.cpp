#include "transports/verbs/offer_posting.hpp"

#include "transports/verbs/requests.hpp"

namespace weft::internal::verbs {

namespace {

// Immediate data has 16 bits of a message's number, so entries on their way may not be older.
constexpr uint64_t span_most = 1 << 14;

}  // namespace

Lane* lane_of_offers(const PostingLanes& lanes, OpenOffers& offers, uint32_t connection, uint64_t message) {
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
    return inlines && !lane->full() && message - route.message <= span_most ? lane : nullptr;
}

bool fill_entry(OfferEntry& entry, uint64_t message, const OpenOffers::Offer& offer, const std::vector<Lane>& lanes) {
    entry.number = message;
    entry.address = uintptr_t(offer.target);
    entry.capacity = offer.capacity;
    for (const Lane& lane : lanes) {
        const uint32_t key = static_cast<const Registered*>(offer.memory)->rkey(lane.device);
        if (lane.rail >= OfferEntry::rails_most || key == 0) return false;
        entry.keys[lane.rail] = key;
    }
    return true;
}

int send_entry(uint32_t link, Lane& lane, OpenOffers& offers, uint32_t connection, const OfferEntry& entry) {
    const Area& ring = offers.ring();
    abi::Sge piece{uintptr_t(&entry), uint32_t(OfferEntry::bytes(ring.keys.size())), 0};
    abi::SendRequest request{};
    request.wr_id = RequestId::of(false, link, offers.route.lane, lane.posted);
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = opcode::write_with_imm;
    request.send_flags = send_flag::signaled | send_flag::inline_data;
    request.remote_addr = ring.place(entry.number % offers.depth());
    request.rkey = ring.keys[lane.rail];
    request.imm_data = imm_of(Immediate::of_offer(connection, entry.number));
    abi::SendRequest* failed = nullptr;
    if (const int error = lane.pair->post(&request, &failed)) return error;
    lane.add({}, true);
    offers.route.index = lane.posted;
    return 0;
}

void place_in_offer(Outgoing& of, uint64_t message) {
    if (!of.offers || !of.offers->use(message, of.message(message).bytes)) return;
    of.message(message).offered = true;
    reinterpret_cast<MessageHeader*>(of.header(message))->offered = 1;
}

}  // namespace weft::internal::verbs
