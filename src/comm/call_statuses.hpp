// call_statuses.hpp: what became of each call of a group, those too that were refused when they were made and those that were
// never begun. Calls are numbered in the order in which they were made. Thread-safe, but for what the thread that
// collects the group does before its calls are carried out.
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
    // ---- While the group is collected. A call of `function` is made, which has a number from here on; it may have any
    // number of parts, messages for one, that are carried out by themselves.
    void clear();
    void count(const char* function);
    size_t add_part();  // the call's number
    // It has been made, or was refused; or an exception ended that.
    void made(const weftComm* handle, const Status& status);
    void not_made() noexcept { mark_unknown(entries_.back()); }
    // Of prepared calls, which are carried out anew.
    void begin_as(const CallStatuses& prepared);
    // It is not to be carried out, but keeps what is known of refused calls; or none of it ever can be.
    void defer();
    void refuse(const Status& refusal);

    // ---- While it is carried out.
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
    // All these failed; the failure as the first of them has it, with its name before the sentence.
    Status fail(std::span<const size_t> numbers, const weftComm* handle, const Status& failure);
    Status fail(size_t number, const weftComm* handle, const Status& failure) {
        return fail({&number, 1}, handle, failure);
    }
    // Nothing will be known of these; of all that is left.
    void mark_unknown(std::span<const size_t> numbers) noexcept;
    void mark_rest_unknown() noexcept;

    // Calls that were refused when they were made, on which communicators: others may wait for them.
    struct Refused {
        const weftComm* handle;
        size_t number;
    };
    const std::vector<Refused>& refused() const { return refused_; }
    bool of_one_function(size_t one, size_t other) const;

    size_t size() const { return entries_.size(); }
    // weftInProgress: it is not done yet. The text stays where it is, and what it is, until clear().
    weftResult_t of(size_t number, const char*& text) const;

  private:
    struct Entry {
        const char* function;
        uint32_t parts = 0;  // not done yet
        weftResult_t code = weftSuccess;
        std::string text = {};  // with the id
    };
    // By who holds the lock.
    std::string name_of(size_t number, const weftComm* handle) const;
    void mark_unknown(Entry& entry) noexcept;

    mutable std::mutex mutex_;
    std::vector<Entry> entries_;
    std::vector<Refused> refused_;
};

}  // namespace weft::internal
