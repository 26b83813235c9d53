// random_steps.hpp: the steps of a random program's round. A step has this rank's buffers, is called in any way that
// the program draws, and is checked when it is done. Clients' interface only.
#pragma once
#include <weft/weft.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/comm/random_calls.hpp"

namespace weft::internal::test {

// A window on a communicator of the program's. Its memory begins with a read-only part for gets; behind it lies a place
// for each step of a round that puts.
class RandomWindow {
  public:
    static constexpr size_t read_elements = 1000, put_elements = 5000;
    static int read_element(int rank, size_t index) { return rank * 100'000 + int(index); }

    RandomWindow(int rank, int steps, bool shared);
    ~RandomWindow();
    RandomWindow(const RandomWindow&) = delete;
    weftResult_t open(weftComm_t comm);
    weftResult_t close(weftComm_t comm);
    // Others may still be at it: the memory stays.
    void leave() { left_ = true; }
    weftWindow_t handle() const { return handle_; }
    int* put_place(int step) const { return memory_ + read_elements + size_t(step) * put_elements; }
    size_t put_offset(int step) const { return size_t(put_place(step) - memory_) * sizeof(int); }

  private:
    size_t elements_;
    bool shared_, left_ = false;
    int* memory_ = nullptr;
    weftWindow_t handle_ = nullptr;
};

// Where a step is made.
struct RandomPlace {
    weftComm_t comm;
    int rank, ranks;
    RandomWindow* window;
};

class RandomStep {
  public:
    virtual ~RandomStep() = default;
    virtual weftResult_t issue(weftStream_t stream, bool in_group) = 0;
    // After the step, on all ranks in one order: the error, or nothing. It may call.
    virtual std::string fault() = 0;
};

// Step `index` of its round, number `number` of the sequence; `random` draws alike on all ranks.
std::unique_ptr<RandomStep> draw_step(const Sequence& sequence, const RandomPlace& place, int number, int index,
                                      std::mt19937& random);

}  // namespace weft::internal::test
