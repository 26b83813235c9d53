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

}  // namespace

void PartRequest::fill(uint32_t link, size_t place, const Lane& lane, const Outgoing& outgoing, uint64_t number,
                       int part) {
    const Outgoing::Message& message = outgoing.message(number);
    const Range range = range_of(message, part);
    const uint32_t slot_key = outgoing.memory->registered().lkey(lane.device);
    uint64_t bytes = range.bytes;
    request.num_sge = 0;
    if (part == 0) {
        pieces[request.num_sge++] = {uintptr_t(outgoing.slot(number)), sizeof(MessageHeader), slot_key};
        bytes += sizeof(MessageHeader);
    }
    if (message.memory == nullptr && part == 0)
        pieces[0].length += uint32_t(range.bytes);  // the data follows the header in the slot
    else if (range.bytes > 0)
        pieces[request.num_sge++] = {uintptr_t(message.data + range.begin), uint32_t(range.bytes),
                                     message.memory ? message.memory->lkey(lane.device) : slot_key};
    request.wr_id = RequestId::of(false, link, place, lane.posted);
    request.sg_list = pieces;
    request.opcode = opcode::write_with_imm;
    request.send_flags =
        send_flag::signaled | (bytes <= uint64_t(lane.pair->inline_bytes()) ? send_flag::inline_data : 0);
    request.imm_data = imm_of(Immediate::of_part(outgoing.connection, number, message.parts, part));
    request.remote_addr = outgoing.slots.address + number % outgoing.shape.depth * outgoing.shape.stride +
                          (part == 0 ? 0 : sizeof(MessageHeader) + range.begin);
    request.rkey = outgoing.slots.keys[lane.rail];
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
