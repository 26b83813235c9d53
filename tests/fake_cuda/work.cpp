#include "tests/fake_cuda/work.hpp"

#include <time.h>

#include <algorithm>

namespace weft::internal::fake {

namespace {

int64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

void lose(Context* context, CUresult error) {
    std::lock_guard lock(world().mutex);
    if (context->error == CUDA_SUCCESS) context->error = error;
}

void serve(const std::shared_ptr<Stream>& stream) {
    for (;;) {
        Work work;
        {
            std::unique_lock lock(stream->mutex);
            stream->changed.wait(lock, [&] { return stream->stopping || !stream->queue.empty(); });
            if (stream->queue.empty()) return;
            work = std::move(stream->queue.front());
            stream->queue.pop_front();
            stream->changed.notify_all();  // whoever waits for room
        }
        wait_all(work.after);
        if (work.left && !work.holds) work.left->finish();
        if (const CUresult result = work.run(); result != CUDA_SUCCESS) lose(stream->context, result);
        work.run = nullptr;  // what it holds goes before anybody learns that it has ended
        work.done->finish();
        if (work.left && work.holds) work.left->finish();
    }
}

}  // namespace

void Completion::finish() {
    std::lock_guard lock(mutex_);
    done_ = true;
    time_ns_ = now_ns();
    changed_.notify_all();
}
void Completion::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
}
bool Completion::done() {
    std::lock_guard lock(mutex_);
    return done_;
}
int64_t Completion::time_ns() {
    std::lock_guard lock(mutex_);
    return time_ns_;
}

void wait_all(const std::vector<Done>& all) {
    for (const Done& each : all) each->wait();
}

std::shared_ptr<Stream> make_stream(Context* context, unsigned flags, int priority) {
    auto stream = std::make_shared<Stream>();
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    std::lock_guard lock(world().mutex);
    stream->id = world().next_id++;
    const Done ended = std::make_shared<Completion>();
    world().workers.push_back(ended);
    // Not joined: a process may end, or the stream be destroyed, while work hangs.
    std::thread([stream, ended] {
        serve(stream);
        ended->finish();
    }).detach();
    return stream;
}

void stop_stream(const std::shared_ptr<Stream>& stream) {
    std::lock_guard lock(stream->mutex);
    stream->stopping = true;
    stream->changed.notify_all();
}

CUresult find_stream(CUstream handle, Context* context, std::shared_ptr<Stream>& stream) {
    World& all = world();
    std::lock_guard lock(all.mutex);
    if (handle == nullptr || handle == CU_STREAM_LEGACY) {
        if (!context->legacy) context->legacy = make_stream(context, CU_STREAM_DEFAULT, 0);
        stream = context->legacy;
        return CUDA_SUCCESS;
    }
    if (handle == CU_STREAM_PER_THREAD) {
        auto& own = all.per_thread[{std::this_thread::get_id(), context}];
        if (!own) {
            own = make_stream(context, CU_STREAM_DEFAULT, 0);
            own->per_thread = true;
        }
        stream = own;
        return CUDA_SUCCESS;
    }
    const auto found = all.streams.find(handle);
    if (found == all.streams.end()) {
        all.destroyed_uses += std::count(all.spare_handles.begin(), all.spare_handles.end(), handle) > 0;
        return CUDA_ERROR_INVALID_HANDLE;
    }
    stream = found->second;
    return CUDA_SUCCESS;
}

std::vector<Done> outstanding(Context* context) {
    World& all = world();
    std::lock_guard lock(all.mutex);
    std::vector<Done> last;
    const auto add = [&](const std::shared_ptr<Stream>& stream) {
        if (stream && stream->context == context && stream->last) last.push_back(stream->last);
    };
    add(context->legacy);
    std::erase_if(context->orphans, [](const Done& work) { return work->done(); });
    last.insert(last.end(), context->orphans.begin(), context->orphans.end());
    for (const auto& [handle, stream] : all.streams) add(stream);
    for (const auto& [thread, stream] : all.per_thread) add(stream);
    return last;
}

