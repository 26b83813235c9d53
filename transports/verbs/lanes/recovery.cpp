#include "transports/verbs/lanes/recovery.hpp"

#include <algorithm>
#include <utility>

#include "src/base/log.hpp"
#include "transports/verbs/requests.hpp"

namespace weft::internal::verbs {

namespace {

// A device that failed reports no completions any more. Others take microseconds.
constexpr int64_t lane_drain_us = 200'000;
// A part that takes one lane after the other down is a defect.
constexpr uint8_t tries_most = 32;
// A driving thread that waits looks more often.
constexpr int64_t between_looks_us = 100'000;

}  // namespace

Recovery::Recovery(LinkState& link, size_t rails, const Settings& settings)
    : link_(link), rails_used_(rails), patience_us_(settings.no_lane_us) {
    for (const Lane& lane : link_.lanes) rails_ = std::max(rails_, lane.rail + 1);
    losses_.resize(link_.lanes.size());
    refresh();
}

// Lanes are in the order of their rails.
void Recovery::refresh() {
    usable_.clear();
    size_t rails = 0, last = SIZE_MAX;
    for (size_t place = 0; place < link_.lanes.size(); ++place) {
        const Lane& lane = link_.lanes[place];
        if (lane.state != LaneState::living) continue;
        if (lane.rail != last && ++rails > rails_used_) break;
        last = lane.rail;
        usable_.push_back(place);
    }
    recovering_ = !again_.empty() || std::any_of(link_.lanes.begin(), link_.lanes.end(), [](const Lane& lane) {
        return lane.state == LaneState::draining || lane.state == LaneState::drained;
    });
}

// Null: messages only, which go again. This side cannot tell which puts have reached the peer's memory, and none may
// reach it twice. A device that has failed cannot flush what it wrote.
const char* Recovery::bound_to_lanes() const {
    if (link_.flushes) return "a GPU receives over it whose memory needs flushes by all its devices";
    for (const auto& outgoing : link_.outgoing)
        if (outgoing && (outgoing->transfers.unconfirmed() || !outgoing->transfers.quiet()))
            return "puts or gets are under way, which are never repeated";
    return nullptr;
}

Status Recovery::lose(size_t place, Status why, int64_t now_us) {
    Lane& lane = link_.lanes[place];
    if (!lane.works()) return ok();
    const bool carried = lane.state == LaneState::living;
    lane.state = LaneState::draining;
    losses_[place].since_us = now_us;
    (void)lane.pair->fail_requests();  // a device that was removed refuses
    losses_[place].cause = why.copy();
    refresh();
    if (carried && rails_ == 1 && usable_.empty()) return why;
    // Nothing was sent on it. A device may still have to flush what it received.
    if (!carried && !(link_.flushes && losses_[place].received)) {
        WEFT_LOG_RANK(link_.self, trace, net, "cannot use a lane to rank {} yet: {}", link_.peer, why.sentence());
        return ok();
    }
    if (const char* bound = bound_to_lanes())
        return fail(why, "{}; the link between rank {} and rank {} cannot go on without it, because {}", why.sentence(),
                    link_.self, link_.peer, bound);
    if (!usable_.empty()) {
        const Lane& next = link_.lanes[usable_[0]];
        WEFT_LOG_RANK(link_.self, warn, net, "sends to rank {} by {}:{} without {}:{} (QP {:#x}): {}", link_.peer,
                      next.own.device, next.own.port, lane.own.device, lane.own.port, lane.own.pair, why.sentence());
        return ok();
    }
    if (none_since_us_ == 0) {
        await_lanes(why.copy(), now_us);
        WEFT_LOG_RANK(link_.self, warn, net, "has no lane to rank {} any more: {}", link_.peer, why.sentence());
    }
    return ok();
}

std::vector<size_t> Recovery::lanes_on(const CompletionQueue& queue) const {
    std::vector<size_t> places;
    for (size_t place = 0; place < link_.lanes.size(); ++place)
        if (link_.lanes[place].queue.get() == &queue && link_.lanes[place].pair) places.push_back(place);
    return places;
}

std::vector<size_t> Recovery::replaceable(size_t device, int port) const {
    std::vector<size_t> places;
    bool other = port == 0;
    for (size_t place = 0; place < link_.lanes.size(); ++place) {
        const Lane& lane = link_.lanes[place];
        const bool on_port = lane.device == device && (port == 0 || lane.own.port == port);
        if (on_port && lane.works()) places.push_back(place);
        other = other || (!on_port && lane.state == LaneState::living);
    }
    return other ? places : std::vector<size_t>();
}

Status Recovery::take_report(LaneReport report, int64_t now_us) {
    const size_t place = report.id.lane;
    if (place >= link_.lanes.size() || link_.lanes[place].generation != report.id.generation ||
        link_.lanes[place].state == LaneState::gone)
        return ok();  // the link's end may cross a report
    const Status cause(report.cause);
    losses_[place].report = std::move(report);
    return lose(place, fail(cause, "rank {} uses it no more: {}", link_.peer, cause.sentence()), now_us);
}

Status Recovery::step(int64_t now_us, bool quiet) {
    for (size_t place = 0; place < link_.lanes.size(); ++place) {
        Lane& lane = link_.lanes[place];
        if (lane.state == LaneState::draining &&
            (lane.all_ended() || (quiet && now_us - losses_[place].since_us > lane_drain_us)))
            finish(lane, place);
        if (lane.state != LaneState::drained || !losses_[place].report) continue;
        const LaneReport report = *std::exchange(losses_[place].report, std::nullopt);
        lane.state = LaneState::gone;
        WEFT_TRY(apply(report, place));
        notices_.push_back(
            {.report = {.id = report.id, .cause = {}, .connections = {}}, .parted = true, .queue = lane.queue});
    }
    refresh();
    wait_for_lanes(now_us);
    return none_since_us_ != 0 && now_us - none_since_us_ > patience_us_ ? none_cause_.copy() : ok();
}

// A rank that computes, here or at the peer, takes no part in a recovery, and no lane can return meanwhile.
void Recovery::wait_for_lanes(int64_t now_us) {
    const int64_t passed_us = now_us - std::exchange(looked_us_, now_us);
    if (none_since_us_ == 0) return;
    bool excused = passed_us > between_looks_us || !usable_.empty();
    for (size_t place = 0; place < link_.lanes.size(); ++place)
        excused = excused || (link_.lanes[place].state == LaneState::drained && !losses_[place].report);
    if (excused) none_since_us_ = std::min(none_since_us_ + passed_us, now_us);
}

// Once the queue pair is destroyed, nothing from the peer lands.
void Recovery::finish(Lane& lane, size_t place) {
    lane.pair.reset();
    lane.state = LaneState::drained;
    notices_.push_back({.report = report_of(lane, place), .parted = false, .queue = {}});
}

LaneReport Recovery::report_of(const Lane& lane, size_t place) const {
    LaneReport report{.id = {.lane = uint32_t(place), .generation = lane.generation},
                      .cause = losses_[place].cause.failure(),
                      .connections = {}};
    for (const auto& incoming : link_.incoming) {
        if (!incoming) continue;
        LaneReport::Connection each{.connection = incoming->connection, .released = incoming->released, .messages = {}};
        for (uint64_t number = incoming->released; number < incoming->released + incoming->shape.depth; ++number)
            if (const uint32_t parts = incoming->arrival(number).arrived()) each.messages.push_back({number, parts});
        report.connections.push_back(std::move(each));
    }
    return report;
}

Status Recovery::apply(const LaneReport& report, size_t place) {
    for (const auto& outgoing : link_.outgoing)
        if (outgoing) WEFT_TRY(apply(outgoing, report.find(outgoing->connection()), place));
    return ok();
}

Status Recovery::apply(const std::shared_ptr<Outgoing>& of, const LaneReport::Connection* arrived, size_t place) {
    Outgoing& outgoing = *of;
    if (arrived && arrived->released > outgoing.posted)
        return fail(error::internal_damaged, "rank {} released {} messages of rank {}, which sent {}", link_.peer,
                    arrived->released, link_.self, outgoing.posted);
    if (arrived) outgoing.released = std::max(outgoing.released, arrived->released);
    for (uint64_t number = std::min(outgoing.completed, outgoing.released); number < outgoing.posted; ++number) {
        Outgoing::Message& message = outgoing.message(number);
        uint32_t parts = number < outgoing.released ? UINT32_MAX : 0;
        for (size_t i = 0; arrived && i < arrived->messages.size(); ++i)
            if (arrived->messages[i].number == number) parts |= arrived->messages[i].parts;
        for (int part = 0; part < message.parts; ++part) {
            if (message.lanes[size_t(part)] != place) continue;
            if (parts >> part & 1)
                (void)complete(outgoing, number, part);
            else
                WEFT_TRY(repeat(of, number, part));
        }
    }
    return ok();
}

Status Recovery::repeat(const std::shared_ptr<Outgoing>& of, uint64_t number, int part) {
    Outgoing& outgoing = *of;
    Outgoing::Message& message = outgoing.message(number);
    const auto bit = uint16_t(1u << part);
    if ((message.pending & bit) == 0) {
        // The peer's device had acknowledged it and failed before it was in memory. Slots still have the data.
        if (message.memory != nullptr || outgoing.memory == nullptr)
            return fail(error::verbs_broken,
                        "a device of rank {} lost a message that it had acknowledged, and rank {} no longer has it",
                        link_.peer, link_.self);
        message.pending |= bit;
        if (number < outgoing.completed) ++outgoing.repeated;
    }
    if (++message.tries > tries_most)
        return fail(error::verbs_broken, "message {} from rank {} to rank {} was lost with {} queue pairs", number,
                    link_.self, link_.peer, tries_most);
    message.lanes[size_t(part)] = no_lane;
    again_.push_back({of, number, part});
    return ok();
}

bool Recovery::complete(Outgoing& outgoing, uint64_t number, int part) {
    Outgoing::Message& message = outgoing.message(number);
    const auto bit = uint16_t(1u << part);
    if ((message.pending & bit) == 0) return false;
    message.pending = uint16_t(message.pending & ~bit);
    if (number < outgoing.completed) --outgoing.repeated;
    while (outgoing.completed < outgoing.posted && outgoing.message(outgoing.completed).pending == 0)
        ++outgoing.completed;
    return message.pending == 0;
}

void Recovery::install(size_t place, Lane made) {
    Lane& lane = link_.lanes[place];
    lane = std::move(made);
    lane.state = LaneState::receiving;
    losses_[place] = {};
    refresh();
}

// A network that loses everything, or large packets, lets queue pairs connect: the socket has another way.
int Recovery::probe(LaneId id) {
    Lane& lane = link_.lanes[id.lane];
    if (lane.state != LaneState::receiving || lane.generation != id.generation) return 0;
    return post_probe(link_.index, id.lane, lane);
}

std::vector<size_t> Recovery::probing(LaneId id) const {
    const Lane& lane = link_.lanes[id.lane];
    // A device may still have to flush what the peer sent over it.
    if (lane.state != LaneState::receiving || lane.generation != id.generation ||
        (link_.flushes && losses_[id.lane].received))
        return {};
    return {id.lane};
}

bool Recovery::proved(size_t place) {
    Lane& lane = link_.lanes[place];
    if (lane.state != LaneState::receiving) return false;
    lane.state = LaneState::living;
    WEFT_LOG_RANK(link_.self, info, net, "has a lane to rank {} again: {} to {}", link_.peer, described(lane.own),
                  described(lane.peer));
    refresh();
    return true;
}

void Recovery::abandon() {
    // A request that is still posted keeps its memory busy until it ends.
    std::vector<Lane::Posted> posted;
    for (const Lane& lane : link_.lanes)
        for (uint64_t index = lane.done; lane.pair && index < lane.posted; ++index)
            if (const auto& each = lane.ring[size_t(index % lane.ring.size())]; each.of != nullptr)
                posted.push_back(each);
    for (const auto& outgoing : link_.outgoing) {
        if (!outgoing) continue;
        outgoing->repeated = 0;
        for (uint64_t number = std::min(outgoing->completed, outgoing->released); number < outgoing->posted; ++number) {
            uint16_t busy = 0;
            for (const Lane::Posted& each : posted)
                if (each.of == outgoing.get() && each.kind == Lane::Posted::message && each.number == number &&
                    number >= outgoing->completed)
                    busy |= uint16_t(1u << each.part);
            outgoing->message(number).pending &= busy;
        }
        while (outgoing->completed < outgoing->posted && outgoing->message(outgoing->completed).pending == 0)
            ++outgoing->completed;
    }
    again_.clear();
    none_since_us_ = 0;
    recovering_ = false;
}

std::vector<LaneNotice> Recovery::take_notices() { return std::exchange(notices_, {}); }

}  // namespace weft::internal::verbs
