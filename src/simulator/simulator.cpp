#include "src/simulator/simulator.hpp"

#include <algorithm>
#include <functional>

#include "src/schedule/tiles.hpp"
#include "src/simulator/simulated_ranks.hpp"
#include "src/simulator/symmetry.hpp"

namespace weft::internal {

namespace {

// Most tiles in one run of a pipelined two-shot. The executor overlaps all tiles, so one seam in 64 is simulated
// wrongly.
constexpr uint64_t pipelined_most = 64;
// The bits that a rank has in the key of a connection.
constexpr int simulated_ranks_most = 1 << 26;

class Preparation {
  public:
    Preparation(const Fabric& fabric, const SimulatedCall& call) : fabric_(fabric), call_(call) {}

    Result<Simulation> run() {
        if (fabric_.ranks() < 1 || fabric_.ranks() > simulated_ranks_most)
            return fail(error::schedule_limit, "{} ranks cannot be simulated; there may be 1..{}", fabric_.ranks(),
                        simulated_ranks_most);
        const Schedule first = call_.schedule(0);
        if (first.ranks != fabric_.ranks())
            return fail(error::schedule_fabric, "the schedules are of {} ranks, the fabric of {}", first.ranks,
                        fabric_.ranks());
        size_tiles(first);
        // The planner refuses it likewise.
        if (tile_bytes_ == 0 && call_.bytes > 0)
            return fail(error::schedule_limit, "messages of {} parts do not fit into slots of {} bytes", first.span,
                        fabric_.costs().slot_bytes);
        int period = first.ranks;
        if (symmetric(first)) period = fabric_.rotation();
        SimulatedRanks machine(fabric_, call_, {first.ranks, period, call_.bytes, tile_bytes_, even_, tiles_});
        SimulatedEffort effort{.ranks = period, .too_uneven = too_uneven_};
        for (int rank = 0; rank < period; ++rank) {
            Schedule schedule = elementary(rank == 0 ? first : call_.schedule(rank));
            if (call_.weigh) {
                ++effort.prepared;
                effort.steps += steps_of(schedule);
                WEFT_TRY(call_.weigh(effort));
            }
            machine.add(std::move(schedule));
        }
        WEFT_TRY(machine.connect());
        WEFT_TRY(machine.run());
        return read(machine, period);
    }

  private:
    void size_tiles(const Schedule& first) {
        const RankCosts& costs = fabric_.costs();
        size_t tile = call_.tile_bytes;
        if (tile == 0)
            tile = tile_bytes_of(first, call_.bytes,
                                 {.wanted = call_.wanted_tile_bytes,
                                  .slot_bytes = slot_bytes_of(costs.slot_bytes, first.fifo_depth),
                                  .shared_slot_bytes = costs.shared_slot_bytes});
        // If every rank accesses all buffers directly, a fused instruction is one tile.
        if ((is_one_shot(first) || is_two_shot(first)) && call_.mode.direct(first.ranks)) tile = call_.bytes;
        tile_bytes_ = std::min(tile, call_.bytes);
        tiles_ = tile_bytes_ == 0 ? 1 : tiles_of(call_.bytes, tile_bytes_);
    }

    Schedule elementary(Schedule schedule) const {
        if (pays_pipelined(schedule, call_.bytes, tile_bytes_))
            return expand_pipelined(schedule, call_.mode, int(std::min(tiles_, pipelined_most)));
        return expand(schedule, call_.mode);
    }

    // Of a rank in all tiles.
    uint64_t steps_of(const Schedule& schedule) const {
        uint64_t steps = 0;
        for (const Block& block : schedule.blocks)
            for (const Instruction& instruction : block.instructions) steps += uint64_t(instruction.repeat);
        const auto tiles_a_run = uint64_t(schedule.tiles);
        return steps * ((tiles_ + tiles_a_run - 1) / tiles_a_run);
    }

    // Turns between those that are compared with the first one. All are compared, unless their schedules are very long.
    static int turns_apart(const Schedule& first) {
        constexpr uint64_t compared_most = 20'000'000;  // instructions: some seconds
        uint64_t instructions = 0;
        for (const Block& block : first.blocks) instructions += block.instructions.size();
        return int(instructions * uint64_t(first.ranks) / compared_most) + 1;
    }

    // Whether more than a quarter of the chunks are empty, and skipped, so that the mean would be too wrong. In
    // messages of many chunks few are empty.
    static bool too_uneven(const Schedule& schedule, size_t length) {
        return schedule.span == 1 && length / size_t(schedule.chunks / schedule.parts()) < 48;
    }

    // Whether the ranks of one turn can stand for all. Builds the schedules of all ranks to find out, or of many.
    bool symmetric(const Schedule& first) {
        const int period = fabric_.rotation();
        const std::vector<bool>& readable = call_.mode.readable;
        if (std::adjacent_find(readable.begin(), readable.end(), std::not_equal_to<>()) != readable.end()) return false;
        if (call_.symmetry == Symmetry::none || period >= first.ranks || first.ranks % period != 0) return false;
        const size_t last = call_.bytes - (tiles_ - 1) * tile_bytes_;
        even_ = !chunks_alike(first, tile_bytes_) || !chunks_alike(first, last);
        too_uneven_ = even_ && call_.symmetry == Symmetry::even && too_uneven(first, last) &&
                      steps_of(first) <= call_.steps_most / uint64_t(first.ranks);
        if (even_ && (call_.symmetry != Symmetry::even || too_uneven_)) return even_ = false;
        std::vector<Schedule> turn = {first};
        for (int rank = 1; rank < period; ++rank) turn.push_back(call_.schedule(rank));
        const int turns = first.ranks / period, apart = turns_apart(first);
        for (int other = 1; other < turns; other = other < turns - 1 ? std::min(other + apart, turns - 1) : turns)
            for (int rank = 0; rank < period; ++rank)
                if (!turns_into(turn[size_t(rank)], call_.schedule(other * period + rank), period))
                    return even_ = false;
        for (const Schedule& schedule : turn)
            if (!shared_ranks_turn(schedule, period)) return even_ = false;
        return true;
    }

    Simulation read(const SimulatedRanks& machine, int period) const {
        const int turns = fabric_.ranks() / period;
        const double start_us = fabric_.costs().start_us;
        Simulation found;
        found.us = start_us + machine.now_us();
        found.ranks_simulated = period;
        found.even = even_;
        found.tile_bytes = tile_bytes_;
        found.tiles = tiles_;
        found.messages = machine.messages() * uint64_t(turns);
        found.message_bytes = machine.message_bytes() * turns;
        found.events = machine.events();
        found.links = machine.link_uses();
        found.blocks = machine.block_uses();
        for (int rank = 0; rank < fabric_.ranks(); ++rank) {
            found.ranks.push_back(rank < period ? machine.rank_use(rank) : found.ranks[size_t(rank % period)]);
            if (found.ranks[size_t(rank)].end_us > found.ranks[size_t(found.critical_rank)].end_us)
                found.critical_rank = rank;
        }
        return found;
    }

    const Fabric& fabric_;
    const SimulatedCall& call_;
    size_t tile_bytes_ = 0;
    uint64_t tiles_ = 1;
    bool even_ = false, too_uneven_ = false;
};

}  // namespace

Result<Simulation> simulate(const Fabric& fabric, const SimulatedCall& call) { return Preparation(fabric, call).run(); }

}  // namespace weft::internal
