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
    Queued queued{handle, call};
    if (call.portions) queued.portions = std::make_unique<Portions>(*call.portions);
    queued.call.portions = queued.portions.get();
    calls_.push_back(std::move(queued));
}

Status Group::add_or_run(weftComm* handle, std::shared_ptr<Splitting> splitting) {
    std::vector<Queued> alone;
    (open() ? calls_ : alone).push_back({handle, {}, std::move(splitting)});
    return open() ? ok() : drive(std::move(alone));
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
        std::deque<Queued> calls;                  // none on a communicator that refuses them
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
    // If an exception ends this: whoever waits for what is still to be done is told. In any case buffers go back to the
    // user only when none of this thread's ranks moves any more.
    struct Ending {
        std::vector<Lane>& lanes;
        ~Ending() {
            for (Lane& lane : lanes)
                if (!lane.done()) lane.handle->communicator->break_off();
            try {
                for (Lane& lane : lanes)
                    if (!lane.refused) lane.handle->communicator->await_borrowers();
            } catch (...) {  // out of memory for a warning
            }
        }
    } ending{lanes};
    Status first;
    const auto keep = [&](weftComm* handle, Status failure) {
        {
            std::lock_guard lock(handle->mutex);
            handle->error = failure.sentence();
        }
        if (first) first = std::move(failure);
    };
    for (Queued& queued : calls) {
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
        if (!queued.splitting && queued.call.is_message())
            lane->messages.push_back(queued.call);
        else
            lane->calls.push_back(std::move(queued));
    }
    std::erase_if(lanes, [](const Lane& lane) { return lane.refused; });
    // The communicator's first error is the call's; what else waits on it has failed too. A child that was not to be
    // made leaves its parent as it was.
    const auto give_up = [&](Lane& lane, Status failure) {
        keep(lane.handle, std::move(failure));
        const bool goes_on = !lane.calls.empty() && lane.calls.front().splitting && lane.handle->communicator->usable();
        if (goes_on)
            lane.calls.pop_front();
        else
            lane.drop();
        lane.begun = false;
    };
    // Messages do not wait for the calls that came before them, nor those for them.
    const auto exchange = [&](Lane& lane) {
        Communicator& communicator = *lane.handle->communicator;
        Status failure;
        lane.exchanging = true;
        for (const Communicator::Call& message : std::exchange(lane.messages, {}))
            if (failure) failure = communicator.begin_message(message);
        const Progress progress = failure ? communicator.advance_messages() : Progress::failed;
        if (failure && progress == Progress::failed) failure = communicator.take_failure();
        if (!failure) give_up(lane, std::move(failure));
        if (progress == Progress::done) lane.exchanging = false;
        return progress != Progress::blocked;
    };
    // With several lanes none may sleep for long.
    const auto pause = [&](Lane& lane) {
        const bool alone = lanes.size() == 1;
        return lane.calls.empty() ? lane.handle->communicator->pause(alone)
                                  : lane.calls.front().pause(alone && !lane.exchanging);
    };
    for (size_t left = lanes.size(); left > 0;) {
        bool moved = false;
        left = 0;
        for (Lane& lane : lanes) {
            if (!lane.messages.empty() || lane.exchanging) moved |= exchange(lane);
            while (!lane.calls.empty()) {
                Status failure;
                Progress progress = Progress::blocked;
                const bool on_device = lane.calls.front().call.operation.space == Space::device;
                if (!lane.begun) failure = lane.calls.front().begin();
                lane.begun = true;
                if (failure) progress = lane.calls.front().advance();
                if (failure && progress == Progress::failed) failure = lane.calls.front().take_failure();
                if (!failure) {
                    give_up(lane, std::move(failure));
                } else if (progress == Progress::done) {
                    lane.calls.front().end();
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
        // Everybody is blocked: wait a little in each one's way.
        for (Lane& lane : lanes)
            if (!lane.done())
                if (Status failure = pause(lane); !failure) give_up(lane, std::move(failure));
    }
    return first;
}

}  // namespace weft
