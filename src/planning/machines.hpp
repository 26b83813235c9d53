// machines.hpp: the machines of a communicator's ranks, as their hosts described them at the rendezvous. They determine the
// order of the ranks on rings and the bandwidth of links. The texts are agreed, so all ranks find the same result.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/control/agreed_texts.hpp"
#include "src/schedule/layout.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// Describes this process's host for AgreedTexts. The text is cached, once without and once with GPUs, which need NVML.
// weftInvalidUsage: WEFT_TOPO_FILE is wrong. A wrong file of NCCL_TOPO_FILE, or one for a job without GPUs, is a warning,
// and the machine is detected. Rank 0's process and the leaders of other hosts read the file and send the result to all
// ranks, so that all ranks agree whatever their environment says.
Result<MachineText> describe_this_machine(bool gpus);

// Immutable. Shared by the ranks of a process.
class Machines {
  public:
    // All ranks of the segment have joined. A failure concerns this process alone; it must not continue.
    static Result<std::shared_ptr<const Machines>> of(const Segment& group);
    explicit Machines(const Segment& group);

    // The layout of the ranks by their processors, and by their GPUs. The digests of the ring orders; 0: no order.
    Layout layout(int rank) const { return with(on_cpus_, rank); }
    Layout device_layout(int rank) const { return with(on_gpus_, rank); }
    uint64_t rings() const { return digest(on_cpus_); }
    uint64_t device_rings() const { return digest(on_gpus_); }
    // Whether ranks of one host run on different NUMA domains. Empty: unknown, as with two ranks.
    std::optional<bool> apart() const { return apart_; }
    // The bandwidth of all GPU rings together; 0: unknown.
    double device_gbs() const { return on_gpus_.gbs; }
    // Lines for the log.
    const std::vector<std::string>& notes() const { return notes_; }

  private:
    class Seating;
    struct Rings {
        std::vector<std::vector<int32_t>> orders;  // each begins at rank 0; empty: by host, then by rank
        std::vector<int32_t> rails, domains;       // see Layout
        double gbs = 0;
    };
    Status find(const Segment& group);
    Rings find(const char* what, const Seating& seating, std::vector<int32_t> domains);
    Layout with(const Rings& rings, int rank) const;
    static uint64_t digest(const Rings& rings);

    Layout plain_;  // of rank 0, without orders
    Rings on_cpus_, on_gpus_;
    std::optional<bool> apart_;
    std::vector<std::string> notes_;
};

}  // namespace weft::internal
