#include "src/comm/group.hpp"

#include <deque>

#include "src/base/log.hpp"

namespace weft {

Group& Group::current() {
    static thread_local Group group;
    return group;
}

Group::~Group() {
    if (depth_ > 0)
        WEFT_LOG(warn, coll, "a thread ends inside weftGroupStart: {} calls were never begun; call weftGroupEnd",
                 calls_.size() + joinings_.size());
}

void Group::add(weftComm* handle, const Communicator::Call& call) {
    calls_.push_back({handle, call, call.portions ? std::make_unique<Portions>(*call.portions) : nullptr});
    calls_.back().call.portions = calls_.back().portions.get();
}

bool Group::holds(const weftComm* handle) const {
    for (const Queued& queued : calls_)
        if (queued.handle == handle) return true;
    return false;
}

Status Group::end() {
    if (depth_ == 0) return fail(weftInvalidUsage, "weftGroupEnd without weftGroupStart on this thread");
    if (--depth_ > 0) return ok();
    std::vector<Joining> joinings = std::exchange(joinings_, {});
    std::vector<Queued> calls = std::exchange(calls_, {});
    Status joined = join(std::move(joinings));
    // Whatever became of the new ones: peers wait for the calls on communicators that were there before.
    Status driven = drive(std::move(calls));
    return joined ? std::move(driven) : std::move(joined);
}

Status Group::drive(std::vector<Queued> calls) {
    struct Lane {
        weftComm* handle;
        std::unique_ptr<Inside> inside;
        std::deque<Communicator::Call> calls;      // none on a communicator that refuses them
        std::vector<Communicator::Call> messages;  // likewise; until they are begun
        bool begun = false;
        bool refused = false;
        bool exchanging = false;
        bool done() const { return calls.empty() && messages.empty() && !exchanging; }
        // After a failure. A call that all ranks refused alike leaves messages alone.
        void drop() {
            calls.clear();
            if (!handle->communicator->dead()) return;
            messages.clear();
            exchanging = false;
        }
    };
    std::vector<Lane> lanes;
    // If an exception ends this: whoever waits for what is still to be done is told.
    struct Unfinished {
        std::vector<Lane>& lanes;
        ~Unfinished() {
            for (Lane& lane : lanes)
                if (!lane.done()) lane.handle->communicator->break_off();
        }
    } unfinished{lanes};
    Status first;
    const auto keep = [&](weftComm* handle, Status failure) {
        {
            std::lock_guard lock(handle->mutex);
            handle->error = failure.sentence();
        }
        if (first) first = std::move(failure);
    };
    for (const Queued& queued : calls) {
        auto lane =
            std::find_if(lanes.begin(), lanes.end(), [&](const Lane& other) { return other.handle == queued.handle; });
        if (lane == lanes.end()) {
            lanes.push_back({queued.handle, nullptr, {}, {}});
            lane = lanes.end() - 1;
            Status usable = check_handle(queued.handle);
            if (usable) {
                lane->inside = std::make_unique<Inside>(queued.handle);
                if (!lane->inside->entered()) usable = lane->inside->refused();
            }
            lane->refused = !usable;
            if (!usable) keep(queued.handle, std::move(usable));
        }
        if (lane->refused) continue;
        if (queued.call.is_message())
            lane->messages.push_back(queued.call);
        else
            lane->calls.push_back(queued.call);
    }
    std::erase_if(lanes, [](const Lane& lane) { return lane.refused; });
    // Messages do not wait for the calls that came before them, nor those for them.
    const auto exchange = [&](Lane& lane) {
        Communicator& communicator = *lane.handle->communicator;
        Status failure;
        lane.exchanging = true;
        for (const Communicator::Call& message : std::exchange(lane.messages, {}))
            if (failure) failure = communicator.begin_message(message);
        const Progress progress = failure ? communicator.advance_messages() : Progress::failed;
        if (failure && progress == Progress::failed) failure = communicator.take_failure();
        if (!failure) {
            keep(lane.handle, std::move(failure));
            lane.drop();
        }
        if (progress == Progress::done) lane.exchanging = false;
        return progress != Progress::blocked;
    };
    for (size_t left = lanes.size(); left > 0;) {
        bool moved = false;
        left = 0;
        for (Lane& lane : lanes) {
            Communicator& communicator = *lane.handle->communicator;
            if (!lane.messages.empty() || lane.exchanging) moved |= exchange(lane);
            while (!lane.calls.empty()) {
                Status failure;
                Progress progress = Progress::blocked;
                const bool on_device = lane.calls.front().operation.space == Space::device;
                if (!lane.begun) failure = communicator.begin(lane.calls.front());
                lane.begun = true;
                if (failure) progress = communicator.advance();
                if (failure && progress == Progress::failed) failure = communicator.take_failure();
                if (!failure) {
                    // The communicator's first error is the call's; what else waits on it has failed too.
                    keep(lane.handle, std::move(failure));
                    lane.drop();
                } else if (progress == Progress::done) {
                    (void)communicator.end();
                    lane.calls.pop_front();
                    lane.begun = false;
                } else {
                    moved |= progress == Progress::moved;
                    break;
                }
                moved = true;
                // Launches of all ranks in turn: a full queue makes a launch wait for kernels that wait for the
                // others'.
                if (on_device) break;
            }
            left += !lane.done();
        }
        if (moved) continue;
        // Everybody is blocked: wait a little in each one's way. With several lanes none may sleep for long.
        for (Lane& lane : lanes)
            if (!lane.done())
                if (Status failure = lane.handle->communicator->pause(lanes.size() == 1); !failure) {
                    keep(lane.handle, std::move(failure));
                    lane.drop();
                }
    }
    // Only now, when none of this thread's ranks moves any more, do their buffers go back to the user.
    if (!first)
        for (Lane& lane : lanes) lane.handle->communicator->await_borrowers();
    return first;
}

}  // namespace weft
