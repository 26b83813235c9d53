// resolution.hpp: asks the resolver without blocking the caller. The resolver has no deadline and cannot be interrupted,
// so it runs on a thread of its own, which the caller may abandon.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/base/thread.hpp"
#include "src/net/address.hpp"

namespace weft::internal::net {

// The answer of `ask`, which runs on another thread; an exception becomes a failure. Thread-bound.
template <class T>
class Question {
  public:
    // With a known answer.
    explicit Question(Result<T> known) : shared_(std::make_shared<Shared>()) { shared_->answer = std::move(known); }
    // `what`: the beginning of the sentence of a failure, such as "the name node7 could not be resolved".
    Question(const std::string& what, std::function<Result<T>()> ask) : shared_(std::make_shared<Shared>()) {
        const auto failed = [what](const char* why) { return fail(error::tcp_resolver, "{}: {}", what, why); };
        const Status started = run_detached("weft-resolver", [shared = shared_, ask = std::move(ask), failed] {
            Result<T> answer = [&]() -> Result<T> {
                try {
                    return ask();
                } catch (const std::exception& exception) {
                    return failed(exception.what());
                }
            }();
            std::lock_guard lock(shared->mutex);
            shared->answer = std::move(answer);
            shared->there.notify_one();
        });
        if (!started) shared_->answer = failed(started.sentence().c_str());
    }
    // Nothing yet; the answer, once. Waits for at most `wait_ms`; below 0: without a limit.
    std::optional<Result<T>> take(int wait_ms = 0) {
        std::unique_lock lock(shared_->mutex);
        const auto known = [this] { return shared_->answer.has_value(); };
        if (wait_ms < 0) shared_->there.wait(lock, known);
        if (wait_ms > 0) shared_->there.wait_for(lock, std::chrono::milliseconds(wait_ms), known);
        return std::exchange(shared_->answer, std::nullopt);
    }

  private:
    struct Shared {
        std::mutex mutex;
        std::condition_variable there;
        std::optional<Result<T>> answer;
    };
    std::shared_ptr<Shared> shared_;  // with the thread
};

// The addresses of a name. A numeric address needs no thread. `family`: as in resolve().
using Resolution = Question<std::vector<Address>>;
Resolution look_up(const std::string& host, uint16_t port, std::optional<int> family = {});

// This host's full name by its resolver, or its short name if there is no other.
Question<std::string> look_up_own_name();

}  // namespace weft::internal::net
