#include "src/net/resolution.hpp"

#include <pthread.h>
#include <signal.h>

#include <mutex>
#include <system_error>
#include <thread>

namespace weft::net {

struct Resolution::Shared {
    std::mutex mutex;
    std::optional<Result<std::vector<Address>>> found;

    void look_up(const std::string& host, uint16_t port) noexcept {
        auto result = [&]() -> Result<std::vector<Address>> {
            try {
                return resolve(host, port);
            } catch (const std::exception& exception) {
                return fail(weftSystemError, "the name {} could not be resolved: {}", host, exception.what());
            }
        }();
        std::lock_guard lock(mutex);
        found = std::move(result);
    }
};

Resolution::Resolution(const std::string& host, uint16_t port) : shared_(std::make_shared<Shared>()) {
    if (Address::parse(host)) {
        shared_->look_up(host, port);
        return;
    }
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread thread([shared = shared_, host, port] { shared->look_up(host, port); });
        pthread_setname_np(thread.native_handle(), "weft-resolver");
        thread.detach();
    } catch (const std::system_error& error) {
        shared_->found = fail(weftSystemError, "the name {} could not be resolved: no thread: {}", host, error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::optional<Result<std::vector<Address>>> Resolution::take() {
    std::lock_guard lock(shared_->mutex);
    return std::exchange(shared_->found, std::nullopt);
}

}  // namespace weft::net
