// world.hpp: the fake driver's state of a process: setting, devices, handles; and the checks at the start of every
// call.
#pragma once
#include <cuda.h>

#include <atomic>
#include <climits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/fake_cuda/multiprocessors.hpp"

namespace weft::internal::fake {

struct Stream;
class Completion;
struct Event;
struct Graph;
struct Capture;
struct Executable;
struct UserObject;

struct Fault {
    std::string function;
    int call = 0;  // counted from when the fault was set; 0: every one
    int code = 0;
    int sleep_ms = 0;
    bool dies = false;
    int seen = 0;
};

struct NvLink {
    int device, link, remote;  // remote: -1 a switch, -2 it is down, -3 a switch that is hidden
};

struct Setting {
    int gpus = 2, version = 13000, sm = 90, multiprocessors = 16, queue = 1024, queues = 0, multicast = 2, imex = 1;
    size_t memory_bytes = size_t(4096) << 20;
    std::map<std::pair<int, int>, int> attributes;  // (device, number); device -1: all
    std::map<std::pair<int, int>, int> peers;       // 0 no, 1 yes, 2 lies; missing: yes
    std::map<int, unsigned> cliques;
    std::vector<NvLink> links;
    std::map<int, std::pair<int, int>> c2c;  // links and MB/s of each
    std::set<int> lost;                      // NVML lists them, and says no more
    std::vector<Fault> faults;
    std::set<std::string> syncs;        // functions that wait for the context's work
    std::map<std::string, int> stacks;  // bytes of a thread, by the beginning of a kernel's name
    int local_bytes = 1024;
    std::string slices;  // the file of processes that take turns; empty: they do not
    int slice_ms = 0;
    bool leaks_fatal = false;

    void read(const std::string& statements);
    int peer(int from, int to) const;
    int attribute(int device, int number, int standard) const;
    const unsigned* clique_of(int device) const;  // null: it is in no NVLink domain
    int stack(const std::string& kernel) const;
};

// A device's primary context, or another one: the handle is its address.
struct Context {
    int device = 0;
    int retained = 0;
    CUresult error = CUDA_SUCCESS;  // sticky, after a kernel's fault
    int local_bytes = 0;            // stack of a thread that there is room for; 0: what the setting says
    std::set<int> peers;            // devices whose cuMemAlloc memory it may reach
    std::shared_ptr<Stream> legacy;
    std::map<int, std::shared_ptr<Completion>> queues;  // by number: that the newest piece of work has left it
    std::vector<std::shared_ptr<Completion>> orphans;   // last work of streams that were destroyed while they had some
};

struct Device {
    Context context;
    size_t used_bytes = 0;
    std::unique_ptr<Multiprocessors> multiprocessors;
};

// One lock for all tables; never held while work runs.
struct World {
    std::recursive_mutex mutex;
    Setting setting;
    std::atomic<int> initialised_by{0};  // pid
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<std::unique_ptr<Context>> contexts;  // that are no device's primary one
    std::map<std::string, int> calls;
    int last_priority = INT_MIN, last_blocks = 0;
    std::map<CUstream, std::shared_ptr<Stream>> streams;
    std::vector<CUstream> spare_handles;  // of streams that were destroyed: the newest comes again first
    std::map<std::pair<std::thread::id, Context*>, std::shared_ptr<Stream>> per_thread;
    std::vector<std::shared_ptr<Completion>> workers;  // of all streams that there were: reset() waits for them
    std::map<CUevent, std::shared_ptr<Event>> events;
    std::map<CUgraph, std::shared_ptr<Graph>> graphs;
    std::map<CUgraphExec, std::shared_ptr<Executable>> executables;
    std::map<CUuserObject, std::shared_ptr<UserObject>> objects;
    std::set<std::shared_ptr<Capture>> captures;
    uint64_t next_id = 1;
    int destroyed_early = 0;  // streams
    int destroyed_uses = 0;   // of handles of destroyed streams
};
World& world();

// Of the calling thread.
struct ThreadState {
    std::vector<Context*> contexts;  // the last is current
    CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    bool in_callback = false;  // a host function may not call the driver
    uint64_t generation = 0;   // of the world that the contexts are of
};
ThreadState& this_thread();

// Counts the call, applies faults, and refuses what no call may do now.
CUresult enter(const char* function, bool before_init = false);
// The current context, usable.
CUresult current(Context*& context);
CUresult check_device(int device);

#define FAKE_ENTER(function) \
    if (const CUresult early = ::weft::internal::fake::enter("cu" #function); early != CUDA_SUCCESS) return early
#define FAKE_CURRENT(context)                           \
    ::weft::internal::fake::Context* context = nullptr; \
    if (const CUresult early = ::weft::internal::fake::current(context); early != CUDA_SUCCESS) return early

}  // namespace weft::internal::fake
