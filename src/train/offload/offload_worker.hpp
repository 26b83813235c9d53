// offload_worker.hpp: the work of a training step on parts in host memory, whose states lie in a file.
#pragma once
#include "src/train/offload/offloaded_states.hpp"
#include "src/train/optimizer/part_worker.hpp"

namespace weft::internal::train {

// Its results have the bits of the host's worker. `states`: the moments of each part that the tasks leave null, then,
// with `has_values`, its values, which the parts leave null. Thread-bound.
class OffloadWorker : public PartWorker {
  public:
    OffloadWorker(std::unique_ptr<PartWorker> host, std::unique_ptr<OffloadedStates> states, int moments,
                  bool has_values)
        : host_(std::move(host)), states_(std::move(states)), moments_(moments), has_values_(has_values) {}

    MemorySpace& space() override { return host_->space(); }
    Status run(PartWork work, std::span<const PartTask> tasks, weftStream_t stream) override;
    Result<std::vector<PartSums>> sums(PartWork work, std::span<const PartTask> tasks, double power,
                                       weftStream_t stream) override;

    // The parts of all tasks from now on. The states' parts are numbered as they are.
    void set_parts(std::span<const ModelPart> parts) { parts_ = parts; }
    // Copies one array of a part between memory and the file.
    Status read(size_t part, int array, float* to);
    Status write(size_t part, int array, const float* from);
    // The first values of all parts, from their memory.
    Status write_values();

  private:
    // For a pass: which parts have tasks, and the number of each one's.
    struct Selection {
        std::vector<bool> used;
        std::vector<size_t> task;
    };
    Selection select(std::span<const PartTask> tasks) const;
    ModelPart part_of(const LoadedPiece& piece) const;
    PartTask task_of(const PartTask& whole, const LoadedPiece& piece, const ModelPart& part) const;
    Status copy(size_t part, bool writes, const OffloadedStates::Body& body);

    std::unique_ptr<PartWorker> host_;
    std::unique_ptr<OffloadedStates> states_;
    int moments_;
    bool has_values_;
    std::span<const ModelPart> parts_;
};

}  // namespace weft::internal::train
