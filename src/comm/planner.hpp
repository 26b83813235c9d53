// planner.hpp: from an Operation to a Plan: asks the selector, builds the schedule, makes the connections, sizes the
// tiles. Thread-bound to the rank. Connecting takes several steps, because the other end must listen first; nothing
// blocks.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/executor/run.hpp"
#include "src/selector/catalog.hpp"
#include "src/selector/selector.hpp"

namespace weft {

// A schedule and the ends of its connections: shared by the plans of all sizes.
struct Binding {
    Schedule schedule;
    std::vector<BlockEnds> ends;
    struct New {
        bool source, target;
    };
    std::vector<New> is_new;  // by block: which connections no other schedule had before
    // What new connections there and back have in common: by peer and their place among those that go one way.
    std::map<std::pair<int, int>, std::shared_ptr<Shared>> shared;
    bool listening = false;
    bool connected = false;
};

// What a plan is for: the agreed facts of a call, nothing that one rank alone knows.
struct PlanKey {
    uint64_t head;
    uint64_t count;
    explicit PlanKey(const Operation& operation)
        : head(uint64_t(operation.collective) | uint64_t(operation.type) << 8 | uint64_t(operation.op) << 16 |
               uint64_t(uint32_t(operation.root)) << 32),
          count(operation.count) {}
    PlanKey() : head(~uint64_t(0)), count(0) {}
    bool operator==(const PlanKey&) const = default;
    auto operator<=>(const PlanKey&) const = default;
};

// A plan and its run, which lives as long, so that a call allocates nothing.
struct PreparedPlan {
    explicit PreparedPlan(Plan made) : plan(std::move(made)), run(plan) {}
    Plan plan;
    Run run;
};

class Planner {
  public:
    // `identity`: of the communicator, null if its ranks are on one host.
    Planner(HostGroup& group, const net::Identity* identity, int rank, Board* board, const Movers& movers,
            int64_t streaming_bytes, std::shared_ptr<const Catalog> catalog);

    Result<Choice> choose(const Operation& operation) const;
    // The schedule of a choice; made once.
    Binding& binding(const Choice& choice);
    // One step of connecting. True when all connections are there; else `missing` has the ranks that have not listened
    // yet.
    Result<bool> connect(Binding& binding, RankSet& missing);
    Result<std::unique_ptr<PreparedPlan>> plan(const Operation& operation, const Choice& choice, Binding& binding);

    std::string explain(const Operation& operation) const;
    uint64_t connection_bytes() const { return heap_used_ - Board::heap_bytes; }
    uint64_t scratch_bytes() const { return scratch_.size(); }
    const AgreedOptions& agreed() const { return agreed_; }

  private:
    // A connection serves all schedules that want one from there to there with so many slots: each leaves it empty, and
    // ranks go from one operation to the next alike, so both ends know which ones there are.
    struct ConnectionKey {
        int channel, peer, depth;
        auto operator<=>(const ConnectionKey&) const = default;
    };
    Status listen(Binding& binding);
    ConnectionOptions connection_options(Binding& binding, int channel, int peer, bool incoming);
    Result<const Transport*> transport_to(const ConnectionOptions& options) const;

    HostGroup* group_;
    const net::Identity* identity_;
    int rank_;
    Board* board_;
    const Movers* movers_;
    int64_t streaming_bytes_;
    std::shared_ptr<const Catalog> catalog_;
    AgreedOptions agreed_;
    Layout layout_;
    LinkCosts costs_;
    size_t slot_bytes_;  // of connections
    Preferences preferences_;
    Reach reach_;
    CrossMemory cross_memory_;
    size_t last_level_;               // bytes of cache that the ranks' buffers may find room in
    std::vector<std::byte> scratch_;  // of schedules that want it, one at a time
    size_t heap_used_ = Board::heap_bytes;
    struct BindingKey {
        const Algorithm* algorithm;
        int channels, root;
        auto operator<=>(const BindingKey&) const = default;
    };
    std::map<BindingKey, Binding> bindings_;
    std::map<ConnectionKey, std::unique_ptr<Receiver>> receivers_;
    std::map<ConnectionKey, std::unique_ptr<Sender>> senders_;
};

}  // namespace weft
