// api_graph.cpp: the fake driver: captures, and graphs that replay them.
#include "tests/fake_cuda/work.hpp"

using namespace weft::internal::fake;

namespace {

CUresult capturable(CUstream handle, std::shared_ptr<Stream>& stream) {
    FAKE_CURRENT(context);
    if (handle == nullptr || handle == CU_STREAM_LEGACY) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return find_stream(handle, context, stream);
}

// The capture is over for all its streams and events.
void forget(const std::shared_ptr<Capture>& capture) {
    for (const auto& [member, state] : capture->members) member->capture = nullptr;
    world().captures.erase(capture);
}

}  // namespace

extern "C" {

CUresult fake_stream_capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                  const CUgraphNode** nodes, size_t* node_count) {
    FAKE_ENTER(StreamGetCaptureInfo);
    FAKE_CURRENT(context);
    std::shared_ptr<Stream> stream;
    if (const CUresult early = find_stream(handle, context, stream); early != CUDA_SUCCESS) return early;
    std::lock_guard lock(world().mutex);
    if (stream == stream->context->legacy)
        for (const auto& capture : world().captures)
            for (const auto& [member, state] : capture->members)
                if (member->context == stream->context && member->blocking()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                         : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (id != nullptr) *id = stream->capture->id;
    if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(stream->capture->graph.get());
    if (nodes != nullptr) *nodes = nullptr;
    if (node_count != nullptr) *node_count = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
    FAKE_ENTER(StreamIsCapturing);
    return fake_stream_capture_info(handle, status, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
    FAKE_ENTER(StreamBeginCapture);
    std::shared_ptr<Stream> stream;
    if (const CUresult early = capturable(handle, stream); early != CUDA_SUCCESS) return early;
    std::lock_guard lock(world().mutex);
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    const auto capture = std::make_shared<Capture>();
    capture->id = world().next_id++;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream.get();
    capture->graph = std::make_shared<Graph>();
    capture->members[stream.get()] = {{}, capture->graph->branches++};
    stream->capture = capture;
    world().captures.insert(capture);
    // The user's objects can be retained by the graph from now on.
    world().graphs[reinterpret_cast<CUgraph>(capture->graph.get())] = capture->graph;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
    FAKE_ENTER(StreamEndCapture);
    *graph = nullptr;
    std::shared_ptr<Stream> stream;
    if (const CUresult early = capturable(handle, stream); early != CUDA_SUCCESS) return early;
    std::lock_guard lock(world().mutex);
    const auto capture = stream->capture;
    if (!capture || capture->origin != stream.get()) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    const std::vector<size_t>& ends = capture->members[stream.get()].tips;
    for (const auto& [member, state] : capture->members)
        for (size_t tip : state.tips)
            if (result == CUDA_SUCCESS && !capture->reaches(ends, tip)) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    forget(capture);
    const auto made = reinterpret_cast<CUgraph>(capture->graph.get());
    capture->graph = nullptr;  // events of the capture do not keep it
    if (result == CUDA_SUCCESS)
        *graph = made;
    else
        world().graphs.erase(made);
    return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    FAKE_ENTER(ThreadExchangeStreamCaptureMode);
    std::swap(*mode, this_thread().capture_mode);
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph, unsigned long long) {
    FAKE_ENTER(GraphInstantiateWithFlags);
    std::lock_guard lock(world().mutex);
    const auto found = world().graphs.find(graph);
    if (found == world().graphs.end()) return CUDA_ERROR_INVALID_VALUE;
    const auto executable = std::make_shared<Executable>();
    executable->graph = *found->second;
    *handle = reinterpret_cast<CUgraphExec>(executable.get());
    world().executables[*handle] = executable;
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    FAKE_ENTER(GraphLaunch);
    FAKE_CURRENT(context);
    std::shared_ptr<Stream> stream;
    if (const CUresult early = find_stream(stream_handle, context, stream); early != CUDA_SUCCESS) return early;
    std::lock_guard lock(world().mutex);
    const auto found = world().executables.find(handle);
    if (found == world().executables.end()) return CUDA_ERROR_INVALID_VALUE;
    const auto executable = found->second;
    std::vector<Done> after;
    if (executable->last) after.push_back(executable->last);
    return enqueue(
        stream, [executable] { return run_graph(executable); }, std::move(after), &executable->last);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
    FAKE_ENTER(GraphExecDestroy);
    std::lock_guard lock(world().mutex);
    return world().executables.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroy(CUgraph graph) {
    FAKE_ENTER(GraphDestroy);
    std::lock_guard lock(world().mutex);
    return world().graphs.erase(graph) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Its destructor runs when the last graph that retains it has gone and its launches have ended.
CUresult cuUserObjectCreate(CUuserObject* handle, void* value, CUhostFn destroy, unsigned references, unsigned flags) {
    FAKE_ENTER(UserObjectCreate);
    if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC || references != 1) return CUDA_ERROR_INVALID_VALUE;
    const auto object = std::make_shared<UserObject>();
    object->value = value;
    object->destroy = destroy;
    *handle = reinterpret_cast<CUuserObject>(object.get());
    std::lock_guard lock(world().mutex);
    world().objects[*handle] = object;
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject handle, unsigned count, unsigned flags) {
    FAKE_ENTER(GraphRetainUserObject);
    // Only so: the graph takes the caller's one reference.
    if (count != 1 || flags != CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(world().mutex);
    const auto object = world().objects.find(handle);
    const auto found = world().graphs.find(graph);
    if (object == world().objects.end() || found == world().graphs.end()) return CUDA_ERROR_INVALID_VALUE;
    found->second->retained.push_back(object->second);
    world().objects.erase(object);
    return CUDA_SUCCESS;
}

}  // extern "C"
