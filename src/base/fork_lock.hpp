// fork_lock.hpp: a mutex that stays usable in a child of fork(), where the threads that may hold it do not exist.
#pragma once
#include <pthread.h>

#include <memory>

namespace weft::internal {

// The thread that forks holds `mutex` meanwhile. For a mutex of static storage, which protects something that a child goes
// on using. Other state is PerProcess. No thread may fork while it holds the mutex.
template <auto& mutex>
void hold_over_fork() {
    // In the child it is made anew: threads that were waiting for it are still counted, and would never take it.
    static const int registered =
        pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { std::construct_at(std::addressof(mutex)); });
    (void)registered;
}

}  // namespace weft::internal
