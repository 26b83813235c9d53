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

// `pieces` of one or two.
void write_to(abi::SendRequest& request, abi::Sge* pieces, int count, const Lane& lane, const Area& area, uint64_t slot,
              uint64_t offset, bool of_device) {
    uint64_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += pieces[i].length;
    request.sg_list = pieces;
    request.num_sge = count;
    request.opcode = opcode::write;
    request.send_flags = bytes <= uint64_t(lane.pair->inline_bytes()) && !of_device ? send_flag::inline_data : 0;
    request.remote_addr = area.place(slot) + offset;
    request.rkey = area.keys[lane.rail];
}

}  // namespace

void PartRequest::fill(uint32_t link, size_t place, const Lane& lane, const Outgoing& outgoing, uint64_t number,
                       int part, size_t ahead_bytes) {
    const Outgoing::Message& message = outgoing.message(number);
    const Range range = range_of(message, part);
    const uint64_t slot = number % outgoing.shape.depth;
    const uint32_t slot_key = outgoing.memory->registered().lkey(lane.device);
    const abi::Sge header{uintptr_t(outgoing.header(number)), sizeof(MessageHeader), slot_key};
    const abi::Sge content{uintptr_t(message.data + range.begin), uint32_t(range.bytes),
                           message.memory ? message.memory->lkey(lane.device) : slot_key};
    const bool with_header = part == 0, of_device = range.bytes > 0 && message.memory != nullptr &&
                                                    message.memory->range().kind == RangeKind::device;
    apart = range.bytes > ahead_bytes || (with_header && range.bytes > 0 && !outgoing.slots.together());
    if (apart) {
        pieces[2] = content;
        write_to(data, &pieces[2], 1, lane, outgoing.slots.data, slot, range.begin, of_device);
        data.wr_id = RequestId::of(false, link, place, lane.posted);
        data.next = &last;
    }
    int count = 0;
    if (with_header) pieces[count++] = header;
    if (with_header && !apart && message.memory == nullptr)
        pieces[0].length += uint32_t(range.bytes);  // the data follows the header in the slot
    else if (!apart && range.bytes > 0)
        pieces[count++] = content;
    write_to(last, pieces, count, lane, with_header ? outgoing.slots.headers : outgoing.slots.data, slot,
             with_header ? 0 : range.begin, of_device && !apart);
    last.wr_id = RequestId::of(false, link, place, lane.posted + (apart ? 1 : 0));
    last.opcode = opcode::write_with_imm;
    last.send_flags |= send_flag::signaled;
    last.imm_data = imm_of(Immediate::of_part(outgoing.connection, number, message.parts, part));
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
