#include "src/calls/comm_queue.hpp"

#include <algorithm>

namespace weft::internal {

namespace {

void add_numbers(const QueuedCall& queued, std::vector<size_t>& all) {
    if (!queued.coalesced) return all.push_back(queued.number);
    for (const QueuedCall& each : queued.coalesced->calls()) all.push_back(each.number);
}

Status left_out(const Status& failure) {
    return fail(failure, "not carried out, for another failed: {}", failure.sentence());
}

}  // namespace

void CommQueue::add(QueuedCall queued) {
    if (queued.async_operation || !queued.call.is_message()) return calls.push_back(std::move(queued));
    messages.push_back(queued.call);
    numbers.push_back(queued.number);
}

Status CommQueue::begin() {
    QueuedCall& first = calls.front();
    begun = true;
    if (first.call.space == Space::device && !first.call.is_access())
        launched += first.coalesced ? first.coalesced->calls().size() : 1;
    if (first.coalesced && first.coalesced->on_device()) return first.coalesced->begin_on_device();
    if (first.coalesced) first.coalesced->gather(first.call);
    return first.begin();
}

Status CommQueue::finish() {
    const QueuedCall& first = calls.front();
    WEFT_TRY(first.end());
    if (first.coalesced && !first.coalesced->scatter()) return take_apart(), ok();
    if (statuses && first.coalesced) statuses->all_done(first.coalesced->calls());
    if (statuses && !first.coalesced) statuses->done(first.number);
    calls.pop_front();
    begun = false;
    return ok();
}

void CommQueue::take_apart() {
    const std::shared_ptr<CoalescedCalls> coalesced = calls.front().coalesced;
    std::vector<QueuedCall>& all = coalesced->calls();
    if (coalesced->on_device()) launched -= all.size();  // each call will count by itself
    all.reserve(all.size() + calls.size());
    calls.pop_front();
    begun = false;
    for (QueuedCall& later : calls) all.push_back(std::move(later));
    calls.put(std::move(all));
}

void CommQueue::follow_messages() {
    size_t kept = 0;
    for (size_t i = 0; i < numbers.size(); ++i)
        if (messages[i].space == Space::host)
            numbers[kept++] = numbers[i];
        else if (statuses)
            statuses->done(numbers[i]);
    numbers.resize(kept);
}

void CommQueue::finish_messages() {
    exchanging = false;
    if (statuses) statuses->done(numbers);
    numbers.clear();
}

std::vector<size_t> CommQueue::of_first() const {
    std::vector<size_t> all;
    add_numbers(calls.front(), all);
    return all;
}

std::vector<size_t> CommQueue::of_calls() const {
    std::vector<size_t> all;
    for (const QueuedCall& queued : calls) add_numbers(queued, all);
    return all;
}

std::vector<size_t> CommQueue::of_messages() const {
    if (!exchanging || !messages.empty()) return numbers;
    std::vector<size_t> all;
    for (const size_t place : communicator().calls().messages().unfinished())
        if (place < numbers.size()) all.push_back(numbers[place]);
    return all;
}

std::vector<size_t> CommQueue::of_blocked() const {
    return calls.empty() || communicator().calls().messages().in_trouble() ? of_messages() : of_first();
}

void CommQueue::skip(const Status& failure) {
    const bool access = calls.front().call.is_access();
    calls.pop_front();
    if (!access) return;
    for (const QueuedCall& queued : calls)
        if (queued.call.is_access() && statuses) (void)statuses->fail(queued.number, handle, left_out(failure));
    std::vector<QueuedCall> others = calls.take();
    std::erase_if(others, [](const QueuedCall& queued) { return queued.call.is_access(); });
    calls.put(std::move(others));
}

void CommQueue::drop(const Status& failure) {
    const bool dead = communicator().dead();
    if (statuses) (void)statuses->fail(of_calls(), handle, left_out(failure));
    if (statuses && dead) {
        const std::vector<size_t> broken = of_messages();
        (void)statuses->fail(broken, handle, left_out(failure));
        for (const size_t number : numbers)
            if (std::find(broken.begin(), broken.end(), number) == broken.end()) statuses->done(number);
    }
    calls.clear();
    if (!dead) return;
    messages.clear();
    numbers.clear();
    exchanging = false;
}

void CommQueue::abandon() noexcept {
    if (!statuses) return;
    for (const QueuedCall& queued : calls) {
        if (!queued.coalesced)
            statuses->mark_unknown({&queued.number, 1});
        else
            for (const QueuedCall& each : queued.coalesced->calls()) statuses->mark_unknown({&each.number, 1});
    }
    statuses->mark_unknown(numbers);
}

}  // namespace weft::internal
