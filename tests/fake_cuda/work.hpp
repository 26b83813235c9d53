// work.hpp: the fake driver's streams, events and graphs: work in order, each stream in a thread of its own.
#pragma once
#include <cuda.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/fake_cuda/world.hpp"

namespace weft::internal::fake {

// That a piece of work has ended.
class Completion {
  public:
    void finish();
    void wait();
    bool done();
    int64_t time_ns();  // when it ended

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    int64_t time_ns_ = 0;
};
using Done = std::shared_ptr<Completion>;

// A stream's piece of work; on failure the context is lost.
using Run = std::function<CUresult()>;

struct Work {
    Run run;
    std::vector<Done> after;
    Done done;
    Done left;           // the hardware queue, after the work before it; null: there are no shared queues
    bool holds = false;  // leaves it only when done
};

struct Node {
    Run run;
    std::vector<size_t> after;  // indices of earlier nodes
    int branch;                 // nodes of a branch run in turn, branches at the same time
};

struct UserObject {
    void* value;
    CUhostFn destroy;
    ~UserObject() { destroy(value); }
    int references = 1;
};

struct Graph {
    std::vector<Node> nodes;
    std::vector<std::shared_ptr<UserObject>> retained;
    int branches = 0;
};

struct Executable {
    Graph graph;
    Done last;  // one launch at a time
    std::mutex mutex;
};
CUresult run_graph(const std::shared_ptr<Executable>& executable);

// A capture in progress. Under the world's lock.
struct Capture {
    uint64_t id;
    CUstreamCaptureMode mode;
    std::thread::id thread;
    Stream* origin;
    std::shared_ptr<Graph> graph;
    bool invalid = false;
    struct Member {
        std::vector<size_t> tips;  // what the stream's next node comes after
        int branch;
    };
    std::map<Stream*, Member> members;
    bool reaches(const std::vector<size_t>& from, size_t node) const;
};

struct Stream {
    Context* context;
    unsigned flags;
    int priority;
    uint64_t id = 0;  // nobody else's, ever
    bool per_thread = false;
    std::shared_ptr<Capture> capture;  // under the world's lock

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Work> queue;
    bool stopping = false;
    Done last;  // under the world's lock

    bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

// The stream of a handle: a stream's, or one of the special values. `context`: the current one.
CUresult find_stream(CUstream handle, Context* context, std::shared_ptr<Stream>& stream);
std::shared_ptr<Stream> make_stream(Context* context, unsigned flags, int priority);
// No more work comes; queued work is still done.
void stop_stream(const std::shared_ptr<Stream>& stream);

// Adds to the stream, or to the graph that it is captured into. `ended`: where the completion is left. `holds`: see Work.
CUresult enqueue(const std::shared_ptr<Stream>& stream, Run run, std::vector<Done> after = {}, Done* ended = nullptr,
                 bool holds = false);
// The outstanding work of all streams of the context, and of its threads.
std::vector<Done> outstanding(Context* context);
void wait_all(const std::vector<Done>& all);

// Refuses, and ends captures, where a call is not allowed during them.
CUresult check_unsafe();
CUresult check_not_captured(const std::shared_ptr<Stream>& stream);

// The part of an event that processes share.
struct SharedEvent {
    std::atomic<uint64_t> recorded, completed;
};

struct Event {
    Context* context;
    unsigned flags;
    Done last;  // null: never recorded
    std::shared_ptr<Capture> capture;
    size_t node = 0;        // of the graph, where it was recorded during a capture
    bool at_begin = false;  // before any node of its stream
    SharedEvent* shared = nullptr;
    int fd = -1;
    bool imported = false;
    ~Event();
};

}  // namespace weft::internal::fake
