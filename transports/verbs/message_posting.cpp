#include "transports/verbs/message_posting.hpp"

#include <algorithm>

#include "transports/verbs/requests.hpp"

namespace weft::internal::verbs {

namespace {

// Credits must not wake a rank that sleeps, so of requests without data only every so many is signalled. A signal frees
// the places of all earlier requests, so a queue must hold several.
constexpr uint64_t unsignalled_most = 32;

}  // namespace

bool place_parts(const PostingLanes& lanes, Outgoing& of) {
    const size_t count = lanes.usable.size();
    Outgoing::Message& message = of.message(of.posted);
    const bool striped = count > 1 && message.bytes >= lanes.striped_bytes;
    const size_t parts = striped ? std::min<size_t>(count, Immediate::parts_most) : 1;
    const size_t first = of.transfers.unconfirmed() ? of.transfers.home() : lanes.usable[size_t(of.posted % count)];
    for (size_t part = 0; part < parts; ++part) {
        const size_t place = lane_from(lanes.usable, first, part);
        if (!lanes.all[place].has_room(PartRequest::most)) return false;
        message.lanes[part] = uint8_t(place);
    }
    message.parts = uint8_t(parts);
    message.tries = 0;
    message.pending = uint16_t((1u << parts) - 1);
    return true;
}

int send_part(uint32_t link, size_t place, Lane& lane, Outgoing& of, uint64_t number, int part,
              const AdaptiveRouting& routing) {
    PartRequest request;
    request.fill(link, place, lane, of, number, part, routing.ahead_bytes(lane.own.link_layer));
    abi::SendRequest* failed = nullptr;
    if (const int error = lane.pair->post(request.first(), &failed)) return error;
    if (request.apart) lane.add({}, false);
    lane.add({&of, number, part}, true);
    return 0;
}

int send_credits(uint32_t link, size_t place, Lane& lane, Incoming& of) {
    const bool signals =
        lane.posted + 1 - lane.signalled >= std::clamp<uint64_t>(lane.ring.size() / 4, 1, unsignalled_most);
    abi::SendRequest request = credits_request(link, place, lane, of, signals);
    abi::SendRequest* failed = nullptr;
    if (const int error = lane.pair->post(&request, &failed)) return error;
    lane.add({}, signals);
    of.credited = of.released;
    return 0;
}

Status refused_to_send(const Lane& lane, int error) {
    return fail(error::verbs_call, "{} refuses to send to {}: {}", described(lane.own), described(lane.peer),
                errno_text(error));
}

bool take_ended(const Lane::Posted& request, bool works) {
    Transfers& transfers = request.of->transfers;
    switch (request.kind) {
        case Lane::Posted::message: (void)Recovery::complete(*request.of, request.number, request.part); break;
        case Lane::Posted::transfer: transfers.complete(request.number); break;
        case Lane::Posted::confirmation: return transfers.complete_confirmation(works);
    }
    return false;
}

bool has_requests(const LinkState& link) {
    for (const Lane& lane : link.lanes)
        if (lane.state == LaneState::living && lane.done < lane.signalled) return true;
    return std::any_of(link.outgoing.begin(), link.outgoing.end(),
                       [](const auto& outgoing) { return outgoing && outgoing->posted < outgoing->next; });
}

void release_closed(const LinkState& link) {
    for (const auto& outgoing : link.outgoing)
        if (outgoing && outgoing->closed && outgoing->completed == outgoing->next && outgoing->repeated == 0 &&
            outgoing->transfers.quiet())
            outgoing->memory.reset();
}

}  // namespace weft::internal::verbs
