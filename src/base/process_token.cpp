#include "src/base/process_token.hpp"

#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>

#include "src/base/clock.hpp"

namespace weft::internal {

namespace {

struct ProcessToken {
    std::atomic<uint64_t> value{0};
    static void draw();
};
ProcessToken token;

void ProcessToken::draw() {
    uint64_t value = 0;
    while (value == 0)
        if (getrandom(&value, sizeof value, 0) != sizeof value) value = uint64_t(getpid()) << 32 ^ uint64_t(now_us());
    token.value.store(value, std::memory_order_relaxed);
}

}  // namespace

uint64_t process_token() {
    static const bool drawn = [] {
        ProcessToken::draw();
        pthread_atfork(nullptr, nullptr, ProcessToken::draw);
        return true;
    }();
    (void)drawn;
    return token.value.load(std::memory_order_relaxed);
}

uint64_t process_token_address() { return reinterpret_cast<uint64_t>(&token.value); }

}  // namespace weft::internal
