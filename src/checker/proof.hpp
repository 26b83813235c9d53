// proof.hpp: runs the blocks of all ranks symbolically until all have ended or an error is found. Used once: make, run(),
// read. checker.hpp states what it proves.
#pragma once
#include <string>
#include <vector>

#include "src/checker/checked_connections.hpp"
#include "src/checker/checked_flags.hpp"
#include "src/checker/checked_memory.hpp"
#include "src/checker/checked_set.hpp"
#include "src/checker/thread_queue.hpp"
#include "src/checker/verdict.hpp"

namespace weft::internal {

class Proof {
  public:
    // `set` is loaded, and outlives the proof.
    explicit Proof(const CheckedSet& set);
    Status run();
    uint64_t steps() const { return steps_; }
    const CheckedResults& results() const { return memory_.results(); }

  private:
    struct ThreadState {
        int run = 0;
        int step = 0;
        int iteration = 0;
        // by step with dependents, and run: the clock at its end
        std::vector<std::vector<std::vector<uint32_t>>> releases;
    };
    struct RankProgress {
        int operation = 0;  // equal to the number of operations: it has returned from the last
        int blocks_left = 0;
    };

    bool begin_operation(int rank);
    bool end_operation(int rank);
    bool run_thread(int thread);
    bool depends(const StepContext& here) const;
    bool ready(const StepContext& here);
    bool execute(const StepContext& here);
    void complete_step(const StepContext& here);
    StepContext here(int thread) const;
    bool returned(int rank) const;
    Status deadlock() const;
    std::string waits_for(int thread, int& next) const;
    int block_on(int rank, bool sending, int connection) const;

    const CheckedSet& set_;
    const int blocks_;
    Clocks clocks_;
    Verdict verdict_;
    ThreadQueue queue_;
    CheckedMemory memory_;
    CheckedFlags flags_;
    CheckedConnections connections_;
    std::vector<ThreadState> threads_;
    std::vector<RankProgress> ranks_;
    uint64_t steps_ = 0;
};

}  // namespace weft::internal
