// patience.hpp: how tests wait, so that no time decides whether one passes. Sanitizers and busy machines make a rank, a
// thread or a process late by many seconds at any point.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include "tests/amount.hpp"
#include "tests/overload.hpp"

namespace weft::internal::test {

// Waits until `condition()` holds. A test that needs more than some minutes hangs.
template <class Condition>
bool eventually(Condition condition) {
    for (auto end = std::chrono::steady_clock::now() + std::chrono::minutes(3);
         std::chrono::steady_clock::now() < end;) {
        if (condition()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return condition();
}

// How many tests with a time limit this process ran, and how often one ran again. tools/count_tests.py adds the lines up.
class Retries {
  public:
    explicit Retries(bool prints) : prints_(prints) {}
    static Retries& of_process() {
        static Retries all(true);
        return all;
    }
    ~Retries() {
        if (prints_ && tests_ > 0 && getpid() == pid_)
            std::fprintf(stderr, "time limits: %d tests, %d retries\n", int(tests_), int(retries_));
    }
    void begin() { ++tests_; }
    void again(int64_t limit_ms, const Withheld& withheld) {
        ++retries_;
        if (!prints_) return;
        std::fprintf(stderr, "retry: a limit of %lld ms was too short: %s\n", (long long)limit_ms,
                     withheld.text().c_str());
    }

    int count() const { return retries_; }

  private:
    const bool prints_;
    const pid_t pid_ = getpid();  // a forked child has nothing to tell
    std::atomic<int> tests_{0}, retries_{0};
};

// Runs `attempt(limit_ms)`, which returns an objection or "". A limit strikes too soon if the machine withholds the
// processor from a rank. So an attempt that fails runs again with a longer limit, but only if a LoadWatch has seen that:
// at least a quarter of the limit was withheld. Without that evidence the first objection counts. Retries are printed.
template <class Watch = LoadWatch, class Attempt>
std::string with_growing_limit(int64_t first_ms, Attempt attempt, Retries& counted = Retries::of_process()) {
    constexpr int retries_most = 3;
    constexpr int64_t longest_ms = 20'000;
    counted.begin();
    int64_t limit_ms = sanitized ? 2 * first_ms : first_ms;
    for (int retries = 0;; ++retries) {
        Watch watch;
        const std::string objection = attempt(limit_ms);
        const Withheld withheld = watch.end();
        if (objection.empty()) return "";
        if (retries == retries_most || limit_ms >= longest_ms || withheld.most_ms() < limit_ms / 4)
            return objection + "\nAfter " + std::to_string(retries) + " retries, with a limit of " +
                   std::to_string(limit_ms) + " ms: " + withheld.text();
        counted.again(limit_ms, withheld);
        limit_ms = std::min(4 * limit_ms, longest_ms);
    }
}

}  // namespace weft::internal::test
