// worker_windows.cpp: steps of one-sided calls. The window is a buffer of int32, the same number on all ranks.
#include <sys/wait.h>

#include <algorithm>

#include "tests/faults/worker.hpp"

namespace worker {

namespace {

constexpr size_t elements = 500'000;  // of each part

int* part(Worker& self) { return static_cast<int*>(buffers(self, elements * sizeof(int)).second); }

// `count` elements that are the number of this rank from 1.
weftResult_t put(Worker& self, size_t count, int peer) {
    auto* in = static_cast<int*>(buffers(self, elements * sizeof(int)).first);
    std::fill_n(in, count, self.rank + 1);
    return weftPutSignal(in, count, weftInt32, peer, self.window, 0, 0, 0, 0, self.comm, nullptr);
}

weftResult_t wait(Worker& self, int peer, int signals) {
    const weftWaitSignalDesc_t what{signals, peer, 0, 0};
    return weftWaitSignal(1, &what, self.comm, nullptr);
}

}  // namespace

void step_window(Worker& self, const Values&) {
    tell("window", weftCommWindowRegister(self.comm, part(self), elements * sizeof(int), &self.window, 0));
}
void step_end_window(Worker& self, const Values&) {
    tell("end_window", weftCommWindowDeregister(self.comm, self.window));
}
// put=COUNT,PEER
void step_put(Worker& self, const Values& values) {
    tell("put", put(self, size_t(number(values, 0, 1)), int(number(values, 1, 0))));
}
// get=COUNT,PEER: and what the last one is
void step_get(Worker& self, const Values& values) {
    auto* out = static_cast<int*>(buffers(self, elements * sizeof(int)).first);
    const auto count = size_t(number(values, 0, 1));
    const weftResult_t code =
        weftGet(out, count, weftInt32, int(number(values, 1, 0)), self.window, 0, self.comm, nullptr);
    tell("get", code);
    if (code == weftSuccess) tell("got " + std::to_string(out[count - 1]));
}
// signal=PEER
void step_signal(Worker& self, const Values& values) {
    tell("signal", weftSignal(int(number(values, 0, 0)), 0, 0, 0, self.comm, nullptr));
}
// wait=PEER[,SIGNALS[,COUNT]]: and what the last of COUNT elements of our part is
void step_wait(Worker& self, const Values& values) {
    const weftResult_t code = wait(self, int(number(values, 0, 0)), int(number(values, 1, 1)));
    tell("wait", code);
    if (code == weftSuccess) tell("there " + std::to_string(part(self)[number(values, 2, 1) - 1]));
}
// put_loop=COUNT: puts to the next rank and waits for the one before, until something fails
void step_put_loop(Worker& self, const Values& values) {
    weftResult_t code = weftSuccess;
    for (long turns = 0; code == weftSuccess; ++turns) {
        if (turns == 20) tell("turns");
        code = put(self, size_t(number(values, 0, 1)), (self.rank + 1) % self.ranks);
        if (code == weftSuccess) code = wait(self, (self.rank + self.ranks - 1) % self.ranks, 1);
    }
    tell("loop", code);
}
// get_loop=PEER: polls the first element of the peer's part, until something fails
void step_get_loop(Worker& self, const Values& values) {
    auto* out = static_cast<int*>(buffers(self, elements * sizeof(int)).first);
    weftResult_t code = weftSuccess;
    for (long turns = 0; code == weftSuccess; ++turns) {
        if (turns == 20) tell("turns");
        code = weftGet(out, 1, weftInt32, int(number(values, 0, 0)), self.window, 0, self.comm, nullptr);
        usleep(1'000);
    }
    tell("get_loop", code);
}
// The error that a forked child gets.
void step_fork_window(Worker& self, const Values&) {
    const pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        weftWindow_t window = nullptr;
        tell("child_put", put(self, 1, 0));
        tell("child_wait", wait(self, 0, 1));
        tell("child_window", weftCommWindowRegister(self.comm, part(self), 4, &window, 0));
        tell("child_end_window", weftCommWindowDeregister(self.comm, self.window));
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    tell("child_ended " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
}

}  // namespace worker
