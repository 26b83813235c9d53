// message_posting.hpp: posts the requests of messages and credits to the lanes of a link, and takes what has ended.
#pragma once
#include "transports/verbs/lanes/recovery.hpp"
#include "transports/verbs/transfer_posting.hpp"

namespace weft::internal::verbs {

// All functions are thread-bound to the thread that drives the endpoint.
// Chooses a lane for each part of the next message. False: a send queue is full.
bool place_parts(const PostingLanes& lanes, Outgoing& of);
// One part, as a request or two. An errno value, or 0.
int send_part(uint32_t link, size_t place, Lane& lane, Outgoing& of, uint64_t number, int part,
              const AdaptiveRouting& routing);
// An errno value, or 0.
int send_credits(uint32_t link, size_t place, Lane& lane, Incoming& of);
// The sentence for such a value. verbs.call.
Status refused_to_send(const Lane& lane, int error);

// The request has ended. `works`: the link has not failed, so that it is complete. True: messages may have waited for it.
bool take_ended(const Lane::Posted& request, bool works);
// Requests are posted that will complete, or messages wait for credits.
bool has_requests(const LinkState& link);
// Releases the slots of closed senders whose messages are complete. Credits may still come.
void release_closed(const LinkState& link);

}  // namespace weft::internal::verbs
