#include "tools/simulate_trace.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "src/base/file.hpp"
#include "src/base/json_text.hpp"

namespace weft::internal::tools {

namespace {

using Json = nlohmann::ordered_json;

// One event on each line, so that a trace of any length needs constant memory.
class TraceFile {
  public:
    explicit TraceFile(const std::string& name) : file_(name) {
        file_.add(R"({"displayTimeUnit": "ns", "traceEvents": [)");
    }
    void add(const Json& event) {
        file_.add(std::exchange(first_, false) ? "\n" : ",\n");
        file_.add(json_text(event));
    }
    // Starts the file before any simulation, so that an error comes early.
    Status begin() const { return file_.status(); }
    Status end(const Json& other) {
        file_.add("\n], \"otherData\": " + json_text(other) + "}\n");
        return file_.finish();
    }

  private:
    FileWriter file_;
    bool first_ = true;
};

std::string awaited_of(const SimulatedStep& step) {
    switch (step.awaited) {
        case Awaited::nothing: return "";
        case Awaited::message: return fmt::format("a message of rank {}", step.of->source);
        case Awaited::credit: return fmt::format("a free slot of rank {}", step.of->target);
        case Awaited::dependency: return "a step of another block";
        case Awaited::meeting: return "the other ranks of its flag block";
        case Awaited::thread: return "its rank's thread";
    }
    return "";
}

Json slice(const SimulatedStep& step, const char* category, std::string name, double begin_us, double end_us) {
    return {
        {"ph", "X"},      {"pid", step.rank},        {"tid", step.block}, {"cat", category}, {"name", std::move(name)},
        {"ts", begin_us}, {"dur", end_us - begin_us}};
}

void add_step(TraceFile& file, const SimulatedStep& step) {
    const Opcode opcode = step.of->instructions[size_t(step.step)].opcode;
    const std::string awaited = awaited_of(step);
    if (!awaited.empty()) file.add(slice(step, "wait", "waits for " + awaited, step.ready_us, step.begin_us));
    Json event = slice(step, "step", name_of(opcode), step.begin_us, step.end_us);
    Json& facts = event["args"] = {
        {"step", step.step}, {"iteration", step.iteration}, {"tile", step.tile}, {"bytes", step.bytes}};
    if (kind_of(opcode) == OpcodeKind::connection) {
        if (receives(opcode)) facts["source"] = step.of->source;
        if (sends(opcode)) facts["target"] = step.of->target;
    }
    if (!awaited.empty()) facts["waited_for"] = awaited;
    file.add(event);
}

void name_ranks(TraceFile& file, const Simulation& found, int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
        file.add(
            {{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
    for (const BlockUse& use : found.blocks) {
        if (use.rank >= ranks) continue;
        file.add({{"ph", "M"},
                  {"pid", use.rank},
                  {"tid", use.block},
                  {"name", "thread_name"},
                  {"args", {{"name", fmt::format("block {}", use.block)}}}});
    }
}

}  // namespace

Result<TracedCall> write_trace(const Fabric& fabric, SimulatedCall call, const Simulation& found,
                               const TraceBounds& bounds, const std::string& name) {
    TraceFile file(name);
    WEFT_TRY(file.begin());
    TracedCall traced;
    traced.ranks = std::min(bounds.ranks, found.ranks_simulated);
    traced.ranks_left_out = found.ranks_simulated - traced.ranks;
    name_ranks(file, found, traced.ranks);
    // Counters belong to a process; their process id follows the ranks.
    const int counters = fabric.ranks();
    file.add({{"ph", "M"}, {"pid", counters}, {"name", "process_name"}, {"args", {{"name", "links"}}}});
    std::set<int> links;
    for (const LinkUse& use : found.links)
        if (links.size() < bounds.links) links.insert(use.link);
    call.observe = [&](const SimulatedStep& step) {
        if (step.rank >= traced.ranks) return;
        if (traced.steps == bounds.steps)
            ++traced.steps_left_out;
        else
            ++traced.steps, add_step(file, step);
    };
    const auto add_load = [&](const SimulatedLoad& load) {
        file.add({{"ph", "C"},
                  {"pid", counters},
                  {"name", fabric.link_name(load.link)},
                  {"ts", load.at_us},
                  {"args", {{"GB/s", load.bytes_per_us / 1e3}}}});
    };
    uint64_t loads = 0;
    call.observe_load = [&](const SimulatedLoad& load) {
        if (links.count(load.link) == 0) return;
        if (loads == bounds.loads)
            ++traced.loads_left_out;
        else
            ++loads, add_load(load);
    };
    auto again = simulate(fabric, call);
    if (!again) return again.take_status();
    for (const int link : links) add_load({link, again->us, 0});
    WEFT_TRY(file.end({{"us", again->us},
                       {"ranks", fabric.ranks()},
                       {"ranks_simulated", again->ranks_simulated},
                       {"ranks_left_out", traced.ranks_left_out},
                       {"steps_left_out", traced.steps_left_out},
                       {"links_left_out", found.links.size() - links.size()},
                       {"loads_left_out", traced.loads_left_out}}));
    return traced;
}

}  // namespace weft::internal::tools
