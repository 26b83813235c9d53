// local_sgd.hpp: training whose ranks step alone and communicate rarely: Local SGD, and DiLoCo with streaming
// fragments.
#pragma once
#include <memory>
#include <vector>

#include "src/train/flat_buffer.hpp"
#include "src/train/launch_queue.hpp"
#include "src/train/local_schedule.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/model.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

// DiLoCo's state of a parameter, in the model's memory. Without an outer optimiser all is null.
struct LocalState {
    void* anchor = nullptr;
    void* momentum = nullptr;
    void* reduced = nullptr;  // the mean difference, of a fragment whose reduction is not used yet
    TensorFacts facts;
};

// All ranks make the same calls, except mode(), steps() and state(). Thread-bound, except abort(), which is
// thread-safe. While a fragment is open, the queue's thread writes its part of `message_` and nothing else. On a device
// there is no thread: the space's stream has the reduction.
class LocalSgd {
  public:
    // All ranks of `comm` call it, also one that has failed: `own` is its failure. The values of rank 0 count.
    // Without a failure the parameters lie in `space`.
    static Result<std::shared_ptr<LocalSgd>> make(Status own, std::vector<Tensor> parameters, LocalSettings settings,
                                                  std::unique_ptr<MemorySpace> space, weftComm_t comm);
    LocalSgd(const LocalSgd&) = delete;
    LocalSgd& operator=(const LocalSgd&) = delete;
    ~LocalSgd();

    int parameter_count() const { return int(parameters_.size()); }
    size_t parameter_elements(int parameter) const { return parameters_[size_t(parameter)].facts.count; }
    const MemorySpace& space() const { return *space_; }
    uint64_t steps() const { return steps_; }
    // Of the gradients in the next step.
    weftTrainMode_t mode() const;
    // After the optimiser's step, which may still be work of the caller's stream. `changed`: parameters have new values
    // from other ranks.
    Status step(bool& changed, weftStream_t callers);
    // The state is that after this many steps: of step(), and of the memory of state().
    Status restore(uint64_t steps);
    // Waits for an open reduction, and for all work on the state.
    Result<LocalState> state(int parameter);
    // Array number 0 to 2 of the state, to or from host memory.
    Status read_state(int parameter, int array, void* to);
    Status write_state(int parameter, int array, const void* from);
    void abort() { peers_->abort(); }
    // Before its end. Waits for an open reduction: the other ranks begin it, too.
    Status settle();
    // After an exception of a call.
    void end_by_exception() noexcept;

  private:
    LocalSgd(std::vector<Tensor> parameters, LocalSettings settings, std::unique_ptr<MemorySpace> space);
    Status reserve();
    Status start();
    Status usable() const;
    // Keeps a failure after which the object has ended, and ends it on all ranks.
    Status ended_by(Status status);
    Result<void*> array_of(int parameter, int array);
    void* part_of(const FlatBuffer& buffer, int parameter) const;
    // The message's type of a parameter.
    TensorFacts facts_of(int parameter) const;
    Status launch(int fragment, weftStream_t callers);
    Status reduce(int fragment) const;
    Status apply(int fragment);
    // Waits for the reduction in progress.
    Status await();
    Status check_finite(int fragment);
    Status not_finite();
    struct Numbers {
        const void* data;
        size_t count;
        weftDataType_t type;
    };
    // The number of the first ones that are not all finite; -1: there are none. Waits for the work so far.
    Result<int> first_infinite(const std::vector<Numbers>& all);
    Status take(int parameter);
    Status use(int parameter);

    std::unique_ptr<MemorySpace> space_;
    std::vector<Tensor> parameters_;
    LocalSettings settings_;
    FragmentLayout layout_;
    FlatBuffer anchor_, momentum_;      // DiLoCo's
    FlatBuffer message_;                // of all fragments
    FlatBuffer found_, found_on_host_;  // words of first_infinite()
    std::unique_ptr<Peers> peers_;
    uint64_t steps_ = 0;
    Status failure_;
    std::unique_ptr<LaunchQueue> queue_;  // the last field: its thread uses the others
};

}  // namespace weft::internal::train
