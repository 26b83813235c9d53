#include "transports/verbs/requests.hpp"

#include <algorithm>

namespace weft::internal::verbs {

namespace {

struct Range {
    uint64_t begin, bytes;
};

Range range_of(const Outgoing::Message& message, int part) {
    // Whole pages, so that no two devices write to one page.
    constexpr uint64_t page = 4'096;
    const uint64_t share = (message.bytes / message.parts + page - 1) / page * page;
    const uint64_t begin = std::min(message.bytes, share * uint64_t(part));
    const uint64_t end = part + 1 == message.parts ? message.bytes : std::min(message.bytes, begin + share);
    return {begin, end - begin};
}

// A place in the receiver's memory.
struct Place {
    uint64_t address;
    uint32_t key;
};

// Of the data of a message, from `offset` on.
Place data_place(const Outgoing& of, uint64_t number, uint64_t offset, size_t rail) {
    if (of.message(number).offered) {
        const OfferEntry& offer = of.offers->target_of(number);
        return {offer.address + offset, offer.keys[rail]};
    }
    const Area& slots = of.slots.data;
    return {slots.place(number % of.shape.depth) + offset, slots.keys[rail]};
}

// `pieces` of one or two.
void write_to(abi::SendRequest& request, abi::Sge* pieces, int count, const Lane& lane, const Place& place,
              bool of_device) {
    uint64_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += pieces[i].length;
    request.sg_list = pieces;
    request.num_sge = count;
    request.opcode = opcode::write;
    request.send_flags = bytes <= uint64_t(lane.pair->inline_bytes()) && !of_device ? send_flag::inline_data : 0;
    request.remote_addr = place.address;
    request.rkey = place.key;
}

}  // namespace

void PartRequest::fill(uint32_t link, size_t place, const Lane& lane, const Outgoing& outgoing, uint64_t number,
                       int part, size_t ahead_bytes) {
    const Outgoing::Message& message = outgoing.message(number);
    const Range range = range_of(message, part);
    const uint32_t slot_key = outgoing.memory->registered().lkey(lane.device);
    const abi::Sge header{uintptr_t(outgoing.header(number)), sizeof(MessageHeader), slot_key};
    const abi::Sge content{uintptr_t(message.data + range.begin), uint32_t(range.bytes),
                           message.memory ? message.memory->lkey(lane.device) : slot_key};
    const bool with_header = part == 0, of_device = range.bytes > 0 && message.memory != nullptr &&
                                                    message.memory->range().kind == RangeKind::device;
    const bool together = outgoing.slots.together() && !message.offered;
    apart = range.bytes > ahead_bytes || (with_header && range.bytes > 0 && !together);
    const Place data_at = data_place(outgoing, number, range.begin, lane.rail);
    const Area& headers = outgoing.slots.headers;
    if (apart) {
        pieces[2] = content;
        write_to(data, &pieces[2], 1, lane, data_at, of_device);
        data.wr_id = RequestId::of(false, link, place, lane.posted);
        data.next = &last;
    }
    int count = 0;
    if (with_header) pieces[count++] = header;
    if (with_header && !apart && message.memory == nullptr)
        pieces[0].length += uint32_t(range.bytes);  // the data follows the header in the slot
    else if (!apart && range.bytes > 0)
        pieces[count++] = content;
    write_to(last, pieces, count, lane,
             with_header ? Place{headers.place(number % outgoing.shape.depth), headers.keys[lane.rail]} : data_at,
             of_device && !apart);
    last.wr_id = RequestId::of(false, link, place, lane.posted + (apart ? 1 : 0));
    last.opcode = opcode::write_with_imm;
    last.send_flags |= send_flag::signaled;
    last.imm_data = imm_of(Immediate::of_part(outgoing.connection(), number, message.parts, part));
}

int post_probe(uint32_t link, size_t place, Lane& lane) {
    abi::Sge piece;
    abi::SendRequest request{}, *failed = nullptr;
    request.wr_id = RequestId::of(false, link, place, lane.posted);
    request.opcode = opcode::write;
    request.send_flags = send_flag::signaled;
    if (lane.probe.from != nullptr && lane.probe.to.key != 0) {
        piece = {lane.probe.from->address(), uint32_t(ProbePage::bytes), lane.probe.from->lkey()};
        request.sg_list = &piece;
        request.num_sge = 1;
        request.remote_addr = lane.probe.to.address;
        request.rkey = lane.probe.to.key;
    }
    if (const int error = lane.pair->post(&request, &failed)) return error;
    lane.add({}, true);
    return 0;
}

abi::SendRequest credits_request(uint32_t link, size_t place, const Lane& lane, const Incoming& incoming,
                                 bool signals) {
    abi::SendRequest request{};
    request.wr_id = RequestId::of(false, link, place, lane.posted);
    request.opcode = opcode::write_with_imm;
    request.send_flags = signals ? send_flag::signaled : 0;
    request.imm_data = imm_of(Immediate::of_credits(incoming.connection, incoming.released));
    return request;
}

}  // namespace weft::internal::verbs
