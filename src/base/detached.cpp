#include "src/base/detached.hpp"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>

namespace weft {

Status run_detached(const char* name, std::function<void()> function) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    Status status = ok();
    try {
        std::thread thread(std::move(function));
        pthread_setname_np(thread.native_handle(), name);
        thread.detach();
    } catch (const std::system_error& error) {
        status = fail(weftSystemError, "no thread: {}", error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return status;
}

}  // namespace weft
