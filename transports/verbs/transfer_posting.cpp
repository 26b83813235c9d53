#include "transports/verbs/transfer_posting.hpp"

#include <algorithm>

namespace weft::internal::verbs {

namespace {

// Of small transfers each goes to one lane.
size_t parts_of(const PostingLanes& lanes, uint64_t bytes) {
    const size_t count = lanes.usable.size();
    const size_t striped = count > 1 && bytes >= lanes.striped_bytes ? count : 1;
    return std::max<size_t>(striped, (bytes + lanes.part_bytes - 1) / lanes.part_bytes);
}

PostingOutcome post(const PostingLanes& lanes, size_t place, abi::SendRequest& request, const Lane::Posted& of) {
    Lane& lane = lanes.all[place];
    request.wr_id = RequestId::of(false, lanes.link, place, lane.posted);
    request.send_flags |= send_flag::signaled;
    abi::SendRequest* failed = nullptr;
    if (const int error = lane.pair->post(&request, &failed)) return {PostingOutcome::refused, error, place};
    lane.add(of, true);
    return {};
}

PostingOutcome post_part(const PostingLanes& lanes, size_t place, Outgoing& of, uint64_t number, const Transfer& part) {
    const Lane& lane = lanes.all[place];
    abi::Sge piece{uintptr_t(part.own), uint32_t(part.bytes), part.memory->lkey(lane.device)};
    const bool inlined = part.puts && part.bytes <= uint64_t(lane.pair->inline_bytes()) &&
                         part.memory->range().kind != RangeKind::device;
    abi::SendRequest request{};
    request.sg_list = &piece;
    request.num_sge = part.bytes > 0 ? 1 : 0;
    request.opcode = part.puts ? opcode::write : opcode::read;
    request.send_flags = inlined ? send_flag::inline_data : 0;
    request.remote_addr = part.there;
    request.rkey = part.peer->rkey(lane.peer_device);
    of.transfers.use(place);
    return post(lanes, place, request, {.of = &of, .number = number, .kind = Lane::Posted::transfer});
}

}  // namespace

size_t lane_from(const std::vector<size_t>& usable, size_t first, size_t part) {
    const auto place = size_t(std::find(usable.begin(), usable.end(), first) - usable.begin());
    if (place < usable.size()) return usable[(place + part) % usable.size()];
    return part == 0 ? first : usable[(part - 1) % usable.size()];  // it lives, and carries messages no more
}

PostingOutcome post_transfer(const PostingLanes& lanes, Outgoing& of, const Transfer& transfer) {
    const size_t count = lanes.usable.size();
    if (count == 0) return {PostingOutcome::full};
    const size_t parts = parts_of(lanes, transfer.bytes);
    const uint64_t on_a_lane = (parts + count - 1) / count;
    // Unconfirmed puts stay on one lane, and the messages after them.
    of.transfers.move_home(lanes.usable[of.connection() % count]);
    for (size_t part = 0; part < std::min(parts, count + 1); ++part)
        if (!lanes.all[lane_from(lanes.usable, of.transfers.home(), part)].has_room(on_a_lane))
            return {PostingOutcome::full};
    const bool scattered = parts > 1 && (count > 1 || lanes.usable[0] != of.transfers.home());
    const uint64_t number = of.transfers.add(transfer.puts, int(parts), scattered);
    // Whole pages, so that no two devices write to one page.
    constexpr uint64_t page = 4'096;
    const uint64_t share = parts == 1 ? transfer.bytes : (transfer.bytes / parts + page) / page * page;
    uint64_t begin = 0;
    for (size_t part = 0; part < parts; ++part) {
        const uint64_t end = part + 1 == parts ? transfer.bytes : std::min(transfer.bytes, begin + share);
        Transfer piece = transfer;
        piece.own += begin;
        piece.there += begin;
        piece.bytes = end - begin;
        const PostingOutcome outcome =
            post_part(lanes, lane_from(lanes.usable, of.transfers.home(), part), of, number, piece);
        if (outcome.kind != PostingOutcome::posted) return of.transfers.complete(number, int(parts - part)), outcome;
        begin = end;
    }
    return {};
}

PostingOutcome post_confirmation(const PostingLanes& lanes, Outgoing& of) {
    if (of.transfers.confirming()) return {};
    // A lane that was lost had only gets, and they are complete.
    std::vector<size_t> places;
    for (size_t place = 0; place < lanes.all.size(); ++place)
        if ((of.transfers.lanes() >> place & 1) && lanes.all[place].state == LaneState::living) places.push_back(place);
    for (const size_t place : places)
        if (lanes.all[place].full()) return {PostingOutcome::full};
    if (places.empty()) return {};
    of.transfers.begin_confirming(int(places.size()));
    for (size_t i = 0; i < places.size(); ++i) {
        const size_t place = places[i];
        const Lane& lane = lanes.all[place];
        abi::Sge piece{uintptr_t(of.read_target()), 1, of.memory->registered().lkey(lane.device)};
        abi::SendRequest request{};
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = opcode::read;
        request.remote_addr = of.slots.headers.address;
        request.rkey = of.slots.headers.keys[lane.rail];
        const PostingOutcome outcome = post(lanes, place, request, {.of = &of, .kind = Lane::Posted::confirmation});
        if (outcome.kind == PostingOutcome::posted) continue;
        (void)of.transfers.complete_confirmation(false, int(places.size() - i));
        return outcome;
    }
    return {};
}

}  // namespace weft::internal::verbs
