#include "transports/verbs/transfers.hpp"

#include <algorithm>

#include "src/net/bytes.hpp"
#include "transports/verbs/link.hpp"

namespace weft::internal::verbs {

Result<std::unique_ptr<RemoteRange>> RemoteRange::of(std::span<const std::byte> key, uint32_t process) {
    ByteReader from(key.data(), key.size());
    auto range = std::make_unique<RemoteRange>();
    const auto magic = from.get<uint32_t>(), owner = from.get<uint32_t>();
    range->address_ = from.get<uint64_t>();
    range->bytes_ = from.get<uint64_t>();
    const auto devices = from.get<uint32_t>();
    for (uint32_t i = 0; i < devices && from.ok(); ++i) range->keys_.push_back(from.get<uint32_t>());
    if (!from.at_end() || magic != Registered::key_magic || devices == 0)
        return fail(error::internal_state, "a key of {} bytes is none of registered memory over verbs", key.size());
    if (owner != process)
        return fail(error::internal_state, "a key of registered memory belongs to another process than the connection");
    return range;
}

// Of small transfers each goes to one lane.
size_t Transfers::parts_of(const Link& link, const Transfer& transfer) const {
    const size_t lanes = link.lanes().size();
    const size_t striped = lanes > 1 && transfer.bytes >= link.striped_bytes() ? lanes : 1;
    return std::max<size_t>(striped, (transfer.bytes + link.part_bytes() - 1) / link.part_bytes());
}

Result<bool> Transfers::post(Link& link, Outgoing& of, Transfer transfer) {
    const size_t count = link.lanes().size(), parts = parts_of(link, transfer);
    const uint64_t on_a_lane = (parts + count - 1) / count;
    for (const Lane& lane : link.lanes()) {
        if (lane.peer_device >= transfer.peer->devices())
            return fail(error::internal_damaged, "rank {} registered memory for {} devices, and uses device {}",
                        of.shape.peer, transfer.peer->devices(), lane.peer_device);
        if (!lane.has_room(on_a_lane)) return link.starve(), false;
    }
    transfer.parts_left = int(parts);
    const uint64_t number = posted_++;
    at(number) = transfer;
    if (transfer.puts) puts_end_ = posted_;
    if (transfer.puts && parts > 1 && count > 1) scattered_end_ = posted_;
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
        if (!post_part(link, of, (of.home_lane(count) + part) % count, number, piece)) {
            complete(number, int(parts - part));  // the link has failed: no device uses the rest
            break;
        }
        begin = end;
    }
    return true;
}

bool Transfers::post_part(Link& link, Outgoing& of, size_t place, uint64_t number, const Transfer& part) {
    Lane& lane = link.lane(place);
    abi::Sge piece{uintptr_t(part.own), uint32_t(part.bytes), part.memory->lkey(lane.device)};
    const bool inlined = part.puts && part.bytes <= uint64_t(lane.pair->inline_bytes()) &&
                         part.memory->range().kind != RangeKind::device;
    abi::SendRequest request{};
    request.sg_list = &piece;
    request.num_sge = part.bytes > 0 ? 1 : 0;
    request.opcode = part.puts ? opcode::write : opcode::read;
    request.send_flags = send_flag::signaled | (inlined ? send_flag::inline_data : 0);
    request.remote_addr = part.there;
    request.rkey = part.peer->rkey(lane.peer_device);
    return link.post(place, request, {&of, number, Lane::Posted::transfer});
}

// One read on each lane: it is executed after all earlier writes of its lane, and reads memory behind them.
bool Transfers::confirm(Link& link, Outgoing& of) {
    if (confirming_left_ > 0) return true;
    for (const Lane& lane : link.lanes())
        if (lane.full()) return link.starve(), false;
    confirming_ = posted_;
    confirming_left_ = int(link.lanes().size());
    for (size_t place = 0; place < link.lanes().size(); ++place) {
        const Lane& lane = link.lane(place);
        abi::Sge piece{uintptr_t(of.read_target()), 1, of.memory->registered().lkey(lane.device)};
        abi::SendRequest request{};
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = opcode::read;
        request.send_flags = send_flag::signaled;
        request.remote_addr = of.slots.headers.address;
        request.rkey = of.slots.headers.keys[lane.rail];
        if (!link.post(place, request, {&of, 0, Lane::Posted::confirmation})) {
            confirming_left_ = int(place);
            break;
        }
    }
    return true;
}

void Transfers::complete(uint64_t number, int parts) {
    at(number).parts_left -= parts;
    while (ended_ < posted_ && at(ended_).parts_left == 0) ++ended_;
}

bool Transfers::complete_confirmation(bool works) {
    if (--confirming_left_ > 0) return false;
    if (works) confirmed_ = std::max(confirmed_, confirming_);
    return true;
}

}  // namespace weft::internal::verbs
