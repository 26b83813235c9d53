#include "tools/pictures/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "src/schedule/text.hpp"

namespace weft::internal::tools {
namespace {

constexpr double track_height = 24, box_height = 16, between_ranks = 8;
constexpr double track_names = 150, width = 1000;  // of the time axis
constexpr double letters = 9;

enum class Kind { send, receive, forward, add, add_forward, copy, reduce, wait };
struct TrackLook {
    const char *caption, *colour;
};
TrackLook track_look(Kind kind) {
    switch (kind) {
        case Kind::send: return {"send", "#8fc7ec"};
        case Kind::receive: return {"receive", "#7fcfae"};
        case Kind::forward: return {"receive, send on", "#c5e59a"};
        case Kind::add: return {"receive and reduce", "#f7c46c"};
        case Kind::add_forward: return {"receive, reduce, send on", "#f09a6a"};
        case Kind::copy: return {"copy", "#cfcfcf"};
        case Kind::reduce: return {"reduce", "#dfa3c8"};
        case Kind::wait: break;
    }
    return {"waits", "#e6e6e6"};
}

Kind kind_of_step(Opcode opcode) {
    switch (opcode) {
        case Opcode::send: return Kind::send;
        case Opcode::recv: return Kind::receive;
        case Opcode::recv_copy_send: return Kind::forward;
        case Opcode::recv_reduce_copy: return Kind::add;
        case Opcode::recv_reduce_send:
        case Opcode::recv_reduce_copy_send: return Kind::add_forward;
        case Opcode::copy: return Kind::copy;
        default: return Kind::reduce;
    }
}

// 1, 2 or 5 times a power of ten: about eight ticks make `span`.
double tick_of(double span) {
    const double rough = span / 8, power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (rough <= factor * power) return factor * power;
    return 10 * power;
}

using Track = std::pair<int, int>;  // rank, block

class TimelineDrawing {
  public:
    TimelineDrawing(Svg& svg, const DrawnRun& run, Point at) : svg_(svg), run_(run), at_(at) {
        double y = at.y + 74;
        for (const Schedule& schedule : run.schedules) {
            const double top = y;
            for (size_t block = 0; block < schedule.blocks.size(); ++block) {
                if (schedule.blocks[block].instructions.empty()) continue;
                tracks_[{schedule.rank, int(block)}] = y;
                y += track_height;
            }
            if (y > top) bands_[schedule.rank] = {top, y};
            y += y > top ? between_ranks : 0;
        }
        bottom_ = y - between_ranks;
        for (const SimulatedStep& step : run.steps) end_us_ = std::max(end_us_, step.end_us);
    }

    size_t tracks() const { return tracks_.size(); }

    void draw() {
        svg_.text({at_.x, at_.y + 14}, run_.title, {14, Anchor::start, "#222222", true});
        svg_.text({at_.x, at_.y + 31}, run_.subtitle, {11, Anchor::start, "#444444"});
        draw_bands();
        draw_axis();
        draw_waits();
        draw_messages();
        for (const SimulatedStep& step : run_.steps) draw_step(step);
        draw_legend();
    }

  private:
    double x_of(double us) const { return at_.x + track_names + us / end_us_ * width; }
    const Block& block_of(const Track& track) const {
        return run_.schedules[size_t(track.first)].blocks[size_t(track.second)];
    }
    const Instruction& instruction_of(const SimulatedStep& step) const {
        return block_of({step.rank, step.block}).instructions[size_t(step.step)];
    }
    double middle_of(const Track& track) const { return tracks_.at(track) + track_height / 2; }

    void draw_bands() {
        for (const auto& [rank, band] : bands_) {
            svg_.rectangle({at_.x, band.first, track_names + width + 8, band.second - band.first}, "#f6f6f6",
                           {"#dddddd"});
            svg_.text({at_.x + 6, (band.first + band.second) / 2 + 4}, fmt::format("rank {}", rank),
                      {11, Anchor::start, "#222222", true});
        }
        for (const auto& [track, y] : tracks_) {
            const Block& block = block_of(track);
            std::string name =
                run_.schedules[size_t(track.first)].channels > 1 ? fmt::format("ch {} ", block.channel) : "";
            if (block.source >= 0) name += fmt::format("from {} ", block.source);
            if (block.target >= 0) name += fmt::format("to {}", block.target);
            if (block.source < 0 && block.target < 0)
                name += run_.schedules[size_t(track.first)].shared_ranks.empty() ? "own memory" : "board";
            svg_.text({at_.x + track_names - 6, y + track_height / 2 + 3}, name, {letters, Anchor::end, "#555555"});
        }
    }

    void draw_axis() {
        const double tick = tick_of(end_us_), y = bands_.begin()->second.first - 6;
        for (int each = 0; each * tick <= end_us_; ++each) {
            const double x = x_of(each * tick);
            svg_.line({x, y}, {x, bottom_ + 4}, {"#dddddd", 0.8});
            svg_.text({x, y - 4}, fmt::format("{:.6g}{}", each * tick, each == 0 ? " us" : ""),
                      {10, Anchor::middle, "#444444"});
        }
    }

