#include "alarm.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "failure.hpp"

namespace weft_torch {

Alarm::Alarm() : descriptor_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
    if (descriptor_ < 0) throw_failure(c10::str("timerfd_create failed: ", strerror(errno), " [system.descriptors]"));
}

Alarm::~Alarm() { close(descriptor_); }

void Alarm::ring_after(std::chrono::nanoseconds delay) {
    itimerspec time{};
    time.it_value.tv_nsec = std::max<long>(1, delay.count());  // zero would disarm it
    (void)timerfd_settime(descriptor_, 0, &time, nullptr);
}

void Alarm::sleep() {
    uint64_t times;
    while (read(descriptor_, &times, sizeof times) < 0 && errno == EINTR) {
    }
}

}  // namespace weft_torch
