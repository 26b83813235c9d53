// worker.hpp: shared by the steps of a worker (worker.cpp): the process's rank and communicator, and its answers.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "weft/weft.hpp"

namespace worker {

using Values = std::vector<std::string>;

struct Worker {
    weftUniqueId id;
    weftUniqueId later{};  // for another communicator
    int ranks, rank;
    weftComm_t comm = nullptr;
    bool shared = false;  // buffers from weftHostAlloc
    std::vector<std::thread> threads;
    std::map<size_t, std::pair<void*, void*>> buffers;  // by bytes
    std::vector<int> held;                              // when first asked
    std::vector<weftComm_t> parents;                    // of comm, the nearest last
    weftWindow_t window = nullptr;                      // with one of the buffers

    Worker() = default;
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() {
        for (auto& [bytes, pair] : buffers)
            for (void* buffer : {pair.first, pair.second}) shared ? (void)weftMemFree(buffer) : free(buffer);
    }
};

inline void tell(const std::string& line) {
    const std::string text = line + "\n";
    if (write(1, text.data(), text.size()) != ssize_t(text.size())) abort();
}
inline void tell(const std::string& call, weftResult_t code) {
    tell(call + " " + std::to_string(code) + (code == weftSuccess ? "" : std::string(" ") + weftGetLastError(nullptr)));
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    if (code == weftSuccess || code == weftInProgress || weftGetLastErrorInfo(nullptr, &info) != weftSuccess) return;
    // As Job::error() reads it.
    tell("error." + call + " " + info.id + " " + std::to_string(info.failedRank) + " " + std::to_string(info.peer) +
         " " + (info.operation ? info.operation : "-") + " " + std::to_string(info.sequence));
}

inline long number(const Values& values, size_t index, long standard) {
    return index < values.size() ? atol(values[index].c_str()) : standard;
}

// One all-reduce of count elements; those of int32 and sum are looked at.
weftResult_t reduce(Worker& self, size_t count, weftDataType_t type, weftRedOp_t op);

// Two of so many bytes each, the same ones every time.
std::pair<void*, void*> buffers(Worker& self, size_t bytes);

// worker_collectives.cpp. One collective of `count` elements of four bytes; an int32 element is the sender's rank plus
// 1. The result of an int32 sum is checked.
weftResult_t collective(Worker& self, const std::string& name, size_t count, int root, weftDataType_t type = weftInt32,
                        weftRedOp_t op = weftSum);
void step_call(Worker& self, const Values& values);
void step_all_to_all_v(Worker& self, const Values& values);
void step_all_gather_v(Worker& self, const Values& values);
void step_gather_v(Worker& self, const Values& values);
void step_scatter_v(Worker& self, const Values& values);
void step_reduce_scatter_v(Worker& self, const Values& values);

// worker_windows.cpp: one-sided calls.
void step_window(Worker& self, const Values& values);
void step_end_window(Worker& self, const Values& values);
void step_put(Worker& self, const Values& values);
void step_get(Worker& self, const Values& values);
void step_signal(Worker& self, const Values& values);
void step_wait(Worker& self, const Values& values);
void step_put_loop(Worker& self, const Values& values);
void step_get_loop(Worker& self, const Values& values);
void step_fork_window(Worker& self, const Values& values);

// worker_memory.cpp: shared memory that cannot be had.
void step_scarce(Worker& self, const Values& values);
void step_plenty(Worker& self, const Values& values);
void step_freeze(Worker& self, const Values& values);

// worker_families.cpp: communicators made from the worker's.
void step_split(Worker& self, const Values& values);
void step_shrink(Worker& self, const Values& values);
void step_back(Worker& self, const Values& values);
void step_destroy_parent(Worker& self, const Values& values);
void step_births(Worker& self, const Values& values);

}  // namespace worker
