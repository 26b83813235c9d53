// part_worker.hpp: the work of a training step on parts of a model, by the CPU or by a device.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "src/kernels/optimizer_formulas.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/optimizer/parts.hpp"

namespace weft::internal::train {

// A part, its moments, and the coefficients of the work.
struct PartTask {
    const ModelPart* part;
    float *first = nullptr, *second = nullptr;
    SgdStep sgd = {};
    AdamStep adam = {};
    float factor = 1;  // the rate of LAMB with the layer's ratio; or of scale
    FrozenStep frozen = {};
    float* fresh = nullptr;  // 1-bit LAMB's third moment
};

// Thread-bound. A stream is the caller's, and counts on a device only.
class PartWorker {
  public:
    PartWorker() = default;
    PartWorker(const PartWorker&) = delete;
    PartWorker& operator=(const PartWorker&) = delete;
    virtual ~PartWorker() = default;

    // Where the parts lie, and their moments.
    virtual MemorySpace& space() = 0;
    // -1: the host.
    virtual int device() const { return -1; }
    // For sgd, adam, lamb, scale and frozen. On a device the work is enqueued on the stream.
    virtual Status run(PartWork work, std::span<const PartTask> tasks, weftStream_t stream) = 0;
    // For lamb_norms, layer_norms, measure and frozen_norms: the numbers of each task. Waits for the stream. A measure's power is
    // infinite for the largest element.
    virtual Result<std::vector<PartSums>> sums(PartWork work, std::span<const PartTask> tasks, double power,
                                               weftStream_t stream) = 0;
};

std::unique_ptr<PartWorker> host_worker();
Result<std::unique_ptr<PartWorker>> device_worker(int device);

}  // namespace weft::internal::train
