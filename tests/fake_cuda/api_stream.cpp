// api_stream.cpp: the fake driver: streams, their memory operations and host functions, events.
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake_cuda/memory.hpp"
#include "tests/fake_cuda/work.hpp"

using namespace weft::internal::fake;

namespace weft::internal::fake {

Event::~Event() {
    if (shared != nullptr) munmap(shared, 4096);
    if (fd >= 0) close(fd);
}

}  // namespace weft::internal::fake

namespace {

void nap() {
    const timespec little{0, 20'000};
    nanosleep(&little, nullptr);
}

// Of any stream, whichever context is current.
CUresult any_stream(CUstream handle, std::shared_ptr<Stream>& stream) {
    const bool special = handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    Context* context = nullptr;
    if (special)
        if (const CUresult early = current(context); early != CUDA_SUCCESS) return early;
    return find_stream(handle, context, stream);
}

#define FAKE_STREAM(stream, handle) \
    std::shared_ptr<Stream> stream; \
    if (const CUresult early = any_stream(handle, stream); early != CUDA_SUCCESS) return early

std::shared_ptr<Event> find_event(CUevent handle) {
    std::lock_guard lock(world().mutex);
    const auto found = world().events.find(handle);
    return found == world().events.end() ? nullptr : found->second;
}

template <class Word>
CUresult write_value(const std::shared_ptr<Stream>& stream, CUdeviceptr address, Word value) {
    bool pageable = false;
    if (const CUresult early = check_access(stream->context, uintptr_t(address), sizeof value, pageable);
        early != CUDA_SUCCESS)
        return early;
    if (pageable || address % sizeof value != 0) return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, [address, value] {
        std::atomic_ref<Word>(*reinterpret_cast<Word*>(address)).store(value, std::memory_order_release);
        return CUDA_SUCCESS;
    });
}

template <class Word, class Signed>
CUresult wait_value(const std::shared_ptr<Stream>& stream, CUdeviceptr address, Word value, unsigned flags) {
    bool pageable = false;
    if (const CUresult early = check_access(stream->context, uintptr_t(address), sizeof value, pageable);
        early != CUDA_SUCCESS)
        return early;
    if (pageable || address % sizeof value != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto run = [address, value, flags] {
        for (;; nap()) {
            const Word seen = std::atomic_ref<Word>(*reinterpret_cast<Word*>(address)).load(std::memory_order_acquire);
            const unsigned kind = flags & 3;
            if (kind == CU_STREAM_WAIT_VALUE_GEQ   ? Signed(seen - value) >= 0
                : kind == CU_STREAM_WAIT_VALUE_EQ  ? seen == value
                : kind == CU_STREAM_WAIT_VALUE_AND ? (seen & value) != 0
                                                   : Word(~(seen | value)) != 0)
                return CUDA_SUCCESS;
        }
    };
    return enqueue(stream, run, {}, nullptr, true);
}

}  // namespace

extern "C" {

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
    FAKE_ENTER(StreamCreateWithPriority);
    FAKE_CURRENT(context);
    if ((flags & ~unsigned(CU_STREAM_NON_BLOCKING)) != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto stream = make_stream(context, flags, priority);
    std::lock_guard lock(world().mutex);
    std::vector<CUstream>& spare = world().spare_handles;
    *handle = spare.empty() ? reinterpret_cast<CUstream>(uintptr_t(stream->id) << 12) : spare.back();
    if (!spare.empty()) spare.pop_back();
    world().streams[*handle] = stream;
    return CUDA_SUCCESS;
}

// Returns at once; queued work is still done.
CUresult cuStreamDestroy_v2(CUstream handle) {
    FAKE_ENTER(StreamDestroy);
    std::lock_guard lock(world().mutex);
    const auto found = world().streams.find(handle);
    if (found == world().streams.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (found->second->capture) found->second->capture->invalid = true;
    stop_stream(found->second);
    if (const Stream& gone = *found->second; gone.last && !gone.last->done()) {
        gone.context->orphans.push_back(gone.last);
        ++world().destroyed_early;
    }
    world().streams.erase(found);
    world().spare_handles.push_back(handle);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
    FAKE_ENTER(StreamQuery);
    FAKE_STREAM(stream, handle);
    if (const CUresult early = check_not_captured(stream); early != CUDA_SUCCESS) return early;
    std::lock_guard lock(world().mutex);
    if (stream->context->error != CUDA_SUCCESS) return stream->context->error;
    return !stream->last || stream->last->done() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream handle) {
    FAKE_ENTER(StreamSynchronize);
    FAKE_STREAM(stream, handle);
    if (const CUresult early = check_not_captured(stream); early != CUDA_SUCCESS) return early;
    std::vector<Done> last;
    {
        std::lock_guard lock(world().mutex);
        // The legacy stream stands for all blocking ones.
        if (stream == stream->context->legacy)
            for (const auto& [other_handle, other] : world().streams)
                if (other->context == stream->context && other->blocking() && other->last) last.push_back(other->last);
        if (stream->last) last.push_back(stream->last);
    }
    wait_all(last);
    std::lock_guard lock(world().mutex);
    return stream->context->error;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
    FAKE_ENTER(StreamGetCtx);
    FAKE_STREAM(stream, handle);
    *context = reinterpret_cast<CUcontext>(stream->context);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
    FAKE_ENTER(StreamGetId);
    FAKE_STREAM(stream, handle);
    *id = stream->id;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
    FAKE_ENTER(StreamGetFlags);
    FAKE_STREAM(stream, handle);
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
    FAKE_ENTER(StreamGetPriority);
    FAKE_STREAM(stream, handle);
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* value) {
    FAKE_ENTER(LaunchHostFunc);
    FAKE_STREAM(stream, handle);
    return enqueue(stream, [function, value] {
        this_thread().in_callback = true;
        function(value);
        this_thread().in_callback = false;
        return CUDA_SUCCESS;
    });
}

CUresult cuStreamWriteValue32(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned) {
    FAKE_ENTER(StreamWriteValue32);
    FAKE_STREAM(stream, handle);
    return write_value(stream, address, value);
}

CUresult cuStreamWriteValue64(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned) {
    FAKE_ENTER(StreamWriteValue64);
    FAKE_STREAM(stream, handle);
    return write_value(stream, address, value);
}

CUresult cuStreamWaitValue32(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    FAKE_ENTER(StreamWaitValue32);
    FAKE_STREAM(stream, handle);
    return wait_value<cuuint32_t, int32_t>(stream, address, value, flags);
}

CUresult cuStreamWaitValue64(CUstream handle, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    FAKE_ENTER(StreamWaitValue64);
    FAKE_STREAM(stream, handle);
    return wait_value<cuuint64_t, int64_t>(stream, address, value, flags);
}

CUresult cuStreamBatchMemOp(CUstream handle, unsigned count, CUstreamBatchMemOpParams* operations, unsigned flags) {
    FAKE_ENTER(StreamBatchMemOp);
    FAKE_STREAM(stream, handle);
    if (count > 255 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
        const auto& write = operations[i].writeValue;
        const auto& wait = operations[i].waitValue;
        CUresult result = CUDA_ERROR_INVALID_VALUE;
        switch (operations[i].operation) {
            case CU_STREAM_MEM_OP_WRITE_VALUE_32: result = write_value(stream, write.address, write.value); break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_64: result = write_value(stream, write.address, write.value64); break;
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
                result = wait_value<cuuint32_t, int32_t>(stream, wait.address, wait.value, wait.flags);
                break;
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                result = wait_value<cuuint64_t, int64_t>(stream, wait.address, wait.value64, wait.flags);
                break;
            case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            case CU_STREAM_MEM_OP_BARRIER: result = CUDA_SUCCESS; break;
            default: break;
        }
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
    FAKE_ENTER(EventCreate);
    FAKE_CURRENT(context);
    if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    const auto event = std::make_shared<Event>();
    event->context = context;
    event->flags = flags;
    if ((flags & CU_EVENT_INTERPROCESS) != 0) {
        event->fd = memfd_create("fake_cuda_event", MFD_CLOEXEC);
        if (event->fd < 0 || ftruncate(event->fd, 4096) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
        void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, event->fd, 0);
        if (page == MAP_FAILED) return CUDA_ERROR_OPERATING_SYSTEM;
        event->shared = static_cast<SharedEvent*>(page);
    }
    *handle = reinterpret_cast<CUevent>(event.get());
    std::lock_guard lock(world().mutex);
    world().events[*handle] = event;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
    FAKE_ENTER(EventDestroy);
    std::lock_guard lock(world().mutex);
    return world().events.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
    FAKE_ENTER(EventRecord);
    FAKE_STREAM(stream, stream_handle);
    const auto event = find_event(handle);
    if (!event || event->context != stream->context || event->imported) return CUDA_ERROR_INVALID_HANDLE;
    std::lock_guard lock(world().mutex);
    if (stream->capture) {
        if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        // A node of its own, so that one event stands for all that the stream's next node comes after.
        Capture::Member& member = stream->capture->members[stream.get()];
        stream->capture->graph->nodes.push_back({[] { return CUDA_SUCCESS; }, member.tips, member.branch});
        member.tips = {stream->capture->graph->nodes.size() - 1};
        event->capture = stream->capture;
        event->node = member.tips.front();
        return CUDA_SUCCESS;
    }
    event->capture = nullptr;
    SharedEvent* shared = event->shared;
    const uint64_t number = shared != nullptr ? shared->recorded.load() + 1 : 0;
    // The event lives in the closure: destroying it is allowed while it is recorded.
    const CUresult result = enqueue(
        stream,
        [event, shared, number] {
            if (shared != nullptr) shared->completed.store(number);
            return CUDA_SUCCESS;
        },
        {}, &event->last, true);
    if (result == CUDA_SUCCESS && shared != nullptr) shared->recorded.store(number);
    return result;
}

CUresult cuEventQuery(CUevent handle) {
    FAKE_ENTER(EventQuery);
    const auto event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    std::lock_guard lock(world().mutex);
    if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
    if (event->context->error != CUDA_SUCCESS) return event->context->error;
    if (event->imported)
        return event->shared->completed.load() >= event->shared->recorded.load() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    return !event->last || event->last->done() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) {
    FAKE_ENTER(EventSynchronize);
    const auto event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    Done last;
    {
        std::lock_guard lock(world().mutex);
        if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
        last = event->last;
    }
    if (event->imported) {
        const uint64_t number = event->shared->recorded.load();
        while (event->shared->completed.load() < number) nap();
    } else if (last) {
        last->wait();
    }
    std::lock_guard lock(world().mutex);
    return event->context->error;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
    FAKE_ENTER(EventElapsedTime);
    const auto one = find_event(from), other = find_event(to);
    if (!one || !other || ((one->flags | other->flags) & CU_EVENT_DISABLE_TIMING) != 0 || !one->last || !other->last)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!one->last->done() || !other->last->done()) return CUDA_ERROR_NOT_READY;
    *milliseconds = float(other->last->time_ns() - one->last->time_ns()) * 1e-6f;
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned) {
    FAKE_ENTER(StreamWaitEvent);
    FAKE_STREAM(stream, stream_handle);
    const auto event = find_event(handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    std::lock_guard lock(world().mutex);
    if (event->capture) {
        const auto capture = event->capture;
        if (stream->capture && stream->capture != capture) {
            stream->capture->invalid = capture->invalid = true;
            return CUDA_ERROR_STREAM_CAPTURE_MERGE;
        }
        if (!stream->capture) {
            // The stream joins the capture.
            if (world().captures.count(capture) == 0) return CUDA_ERROR_INVALID_VALUE;
            stream->capture = capture;
            capture->members[stream.get()] = {{}, capture->graph->branches++};
        }
        capture->members[stream.get()].tips.push_back(event->node);
        return CUDA_SUCCESS;
    }
    if (stream->capture) {
        // Work from outside cannot be part of the graph.
        if (!event->last && !event->imported) return CUDA_SUCCESS;
        stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (event->imported) {
        const uint64_t number = event->shared->recorded.load();
        return enqueue(
            stream,
            [event, number] {
                while (event->shared->completed.load() < number) nap();
                return CUDA_SUCCESS;
            },
            {}, nullptr, true);
    }
    if (!event->last) return CUDA_SUCCESS;
    return enqueue(
        stream, [] { return CUDA_SUCCESS; }, {event->last}, nullptr, true);
}

}  // extern "C"
