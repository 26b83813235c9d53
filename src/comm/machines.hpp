// machines.hpp: the machines that a communicator's ranks are on, as their hosts told when they met, and what follows for
// schedules: in which order rings pass the ranks, and what links carry. From agreed texts alone, so that all ranks find
// the same, whatever machine they are on. Immutable; shared by the ranks of a process.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/host_group.hpp"
#include "src/base/result.hpp"
#include "src/schedule/layout.hpp"

namespace weft {

// What this process tells of its host, for AgreedTexts. gpus: NVML is asked too, which takes a while. The first of each
// kind looks, the others get the same. weftInvalidUsage: what is wrong with WEFT_TOPO_FILE.
Result<std::string> describe_this_machine(bool gpus);

class Machines {
  public:
    // Of ranks that have all joined.
    static std::shared_ptr<const Machines> of(const HostGroup& group);
    explicit Machines(const HostGroup& group);

    // As ranks lie that run on processors, and as their GPUs lie.
    Layout layout(int rank) const;
    Layout device_layout(int rank) const;
    // Ranks of one host have their threads on different NUMA domains.
    bool apart() const { return apart_; }
    // What the GPUs' rings carry together, as far as links tell; 0: unknown.
    double device_gbs() const { return on_gpus_.gbs; }
    // A line for people each.
    const std::vector<std::string>& notes() const { return notes_; }

  private:
    struct Rings {
        std::vector<std::vector<int32_t>> orders;  // empty: host by host, by rank
        double gbs = 0;
    };

    Layout plain_;  // of rank 0, without orders
    Rings on_cpus_, on_gpus_;
    bool apart_ = false;
    std::vector<std::string> notes_;

    class Seating;
};

}  // namespace weft
