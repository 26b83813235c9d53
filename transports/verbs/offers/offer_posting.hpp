// offer_posting.hpp: posts the entries of offers to the lanes of a link, takes them, and sends messages to their offers.
#pragma once
#include "transports/verbs/transfer_posting.hpp"

namespace weft::internal::verbs {

// All functions are thread-bound to the thread that drives the endpoint.
// Tells the sender of an offer, and that the message before it in its slot is released. `full`: not now, or some lane has
// no key of the memory.
PostingOutcome send_offer(const PostingLanes& lanes, Incoming& of, uint64_t message, const OpenOffers::Offer& offer);

// The meaning of an offer's immediate data.
struct TakenOffer {
    const char* wrong = nullptr;  // the reason if it cannot be right
    uint32_t credits = 0;         // that it brings, as immediate data; 0: none
};
// `of`: the connection; null: there is none yet, or no longer.
TakenOffer take_offer(Outgoing* of, uint32_t word);

// The message is posted now: it goes to its offer, if there is one that it fits.
void place_in_offer(Outgoing& of, uint64_t message);

}  // namespace weft::internal::verbs
