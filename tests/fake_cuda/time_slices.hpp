// time_slices.hpp: processes that share a fake device without MPS: their blocks run one process at a time, for some
// milliseconds each. A block is stopped wherever it is, by a signal to its thread.
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace weft::internal::fake {

// Thread-safe. Lives as long as the process.
class TimeSlices {
  public:
    // Null: the setting has no time slices.
    static TimeSlices* of_process();

    // The calling thread is a block, which runs in the process's turns only.
    class Turns {
      public:
        explicit Turns(TimeSlices& of);
        Turns(const Turns&) = delete;
        ~Turns();

      private:
        TimeSlices& slices_;
    };

  private:
    // In the file, which begins with zeros.
    struct Shared {
        std::atomic<uint64_t> turns;
        std::atomic<int> owner;  // the process whose turn it is; 0: nobody's
        struct Process {
            std::atomic<int> pid, blocks;
        } processes[16];
    };
    TimeSlices(const std::string& file, int slice_ms);
    static void await_turn(int signal);
    void serve();
    bool take();
    void pass();
    template <class Change>
    void change(Change&& change);

    Shared* shared_ = nullptr;
    Shared::Process* own_ = nullptr;
    int slice_ms_;
    std::mutex mutex_;
    std::set<pthread_t> blocks_;
};

}  // namespace weft::internal::fake
