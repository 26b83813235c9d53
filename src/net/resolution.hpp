// resolution.hpp: asks the resolver without keeping anybody waiting: it may take as long as it likes, and cannot be
// interrupted, so it runs on a thread of its own, which is left alone when nobody wants to know any more.
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

// What `ask` answers, an exception included. Thread-bound.
template <class T>
class Question {
  public:
    // On this thread: what is known at once.
    explicit Question(Result<T> known) : shared_(std::make_shared<Shared>()) { shared_->answer = std::move(known); }
    // `what` for the sentence: the name node7 could not be resolved.
    Question(const std::string& what, std::function<Result<T>()> ask) : shared_(std::make_shared<Shared>()) {
        const auto failed = [what](const char* why) { return fail(weftSystemError, "{}: {}", what, why); };
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
    // Nothing yet; the answer, once. Waits for it, so long at most; below 0: without end.
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

// The addresses of a name. One in numbers is there at once, without a thread. `family` as resolve() has it.
using Resolution = Question<std::vector<Address>>;
Resolution look_up(const std::string& host, uint16_t port, std::optional<int> family = {});

// This host's full name, as its resolver has it; its short one, if it has no other.
Question<std::string> look_up_own_name();

}  // namespace weft::internal::net
