// alarm.hpp: a timer that threads sleep on. Setting it costs one system call and wakes no thread before its time.
#pragma once
#include <chrono>

namespace weft_torch {

// Thread-safe.
class Alarm {
  public:
    Alarm();
    ~Alarm();
    Alarm(const Alarm&) = delete;
    // Replaces the time that was set before. One sleeping thread returns then.
    void ring_after(std::chrono::nanoseconds delay);
    void sleep();

  private:
    int descriptor_;
};

}  // namespace weft_torch
