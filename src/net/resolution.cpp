#include "src/net/resolution.hpp"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace weft::net {

struct Resolution::Shared {
    std::mutex mutex;
    std::condition_variable there;
    std::optional<Result<std::vector<Address>>> found;

    void look_up(const std::string& host, uint16_t port, std::optional<int> family) noexcept {
        auto result = [&]() -> Result<std::vector<Address>> {
            try {
                return resolve(host, port, family);
            } catch (const std::exception& exception) {
                return fail(weftSystemError, "the name {} could not be resolved: {}", host, exception.what());
            }
        }();
        std::lock_guard lock(mutex);
        found = std::move(result);
        there.notify_one();
    }
};

Resolution::Resolution(const std::string& host, uint16_t port, std::optional<int> family)
    : shared_(std::make_shared<Shared>()) {
    if (const auto numeric = Address::parse(host); numeric && numeric->port() == 0) {
        shared_->look_up(host, port, family);
        return;
    }
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread thread([shared = shared_, host, port, family] { shared->look_up(host, port, family); });
        pthread_setname_np(thread.native_handle(), "weft-resolver");
        thread.detach();
    } catch (const std::system_error& error) {
        shared_->found = fail(weftSystemError, "the name {} could not be resolved: no thread: {}", host, error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::optional<Result<std::vector<Address>>> Resolution::take(int wait_ms) {
    std::unique_lock lock(shared_->mutex);
    const auto known = [this] { return shared_->found.has_value(); };
    if (wait_ms < 0) shared_->there.wait(lock, known);
    if (wait_ms > 0) shared_->there.wait_for(lock, std::chrono::milliseconds(wait_ms), known);
    return std::exchange(shared_->found, std::nullopt);
}

}  // namespace weft::net
