#include "process.hpp"

#include <pthread.h>

#include <atomic>

namespace weft_torch {

namespace {
std::atomic<unsigned> forks{0};  // in the line of processes down to this one
}

void watch_forks() {
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
}

Origin::Origin() : forks_(forks.load(std::memory_order_relaxed)) {}

bool Origin::is_forked() const { return forks_ != forks.load(std::memory_order_relaxed); }

}  // namespace weft_torch
