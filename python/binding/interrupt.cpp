#include "python/binding/interrupt.hpp"

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <new>

#include "python/binding/gil.hpp"

namespace nb = nanobind;

namespace weft::python {

namespace {

// The state of the process. It is never destroyed, because threads use it until the process ends.
struct State {
    std::mutex mutex;  // of `blocked`, for all but the signal handler
    std::atomic<Watch*> blocked{nullptr};
    std::atomic<unsigned> interrupts{0};  // SIGINT so far
    std::atomic<unsigned> calls{0};       // Watches so far
    bool has_thread = false;
    sem_t wake;
    struct sigaction below {};  // Python's handler
};
alignas(State) char storage[sizeof(State)];
State& state() { return *reinterpret_cast<State*>(storage); }

void on_interrupt(int number, siginfo_t* info, void* context) {
    State& shared = state();
    shared.interrupts.fetch_add(1);
    if (shared.blocked.load()) (void)sem_post(&shared.wake);
    if (shared.below.sa_flags & SA_SIGINFO)
        shared.below.sa_sigaction(number, info, context);
    else if (shared.below.sa_handler != SIG_IGN && shared.below.sa_handler != SIG_DFL)
        shared.below.sa_handler(number);
}

// Puts on_interrupt in front of Python's handler, if that is not so already and Python has one.
bool take_signal() {
    struct sigaction now {};
    if (sigaction(SIGINT, nullptr, &now) != 0) return false;
    if (now.sa_flags & SA_SIGINFO) {
        if (now.sa_sigaction == on_interrupt) return true;
    } else if (now.sa_handler == SIG_IGN || now.sa_handler == SIG_DFL) {
        return false;
    }
    state().below = now;
    struct sigaction ours = now;
    ours.sa_sigaction = on_interrupt;
    ours.sa_flags |= SA_SIGINFO;
    return sigaction(SIGINT, &ours, nullptr) == 0;
}

// Whether Python's handler of SIGINT is the one that raises KeyboardInterrupt.
bool default_handler() {
    const Locked gil;
    if (!gil) return false;
    try {
        const nb::module_ signals = nb::module_::import_("signal");
        return signals.attr("getsignal")(int(SIGINT)).is(signals.attr("default_int_handler"));
    } catch (nb::python_error&) {
        return true;
    }
}

void* abort_on_interrupt(void*) {
    State& shared = state();
    for (unsigned call = 0, interrupts = 0;;) {
        while (sem_wait(&shared.wake) != 0) {
        }
        if (!shared.blocked.load()) continue;
        interrupts = call == shared.calls.load() ? interrupts + 1 : 1;
        call = shared.calls.load();
        if (interrupts < 2 && !default_handler()) continue;
        // Watch::end() waits for this lock, so the objects live while they are aborted.
        const std::lock_guard lock(shared.mutex);
        if (Watch* const blocked = shared.blocked.load())
            for (Interruptible* const object : blocked->objects()) object->abort_quietly();
    }
    return nullptr;
}

void start_thread() {
    State& shared = state();
    if (shared.has_thread) return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    shared.has_thread = pthread_create(&thread, nullptr, abort_on_interrupt, nullptr) == 0;
    if (shared.has_thread) {
        (void)pthread_setname_np(thread, "weft-interrupt");
        (void)pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// In a child of fork() no thread of ours runs.
void reset_in_child() {
    const struct sigaction below = state().below;
    State* const fresh = new (storage) State;
    fresh->below = below;
    (void)sem_init(&fresh->wake, 0, 0);
}

}  // namespace

void prepare_interrupts() {
    State* const made = new (storage) State;
    (void)sem_init(&made->wake, 0, 0);
    (void)pthread_atfork(nullptr, nullptr, reset_in_child);
}

Watch::Watch(std::span<Interruptible* const> objects) : objects_(objects) {
    State& shared = state();
    if (!is_main_thread()) return;
    start_thread();
    if (!shared.has_thread || !take_signal()) return;
    before_ = shared.interrupts.load();
    shared.calls.fetch_add(1);
    outer_ = shared.blocked.load();  // only this thread stores it
    shared.blocked.store(this);
    watched_ = true;
    // A signal before the store did not wake our thread.
    if (PyErr_CheckSignals() != 0) {
        end();
        throw nb::python_error();
    }
}

void Watch::end() noexcept {
    if (!watched_) return;
    watched_ = false;
    State& shared = state();
    const std::lock_guard lock(shared.mutex);
    shared.blocked.store(outer_);
}

void Watch::raise_pending() {
    State& shared = state();
    if (!is_main_thread() || shared.interrupts.load() == before_) return;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace weft::python
