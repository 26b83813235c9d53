#include "src/base/unshared_fd.hpp"

#include <pthread.h>

#include <cstdint>

#include "src/base/process_token.hpp"

namespace weft::internal {

namespace {

// Lock-free, because another thread might hold a lock when a child is forked.
struct PlacesToClose {
    std::atomic<int> numbers[64]{};  // a descriptor's number plus one; 0: free, -1: being taken
    FileIdentity identities[64];     // written while the number is -1
    std::atomic<PlacesToClose*> next{nullptr};
};
PlacesToClose first_places;

void close_in_child() {
    for (PlacesToClose* places = &first_places; places != nullptr; places = places->next.load())
        for (size_t i = 0; i < std::size(places->numbers); ++i)
            if (const int taken = places->numbers[i].exchange(0); taken > 0 && places->identities[i].holds(taken - 1))
                close(taken - 1);
}

// Registered before there are threads: if one of two threads forked meanwhile, a child would wait for the other for
// ever.
[[maybe_unused]] const int close_in_child_registered = pthread_atfork(nullptr, nullptr, close_in_child);

std::atomic<int>* take_place(const Fd& fd) {
    for (PlacesToClose* places = &first_places;; places = places->next.load()) {
        for (size_t i = 0; i < std::size(places->numbers); ++i) {
            int free = 0;
            if (!places->numbers[i].compare_exchange_strong(free, -1)) continue;
            places->identities[i] = fd.identity();
            places->numbers[i].store(fd.number() + 1);
            return &places->numbers[i];
        }
        if (places->next.load() != nullptr) continue;
        auto* const fresh = new PlacesToClose;  // never freed: the same number is needed again
        PlacesToClose* none = nullptr;
        if (!places->next.compare_exchange_strong(none, fresh)) delete fresh;
    }
}

}  // namespace

// A child that is forked before the entry exists, or after it is gone, keeps its copy.
UnsharedFd::UnsharedFd(Fd fd) : process_(process_token()) {
    if (!fd) return;
    place_ = take_place(fd);
    fd_ = std::move(fd);
}

UnsharedFd& UnsharedFd::operator=(UnsharedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(place_, other.place_);
    std::swap(process_, other.process_);
    return *this;
}

// The entry is cleared first: a child must not close the next file with that number.
UnsharedFd::~UnsharedFd() {
    if (fd_ && process_ == process_token())
        place_->store(0);
    else
        fd_.release();
}

}  // namespace weft::internal
