#include "src/base/thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <sstream>
#include <system_error>

#include "src/base/cancellation.hpp"
#include "src/base/file.hpp"
#include "src/base/float_mode.hpp"
#include "src/base/process_token.hpp"

namespace weft::internal {

static Result<std::thread> start(const char* name, std::function<void()> function) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread;
    std::string why;
    try {
        // A thread inherits the floating-point mode of the thread that starts it.
        thread = std::thread([function = std::move(function)] {
            const CancelHeld held;
            FloatMode::keep();
            function();
        });
        pthread_setname_np(thread.native_handle(), name);
    } catch (const std::system_error& error) {
        why = error.what();
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!thread.joinable()) return fail(error::system_thread, "thread {} could not be started: {}", name, why);
    return thread;
}

Status run_detached(const char* name, std::function<void()> function) {
    auto thread = start(name, std::move(function));
    if (!thread) return thread.take_status();
    thread->detach();
    return ok();
}

int64_t processor_wait_us() {
    std::istringstream file(system_file("/proc/thread-self/schedstat"));
    int64_t run_ns = 0, wait_ns = 0;
    return file >> run_ns >> wait_ns ? wait_ns / 1000 : 0;
}

Result<OwnedThread> OwnedThread::start(const char* name, std::function<void()> function) {
    auto thread = weft::internal::start(name, std::move(function));
    if (!thread) return thread.take_status();
    OwnedThread owned;
    owned.process_ = process_token();
    owned.thread_.reset(new std::thread(std::move(*thread)));
    return owned;
}

bool OwnedThread::runs_here() const { return thread_ && process_ == process_token(); }

void OwnedThread::end() {
    if (is_current())
        thread_->detach();
    else
        thread_->join();
    delete thread_.release();
}

}  // namespace weft::internal