// As the driver has it, where a queue is full.
static void await_room(Stream& stream) {
    size_t most;
    {
        std::lock_guard lock(world().mutex);
        most = size_t(world().setting.queue);
    }
    std::unique_lock lock(stream.mutex);
    stream.changed.wait(lock, [&] { return stream.queue.size() < most; });
}

CUresult enqueue(const std::shared_ptr<Stream>& stream, Run run, std::vector<Done> after, Done* ended, bool holds) {
    World& all = world();
    await_room(*stream);
    std::lock_guard lock(all.mutex);
    if (stream->context->error != CUDA_SUCCESS) return stream->context->error;
    if (const std::shared_ptr<Capture> capture = stream->capture) {
        if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        Capture::Member& member = capture->members[stream.get()];
        capture->graph->nodes.push_back({std::move(run), member.tips, member.branch});
        member.tips = {capture->graph->nodes.size() - 1};
        return CUDA_SUCCESS;
    }
    const bool legacy = stream == stream->context->legacy;
    const auto each_blocking = [&](auto visit) {
        for (const auto& [handle, other] : all.streams)
            if (other->context == stream->context && other->blocking()) visit(other);
        for (const auto& [thread, other] : all.per_thread)
            if (other->context == stream->context) visit(other);
    };
    if (legacy) {
        bool implicit = false;
        each_blocking([&](const std::shared_ptr<Stream>& other) {
            if (other->capture) other->capture->invalid = implicit = true;
            if (other->last) after.push_back(other->last);
        });
        if (implicit) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else if (stream->blocking() && stream->context->legacy && stream->context->legacy->last) {
        after.push_back(stream->context->legacy->last);
    }
    const Done done = std::make_shared<Completion>();
    stream->last = done;
    if (ended != nullptr) *ended = done;
    Done left;
    if (all.setting.queues > 0) {
        Done& newest = stream->context->queues[int(stream->id % uint64_t(all.setting.queues))];
        if (newest) after.push_back(newest);
        newest = left = std::make_shared<Completion>();
    }
    std::lock_guard stream_lock(stream->mutex);
    stream->queue.push_back({std::move(run), std::move(after), done, left, holds});
    stream->changed.notify_all();
    return CUDA_SUCCESS;
}

bool Capture::reaches(const std::vector<size_t>& from, size_t node) const {
    std::vector<size_t> open = from;
    std::set<size_t> seen;
    while (!open.empty()) {
        const size_t next = open.back();
        open.pop_back();
        if (next == node) return true;
        if (!seen.insert(next).second) continue;
        for (size_t before : graph->nodes[next].after) open.push_back(before);
    }
    return false;
}

CUresult check_unsafe() {
    World& all = world();
    std::lock_guard lock(all.mutex);
    const CUstreamCaptureMode mode = this_thread().capture_mode;
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (const auto& capture : all.captures) {
        const bool own =
            capture->thread == std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        const bool others = mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!own && !others) continue;
        capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult check_not_captured(const std::shared_ptr<Stream>& stream) {
    std::lock_guard lock(world().mutex);
    if (!stream->capture) return CUDA_SUCCESS;
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult run_graph(const std::shared_ptr<Executable>& executable) {
    const std::vector<Node>& nodes = executable->graph.nodes;
    std::vector<Done> done(nodes.size());
    for (Done& each : done) each = std::make_shared<Completion>();
    std::atomic<int> failed{CUDA_SUCCESS};
    const auto run_branch = [&](int branch) {
        for (size_t i = 0; i < nodes.size(); ++i) {
            if (nodes[i].branch != branch) continue;
            for (size_t before : nodes[i].after) done[before]->wait();
            if (failed.load() == CUDA_SUCCESS)
                if (const CUresult result = nodes[i].run(); result != CUDA_SUCCESS) failed.store(result);
            done[i]->finish();
        }
    };
    std::vector<std::thread> others;
    for (int branch = 1; branch < executable->graph.branches; ++branch) others.emplace_back(run_branch, branch);
    run_branch(0);
    for (std::thread& thread : others) thread.join();
    return CUresult(failed.load());
}

}  // namespace weft::internal::fake
