// overload.hpp: how much processor time the machine withheld while a test ran, so that a retry needs evidence.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace weft::internal::test {

// Three independent signs, of the time between begin and end of a LoadWatch.
struct Withheld {
    int64_t wakeup_ms = 0;  // the latest wake-up of a thread that only sleeps
    int64_t queued_ms = 0;  // the most that one process of the test was ready to run and did not run
    int64_t stolen_ms = 0;  // what the hypervisor took from one core, on average

    int64_t most_ms() const { return std::max({wakeup_ms, queued_ms, stolen_ms}); }
    std::string text() const {
        return "latest wake-up " + std::to_string(wakeup_ms) + " ms, longest run-queue delay of a process " +
               std::to_string(queued_ms) + " ms, stolen by the hypervisor " + std::to_string(stolen_ms) + " ms";
    }
};

// The most that an ended process of this test waited in the run queue, in us.
inline std::atomic<int64_t> most_queued_us{0};

// Waits for a child's end without reaping it, and notes its run-queue delay. Linux keeps the figures until it is reaped.
inline void note_queued(pid_t pid) {
    siginfo_t info;
    if (waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT) != 0) return;
    std::ifstream file("/proc/" + std::to_string(pid) + "/schedstat");
    int64_t ran_ns = 0, queued_ns = 0;
    if (!(file >> ran_ns >> queued_ns)) return;
    int64_t most = most_queued_us;
    while (most < queued_ns / 1000 && !most_queued_us.compare_exchange_weak(most, queued_ns / 1000)) {
    }
}

// Watches the machine for as long as it lives. Thread-bound; one at a time.
class LoadWatch {
  public:
    LoadWatch() : stolen_before_ms_(stolen_ms()) {
        most_queued_us = 0;
        thread_ = std::thread([this] { sleep_and_compare(); });
    }
    ~LoadWatch() { end(); }

    // Ends the watch.
    Withheld end() {
        over_ = true;
        if (thread_.joinable()) thread_.join();
        return {latest_us_ / 1000, most_queued_us / 1000, stolen_ms() - stolen_before_ms_};
    }

  private:
    void sleep_and_compare() {
        constexpr auto nap = std::chrono::milliseconds(2);
        while (!over_) {
            const auto due = std::chrono::steady_clock::now() + nap;
            std::this_thread::sleep_until(due);
            const auto late = std::chrono::steady_clock::now() - due;
            latest_us_ =
                std::max<int64_t>(latest_us_, std::chrono::duration_cast<std::chrono::microseconds>(late).count());
        }
    }
    // The ninth word of the first line, in ticks of all cores.
    static int64_t stolen_ms() {
        std::ifstream file("/proc/stat");
        std::string word;
        int64_t ticks = 0;
        for (int i = 0; i < 8 && file >> word; ++i) {
        }
        file >> ticks;
        return ticks * 1000 / sysconf(_SC_CLK_TCK) / std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));
    }

    int64_t stolen_before_ms_;
    int64_t latest_us_ = 0;  // read when the thread has ended
    std::atomic<bool> over_{false};
    std::thread thread_;
};

}  // namespace weft::internal::test
