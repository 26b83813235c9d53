// job_clock.hpp: a clock that a test moves for all processes of a job. So a deadline of minutes, which no lateness
// meets by chance, passes in a moment and when the test says so. It serves deadlines and warnings. To heartbeats a jump
// looks like a process that was stopped itself.
#pragma once
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::internal::test {

class JobClock {
  public:
    JobClock() {
        const int file = mkstemp(path_);
        if (file < 0 || ftruncate(file, sizeof(int64_t)) != 0) throw std::runtime_error("no file for a clock");
        void* const mapped = mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (mapped == MAP_FAILED) throw std::runtime_error("no memory for a clock");
        ahead_s_ = static_cast<std::atomic<int64_t>*>(mapped);
    }
    JobClock(const JobClock&) = delete;
    ~JobClock() {
        munmap(ahead_s_, sizeof(int64_t));
        unlink(path_);
    }

    // For the environment of each process of the job.
    std::vector<std::string> variables(std::vector<std::string> others) const {
        others.push_back("LD_PRELOAD=" JOB_CLOCK_LIBRARY);
        others.push_back(std::string("JOB_CLOCK=") + path_);
        return others;
    }
    void advance(int64_t seconds) { *ahead_s_ += seconds; }

  private:
    char path_[32] = "/tmp/job_clock_XXXXXX";
    std::atomic<int64_t>* ahead_s_ = nullptr;
};

}  // namespace weft::internal::test
