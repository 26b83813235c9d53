#include "transports/verbs/link.hpp"

#include <algorithm>

#include "src/base/clock.hpp"
#include "transports/verbs/numbered.hpp"

namespace weft::internal::verbs {

namespace {

// Data that the peer's device had sent is here within microseconds; tests delay it.
constexpr int64_t late_data_us = 200'000;
// Credits must not wake a rank that sleeps, so of requests without data only every so many is signalled. A signal frees
// the places of all earlier requests, so a queue must hold several.
constexpr uint64_t unsignalled_most = 32;

uint32_t imm_of(uint32_t word) { return __builtin_bswap32(word); }

}  // namespace

Link::Link(uint32_t index, int self, int peer, const Settings& settings, std::vector<Lane> lanes)
    : index_(index),
      self_(self),
      peer_(peer),
      striped_bytes_(settings.striped_bytes),
      part_bytes_(settings.part_bytes),
      path_(settings.path),
      lanes_(std::move(lanes)) {
    for (Lane& lane : lanes_) {
        lane.ring.resize(size_t(lane.send_requests));
        if (lane.flush) flushes_.add(*lane.flush, lane.device);
    }
}

void Link::add(std::shared_ptr<Outgoing> outgoing) {
    outgoing->link = this;
    put(outgoing_, outgoing->connection, outgoing);
    post(*outgoing);
}

void Link::add(std::shared_ptr<Incoming> incoming) {
    incoming->link = this;
    put(incoming_, incoming->connection, incoming);
}

void Link::post(Outgoing& outgoing) {
    while (outgoing.posted < outgoing.next && outgoing.posted < outgoing.released + outgoing.shape.depth && works()) {
        if (outgoing.message(outgoing.posted).fence > outgoing.transfers.confirmed()) {
            confirm(outgoing);
            return;
        }
        if (!post_message(outgoing)) return;
    }
}

Result<bool> Link::transfer(Outgoing& outgoing, const Transfer& transfer) {
    for (const Lane& lane : lanes_)
        if (lane.peer_device >= transfer.peer->devices())
            return weft::internal::fail(error::internal_damaged,
                                        "rank {} registered memory for {} devices, and uses device {}", peer_,
                                        transfer.peer->devices(), lane.peer_device);
    return posted(post_transfer(posting_lanes(), outgoing, transfer));
}

// False: a send queue is full. A refusal fails the link.
bool Link::posted(const PostingOutcome& outcome) {
    if (outcome.kind == PostingOutcome::full) return starved_ = true, false;
    if (outcome.kind == PostingOutcome::refused) refused(lanes_[outcome.lane], outcome.error);
    return true;
}

void Link::refused(const Lane& lane, int error) {
    fail(weft::internal::fail(error::verbs_call, "{} refuses to send to {}: {}", described(lane.own),
                              described(lane.peer), errno_text(error)));
}

// False: a send queue is full, or the link failed.
bool Link::post_message(Outgoing& outgoing) {
    Outgoing::Message& message = outgoing.message(outgoing.posted);
    const size_t count = lanes_.size();
    const bool striped = count > 1 && message.bytes >= striped_bytes_;
    const size_t parts = striped ? std::min<size_t>(count, Immediate::parts_most) : 1;
    const size_t first = outgoing.transfers.unconfirmed() ? outgoing.home_lane(count) : size_t(outgoing.posted % count);
    for (size_t part = 0; part < parts; ++part)
        if (!lanes_[(first + part) % count].has_room(2)) return starved_ = true, false;
    // Whole pages, so that no two devices write to one page.
    constexpr uint64_t page = 4'096;
    const uint64_t share = striped ? (message.bytes / parts + page - 1) / page * page : message.bytes;
    message.parts_left = int(parts);
    uint64_t begin = 0;
    for (size_t part = 0; part < parts; ++part) {
        const uint64_t end = part + 1 == parts ? message.bytes : std::min(message.bytes, begin + share);
        if (!post_part(outgoing, (first + part) % count, {message.data + begin, end - begin, begin}, part == 0,
                       int(parts)))
            return false;
        begin = end;
    }
    ++outgoing.posted;
    return true;
}

// A write of a part, with or without the header. The data of own slots follows their header, at both ends or at one.
void Link::fill(Write& write, const Outgoing& outgoing, const Lane& lane, const Part& part, bool with_header) const {
    const uint64_t number = outgoing.posted, slot = number % outgoing.shape.depth;
    const Outgoing::Message& message = outgoing.message(number);
    const uint32_t slot_key = outgoing.memory->registered().lkey(lane.device);
    int& count = write.request.num_sge;
    if (with_header) write.pieces[count++] = {uintptr_t(outgoing.header(number)), sizeof(MessageHeader), slot_key};
    if (with_header && message.memory == nullptr)
        write.pieces[0].length += uint32_t(part.bytes);
    else if (part.bytes > 0)
        write.pieces[count++] = {uintptr_t(part.data), uint32_t(part.bytes),
                                 message.memory ? message.memory->lkey(lane.device) : slot_key};
    const uint64_t bytes = part.bytes + (with_header ? sizeof(MessageHeader) : 0);
    const bool of_device = part.bytes > 0 && message.memory && message.memory->range().kind == RangeKind::device;
    if (bytes <= uint64_t(lane.pair->inline_bytes()) && !of_device) write.request.send_flags = send_flag::inline_data;
    const Area& area = with_header ? outgoing.slots.headers : outgoing.slots.data;
    write.request.sg_list = write.pieces;
    write.request.opcode = opcode::write;
    write.request.remote_addr = area.place(slot) + (with_header ? 0 : part.offset);
    write.request.rkey = area.keys[lane.rail];
}

// If the receiver's data is apart from its headers, a write of the data goes ahead on the same lane.
bool Link::post_part(Outgoing& outgoing, size_t place, const Part& part, bool with_header, int parts) {
    Lane& lane = lanes_[place];
    const bool apart = with_header && part.bytes > 0 && !outgoing.slots.together();
    Write data{}, last{};
    if (apart) {
        fill(data, outgoing, lane, part, false);
        data.request.wr_id = RequestId::of(false, index_, place, lane.posted);
        data.request.next = &last.request;
    }
    fill(last, outgoing, lane, apart ? Part{} : part, with_header);
    last.request.wr_id = RequestId::of(false, index_, place, lane.posted + (apart ? 1 : 0));
    last.request.opcode = opcode::write_with_imm;
    last.request.send_flags |= send_flag::signaled;
    last.request.imm_data = imm_of(Immediate::of_part(outgoing.connection, outgoing.posted, parts));
    abi::SendRequest* failed = nullptr;
    if (const int error = lane.pair->post(apart ? &data.request : &last.request, &failed))
        return refused(lane, error), false;
    if (apart) lane.add({}, false);
    lane.add({&outgoing, outgoing.posted}, true);
    return true;
}

void Link::post_credits(Incoming& incoming) {
    if (!incoming.owes_credits() || incoming.closed || !failure_.ok() || ended_us_ != 0) return;
    Lane& lane = lanes_[0];
    if (lane.full()) {
        starved_ = true;
        return;
    }
    const bool signals =
        lane.posted + 1 - lane.signalled >= std::clamp<uint64_t>(lane.ring.size() / 4, 1, unsignalled_most);
    abi::SendRequest request{};
    request.wr_id = RequestId::of(false, index_, 0, lane.posted);
    request.opcode = opcode::write_with_imm;
    request.send_flags = signals ? send_flag::signaled : 0;
    request.imm_data = imm_of(Immediate::of_credits(incoming.connection, incoming.released));
    abi::SendRequest* failed = nullptr;
    if (const int error = lane.pair->post(&request, &failed)) return refused(lane, error);
    lane.add({}, signals);
    incoming.credited = incoming.released;
}

bool Link::take(const abi::Completion& completion) {
    const size_t place = RequestId::lane(completion.wr_id);
    if (place >= lanes_.size()) return false;
    Lane& lane = lanes_[place];
    if (completion.status != wc::success) {
        if (failure_.ok() && ended_us_ == 0) fail(completion_error(completion, lane.own, lane.peer, path_));
        // Every request ends so, and its memory is free.
        if (!RequestId::receives(completion.wr_id)) (void)take_sent(lane, completion.wr_id);
        return true;
    }
    if (!RequestId::receives(completion.wr_id)) return take_sent(lane, completion.wr_id);
    if (++lane.taken == receives_at_once) replenish(place);
    return take_received(lane, imm_of(completion.imm_data));
}

// All requests of the lane up to this one are complete. True: a message is.
bool Link::take_sent(Lane& lane, uint64_t id) {
    constexpr uint64_t mask = 0xff'ffff'ffff;
    const uint64_t end = lane.done + ((id - lane.done) & mask) + 1;
    if (end > lane.posted) return false;
    bool any = false;
    for (; lane.done < end; ++lane.done) {
        const Lane::Posted& posted = lane.ring[size_t(lane.done % lane.ring.size())];
        any = (posted.of && take_ended(posted)) || any;
    }
    if (starved_) retry_starved();
    return any;
}

bool Link::take_ended(const Lane::Posted& request) {
    Outgoing& outgoing = *request.of;
    switch (request.kind) {
        case Lane::Posted::message:
            --outgoing.message(request.number).parts_left;
            while (outgoing.completed < outgoing.posted && outgoing.message(outgoing.completed).parts_left == 0)
                ++outgoing.completed;
            break;
        case Lane::Posted::transfer: outgoing.transfers.complete(request.number); break;
        case Lane::Posted::confirmation:
            if (outgoing.transfers.complete_confirmation(works())) starved_ = true;  // messages waited for it
            break;
    }
    return true;
}

void Link::retry_starved() {
    starved_ = false;
    for (const auto& incoming : incoming_)
        if (incoming) post_credits(*incoming);
    for (const auto& outgoing : outgoing_)
        if (outgoing && outgoing->posted < outgoing->next) post(*outgoing);
}

bool Link::take_received(Lane&, uint32_t word) {
    const uint32_t connection = Immediate::connection_of(word);
    if (Immediate::kind_of(word) == Immediate::part) {
        if (Incoming* incoming = at(incoming_, connection)) return take_part(*incoming, word);
    } else if (Immediate::kind_of(word) == Immediate::credits) {
        if (Outgoing* outgoing = at(outgoing_, connection)) return take_credits(*outgoing, word);
    }
    damaged("an unknown connection", word);
    return true;
}

bool Link::take_part(Incoming& incoming, uint32_t word) {
    const uint64_t ahead = uint8_t(Immediate::message_of(word) - uint8_t(incoming.released));
    if (ahead >= incoming.shape.depth) return damaged("a message beyond its slots", word), true;
    int& left = incoming.parts_left[size_t((incoming.released + ahead) % incoming.shape.depth)];
    if (left == 0) return damaged("a part of a message that is complete", word), true;
    left = left == Incoming::empty ? Immediate::parts_of(word) - 1 : left - 1;
    if (left == 0) flushes_.arrived(incoming, incoming.released + ahead);
    return left == 0;
}

bool Link::take_credits(Outgoing& outgoing, uint32_t word) {
    const uint16_t more = uint16_t(Immediate::released_of(word) - uint16_t(outgoing.released));
    if (outgoing.released + more > outgoing.posted)
        return damaged("credits for messages that were not sent", word), true;
    outgoing.released += more;
    if (outgoing.posted < outgoing.next) post(outgoing);
    return true;
}

void Link::replenish(size_t place) {
    Lane& lane = lanes_[place];
    const int error = post_receives(*lane.pair, RequestId::of(true, index_, place, 0), lane.taken);
    lane.taken = 0;
    if (error != 0 && failure_.ok())
        fail(weft::internal::fail(error::verbs_call, "{} refuses to receive from {}: {}", described(lane.own),
                                  described(lane.peer), errno_text(error)));
}

void Link::damaged(const char* what, uint32_t word) {
    fail(weft::internal::fail(error::internal_damaged, "rank {} announced {} to rank {} over verbs ({:#x})", peer_,
                              what, self_, word)
             .about({.rank = peer_, .peer = self_}));
}

void Link::fail(Status why) {
    if (failure_.ok()) failure_ = std::move(why);
}

void Link::peer_ended(Status why, int64_t now_us) {
    if (ended_us_ != 0 || !failure_.ok()) return;
    ended_us_ = now_us;
    ending_ = std::move(why);
}

const Status& Link::failure() {
    if (failure_.ok() && ended_us_ != 0 && now_us() - ended_us_ > late_data_us) failure_ = ending_.copy();
    return failure_;
}

bool Link::busy() const {
    if (!failure_.ok() || ended_us_ != 0) return false;
    for (const Lane& lane : lanes_)
        if (lane.done < lane.signalled) return true;
    return std::any_of(outgoing_.begin(), outgoing_.end(),
                       [](const auto& outgoing) { return outgoing && outgoing->posted < outgoing->next; });
}

void Link::end_requests() {
    for (Lane& lane : lanes_)
        if (lane.pair) (void)lane.pair->fail_requests();
}

void Link::release_closed() {
    for (auto& outgoing : outgoing_)
        if (outgoing && outgoing->closed && outgoing->completed == outgoing->next && outgoing->transfers.quiet())
            outgoing->memory.reset();
}

}  // namespace weft::internal::verbs
