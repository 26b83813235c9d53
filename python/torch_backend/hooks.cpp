#include "hooks.hpp"

#include <ATen/core/ivalue.h>

#include "failure.hpp"

namespace weft_torch {

namespace {

// A failure of the group. A wrong argument leaves the group as it was.
bool is_failure(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const c10::DistError&) {
        return true;
    } catch (...) {
        return false;
    }
}

// A hook that throws must not change what the operation returns.
template <class Call>
void shielded(const char* what, const Call& call) {
    try {
        call();
    } catch (const c10::Error& error) {
        TORCH_WARN("weft: ", what, " threw: ", error.what_without_backtrace());
    } catch (const std::exception& error) {
        TORCH_WARN("weft: ", what, " threw: ", error.what());
    }
}

}  // namespace

uint64_t next_key() {
    static std::atomic<uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::shared_ptr<const Hooks::Table> Hooks::table() const {
    std::lock_guard lock(mutex_);
    return table_;
}

void Hooks::change(const std::function<void(Table&)>& by) {
    std::shared_ptr<const Table> old;  // destroyed without the lock: a hook may belong to Python
    std::lock_guard lock(mutex_);
    auto changed = std::make_shared<Table>(*table_);
    by(*changed);
    const bool of_success = !changed->completions.empty() || changed->end;
    any_of_success_.store(of_success, std::memory_order_release);
    any_.store(of_success || !changed->aborts.empty(), std::memory_order_release);
    old = std::exchange(table_, std::move(changed));
}

void Hooks::set_abort(int64_t id, AbortHook hook) {
    change([&](Table& table) {
        table.aborts.erase(id);
        if (hook) table.aborts.emplace(id, std::move(hook));
    });
}

void Hooks::set_completion(int64_t id, CompletionHook hook) {
    change([&](Table& table) {
        table.completions.erase(id);
        if (hook) table.completions.emplace(id, std::move(hook));
    });
}

void Hooks::set_end(EndHook hook) {
    change([&](Table& table) { table.end = std::move(hook); });
}

void Hooks::failed() const {
    if (silent_.load(std::memory_order_acquire)) return;
    const auto hooks = table();  // a hook may be unregistered while one runs
    for (const auto& [id, hook] : hooks->aborts) shielded("an abort hook", hook);
}

void Hooks::failed(const std::exception_ptr& failure) const {
    if (is_failure(failure)) failed();
}

void Hooks::ended(const EndedOperation& operation) const {
    const std::chrono::duration<float> took = operation.ended - operation.begun;
    std::optional<float> ms = operation.ms;
    if (!ms && operation.is_timed) ms = took.count() * 1000;
    const auto hooks = table();
    if (operation.succeeded) {
        for (const auto& [id, hook] : hooks->completions)
            shielded("a completion hook", [&] { hook({operation.key, ms}); });
    }
    if (hooks->end)
        shielded("the hook of an ended operation", [&] {
            hooks->end(std::make_shared<c10d::WorkInfo>(operation.type, operation.sequence, operation.begun,
                                                        operation.ended, took));
        });
}

c10::intrusive_ptr<c10d::Work> Hooks::observe(int rank, c10d::OpType type, uint64_t sequence,
                                              const std::vector<at::Tensor>& outputs,
                                              const std::function<bool()>& call) const {
    using Clock = std::chrono::steady_clock;
    EndedOperation operation{type, sequence, next_key(), Clock::now(), {}, true};
    try {
        if (!call()) return nullptr;
    } catch (...) {
        operation.ended = Clock::now();
        operation.succeeded = false;
        failed(std::current_exception());
        ended(operation);
        throw;
    }
    operation.ended = Clock::now();
    ended(operation);
    const std::chrono::duration<float, std::milli> took = operation.ended - operation.begun;
    return c10::make_intrusive<DoneWork>(rank, type, sequence, outputs, operation.key, took.count());
}

c10::intrusive_ptr<c10::ivalue::Future> DoneWork::getFuture() {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(c10::IValue(outputs_));
    return future;
}

c10::intrusive_ptr<c10::ivalue::Future> DoneWork::getFutureResult() {
    auto result = future_result();
    result->markCompleted(result_of(nullptr));
    return result;
}

}  // namespace weft_torch
