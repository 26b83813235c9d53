#include "src/calls/batch.hpp"

#include <algorithm>

namespace weft::internal {

namespace {

// Whether both are ranks of one communicator, which this process drives.
bool are_beside(Communicator& one, Communicator& other) {
    const RankContext &first = one.context(), &second = other.context();
    // Without shared memory, two ranks of a process are on two hosts.
    const bool same = first.membership && second.membership
                          ? first.membership->identity().name == second.membership->identity().name
                          : first.segment == second.segment;
    return same && first.rank != second.rank;
}

// Whether the rank of `one` waits for a call that the rank of `other` has not made.
bool waits_for_call_of(Communicator& one, Communicator& other) {
    if (!are_beside(one, other) || !one.calls().in_collective() || !one.calls().waits_for(other.rank())) return false;
    const auto report = other.context().row().position.read();
    return report && report->entered < one.context().sequence;
}

// "rank 0 waits in operation 1, all_reduce of 1 int32, sum". Only during a call.
std::string text_of_wait(Communicator& communicator) {
    const RankContext& context = communicator.context();
    return fmt::format("rank {} waits in operation {}, {}", context.rank, context.sequence,
                       context.position().operation.text());
}

// The CUDA streams of a queue's calls, ascending.
std::vector<const void*> streams_of(const CommQueue& queue) {
    std::vector<const void*> streams;
    const auto add = [&](const Call& call) {
        if (call.space == Space::device && (streams.empty() || streams.back() != call.stream))
            streams.push_back(call.stream);
    };
    for (const QueuedCall& queued : queue.calls) add(queued.call);
    for (const Call& message : queue.messages) add(message);
    std::sort(streams.begin(), streams.end());
    streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
    return streams;
}

// Whether work on one set of streams never waits for work on the other. The legacy stream waits for all others.
bool are_apart(const std::vector<const void*>& one, const std::vector<const void*>& other) {
    if (one.empty() || other.empty()) return true;
    constexpr uintptr_t legacy = 1;  // or NULL
    return uintptr_t(one[0]) > legacy && uintptr_t(other[0]) > legacy &&
           std::find_first_of(one.begin(), one.end(), other.begin(), other.end()) == one.end();
}

}  // namespace

// Marks the calls that an exception or the end of the process left undone.
Batch::~Batch() {
    for (CommQueue& queue : queues_) queue.abandon();
}

// Records the failure for the calls with these numbers. From here on the failure names the first of them.
void Batch::keep(CommQueue& queue, std::span<const size_t> numbers, Status& failure) {
    if (queue.statuses) failure = queue.statuses->fail(numbers, queue.handle, failure);
    queue.handle->keep_error(failure);
    if (first_) first_ = failure.copy();
}

// After this, only this thread drives the queues' communicators.
void Batch::come_in() {
    for (CommQueue& queue : queues_) {
        if (queue.entered) queue.entered->settle();
        if (queue.turn) queue.turn->await();
    }
    for (CommQueue& queue : queues_) {
        const bool begun = !queue.turn || queue.turn->begin();
        Status usable = check_handle(queue.handle);
        queue.refused = !begun || !usable;
        if (!queue.refused) continue;
        std::vector<size_t> all = queue.of_calls();
        all.insert(all.end(), queue.numbers.begin(), queue.numbers.end());
        if (!usable) keep(queue, all, usable);
        if (queue.statuses) queue.statuses->mark_unknown(all);
    }
    std::erase_if(queues_, [](const CommQueue& queue) { return queue.refused; });
}

// Coalesces the calls of each queue.
// Another rank may make the calls of two queues interleaved on one stream. Then one kernel for several calls would wait
// for a kernel that is enqueued behind it.
void Batch::join() {
    std::vector<std::vector<const void*>> streams;
    if (queues_.size() > 1)
        for (const CommQueue& queue : queues_) streams.push_back(streams_of(queue));
    for (size_t i = 0; i < queues_.size(); ++i) {
        bool alone = true;
        for (size_t k = 0; k < streams.size(); ++k) alone &= k == i || are_apart(streams[i], streams[k]);
        CoalescedCalls::apply(queues_[i].calls, alone);
    }
}

// The calls with these numbers failed, and so do the later calls of the queue.
// If a child could not be made, the calls of its parent go on.
void Batch::give_up(CommQueue& queue, std::span<const size_t> numbers, Status failure) {
    keep(queue, numbers, failure);
    if (queue.statuses && failure.id() == error::usage_finalized) refused_.push_back({queue.handle, numbers[0]});
    const bool own =
        !queue.calls.empty() && (queue.calls.front().async_operation || queue.calls.front().call.is_access());
    if (own && queue.communicator().usable())
        queue.skip(failure);
    else
        queue.drop(failure);
    queue.begun = false;
}

// Messages and calls do not wait for each other. True: something moved.
bool Batch::exchange(CommQueue& queue) {
    Communicator& communicator = queue.communicator();
    queue.exchanging = true;
    Status failure;
    if (!queue.messages.empty()) {
        failure = communicator.begin_messages(queue.messages);
        if (failure) queue.follow_messages();
        queue.messages.clear();
        if (!failure && communicator.dead()) return give_up(queue, queue.numbers, std::move(failure)), true;
        if (!failure) {
            // Only this rank refused the messages. The other ranks wait in the calls beside them.
            keep(queue, queue.numbers, failure);
            return queue.finish_messages(), true;
        }
    }
    const Progress progress = communicator.advance_messages();
    if (progress == Progress::failed) give_up(queue, queue.of_messages(), communicator.take_failure());
    if (progress == Progress::done) queue.finish_messages();
    return progress != Progress::blocked;
}

// True: something moved.
bool Batch::advance(CommQueue& queue) {
    bool moved = false;
    while (!queue.calls.empty()) {
        Status failure;
        Progress progress = Progress::blocked;
        const bool on_device = queue.calls.front().call.space == Space::device;
        if (on_device && !queue.begun && is_ahead(queue)) break;
        if (!queue.begun) failure = queue.begin();
        if (failure) progress = queue.calls.front().advance();
        if (failure && progress == Progress::failed) failure = queue.calls.front().take_failure();
        if (!failure && queue.calls.front().coalesced && !queue.communicator().dead()) {
            queue.take_apart();  // no algorithm takes so many bytes; all ranks find the same
        } else if (!failure) {
            give_up(queue, queue.of_first(), std::move(failure));
        } else if (progress == Progress::done) {
            if (Status ended = queue.finish(); !ended) give_up(queue, queue.of_first(), std::move(ended));
        } else {
            return moved || progress == Progress::moved;
        }
        moved = true;
        if (on_device) break;  // the other queues' turn
    }
    return moved;
}

// Whether the queue has launched more calls than another rank of this thread.
// A launch blocks if CUDA's queue is full of kernels that wait for other ranks' kernels, which this thread must launch.
// So the ranks of a thread launch in step, also if only some of them coalesce calls.
bool Batch::is_ahead(const CommQueue& queue) const {
    return std::any_of(queues_.begin(), queues_.end(), [&](const CommQueue& other) {
        return other.launched < queue.launched && !other.calls.empty() &&
               are_beside(other.communicator(), queue.communicator());
    });
}

// With several queues, no queue may sleep for long.
Status Batch::pause(CommQueue& queue) {
    const bool alone = queues_.size() == 1;
    // The queue waits until the other ranks of this thread have launched their calls.
    if (!queue.calls.empty() && !queue.begun) {
        if (Windows& windows = queue.communicator().calls().windows(); windows.any()) (void)windows.serve();
        return queue.exchanging ? queue.communicator().pause(false) : ok();
    }
    return queue.calls.empty() ? queue.communicator().pause(alone)
                               : queue.calls.front().pause(alone && !queue.exchanging);
}

// Calls of the queue's group that this thread would have made, but that were refused.
// A stream's thread counts only the calls that were refused when they were to begin.
std::vector<CallStatuses::Refused> Batch::refused_beside(const CommQueue& queue) const {
    std::vector<CallStatuses::Refused> all = refused_;
    if (!queue.turn) all.insert(all.end(), queue.statuses->refused().begin(), queue.statuses->refused().end());
    return all;
}

// Fails if the queue waits for a rank whose call of the same function was refused in this group.
// Only this thread would make that call. If another thread may drive that rank, and for messages, the deadline decides.
Status Batch::look_for_refused(const CommQueue& queue) const {
    if (!queue.statuses || queue.calls.empty() || !queue.begun) return ok();
    for (const CallStatuses::Refused& refused : refused_beside(queue)) {
        if (!check_handle(refused.handle)) continue;
        const auto theirs = std::find_if(queues_.begin(), queues_.end(),
                                         [&](const CommQueue& one) { return one.handle == refused.handle; });
        const bool ours = theirs != queues_.end();
        if (ours ? !theirs->done() : refused.handle->inside.load(std::memory_order_acquire) != 0) continue;
        const auto other = const_cast<weftComm*>(refused.handle)->share();
        if (!other || !refused.handle->turns.idle() || !waits_for_call_of(queue.communicator(), *other) ||
            !queue.statuses->of_one_function(refused.number, queue.of_first()[0]))
            continue;
        const char* sentence = nullptr;
        (void)queue.statuses->of(refused.number, sentence);
        return queue.communicator().die(fail(error::group_refused_call,
                                             "{} for rank {}, whose call was refused in this group: {}",
                                             text_of_wait(queue.communicator()), other->rank(), sentence));
    }
    return ok();
}

// At the deadline: adds a refused call that may be the cause.
Status Batch::name_refused(const CommQueue& queue, Status failure) const {
    if (!queue.statuses || failure.code() != weftTimeout) return failure;
    for (const CallStatuses::Refused& refused : refused_beside(queue)) {
        if (!check_handle(refused.handle)) continue;
        const auto other = const_cast<weftComm*>(refused.handle)->share();
        if (!other || !are_beside(*other, queue.communicator())) continue;
        const char* sentence = nullptr;
        (void)queue.statuses->of(refused.number, sentence);
        return fail(failure, "{}; a call of rank {} was refused in this group: {}", failure.sentence(), other->rank(),
                    sentence);
    }
    return failure;
}

// Removes queues that are done, so that other threads can use or end their communicators.
// The buffers of a dead communicator go back to the user when no rank of this thread moves data on it any more.
void Batch::let_go() {
    for (size_t i = queues_.size(); i-- > 0;) {
        const CommQueue& queue = queues_[i];
        if (!queue.done() || queue.serves()) continue;
        Communicator& communicator = queue.communicator();
        if (communicator.dead()) {
            if (std::any_of(queues_.begin(), queues_.end(), [&](const CommQueue& other) {
                    return !other.done() && are_beside(other.communicator(), communicator);
                }))
                continue;
            communicator.await_borrowers();
        }
        queues_.erase(queues_.begin() + ptrdiff_t(i));
    }
}

Status Batch::run() {
    // If an exception ends this, the other ranks get an error. The buffers go back to the user only when no rank of this
    // thread moves data any more.
    struct Ending {
        std::vector<CommQueue>& queues;
        ~Ending() {
            for (CommQueue& queue : queues)
                if (!queue.done()) queue.communicator().break_off();
            try {
                for (CommQueue& queue : queues) queue.communicator().await_borrowers();
            } catch (...) {  // out of memory for a warning
            }
        }
    };
    come_in();
    Ending ending{queues_};
    join();
    for (size_t left = queues_.size(); left > 0;) {
        bool moved = false;
        left = 0;
        for (CommQueue& queue : queues_) {
            if (queue.serves()) moved |= queue.communicator().calls().windows().serve();
            if (!queue.messages.empty() || queue.exchanging) moved |= exchange(queue);
            moved |= advance(queue);
            left += !queue.done();
        }
        let_go();
        if (moved) continue;
        // All queues are blocked: wait a little in each.
        for (CommQueue& queue : queues_)
            if (!queue.done()) {
                Status failure = pause(queue);
                if (failure) failure = look_for_refused(queue);
                if (!failure) give_up(queue, queue.of_blocked(), name_refused(queue, std::move(failure)));
            }
    }
    return std::move(first_);
}

}  // namespace weft::internal
