#include "transports/verbs/link.hpp"

#include <algorithm>
#include <climits>

#include "src/base/clock.hpp"
#include "transports/verbs/message_posting.hpp"
#include "transports/verbs/numbered.hpp"
#include "transports/verbs/offers/offer_posting.hpp"
#include "transports/verbs/requests.hpp"

namespace weft::internal::verbs {

namespace {

// Data that the peer's device had sent is here within microseconds; tests delay it.
constexpr int64_t late_data_us = 200'000;

}  // namespace

Link::Link(uint32_t index, int self, int peer, size_t rails, const Settings& settings, std::vector<Lane> lanes,
           std::shared_ptr<Flushes> flushes)
    : state_{.index = index, .self = self, .peer = peer, .outgoing = {}, .incoming = {}, .lanes = std::move(lanes)},
      striped_bytes_(settings.striped_bytes),
      part_bytes_(settings.part_bytes),
      path_(settings.path),
      routing_(settings.adaptive_routing),
      recovery_(state_, rails, settings),
      flushes_(std::move(flushes)) {}

void Link::add(std::shared_ptr<Outgoing> outgoing) {
    outgoing->link = this;
    put(state_.outgoing, outgoing->connection(), outgoing);
    post(*outgoing);
}

void Link::add(std::shared_ptr<Incoming> incoming) {
    incoming->link = this;
    incoming->flushes = flushes_.get();
    state_.flushes = state_.flushes || incoming->needs_flush();
    put(state_.incoming, incoming->connection, incoming);
}

void Link::post(Outgoing& outgoing) {
    while (outgoing.posted < outgoing.next && outgoing.posted < outgoing.released + outgoing.shape.depth && !ended()) {
        if (outgoing.message(outgoing.posted).fence > outgoing.transfers.confirmed()) return confirm(outgoing);
        if (!post_message(outgoing)) return;
    }
}

Result<bool> Link::transfer(Outgoing& outgoing, const Transfer& transfer) {
    for (const Lane& lane : state_.lanes)
        if (lane.peer_device >= transfer.peer->devices())
            return weft::internal::fail(error::internal_damaged,
                                        "rank {} registered memory for {} devices, and uses device {}", state_.peer,
                                        transfer.peer->devices(), lane.peer_device);
    return posted(post_transfer(posting_lanes(), outgoing, transfer));
}

// False: a send queue is full, or no lane lives. A transfer is not repeated, so a refusal fails the link.
bool Link::posted(const PostingOutcome& outcome) {
    if (outcome.kind == PostingOutcome::full) return starved_ = true, false;
    if (outcome.kind == PostingOutcome::refused) fail(refused_to_send(state_.lanes[outcome.lane], outcome.error));
    return true;
}

// False: a send queue is full, or no lane lives.
bool Link::post_message(Outgoing& outgoing) {
    if (recovery_.usable().empty()) return false;
    if (!place_parts(posting_lanes(), outgoing)) return starved_ = true, false;
    const uint64_t number = outgoing.posted++;
    place_in_offer(outgoing, number);
    const Outgoing::Message& message = outgoing.message(number);
    for (int part = 0; part < message.parts; ++part) post_part(outgoing, number, part, message.lanes[size_t(part)]);
    return true;
}

// If the lane fails meanwhile, the part goes again with what else was on it.
void Link::post_part(Outgoing& outgoing, uint64_t number, int index, size_t place) {
    Lane& lane = state_.lanes[place];
    if (lane.state != LaneState::living || ended()) return;
    if (index == 0) credits_.add_to(outgoing, number);
    if (const int error = send_part(state_.index, place, lane, outgoing, number, index, routing_))
        lose_lane(place, refused_to_send(lane, error));
}

void Link::post_again() {
    std::vector<Recovery::Again>& again = recovery_.again();
    while (!again.empty() && !ended()) {
        const std::vector<size_t>& lanes = recovery_.usable();
        if (lanes.empty()) return;
        const Recovery::Again next = again.back();
        const size_t place = lanes[size_t(next.message + uint64_t(next.part)) % lanes.size()];
        if (!state_.lanes[place].has_room(PartRequest::most)) return void(starved_ = true);
        again.pop_back();
        next.outgoing->message(next.message).lanes[size_t(next.part)] = uint8_t(place);
        post_part(*next.outgoing, next.message, next.part, place);
    }
}

void Link::post_credits(Incoming& incoming) {
    credits_.note(incoming);
    if (!incoming.owes_credits() || incoming.closed || ended() || recovery_.usable().empty()) return;
    const size_t place = recovery_.usable()[0];
    Lane& lane = state_.lanes[place];
    if (lane.full()) return void(starved_ = true);
    if (const int error = send_credits(state_.index, place, lane, incoming))
        lose_lane(place, refused_to_send(lane, error));
}

bool Link::post_offer(Incoming& incoming, uint64_t message, const OpenOffers::Offer& offer) {
    if (ended()) return false;
    const PostingOutcome outcome = send_offer(posting_lanes(), incoming, message, offer);
    if (outcome.kind == PostingOutcome::refused)
        lose_lane(outcome.lane, refused_to_send(state_.lanes[outcome.lane], outcome.error));
    return outcome.kind == PostingOutcome::posted;
}

bool Link::take(const abi::Completion& completion) {
    const size_t place = RequestId::lane(completion.wr_id);
    if (place >= state_.lanes.size()) return false;
    Lane& lane = state_.lanes[place];
    if (!lane.pair || lane.pair->number() != completion.qp_num) return false;  // of a queue pair that is gone
    if (completion.status != wc::success) return take_failed(place, completion);
    if (!RequestId::receives(completion.wr_id)) return take_sent(lane, completion.wr_id);
    recovery_.received(place);
    const bool goes_on = take_received(imm_of(completion.imm_data));
    if (++lane.receives.taken >= receives_at_once && lane.works()) replenish(place);
    return goes_on;
}

bool Link::take_failed(size_t place, const abi::Completion& completion) {
    Lane& lane = state_.lanes[place];
    if (!ended() && lane.works()) {
        Status why = completion_error(completion, lane.own, lane.peer, path_);
        if (is_of_path(completion.status))
            lose_lane(place, std::move(why));
        else
            fail(std::move(why));
    }
    if (RequestId::receives(completion.wr_id))
        ++lane.receives.taken;
    else if (ended())
        (void)take_sent(lane, completion.wr_id);  // every request ends so, and its memory is free
    else
        lane.done = std::min(lane.end_of(completion.wr_id), lane.posted);  // the peer's report tells what arrived
    return true;
}

// All requests of the lane up to this one are complete. True: a message is.
bool Link::take_sent(Lane& lane, uint64_t id) {
    const uint64_t end = lane.end_of(id);
    if (end > lane.posted) return false;
    bool any = false;
    for (; lane.done < end; ++lane.done) {
        const Lane::Posted& posted = lane.ring[size_t(lane.done % lane.ring.size())];
        if (posted.of == nullptr) continue;
        any = true;
        recovery_.carried();
        if (take_ended(posted, !ended())) starved_ = true;
    }
    starved_ |= !ended() && recovery_.proved(RequestId::lane(id));
    if (starved_) retry_starved();
    return any;
}

void Link::retry_starved() {
    starved_ = false;
    post_again();
    for (const auto& incoming : state_.incoming)
        if (incoming) post_credits(*incoming);
    for (const auto& outgoing : state_.outgoing)
        if (outgoing && outgoing->posted < outgoing->next) post(*outgoing);
}

bool Link::take_received(uint32_t word) {
    if (Immediate::kind_of(word) == Immediate::credits) return take_credits(word);
    if (Immediate::kind_of(word) == Immediate::offer) {
        const TakenOffer taken = take_offer(at(state_.outgoing, Immediate::connection_of(word)), word);
        if (taken.wrong != nullptr) return damaged(taken.wrong, word), true;
        return taken.credits != 0 && take_credits(taken.credits);
    }
    Incoming* const incoming = at(state_.incoming, Immediate::connection_of(word));
    if (Immediate::kind_of(word) == Immediate::part && incoming != nullptr) return take_part(*incoming, word);
    return damaged("an unknown connection", word), true;
}

bool Link::take_part(Incoming& incoming, uint32_t word) {
    const uint64_t ahead = uint8_t(Immediate::message_of(word) - uint8_t(incoming.released));
    if (ahead >= incoming.shape.depth) return damaged("a message beyond its slots", word), true;
    Arrival& arrival = incoming.arrival(incoming.released + ahead);
    if (!arrival.add(Immediate::index_of(word), Immediate::parts_of(word)))
        return damaged("a part of a message twice", word), true;
    if (arrival.complete()) flushes_->arrived(arrival);
    const auto* header = reinterpret_cast<const MessageHeader*>(incoming.header(incoming.released + ahead));
    if (Immediate::index_of(word) == 0 && header->credits != 0) (void)take_credits(header->credits);
    return arrival.complete();
}

bool Link::take_credits(uint32_t word) {
    const Credits::Taken taken = credits_.take(word);
    if (taken.wrong != nullptr) return damaged(taken.wrong, word), true;
    if (taken.sender != nullptr && taken.sender->posted < taken.sender->next) post(*taken.sender);
    return taken.sender != nullptr;
}

void Link::replenish(size_t place) {
    Lane& lane = state_.lanes[place];
    if (const int error = post_receives(*lane.pair, RequestId::of(true, state_.index, place, 0), receives_at_once)) {
        lane.receives.taken = INT_MIN / 2;  // so many that all_ended() is never true
        if (!ended())
            lose_lane(place, weft::internal::fail(error::verbs_call, "{} refuses to receive from {}: {}",
                                                  described(lane.own), described(lane.peer), errno_text(error)));
        return;
    }
    lane.receives.taken -= receives_at_once;
}

void Link::damaged(const char* what, uint32_t word) {
    fail(weft::internal::fail(error::internal_damaged, "rank {} announced {} to rank {} over verbs ({:#x})",
                              state_.peer, what, state_.self, word)
             .about({.rank = state_.peer, .peer = state_.self}));
}

void Link::fail(Status why) {
    if (!failure_.ok()) return;
    failure_ = std::move(why);
    recovery_.abandon();
}

void Link::peer_ended(Status why, int64_t now_us) {
    if (ended()) return;
    ended_us_ = now_us;
    ending_ = std::move(why);
    recovery_.abandon();
}

void Link::lose_lane(size_t lane, Status why) {
    if (ended()) return;
    if (Status lost = recovery_.lose(lane, std::move(why), now_us()); !lost) fail(std::move(lost));
}

void Link::lose_queue(const CompletionQueue& queue) {
    for (const size_t place : recovery_.lanes_on(queue))
        lose_lane(place,
                  weft::internal::fail(
                      error::verbs_call,
                      "{} reports no completions any more: the device failed or was removed, or its queue overran",
                      described(state_.lanes[place].own)));
}

void Link::lose_lanes(const std::vector<size_t>& lanes, const Status& why) {
    for (const size_t place : lanes) lose_lane(place, why.copy());
}

void Link::take_report(LaneReport report) {
    if (ended()) return;
    if (Status taken = recovery_.take_report(std::move(report), now_us()); !taken) fail(std::move(taken));
}

void Link::install(size_t lane, Lane made) {
    if (!ended()) recovery_.install(lane, std::move(made));
}

void Link::enable(LaneId id) {
    if (const int error = ended() ? 0 : recovery_.probe(id))
        lose_lane(id.lane, refused_to_send(state_.lanes[id.lane], error));
}

void Link::step(bool quiet) {
    if (ended()) return;
    if (Status stepped = recovery_.step(now_us(), quiet); !stepped) return fail(std::move(stepped));
    retry_starved();
}

const Status& Link::failure() {
    if (failure_.ok() && ended_us_ != 0 && now_us() - ended_us_ > late_data_us) failure_ = ending_.copy();
    return failure_;
}

bool Link::busy() const {
    if (ended()) return false;
    return recovery_.recovering() || has_requests(state_);
}

void Link::end_requests() {
    if (!ended())
        fail(weft::internal::fail(error::verbs_broken,
                                  "rank {} ended a connection to rank {} with messages on their way", state_.self,
                                  state_.peer));
    for (Lane& lane : state_.lanes)
        if (lane.pair) (void)lane.pair->fail_requests();
}

}  // namespace weft::internal::verbs
