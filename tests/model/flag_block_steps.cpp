// flag_block_steps.cpp: the effect of each step on the shared memory, and the promises that it is checked against.
#include <fmt/core.h>

#include "tests/model/flag_block_model.hpp"

namespace weft::internal::model {
namespace {

constexpr uint8_t cause_death = 1, cause_deadline = 2, cause_growth = 4;
constexpr uint8_t says_data = 1, says_yes = 2, says_no = 3, says_export = 4;  // an exported: says_export + Export

uint8_t contribution(int tile) { return uint8_t((tile + 1) << 1); }
uint8_t result(int tile) { return uint8_t((tile + 1) << 1 | 1); }
uint8_t input_of(int index) { return uint8_t(1 + 2 * index); }
uint8_t output_of(int index) { return uint8_t(2 + 2 * index); }

uint8_t sum_of(int index) { return uint8_t(128 + index); }

std::string say_slot(uint8_t value) {
    if (value == 0) return "nothing";
    return fmt::format("the {} of tile {}", value & 1 ? "result" : "contribution", (value >> 1) - 1);
}

// Slots of a one-shot are smaller than those of a two-shot, so that slots grow in mixed sequences.
uint8_t size_class(const Call& call) {
    return call.shape == Shape::one_shot_inline ? 0 : call.shape == Shape::one_shot ? 1 : 2;
}

void leave(Rank& rank) { rank.status = Status::leaving; }

}  // namespace

bool Model::holds_input(const State& state, int rank, int tile, int chunk, int index) const {
    if (!call(rank, index).in_place[rank]) return state.inputs[rank] == index + 1;
    return state.outputs[rank][tile][chunk] == input_of(index);
}

std::string Model::apply(State& state, Action action) const {
    if (action.kind == Action::watchdog) {
        state.abort_word = 1;
        return {};
    }
    Rank& self = state.ranks[action.rank];
    switch (action.kind) {
        case Action::read_word: return read_word(state, action.rank, action.peer, action.block);
        case Action::leave: leave(self); return {};
        case Action::give_up:
            state.causes |= cause_deadline;
            leave(self);
            return {};
        case Action::growth_fails:
            state.causes |= cause_growth;
            leave(self);
            return {};
        case Action::die:
            state.causes |= cause_death;
            self.status = Status::dead;
            return {};
        default: return advance(state, action.rank, action.block);
    }
}

std::string Model::advance(State& state, int rank, int block) const {
    Rank& self = state.ranks[rank];
    switch (self.status) {
        case Status::leaving:
            if (!is(Fault::leaves_silently)) state.abort_word = 1;
            self.status = Status::left;
            return {};
        case Status::left:
            state.left_words[rank] = 1;
            if (self.exported && drains()) {
                self.status = Status::draining;
                return {};
            }
            [[fallthrough]];
        case Status::draining:  // The user may do with its buffers what it likes from here on.
            self.status = Status::failed;
            self.inside = 0;
            state.inputs[rank] = 0;
            state.outputs[rank] = {};
            return {};
        default: break;
    }
    const Step step = *current(state, rank, block);
    ++(block == 0 ? self.step : self.results_step);
    return perform(state, rank, step);
}

std::string Model::read_word(State& state, int rank, int peer, int block) const {
    Rank& self = state.ranks[rank];
    const Step& step = *current(state, rank, block);
    uint8_t& seen = block == 0 ? self.seen : self.results_seen;
    const int tile = number(state, rank, step.tile);
    const Line& line = state.lines[peer][tile % scenario_.slots];
    const uint8_t word = step.kind == Step::wait_entry ? line.entry : line.done;
    if (word >> 4 != tile + 1)
        return fmt::format("rank {} waits for tile {} of rank {} and finds tile {}: out of step", rank, tile, peer,
                           (word >> 4) - 1);
    if ((word & 15) != fingerprint(rank, self.call) && !is(Fault::fingerprint_ignored)) {
        leave(self);  // a mismatch
        return {};
    }
    seen = uint8_t(seen | 1 << peer);
    int all = (1 << scenario_.ranks) - 1;
    if (is(Fault::entry_wait_of_one_dropped) && step.kind == Step::wait_entry)
        all &= ~(1 << (rank == scenario_.ranks - 1 ? scenario_.ranks - 2 : scenario_.ranks - 1));
    if ((seen & all) == all) {
        seen = 0;
        ++(block == 0 ? self.step : self.results_step);
    }
    return {};
}

std::string Model::perform(State& state, int rank, const Step& step) const {
    Rank& self = state.ranks[rank];
    const Call& own = call(rank, self.call);
    const int tile = number(state, rank, step.tile);
    const int slot =
        tile % (in_order(own.shape) ? std::min(scenario_.slots, scenario_.in_order_slots) : scenario_.slots);
    const uint8_t own_word = uint8_t((tile + 1) << 4 | fingerprint(rank, self.call));
    Line& line = state.lines[rank][tile % scenario_.slots];
    auto payload = [&](int what) { line.payload = uint8_t((tile + 1) << 4 | what); };
    // Chunks lie elsewhere in the next tile that uses the slot: sizes differ, and chunk 0 may end where chunk 1 begins.
    auto place = [&](int chunk) { return (chunk + tile / scenario_.slots) % scenario_.ranks; };
    auto read_slot = [&](int peer, int chunk, uint8_t expected) -> std::string {
        if (state.ranks[peer].backed < size_class(own))
            return fmt::format("rank {} reads slot {} of rank {} where it has no memory", rank, slot, peer);
        const uint8_t found = state.slots[peer][slot][place(chunk)];
        if (found == expected) return {};
        return fmt::format("rank {} reads chunk {} in slot {} of rank {}, wants {} and finds {}", rank, chunk, slot,
                           peer, say_slot(expected), say_slot(found));
    };
    auto write_slot = [&](int chunk, uint8_t value) -> std::string {
        if (self.backed < size_class(own))
            return fmt::format("rank {} writes its slot {} where it has no memory", rank, slot);
        state.slots[rank][slot][place(chunk)] = value;
        return {};
    };
    auto read_own_input = [&](int chunk) -> std::string {
        if (holds_input(state, rank, step.tile, chunk, self.call)) return {};
        return fmt::format("rank {} has overwritten its input of tile {} chunk {} before reading it", rank, tile,
                           chunk);
    };

    switch (step.kind) {
        case Step::begin:
            self.inside = 1;
            if (own.in_place[rank])
                for (auto& chunks : state.outputs[rank]) chunks.fill(input_of(self.call));
            else
                state.inputs[rank] = uint8_t(self.call + 1);
            return {};
        case Step::back:
            if (self.backed < size_class(own)) self.backed = size_class(own);
            return {};
        case Step::stage: {
            std::string broken = read_own_input(step.chunk);
            return broken.empty() ? write_slot(step.chunk, contribution(tile)) : broken;
        }
        case Step::stage_whole: {
            std::string broken;
            for (int chunk = 0; chunk < scenario_.ranks && broken.empty(); ++chunk) {
                broken = read_own_input(chunk);
                if (broken.empty()) broken = write_slot(chunk, contribution(tile));
            }
            return broken;
        }
        case Step::payload_data: payload(says_data); return {};
        case Step::payload_export: {
            const Export exported = self.mapping == Mapping::no ? Export::nothing : own.exports[rank];
            self.exported = exported != Export::nothing && self.mapping == Mapping::yes;
            payload(says_export + int(exported));
            return {};
        }
        case Step::payload_answer: payload(scenario_.mapped[rank] ? says_yes : says_no); return {};
        case Step::post_arrival: line.entry = own_word; return {};
        case Step::post_departure: line.done = own_word; return {};
        case Step::decide:
        case Step::agree: return decide(state, rank, step);
        case Step::read_payload:
            if (state.lines[step.chunk][tile % scenario_.slots].payload == uint8_t((tile + 1) << 4 | says_data))
                return {};
            return fmt::format("rank {} reads the payload of rank {} and finds that of another tile", rank, step.chunk);
        case Step::read_whole: {
            std::string broken;
            for (int chunk = 0; chunk < scenario_.ranks && broken.empty(); ++chunk)
                broken = read_slot(step.chunk, chunk, contribution(tile));
            return broken;
        }
        case Step::write_whole: {
            std::string broken = read_own_input(0);
            state.outputs[rank][step.tile].fill(output_of(self.call));
            return broken;
        }
        case Step::read_chunk: return read_slot(step.chunk, rank, contribution(tile));
        case Step::write_result: {
            std::string broken = read_own_input(rank);
            state.outputs[rank][step.tile][rank] = output_of(self.call);
            return broken.empty() ? write_slot(rank, result(tile)) : broken;
        }
        case Step::copy_out:
            state.outputs[rank][step.tile][step.chunk] = output_of(self.call);
            return read_slot(step.chunk, step.chunk, result(tile));
        case Step::read_direct:
            if (!scenario_.mapped[rank] && step.chunk != rank)
                return fmt::format("rank {} reads the input of rank {}, which it has not mapped", rank, step.chunk);
            // No harm yet: it is one if this rank calls it a success.
            if (!holds_input(state, step.chunk, step.tile, rank, self.call)) self.tainted = 1;
            return {};
        case Step::write_direct: {
            const Rank& peer = state.ranks[step.chunk];
            if (!scenario_.mapped[rank])
                return fmt::format("rank {} writes the output of rank {}, which it has not mapped", rank, step.chunk);
            if (peer.status != Status::dead && (!peer.inside || peer.call != self.call))
                return fmt::format("rank {} writes into the output of rank {}, which is no longer in call {}", rank,
                                   step.chunk, self.call);
            for (int each = 0; each < own.tiles; ++each) state.outputs[step.chunk][each][rank] = output_of(self.call);
            return {};
        }
        case Step::look:
            if (state.abort_word) leave(self);
            return {};
        case Step::give_back: return give_back(state, rank);
        case Step::split:
            self.part = part_entries;
            self.step = self.results_step = self.results_seen = 0;
            return {};
        case Step::write_sum: {
            std::string broken = read_own_input(rank);
            state.outputs[rank][step.tile][rank] = sum_of(self.call);
            return broken;
        }
        case Step::put_result:
            if (state.outputs[rank][step.tile][rank] != sum_of(self.call))
                return fmt::format("rank {} sends its shard of tile {} before it is summed", rank, tile);
            state.outputs[rank][step.tile][rank] = output_of(self.call);
            return write_slot(rank, result(tile));
        case Step::wait_entry:
        case Step::wait_done: break;
    }
    return "a wait is no step of its own";
}

// Decides from all payloads which exports are used; after an agreement round, whether exports count from now on.
std::string Model::decide(State& state, int rank, const Step& step) const {
    Rank& self = state.ranks[rank];
    const int tile = number(state, rank, step.tile);
    auto payload = [&](int peer) { return state.lines[peer][tile % scenario_.slots].payload; };
    auto is_of_this_tile = [&](int peer, int least, int most) {
        return payload(peer) >> 4 == tile + 1 && (payload(peer) & 15) >= least && (payload(peer) & 15) <= most;
    };
    if (step.kind == Step::agree) {
        self.mapping = Mapping::yes;
        for (int peer = 0; peer < scenario_.ranks; ++peer) {
            if (!is_of_this_tile(peer, says_yes, says_no))
                return fmt::format("rank {} reads no answer in the payload of rank {}", rank, peer);
            if ((payload(peer) & 15) == says_no) self.mapping = Mapping::no;
        }
        return {};
    }
    int inputs = 0, both = 0;
    for (int peer = 0; peer < scenario_.ranks; ++peer) {
        if (!is_of_this_tile(peer, says_export, says_export + int(Export::both)))
            return fmt::format("rank {} reads no export in the payload of rank {}", rank, peer);
        const Export exported = Export((payload(peer) & 15) - says_export);
        if (exported != Export::nothing) inputs |= 1 << peer;
        both += exported == Export::both;
    }
    Mapping mapping = self.mapping;
    if (mapping == Mapping::unknown && is(Fault::exports_without_agreement))
        mapping = scenario_.mapped[rank] ? Mapping::yes : Mapping::no;
    const bool holds_round = !is(Fault::round_of_exporters_only) || (inputs >> rank & 1);
    int part = part_staged;
    if (mapping == Mapping::yes) part = both == scenario_.ranks ? part_direct : part_staged + inputs;
    if (mapping == Mapping::unknown && inputs != 0 && holds_round) part = part_round;
    self.part = uint8_t(part);
    self.step = 0;
    uint8_t& decision = state.decisions[self.call];
    if (decision == 0) decision = uint8_t(part + 1);
    if (decision != part + 1) return fmt::format("rank {} decides otherwise than the first rank to decide", rank);
    return {};
}

// Success: the result is complete and right, and the user may do with its buffers what it likes.
std::string Model::give_back(State& state, int rank) const {
    Rank& self = state.ranks[rank];
    const Call& own = call(rank, self.call);
    if (scenario_.odd_rank >= 0 && self.call >= scenario_.odd_index)
        return fmt::format("rank {} returns success from a mismatched call", rank);
    if (self.tainted)
        return fmt::format("rank {} returns success, but has read an input that was no longer there", rank);
    for (int tile = 0; tile < own.tiles; ++tile)
        for (int chunk = 0; chunk < (own.shape == Shape::two_level ? owners(own) : scenario_.ranks); ++chunk)
            if (state.outputs[rank][tile][chunk] != output_of(self.call))
                return fmt::format("rank {} returns success without chunk {} of tile {}", rank, chunk, tile);
    self.tile = uint8_t(self.tile + (self.part == part_direct ? 1 : own.tiles) + (self.part == part_round));
    self.part = part_begin;
    self.step = self.exported = self.inside = self.results_step = self.results_seen = 0;
    state.inputs[rank] = 0;
    state.outputs[rank] = {};
    if (++self.call == scenario_.calls.size()) self.status = Status::finished;
    return {};
}

std::string Model::judge_quiet(const State& state) const {
    bool a_rank_failed = false;
    for (int rank = 0; rank < scenario_.ranks; ++rank) {
        const Status status = state.ranks[rank].status;
        if (status != Status::finished && status != Status::failed && status != Status::dead)
            return fmt::format("rank {} waits forever", rank);
        a_rank_failed |= status == Status::failed;
    }
    if (a_rank_failed && !state.abort_word) return "a rank failed and the abort word is not set";
    if (a_rank_failed && !state.causes && scenario_.odd_rank < 0) return "a rank failed without a cause";
    return {};
}

std::string Model::describe(const State& before, Action action) const {
    if (action.kind == Action::watchdog) return "the watchdog sees the dead rank and writes the abort word";
    const Rank& self = before.ranks[action.rank];
    std::string text = fmt::format("rank {} ", action.rank);
    switch (action.kind) {
        case Action::leave: return text + "sees the abort word in its wait";
        case Action::give_up: return text + "gives up its wait: the deadline has passed";
        case Action::die: return text + "dies";
        case Action::growth_fails: return text + "gets no memory for its slots";
        default: break;
    }
    if (self.status == Status::leaving) return text + "leaves the call: writes the abort word";
    if (self.status == Status::left) return text + "writes that it has left";
    if (self.status == Status::draining) return text + "returns an error; its user reuses the buffers";
    const Step& step = *current(before, action.rank, action.block);
    const int tile = number(before, action.rank, step.tile);
    const Call& own = call(action.rank, self.call);
    switch (step.kind) {
        case Step::begin: return text + fmt::format("begins call {}: {}", self.call, own.text());
        case Step::back: return text + "backs its slots with memory";
        case Step::stage: return text + fmt::format("stages chunk {} of tile {}", step.chunk, tile);
        case Step::stage_whole: return text + fmt::format("stages tile {}", tile);
        case Step::payload_data: return text + fmt::format("writes its data into the payload of tile {}", tile);
        case Step::payload_export: return text + fmt::format("writes its export into the payload of tile {}", tile);
        case Step::payload_answer: return text + fmt::format("answers in the payload of tile {}", tile);
        case Step::post_arrival: return text + fmt::format("posts entry {}", tile);
        case Step::post_departure: return text + fmt::format("posts done {}", tile);
        case Step::wait_entry: return text + fmt::format("sees entry {} of rank {}", tile, action.peer);
        case Step::wait_done: return text + fmt::format("sees done {} of rank {}", tile, action.peer);
        case Step::decide: return text + "decides from the exports of all";
        case Step::agree: return text + "decides from the answers of all";
        case Step::read_payload: return text + fmt::format("reads the payload of tile {} of rank {}", tile, step.chunk);
        case Step::read_whole: return text + fmt::format("reads tile {} of rank {}", tile, step.chunk);
        case Step::write_whole: return text + "writes its output";
        case Step::read_chunk: return text + fmt::format("reads its chunk of tile {} of rank {}", tile, step.chunk);
        case Step::write_result: return text + fmt::format("writes its result of tile {} to output and slot", tile);
        case Step::copy_out: return text + fmt::format("copies chunk {} of tile {} out", step.chunk, tile);
        case Step::read_direct:
            return text + fmt::format("reads its chunk of tile {} in the input of rank {}", tile, step.chunk);
        case Step::write_direct: return text + fmt::format("writes its result into the output of rank {}", step.chunk);
        case Step::look: return text + "looks at the abort word";
        case Step::give_back: return text + "returns success; its user reuses the buffers";
        case Step::split: return text + "goes on in two blocks";
        case Step::write_sum: return text + fmt::format("writes the sum of its shard of tile {} to its output", tile);
        case Step::put_result:
            return text + fmt::format("has its result of tile {} from the other hosts and puts it on the board", tile);
    }
    return text;
}

}  // namespace weft::internal::model
