#include "src/calls/dispatch.hpp"

#include <algorithm>

#include "src/calls/batch.hpp"

namespace weft::internal {

namespace {

// The destination of a call: a weftHostStream_t; the handle, which stands for the communicator's own stream; or null if
// the calling thread executes the call.
const void* destination(const weftComm* handle, const Call& call) {
    if (call.queued) return call.stream;
    return is_queued(handle, call) ? handle : nullptr;
}

Result<std::shared_ptr<HostStream>> stream_of(const weftComm* handle, const Call& call) {
    if (call.queued) return host_stream(call.stream);
    return is_queued(handle, call) ? handle->own_stream : nullptr;
}

void enqueue(HostStream& stream, std::vector<CommQueue> queues) {
    auto batch = std::make_shared<Batch>(std::move(queues));
    stream.enqueue([batch] { return batch->run(); });
}

}  // namespace

bool goes_with(const QueuedCall& one, const QueuedCall& other) {
    return destination(one.handle, one.call) == destination(other.handle, other.call);
}

Status dispatch(std::vector<QueuedCall> calls, const std::shared_ptr<CallStatuses>& statuses) {
    struct Part {
        std::shared_ptr<HostStream> stream;
        std::vector<CommQueue> queues;
    };
    std::vector<Part> parts;
    std::vector<std::unique_ptr<Entered>> held;  // of communicators whose calls go to streams, until they are there
    Status first;
    bool waits = false;
    // The queue of each communicator's calls; no queue if the communicator refuses them.
    struct Home {
        weftComm* handle;
        size_t part = SIZE_MAX, queue = SIZE_MAX;
        Status refusal = {};
    };
    const auto refuse = [&](const QueuedCall& queued, Status refusal) {
        if (statuses) refusal = statuses->fail(queued.number, queued.handle, refusal);
        queued.handle->keep_error(refusal);
        if (first) first = std::move(refusal);
    };
    std::vector<Home> homes;
    for (QueuedCall& queued : calls) {
        auto home =
            std::find_if(homes.begin(), homes.end(), [&](const Home& other) { return other.handle == queued.handle; });
        if (home == homes.end()) {
            home = homes.insert(homes.end(), Home{queued.handle});
            Status usable = check_handle(queued.handle);
            auto entered = usable ? std::make_unique<Entered>(queued.handle) : nullptr;
            if (entered && !entered->entered()) usable = entered->refused();
            if (usable) queued.handle->communicator->context().release_calls();
            auto stream = usable ? stream_of(queued.handle, queued.call) : Result<std::shared_ptr<HostStream>>(nullptr);
            if (!stream) usable = stream.take_status();
            if (!usable) {
                refuse(queued, usable.copy());
                home->refusal = std::move(usable);
                continue;
            }
            auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.stream == *stream; });
            if (part == parts.end()) part = parts.insert(parts.end(), Part{*stream, {}});
            home->part = size_t(part - parts.begin());
            home->queue = part->queues.size();
            part->queues.push_back({.handle = queued.handle, .statuses = statuses});
            (*stream ? held.emplace_back() : part->queues.back().entered) = std::move(entered);
        }
        if (home->part == SIZE_MAX) {
            if (statuses) (void)statuses->fail(queued.number, queued.handle, home->refusal);
            continue;
        }
        CommQueue& queue = parts[home->part].queues[home->queue];
        // If calls stand before it in the group, they still execute.
        if (queued.async_operation && queue.calls.empty() && queue.messages.empty()) queued.async_operation->announce();
        queue.add(std::move(queued));
    }
    for (Part& part : parts) {
        if (!part.stream) continue;
        for (CommQueue& queue : part.queues) {
            queue.turn = std::make_unique<Turn>(queue.handle->turns);
            waits |= part.stream == queue.handle->own_stream;
        }
        enqueue(*part.stream, std::move(part.queues));
    }
    held.clear();
    for (Part& part : parts)
        if (!part.stream)
            if (Status done = Batch(std::move(part.queues)).run(); !done && first) first = std::move(done);
    if (!first) return first;
    return waits ? in_progress() : ok();
}

Status enqueue(weftComm* handle, std::span<const Call> calls) {
    const Call& first = calls[0];
    auto stream = stream_of(handle, first);
    if (!stream) return stream.take_status();
    std::vector<CommQueue> queues;
    queues.push_back({.handle = handle, .turn = std::make_unique<Turn>(handle->turns)});
    for (const Call& call : calls) queues.back().add(QueuedCall(handle, call));
    enqueue(**stream, std::move(queues));
    return first.queued ? ok() : in_progress();
}

Status dispatch(weftComm* handle, std::function<Status()> work) {
    auto turn = std::make_shared<Turn>(handle->turns);
    handle->own_stream->enqueue([handle, turn = std::move(turn), work = std::move(work)]() -> Status {
        turn->await();
        if (!turn->begin()) return check_handle(handle);
        Status done = work();
        if (!done) handle->keep_error(done);
        return done;
    });
    return in_progress();
}

Status dispatch(std::vector<Joining> joinings, const std::shared_ptr<CallStatuses>& statuses) {
    std::vector<Joining> here;
    bool waits = false;
    for (Joining& joining : joinings) {
        if (!joining.handle) {
            here.push_back(std::move(joining));
            continue;
        }
        waits = true;
        auto alone = std::make_shared<std::vector<Joining>>();
        HostStream& stream = *joining.handle->own_stream;
        alone->push_back(std::move(joining));
        stream.enqueue([alone, statuses] { return join(std::move(*alone), statuses.get()); });
    }
    WEFT_TRY(join(std::move(here), statuses.get()));
    return waits ? in_progress() : ok();
}

}  // namespace weft::internal
