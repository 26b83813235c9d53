// machines.hpp: the machines that a communicator's ranks are on, as their hosts told when they met, and what follows for
// schedules: in which order rings pass the ranks, and what links carry. From agreed texts alone, so that all ranks find
// the same, whatever machine they are on. Immutable; shared by the ranks of a process.
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

// What this process tells of its host, for AgreedTexts; found once, and once more with GPUs, for which NVML is asked, too.
// weftInvalidUsage: what is wrong with WEFT_TOPO_FILE. If NCCL_TOPO_FILE names the file, that is a warning, as it is if no
// rank has a GPU: the machine is as detected. Only rank 0's process and the leaders of other hosts read the file, and all
// ranks are told what came of it, so they agree whatever each one's environment says.
Result<MachineText> describe_this_machine(bool gpus);

class Machines {
  public:
    // Of ranks that have all joined. A failure is of this process alone, which must not go on without the others.
    static Result<std::shared_ptr<const Machines>> of(const Segment& group);
    explicit Machines(const Segment& group);

    // As ranks lie that run on processors, and as their GPUs lie; what tells their rings from others, 0: from none.
    Layout layout(int rank) const { return with(on_cpus_, rank); }
    Layout device_layout(int rank) const { return with(on_gpus_, rank); }
    uint64_t rings() const { return digest(on_cpus_); }
    uint64_t device_rings() const { return digest(on_gpus_); }
    // Whether ranks of one host have their threads on different NUMA domains; nothing: unknown, as of two ranks.
    std::optional<bool> apart() const { return apart_; }
    // What the GPUs' rings carry together, as far as links tell; 0: unknown.
    double device_gbs() const { return on_gpus_.gbs; }
    // A line for people each.
    const std::vector<std::string>& notes() const { return notes_; }

  private:
    class Seating;
    struct Rings {
        std::vector<std::vector<int32_t>> orders;  // each from rank 0 on; empty: host by host, by rank
        std::vector<int32_t> rails, domains;       // as Layout has them
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
