#include "python/binding/gil.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace weft::python {

namespace {

// Sequentially consistent: a thread counts itself in `frames` and then reads `ending`; end_gil() does the reverse.
std::atomic<int> frames{0};
std::atomic<bool> ending{false};
std::atomic<pthread_t> main_thread{};

// Counts a frame, unless the thread must not take the GIL any more.
bool enter() {
    frames.fetch_add(1);
    if (!ending.load() || is_main_thread()) return true;
    frames.fetch_sub(1);
    return false;
}

// In a child of fork() the only thread is Python's main one.
void forget_frames_in_child() {
    frames.store(0);
    ending.store(false);
    main_thread.store(pthread_self());
}

}  // namespace

void prepare_gil(unsigned long thread) {
    static_assert(sizeof(pthread_t) == sizeof thread);
    main_thread.store(pthread_t(thread));
    (void)pthread_atfork(nullptr, nullptr, forget_frames_in_child);
}

bool is_main_thread() { return pthread_equal(pthread_self(), main_thread.load(std::memory_order_relaxed)) != 0; }

// Relaxed: the GIL orders it before end_gil().
Frame::Frame() { frames.fetch_add(1, std::memory_order_relaxed); }
Frame::~Frame() { frames.fetch_sub(1, std::memory_order_relaxed); }

Unlocked::Unlocked() {
    frames.fetch_sub(1, std::memory_order_relaxed);
    state_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
    while (!enter()) pause();
    PyEval_RestoreThread(state_);
}

Locked::Locked() : locked_(enter()) {
    if (locked_) state_ = PyGILState_Ensure();
}

Locked::~Locked() {
    if (!locked_) return;
    PyGILState_Release(state_);
    frames.fetch_sub(1);
}

void end_gil() {
    ending.store(true);
    const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (frames.load() > 0 && std::chrono::steady_clock::now() < last) {
        // With the GIL again, no thread has it, and only a frame could ask for it.
        PyThreadState* const state = PyEval_SaveThread();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        PyEval_RestoreThread(state);
    }
}

}  // namespace weft::python
