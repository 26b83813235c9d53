#include "python/binding/joining.hpp"

#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "python/binding/failure.hpp"
#include "python/binding/gil.hpp"

namespace weft::python {

namespace {

// The CUDA context of a thread that has the GIL, if the process has loaded the driver. It decides on the
// communicator's device.
class Context {
  public:
    Context() {
        // The library's option of this name.
        const nb::object named =
            nb::module_::import_("os").attr("environ").attr("get")("WEFT_CUDA_LIBRARY", "libcuda.so.1");
        void* const driver = dlopen(nb::str(named).c_str(), RTLD_LAZY | RTLD_NOLOAD);
        if (!driver) return;
        set_ = reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxSetCurrent"));
        const auto get = reinterpret_cast<int (*)(void**)>(dlsym(driver, "cuCtxGetCurrent"));
        if (!get || get(&context_) != 0) context_ = nullptr;
    }
    void use() const {
        if (context_ && set_) (void)set_(context_);
    }

  private:
    void* context_ = nullptr;
    int (*set_)(void*) = nullptr;
};

struct Joining {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    bool abandoned = false;
    std::vector<weftComm_t> handles;
    Failure failure;

    void run(const Context& context, const std::function<weftResult_t(weftComm_t**)>& make) {
        context.use();
        std::vector<weftComm_t*> places;
        for (weftComm_t& handle : handles) places.push_back(&handle);
        const weftResult_t result = make(places.data());
        const std::lock_guard lock(mutex);
        if (result != weftSuccess) failure = Failure::newest(result);
        if (abandoned)
            for (const weftComm_t handle : handles)
                if (handle) (void)weftCommAbort(handle);
        done = true;
        changed.notify_all();
    }
};

}  // namespace

std::vector<weftComm_t> join_interruptibly(size_t count, std::function<weftResult_t(weftComm_t**)> make) {
    const auto joining = std::make_shared<Joining>();
    joining->handles.resize(count);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
        std::thread([joining, make, context = Context()] { joining->run(context, make); }).detach();
    } catch (const std::system_error&) {
        started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!started) joining->run(Context(), make);

    // 50 ms: a person does not notice it, and a signal handler runs as often.
    for (bool done = false; !done;) {
        {
            const Unlocked gil_is_free;
            std::unique_lock lock(joining->mutex);
            done = joining->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return joining->done; });
        }
        if (!done && PyErr_CheckSignals() != 0) {
            nb::python_error raised;
            const std::lock_guard lock(joining->mutex);
            joining->abandoned = true;
            if (joining->done)
                for (const weftComm_t handle : joining->handles)
                    if (handle) (void)weftCommAbort(handle);
            throw raised;
        }
    }
    if (joining->failure.code != weftSuccess) raise(joining->failure, nb::handle());
    return joining->handles;
}

}  // namespace weft::python
