// offer_posting.hpp: posts the entries of offers to the lanes of a link, and sends messages to their offers.
#pragma once
#include "transports/verbs/transfer_posting.hpp"

namespace weft::internal::verbs {

// All functions are thread-bound to the thread that drives the endpoint.
// The lane for the entry of this message, or null: not now. It chooses another one when the old one is gone.
Lane* lane_of_offers(const PostingLanes& lanes, OpenOffers& offers, uint32_t connection, uint64_t message);
// The entry of an offer. False: some lane has no key of the memory.
bool fill_entry(OfferEntry& entry, uint64_t message, const OpenOffers::Offer& offer, const std::vector<Lane>& lanes);
// Posts the write of an entry. An errno value, or 0. The entry may change when it returns.
int send_entry(uint32_t link, Lane& lane, OpenOffers& offers, uint32_t connection, const OfferEntry& entry);

// The message is posted now: it goes to its offer, if there is one that it fits.
void place_in_offer(Outgoing& of, uint64_t message);

}  // namespace weft::internal::verbs