    // Waits: from the end of a track's step, or from the start, to the begin of the next step.
    void draw_waits() {
        std::map<Track, double> free_us;
        for (const SimulatedStep& step : run_.steps) {
            const Track track{step.rank, step.block};
            const double from = x_of(std::exchange(free_us[track], step.end_us)), to = x_of(step.begin_us);
            if (to - from < 1) continue;
            svg_.rectangle({from, middle_of(track) - 3, to - from, 6}, track_look(Kind::wait).colour, {"", 0}, 0);
            drawn_.insert(Kind::wait);
        }
    }

    // Text as "3" or "3-5", with the tile before it if there are several.
    std::string chunks_of(const SimulatedStep& step) const {
        const Instruction& it = instruction_of(step);
        std::string name = fmt::format("{}", it.chunk.at(step.iteration));
        if (it.count > 1) name += fmt::format("-{}", it.chunk.at(step.iteration, it.count - 1));
        return run_.tiles > 1 ? fmt::format("{}:{}", step.tile + uint64_t(it.tile), name) : name;
    }

    void draw_step(const SimulatedStep& step) {
        const Instruction& instruction = instruction_of(step);
        const double from = x_of(step.begin_us), wide = std::max(1.0, x_of(step.end_us) - from);
        const double y = middle_of({step.rank, step.block});
        drawn_.insert(kind_of_step(instruction.opcode));
        svg_.begin_group(
            fmt::format("{}, {:.2f} to {:.2f} us", text_of(instruction, step.iteration), step.begin_us, step.end_us));
        svg_.rectangle({from, y - box_height / 2, wide, box_height},
                       track_look(kind_of_step(instruction.opcode)).colour, {"#555555", 0.6}, 2);
        const std::string name = chunks_of(step);
        if (width_of(name, letters) < wide) svg_.text({from + wide / 2, y + 3}, name, {letters, Anchor::middle});
        svg_.end_group();
    }

    // A connection keeps its order and has one block at either end, so sends and receives match in order.
    void draw_messages() {
        using Connection = std::tuple<int, int, int>;  // channel, from, to
        std::map<Connection, std::vector<const SimulatedStep*>> sent, received;
        for (const SimulatedStep& step : run_.steps) {
            const Opcode opcode = instruction_of(step).opcode;
            if (kind_of(opcode) != OpcodeKind::connection) continue;
            const Block& block = block_of({step.rank, step.block});
            if (sends(opcode)) sent[{block.channel, step.rank, block.target}].push_back(&step);
            if (receives(opcode)) received[{block.channel, block.source, step.rank}].push_back(&step);
        }
        for (const auto& [connection, from] : sent) {
            const auto& to = received[connection];
            for (size_t each = 0; each < std::min(from.size(), to.size()); ++each) draw_message(*from[each], *to[each]);
        }
    }
    void draw_message(const SimulatedStep& from, const SimulatedStep& to) {
        const double y1 = middle_of({from.rank, from.block}), y2 = middle_of({to.rank, to.block});
        const double edge = y2 > y1 ? box_height / 2 : -box_height / 2;
        const Point begin{x_of(from.end_us), y1 + edge}, end{x_of(to.begin_us) + 1, y2 - edge};
        svg_.line(begin, end, {"#333333", 0.7});
        svg_.arrow_head(begin, end, 5, "#333333");
    }

    void draw_legend() {
        double x = at_.x;
        const double y = bottom_ + 22;
        for (const Kind kind : drawn_) {
            const TrackLook look = track_look(kind);
            const bool thin = kind == Kind::wait;
            svg_.rectangle({x, y - (thin ? 3.0 : 6.0), 22, thin ? 6.0 : 12.0}, look.colour, {"#555555", thin ? 0 : 0.6},
                           2);
            svg_.text({x + 28, y + 4}, look.caption);
            x += 28 + width_of(look.caption, 11) + 16;
        }
        svg_.text({at_.x, y + 24},
                  fmt::format("Arrows are messages. Numbers are chunks, of {}{}.", run_.schedules[0].chunks,
                              run_.tiles > 1 ? "; before the colon the tile" : ""));
    }

    Svg& svg_;
    const DrawnRun& run_;
    Point at_;
    std::map<Track, double> tracks_;                  // their upper edges
    std::map<int, std::pair<double, double>> bands_;  // of each rank
    double bottom_ = 0, end_us_ = 0;
    std::set<Kind> drawn_;
};

}  // namespace

Status draw_timeline(Svg& svg, const DrawnRun& run, Point at) {
    if (run.steps.empty()) return fail(error::command_input, "no step moves any bytes, so there is nothing to draw");
    if (run.steps.size() > steps_drawn_most)
        return fail(error::usage_limit, "a picture shows at most {} steps; use fewer --ranks or --bytes",
                    steps_drawn_most);
    TimelineDrawing drawing(svg, run, at);
    if (drawing.tracks() > tracks_drawn_most)
        return fail(error::usage_limit, "a picture shows at most {1} tracks, not {0}; use fewer --ranks or --channels",
                    drawing.tracks(), tracks_drawn_most);
    drawing.draw();
    return ok();
}

}  // namespace weft::internal::tools
