// worker.cpp: one process of a job under test: `fault_worker ID RANKS RANK STEP...` takes its steps in order. It writes
// a line for each call: its name, the code, the sentence. The steps are the functions below. The ID `make` is made
// here, and printed.
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/worker.hpp"
#include "tests/patience.hpp"

using namespace worker;

std::pair<void*, void*> worker::buffers(Worker& self, size_t bytes) {
    auto& pair = self.buffers[bytes];
    if (pair.first) return pair;
    for (void** buffer : {&pair.first, &pair.second}) {
        if (!self.shared)
            *buffer = malloc(bytes + 64);
        else if (weftHostAlloc(buffer, bytes + 64) != weftSuccess)
            abort();
        if (!*buffer) {
            tell("no memory of our own");
            _exit(0);
        }
    }
    return pair;
}

// One all-reduce of count elements; those of int32 and sum are looked at.
weftResult_t worker::reduce(Worker& self, size_t count, weftDataType_t type, weftRedOp_t op) {
    const auto [send, receive] = buffers(self, count * 8);
    const bool known = type == weftInt32 && op == weftSum;
    auto *in = static_cast<int*>(send), *out = static_cast<int*>(receive);
    if (known)
        for (size_t i = 0; i < count; ++i) in[i] = self.rank + 1 + int(i);
    else
        memset(send, 0, count * 8);
    const weftResult_t code = weftAllReduce(send, receive, count, type, op, self.comm, nullptr);
    for (size_t i = 0; known && code == weftSuccess && i < count; ++i)
        if (out[i] != self.ranks * (self.ranks + 1) / 2 + self.ranks * int(i)) {
            tell("wrong result at " + std::to_string(i));
            _exit(3);
        }
    return code;
}

