#include "src/comm/call_statuses.hpp"

#include <string_view>

#include "src/comm/handle.hpp"

namespace weft::internal {

namespace {

// "communicator trainer (rank 1 of 4)"; without a name, the address of the handle.
std::string text_of(const weftComm* handle) {
    std::string text = fmt::format("communicator {}", static_cast<const void*>(handle));
    if (!check_handle(handle)) return text;
    const auto communicator = const_cast<weftComm*>(handle)->share();
    if (!communicator) return text;
    if (!communicator->context().options.name.empty())
        text = fmt::format("communicator {}", communicator->context().options.name);
    return fmt::format("{} (rank {} of {})", text, communicator->rank(), communicator->ranks());
}

}  // namespace

// The lock pairs with done() in streams that may have ended just now.
void CallStatuses::clear() {
    std::lock_guard lock(mutex_);
    entries_.clear();
    refused_.clear();
}

void CallStatuses::count(const char* function) { entries_.push_back({.function = function, .parts = 1}); }

size_t CallStatuses::add_part() {
    ++entries_.back().parts;
    return entries_.size() - 1;
}

void CallStatuses::made(const weftComm* handle, const Status& status) {
    const size_t number = entries_.size() - 1;
    if (!status && status.code() != weftInProgress) {
        (void)fail(number, handle, status);
        if (handle) refused_.push_back({handle, number});
    }
    --entries_[number].parts;  // without the lock: no stream has the call yet
}

void CallStatuses::begin_as(const CallStatuses& prepared) {
    std::lock_guard lock(mutex_);
    entries_ = prepared.entries_;
    refused_ = prepared.refused_;
}

void CallStatuses::defer() {
    std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) entry.parts = 0;
}

void CallStatuses::refuse(const Status& refusal) {
    for (size_t number = 0; number < entries_.size(); ++number)
        if (entries_[number].parts > 0) (void)fail(number, nullptr, refusal);
}

std::string CallStatuses::name_of(size_t number, const weftComm* handle) const {
    return fmt::format("call {} of the group, {}{}{}", number, entries_[number].function, handle ? " on " : "",
                       handle ? text_of(handle) : "");
}

Status CallStatuses::fail(std::span<const size_t> numbers, const weftComm* handle, const Status& failure) {
    Status first;
    std::lock_guard lock(mutex_);
    for (const size_t number : numbers) {
        Status named = weft::internal::fail(failure, "{}: {}", name_of(number, handle), failure.sentence());
        Entry& entry = entries_[number];
        if (entry.code == weftSuccess) {
            entry.text = named.text();
            entry.code = named.code();
        }
        if (first) first = std::move(named);
    }
    return first ? failure.copy() : std::move(first);
}

bool CallStatuses::of_one_function(size_t one, size_t other) const {
    return std::string_view(entries_[one].function) == entries_[other].function;
}

void CallStatuses::mark_unknown(Entry& entry) noexcept {
    if (entry.code == weftSuccess) entry.code = weftSystemError;
}

void CallStatuses::mark_unknown(std::span<const size_t> numbers) noexcept {
    std::lock_guard lock(mutex_);
    for (const size_t number : numbers) mark_unknown(entries_[number]);
}

void CallStatuses::mark_rest_unknown() noexcept {
    std::lock_guard lock(mutex_);
    for (Entry& entry : entries_)
        if (entry.parts > 0) mark_unknown(entry);
}

weftResult_t CallStatuses::of(size_t number, const char*& text) const {
    std::lock_guard lock(mutex_);
    const Entry& entry = entries_[number];
    text = "";  // not the text of the entry, which a stream may still write
    if (entry.code == weftSuccess) return entry.parts > 0 ? weftInProgress : weftSuccess;
    text = entry.text.c_str();
    if (entry.text.empty()) text = "the call was given up: memory ran out, or the process ended [memory.exhausted]";
    return entry.code;
}

}  // namespace weft::internal
