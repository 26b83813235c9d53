// call_statuses.hpp: the result of each call of a group, numbered in the order in which the calls were made.
// Calls that were refused or never begun have a number, too.
// The first block is thread-bound, to the thread that collects the group. The rest is thread-safe.
#pragma once
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.hpp"

struct weftComm;

namespace weft::internal {

class CallStatuses {
  public:
    // ---- While the group is collected.
    // count() gives the next number to a call of `function`. A call may have several parts, such as messages.
    void clear();
    void count(const char* function);
    size_t add_part();  // the call's number
    // The newest call was made or refused; not_made(): an exception ended it.
    void made(const weftComm* handle, const Status& status);
    void not_made() noexcept { mark_unknown(entries_.back()); }
    // Before prepared calls execute again.
    void begin_as(const CallStatuses& prepared);
    // defer(): the group does not execute now, but keeps its refused calls. refuse(): the group can never execute.
    void defer();
    void refuse(const Status& refusal);

    // ---- While the group executes.
    void done(std::span<const size_t> numbers) {
        std::lock_guard lock(mutex_);
        for (const size_t number : numbers) --entries_[number].parts;
    }
    void done(size_t number) { done({&number, 1}); }
    template <class Calls>
    void all_done(const Calls& calls) {
        std::lock_guard lock(mutex_);
        for (const auto& call : calls) --entries_[call.number].parts;
    }
    // All these calls failed. Returns the failure with the name of the first call before the sentence.
    Status fail(std::span<const size_t> numbers, const weftComm* handle, const Status& failure);
    Status fail(size_t number, const weftComm* handle, const Status& failure) {
        return fail({&number, 1}, handle, failure);
    }
    // The results of these calls, or of all remaining calls, stay unknown.
    void mark_unknown(std::span<const size_t> numbers) noexcept;
    void mark_rest_unknown() noexcept;

    // Calls that were refused when they were made. Other ranks may wait for them.
    struct Refused {
        const weftComm* handle;
        size_t number;
    };
    const std::vector<Refused>& refused() const { return refused_; }
    bool of_one_function(size_t one, size_t other) const;

    size_t size() const { return entries_.size(); }
    // weftInProgress: the call is not done. The text stays valid and unchanged until clear().
    weftResult_t of(size_t number, const char*& text) const;

  private:
    struct Entry {
        const char* function;
        uint32_t parts = 0;  // not done yet
        weftResult_t code = weftSuccess;
        std::string text = {};  // with the id
    };
    // The caller holds the lock.
    std::string name_of(size_t number, const weftComm* handle) const;
    void mark_unknown(Entry& entry) noexcept;

    mutable std::mutex mutex_;
    std::vector<Entry> entries_;
    std::vector<Refused> refused_;
};

}  // namespace weft::internal