namespace {

// send=COUNT,PEER[,TYPE], receive=COUNT,PEER[,TYPE]
void step_send(Worker& self, const Values& values) {
    const auto count = size_t(number(values, 0, 1));
    tell("send", weftSend(buffers(self, count * 8).first, count, weftDataType_t(number(values, 2, weftInt32)),
                          int(number(values, 1, 0)), self.comm, nullptr));
}
void step_receive(Worker& self, const Values& values) {
    const auto count = size_t(number(values, 0, 1));
    tell("receive", weftRecv(buffers(self, count * 8).second, count, weftDataType_t(number(values, 2, weftInt32)),
                             int(number(values, 1, 0)), self.comm, nullptr));
}
// reduce=COUNT[,TYPE[,OP]]
void step_reduce(Worker& self, const Values& values) {
    tell("reduce", reduce(self, size_t(number(values, 0, 1)), weftDataType_t(number(values, 1, weftInt32)),
                          weftRedOp_t(number(values, 2, weftSum))));
}
// loop=COUNT[,TIMES[,NAME]]: all-reduces, or others whose root is rank 1, until one fails, or so often
void step_loop(Worker& self, const Values& values) {
    weftResult_t code = weftSuccess;
    for (long times = number(values, 1, -1); code == weftSuccess && times != 0; --times)
        code = collective(self, values.size() > 2 ? values[2] : "all_reduce", size_t(number(values, 0, 1)), 1);
    tell("loop", code);
}
// init[=DEADLINE in ms]
void step_init(Worker& self, const Values& values) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.initTimeoutMs = number(values, 0, -1);
    if (self.comm) self.parents.push_back(self.comm);  // it stays
    tell("init", weftCommInitRankConfig(&self.comm, self.ranks, self.id, self.rank, &config));
}
void step_environment(Worker& self, const Values&) {
    tell("environment", weftCommInitFromEnvironment(&self.comm, nullptr));
}
// id=ID, or id=later: for the next init
void step_id(Worker& self, const Values& values) {
    self.id = values[0] == "later" ? self.later : weft::unique_id_from_text(values[0]);
}
void step_make_later(Worker& self, const Values&) {
    self.later = weft::make_unique_id();
    tell("later " + weft::to_text(self.later));
}
// as=RANK,RANKS: for the next init
void step_as(Worker& self, const Values& values) {
    self.rank = int(number(values, 0, 0));
    self.ranks = int(number(values, 1, 1));
}
// async=failed: waits for an error, which a rank of another host has perhaps not told yet.
void step_async(Worker& self, const Values& values) {
    weftResult_t error = weftSuccess, code = weftSuccess;
    const auto look = [&] {
        code = weftCommGetAsyncError(self.comm, &error);
        return values.empty() || code != weftSuccess || error != weftSuccess;
    };
    (void)weft::internal::test::eventually(look);
    tell("async " + std::to_string(code == weftSuccess ? error : code));
}
void step_destroy(Worker& self, const Values&) { tell("destroy", weftCommDestroy(self.comm)); }
void step_abort(Worker& self, const Values&) { tell("abort", weftCommAbort(self.comm)); }
void step_shared(Worker& self, const Values&) { self.shared = true; }
void step_say(Worker&, const Values& values) { tell(values[0]); }
sigset_t our_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGUSR2);
    return signals;
}
int await_signal() {
    const sigset_t signals = our_signals();
    int signal = 0;
    sigwait(&signals, &signal);
    return signal;
}
// SIGUSR1: goes on; SIGUSR2: leaves in order
void step_await(Worker& self, const Values&) {
    if (await_signal() == SIGUSR1) return;
    tell("leave", weftCommDestroy(self.comm));
    exit(0);
}
// function=COUNT[,RANK]: an all-reduce by a function, which on that rank does not return before SIGUSR1 comes
void step_function(Worker& self, const Values& values) {
    const auto sum = [](const void* left, const void* right, void* result, size_t count, weftDataType_t, void* waits) {
        if (*static_cast<bool*>(waits)) {
            tell("in the function");
            await_signal();
            *static_cast<bool*>(waits) = false;
        }
        for (size_t i = 0; i < count; ++i)
            static_cast<int*>(result)[i] = static_cast<const int*>(left)[i] + static_cast<const int*>(right)[i];
    };
    bool waits = number(values, 1, -1) == self.rank;
    weftRedOp_t op = weftSum;
    if (weftRedOpCreate(&op, sum, &waits, weftInt32, 1, self.comm) != weftSuccess) return tell("no reduction");
    tell("function", reduce(self, size_t(number(values, 0, 1)), weftInt32, op));
}
// A thread that aborts when SIGUSR1 comes.
void step_abort_on_signal(Worker& self, const Values&) {
    self.threads.emplace_back([&self] {
        await_signal();
        tell("abort", weftCommAbort(self.comm));
    });
}
void step_hold(Worker&, const Values&) {
    for (;;) pause();
}
void step_exit(Worker&, const Values&) { exit(0); }
void step_vanish(Worker&, const Values&) { _exit(0); }
// alloc=BYTES
void step_alloc(Worker&, const Values& values) {
    void* memory = nullptr;
    const weftResult_t code = weftHostAlloc(&memory, size_t(number(values, 0, 1)));
    if (memory) memset(memory, 1, size_t(number(values, 0, 1)));  // it is really there
    tell("alloc", code);
}
// limit=as|fsize|nofile,VALUE in MiB, KiB and files
void step_limit(Worker&, const Values& values) {
    const auto value = rlim_t(number(values, 1, 0));
    const rlimit limit = values[0] == "as"      ? rlimit{value << 20, RLIM_INFINITY}
                         : values[0] == "fsize" ? rlimit{value << 10, RLIM_INFINITY}
                                                : rlimit{value, value};  // which Weft would raise to the hard one
    const auto kind = values[0] == "as" ? RLIMIT_AS : values[0] == "fsize" ? RLIMIT_FSIZE : RLIMIT_NOFILE;
    rlimit old;
    if (getrlimit(kind, &old) != 0) abort();
    const rlimit lowered{limit.rlim_cur, std::min(limit.rlim_max, old.rlim_max)};
    if (setrlimit(kind, &lowered) != 0) abort();
}
void step_unique_id(Worker&, const Values&) {
    weftUniqueId id;
    tell("unique_id", weftGetUniqueId(&id));
}
// make_ids=N: ids that stay unused
void step_make_ids(Worker&, const Values& values) {
    weftUniqueId id;
    weftResult_t code = weftSuccess;
    for (long left = number(values, 0, 1); code == weftSuccess && left > 0; --left) code = weftGetUniqueId(&id);
    tell("make_ids", code);
}
// sleep=MS
void step_sleep(Worker&, const Values& values) { usleep(useconds_t(number(values, 0, 1)) * 1000); }
// The process's resources: descriptors, threads, mapped segments of Weft's.
std::vector<int> holdings() {
    const auto entries = [](const char* folder) {
        int count = 0;
        DIR* directory = opendir(folder);
        while (readdir(directory)) ++count;
        closedir(directory);
        return count;
    };
    int segments = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) segments += line.find("memfd:weft") != std::string::npos;
    return {entries("/proc/self/fd"), entries("/proc/self/task"), segments};
}
// holds[=DESCRIPTORS,THREADS,SEGMENTS]: as soon as it is no more than the first time and this, for what goes away takes
// its time; or after a minute
void step_holds(Worker& self, const Values& values) {
    std::vector<int> now = holdings();
    const auto too_much = [&] {
        bool more = false;
        for (size_t i = 0; i < values.size(); ++i) more |= now[i] > self.held[i] + number(values, i, 0);
        return more;
    };
    for (int round = 0; too_much() && round < 6000; ++round) {
        usleep(10'000);
        now = holdings();
    }
    if (self.held.empty()) self.held = now;
    tell("holds " + std::to_string(now[0]) + " " + std::to_string(now[1]) + " " + std::to_string(now[2]));
}
// churn=TIMES,COUNT: as often a communicator more, by an id that goes round over the first; a sum on it; its end
void step_churn(Worker& self, const Values& values) {
    weftResult_t code = weftSuccess;
    for (long left = number(values, 0, 1); code == weftSuccess && left > 0; --left) {
        weftUniqueId id{};
        if (self.rank == 0) code = weftGetUniqueId(&id);
        if (code == weftSuccess) code = weftAllReduce(&id, &id, sizeof id, weftUint8, weftSum, self.comm, nullptr);
        Worker other;
        other.ranks = self.ranks;
        other.rank = self.rank;
        if (code == weftSuccess) code = weftCommInitRank(&other.comm, self.ranks, id, self.rank);
        const long count = number(values, 1, 1);
        if (code == weftSuccess && count > 0) code = reduce(other, size_t(count), weftInt32, weftSum);
        const weftResult_t ended = weftCommDestroy(other.comm);
        if (code == weftSuccess) code = ended;
    }
    tell("churn", code);
}
// cross=ID,ID: both communicators in one group, in this order; then a sum on each, in one group too
void step_cross(Worker& self, const Values& values) {
    weftComm_t comms[2] = {};
    (void)weftGroupStart();
    for (int i = 0; i < 2; ++i)
        (void)weftCommInitRank(&comms[i], self.ranks, weft::unique_id_from_text(values[size_t(i)]), self.rank);
    tell("cross", weftGroupEnd());
    int sums[2] = {1, 1};
    (void)weftGroupStart();
    for (int i = 0; i < 2; ++i) (void)weftAllReduce(&sums[i], &sums[i], 1, weftInt32, weftSum, comms[i], nullptr);
    tell("sums", weftGroupEnd());
    tell("right " + std::to_string(sums[0] == self.ranks && sums[1] == self.ranks));
    for (weftComm_t comm : comms) tell("destroy", weftCommDestroy(comm));
}
// held_group=CALLS: a group of so many all-reduces, which ends when SIGUSR1 comes
void step_held_group(Worker& self, const Values& values) {
    std::vector<int> sums(size_t(number(values, 0, 1)), self.rank + 1);
    tell("start", weftGroupStart());
    for (int& sum : sums) (void)weftAllReduce(&sum, &sum, 1, weftInt32, weftSum, self.comm, nullptr);
    tell("held");
    await_signal();
    tell("group", weftGroupEnd());
}
// A group with a call in it, never ended.
void step_open_group(Worker& self, const Values&) {
    tell("group", weftGroupStart());
    tell("queued", reduce(self, 0, weftFloat32, weftSum));
    tell("destroy_inside", weftCommDestroy(self.comm));
}
// fork=exit|vanish|stay: the child tries the parent's communicator, then makes its own, and ends in that way, or when
// killed
void step_fork(Worker& self, const Values& values) {
    const pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        float value = 1;
        int count = 0;
        tell("child_reduce", weftAllReduce(&value, &value, 1, weftFloat32, weftSum, self.comm, nullptr));
        tell("child_count", weftCommCount(self.comm, &count));
        tell("child_abort", weftCommAbort(self.comm));
        tell("child_destroy", weftCommDestroy(self.comm));
        for (auto& [bytes, pair] : self.buffers)
            if (self.shared) tell("child_free", weftMemFree(pair.first));
        weftUniqueId id;
        weftComm_t own = nullptr;
        (void)weftGetUniqueId(&id);
        tell("child_init", weftCommInitRank(&own, 1, id, 0));
        tell("child_own_reduce", weftAllReduce(&value, &value, 1, weftFloat32, weftSum, own, nullptr));
        step_alloc(self, {"100000"});
        if (values[0] == "vanish") _exit(0);
        if (values[0] == "stay") step_hold(self, {});
        exit(0);
    }
    if (values[0] == "stay") return tell("child " + std::to_string(child));
    int status = 0;
    waitpid(child, &status, 0);
    tell("child_ended " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
}

// fork_busy=TIMES: children of a process whose other threads allocate, make streams, wait for a rank that never comes, and
// ask a launcher's store. Each child makes a communicator, the first asks for its launcher too.
void step_fork_busy(Worker& self, const Values& values) {
    std::atomic<bool> over{false};
    self.threads.emplace_back([&] {
        void* memory = nullptr;
        while (!over && weftHostAlloc(&memory, 4096) == weftSuccess && weftMemFree(memory) == weftSuccess) continue;
    });
    self.threads.emplace_back([&] {
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.initTimeoutMs = 200;
        weftComm_t comm = nullptr;
        while (!over) (void)weftCommInitRankConfig(&comm, self.ranks, self.id, self.rank, &config);
    });
    self.threads.emplace_back([&] { step_environment(self, {}); });
    weftHostStream_t kept = nullptr;
    (void)weftStreamCreate(&kept);
    for (const bool makes : {true, false})
        self.threads.emplace_back([&over, kept, makes] {
            weftHostStream_t stream = kept;
            while (!over)
                (void)(makes ? weftStreamCreate(&stream) == weftSuccess && weftStreamDestroy(stream) == weftSuccess
                             : weftStreamWait(kept, UINT64_MAX, -1) == weftSuccess);
        });
    usleep(300'000);
    std::map<int, int> ends;
    for (long count = 0, times = number(values, 0, 1); count < times; ++count) {
        const pid_t child = fork();
        if (child < 0) abort();
        if (child == 0) {
            alarm(50);  // a hang is the parent's to tell
            weftUniqueId id;
            weftComm_t own = nullptr;
            float value = 1;
            void* memory = nullptr;
            bool good = weftGetUniqueId(&id) == weftSuccess && weftCommInitRank(&own, 1, id, 0) == weftSuccess &&
                        weftAllReduce(&value, &value, 1, weftFloat32, weftSum, own, nullptr) == weftSuccess &&
                        weftHostAlloc(&memory, 4096) == weftSuccess && weftMemFree(memory) == weftSuccess;
            if (count == 0) good = good && weftCommInitFromEnvironment(&own, nullptr) == weftTimeout;
            weftHostStream_t stream = nullptr;
            good = good && weftStreamCreate(&stream) == weftSuccess && weftStreamDestroy(stream) == weftSuccess;
            if (!good) fprintf(stderr, "child %ld: %s\n", count, weftGetLastError(nullptr));
            if (count % 2 == 1) exit(good ? 0 : 1);
            _exit(good ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        ++ends[status];
    }
    over = true;
    for (std::thread& thread : self.threads) thread.join();
    self.threads.clear();
    std::string text = "fork_busy " + std::to_string(ends[0]);
    for (const auto& [end, times] : ends)
        if (end != 0) text += ", " + std::to_string(times) + " times wait status " + std::to_string(end);
    tell(text);
}

// fork_job=ID: a child makes that communicator with the other ranks' children, and ends in order
void step_fork_job(Worker& self, const Values& values) {
    const pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        self.comm = nullptr;
        self.id = weft::unique_id_from_text(values[0]);
        tell("child_init", weftCommInitRank(&self.comm, self.ranks, self.id, self.rank));
        tell("child_sum", reduce(self, 10'000, weftInt32, weftSum));
        tell("child_end", weftCommDestroy(self.comm));
        exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    tell("child_ended " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
}

const std::map<std::string, void (*)(Worker&, const Values&)> steps = {{"init", step_init},
                                                                       {"reduce", step_reduce},
                                                                       {"call", step_call},
                                                                       {"loop", step_loop},
                                                                       {"id", step_id},
                                                                       {"as", step_as},
                                                                       {"async", step_async},
                                                                       {"send", step_send},
                                                                       {"receive", step_receive},
                                                                       {"all_to_all_v", step_all_to_all_v},
                                                                       {"all_gather_v", step_all_gather_v},
                                                                       {"gather_v", step_gather_v},
                                                                       {"scatter_v", step_scatter_v},
                                                                       {"reduce_scatter_v", step_reduce_scatter_v},
                                                                       {"say", step_say},
                                                                       {"await", step_await},
                                                                       {"function", step_function},
                                                                       {"destroy", step_destroy},
                                                                       {"abort", step_abort},
                                                                       {"hold", step_hold},
                                                                       {"abort_on_signal", step_abort_on_signal},
                                                                       {"shared", step_shared},
                                                                       {"exit", step_exit},
                                                                       {"alloc", step_alloc},
                                                                       {"vanish", step_vanish},
                                                                       {"limit", step_limit},
                                                                       {"scarce", step_scarce},
                                                                       {"plenty", step_plenty},
                                                                       {"freeze", step_freeze},
                                                                       {"cross", step_cross},
                                                                       {"fork", step_fork},
                                                                       {"fork_busy", step_fork_busy},
                                                                       {"fork_job", step_fork_job},
                                                                       {"make_ids", step_make_ids},
                                                                       {"make_later", step_make_later},
                                                                       {"sleep", step_sleep},
                                                                       {"holds", step_holds},
                                                                       {"churn", step_churn},
                                                                       {"split", step_split},
                                                                       {"shrink", step_shrink},
                                                                       {"destroy_parent", step_destroy_parent},
                                                                       {"back", step_back},
                                                                       {"births", step_births},
                                                                       {"window", step_window},
                                                                       {"end_window", step_end_window},
                                                                       {"put", step_put},
                                                                       {"get", step_get},
                                                                       {"signal", step_signal},
                                                                       {"wait", step_wait},
                                                                       {"put_loop", step_put_loop},
                                                                       {"get_loop", step_get_loop},
                                                                       {"fork_window", step_fork_window},
                                                                       {"open_group", step_open_group},
                                                                       {"held_group", step_held_group},
                                                                       {"unique_id", step_unique_id},
                                                                       {"environment", step_environment}};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    const sigset_t signals = our_signals();
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    Worker self;
    if (std::string(argv[1]) == "make") {
        self.id = weft::make_unique_id();
        tell("id " + weft::to_text(self.id));
    } else {
        self.id = weft::unique_id_from_text(argv[1]);
    }
    self.ranks = atoi(argv[2]);
    self.rank = atoi(argv[3]);
    for (int i = 4; i < argc; ++i) {
        std::stringstream text(argv[i]);
        std::string name, value;
        std::getline(text, name, '=');
        Values values;
        while (std::getline(text, value, ',')) values.push_back(value);
        const auto step = steps.find(name);
        if (step == steps.end()) {
            tell("unknown step " + name);
            return 2;
        }
        step->second(self, values);
    }
    for (std::thread& thread : self.threads) thread.join();
    tell("end");
    return 0;
}
