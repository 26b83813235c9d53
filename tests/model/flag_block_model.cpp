// flag_block_model.cpp: each rank's steps of a call, as lists, and the steps that are possible in a state.
#include "tests/model/flag_block_model.hpp"

#include <fmt/core.h>

namespace weft::internal::model {
namespace {

const char* name_of(Shape shape) {
    switch (shape) {
        case Shape::one_shot_inline: return "one-shot in the payload";
        case Shape::one_shot: return "one-shot";
        case Shape::one_shot_exporting: return "one-shot that exports";
        case Shape::two_shot: return "two-shot";
        case Shape::two_shot_pipelined: return "pipelined two-shot";
        case Shape::two_level: return "two-level";
    }
    return "?";
}

bool says_exports(const Call& call) {
    return call.shape == Shape::one_shot_exporting || call.shape == Shape::two_shot ||
           call.shape == Shape::two_shot_pipelined;
}

}  // namespace

const char* name_of(Fault fault) {
    switch (fault) {
        case Fault::none: return "none";
        case Fault::entry_before_staging: return "entry posted before staging";
        case Fault::entry_before_payload: return "entry posted before the payload is written";
        case Fault::next_entry_before_reads: return "next entry posted before the last read of this tile";
        case Fault::done_before_result: return "done posted before the result is written";
        case Fault::done_wait_dropped: return "done wait dropped when staged";
        case Fault::direct_done_wait_dropped: return "done wait dropped when direct";
        case Fault::entry_wait_of_one_dropped: return "entry of one rank not waited for";
        case Fault::exports_without_agreement: return "exports used without agreement";
        case Fault::exporters_do_not_stage: return "offering ranks do not stage before the agreement";
        case Fault::round_of_exporters_only: return "agreement round held by offering ranks only";
        case Fault::growth_after_staging: return "slots backed after they are written";
        case Fault::old_done_is_an_error: return "an older done word than the slot's last is taken for out of step";
        case Fault::fingerprint_ignored: return "fingerprint ignored";
        case Fault::leaves_silently: return "early leaver does not write the abort word";
        case Fault::abort_not_watched: return "waits do not look at the abort word";
        case Fault::buffers_without_look: return "no look at the abort word around the use of others' buffers";
        case Fault::leaves_without_drain: return "early leaver does not wait for peers that use its buffers";
        case Fault::neither_look_nor_drain: return "neither a look around the use of buffers nor a wait before leaving";
        case Fault::owners_stage_at_once: return "owners stage without waiting for the dones of earlier tiles";
        case Fault::owners_stage_early: return "owners wait for the dones of a tile too early";
        case Fault::result_before_sum: return "results put on the board before the sum is there";
        case Fault::done_before_last_copies: return "done posted before the results of the tile before are copied out";
    }
    return "?";
}

std::string Call::text() const {
    std::string text = name_of(shape);
    if (tiles > 1) text += fmt::format(" of {} tiles", tiles);
    if (shape == Shape::two_level && owners < ranks_most) text += fmt::format(", {} owners", owners);
    for (int rank = 0; rank < ranks_most; ++rank) {
        if (exports[rank] != Export::nothing)
            text += fmt::format(", rank {} exports {}", rank, exports[rank] == Export::both ? "both" : "its input");
        if (in_place[rank]) text += fmt::format(", rank {} in place", rank);
    }
    return text;
}

std::string Scenario::text() const {
    std::string text = fmt::format("{} ranks, {} slots", ranks, slots);
    if (in_order_slots < slots) text += fmt::format(", {} for plain calls", in_order_slots);
    for (const Call& call : calls) text += "; " + call.text();
    if (odd_rank >= 0) text += fmt::format("; but rank {} makes call {} a {}", odd_rank, odd_index, odd_call.text());
    for (int rank = 0; rank < ranks; ++rank)
        if (!mapped[rank]) text += fmt::format("; rank {} cannot map", rank);
    if (may_die) text += "; death";
    if (may_give_up) text += "; deadlines";
    if (growth_may_fail) text += "; growth fails";
    if (fault != Fault::none) text += fmt::format("; fault: {}", model::name_of(fault));
    return text;
}

Model::Model(const Scenario& scenario) : scenario_(scenario) {
    for (int rank = 0; rank < scenario_.ranks; ++rank)
        for (int index = 0; index < int(scenario_.calls.size()); ++index) {
            fingerprints_[rank][index] = fingerprint_of(call(rank, index));
            for (int mapping = 0; mapping < 3; ++mapping) {
                auto& programs = programs_[rank][index][mapping];
                programs[part_begin] = beginning(rank, index, Mapping(mapping));
                for (int part = part_round; part <= part_direct; ++part) programs[part] = body(rank, index, part);
                make_two_level(rank, index, programs[part_entries], programs[part_results]);
            }
        }
}

const Call& Model::call(int rank, int index) const {
    return rank == scenario_.odd_rank && index == scenario_.odd_index ? scenario_.odd_call : scenario_.calls[index];
}

// Calls that differ in what must be agreed have different fingerprints; exports and in place are each rank's own.
uint8_t Model::fingerprint_of(const Call& call) const {
    uint8_t number = 1;
    for (const Call& each : scenario_.calls) {
        if (each.shape == call.shape && each.tiles == call.tiles && each.owners == call.owners) break;
        ++number;
    }
    return number;
}

// All up to the decision; for one-shot, the whole call.
Program Model::beginning(int rank, int index, Mapping mapping) const {
    const Call& own = call(rank, index);
    Program program{{Step::begin}};
    auto add = [&](Step::Kind kind, int tile = 0, int chunk = 0) {
        program.push_back({kind, uint8_t(tile), uint8_t(chunk)});
    };
    const bool is_inline = own.shape == Shape::one_shot_inline;
    if (!is_inline && !is(Fault::growth_after_staging)) add(Step::back);
    if (own.shape == Shape::two_level) {
        add(Step::split);
        return program;
    }
    if (!says_exports(own)) {
        auto post = [&](int tile) {
            if (is(Fault::entry_before_staging)) add(Step::post_arrival, tile);
            if (!is_inline) add(Step::stage_whole, tile);
            if (is(Fault::entry_before_payload)) add(Step::post_arrival, tile);
            add(Step::payload_data, tile);
            if (!is(Fault::entry_before_staging) && !is(Fault::entry_before_payload)) add(Step::post_arrival, tile);
        };
        auto read = [&](int tile) {
            for (int peer = 0; peer < scenario_.ranks; ++peer)
                if (peer != rank) add(is_inline ? Step::read_payload : Step::read_whole, tile, peer);
            add(Step::write_whole, tile);
        };
        const bool early = is(Fault::next_entry_before_reads);
        for (int tile = 0; tile < own.tiles; ++tile) {
            if (tile == 0 || !early) post(tile);
            add(Step::wait_entry, tile);
            if (early && tile + 1 < own.tiles) post(tile + 1);
            read(tile);
        }
        add(Step::give_back);
        return program;
    }
    if (is(Fault::entry_before_payload)) add(Step::post_arrival);
    add(Step::payload_export);
    if (is(Fault::entry_before_staging)) add(Step::post_arrival);
    // While it is unknown whether exports count, all stage, also ranks that export.
    const bool read_in_place =
        own.exports[rank] != Export::nothing &&
        (mapping == Mapping::yes || (mapping == Mapping::unknown && is(Fault::exporters_do_not_stage)));
    const bool whole = own.shape == Shape::one_shot_exporting;
    if (whole && !read_in_place) add(Step::stage_whole);
    for (int chunk = 0; chunk < scenario_.ranks; ++chunk)
        if (chunk != rank && !whole && !read_in_place) add(Step::stage, 0, chunk);
    if (is(Fault::growth_after_staging)) add(Step::back);
    if (!is(Fault::entry_before_payload) && !is(Fault::entry_before_staging)) add(Step::post_arrival);
    add(Step::wait_entry);
    add(Step::decide);
    return program;
}

// Reduces the own chunk of `tile`: the contributions of the ranks in `inputs_in_place` from their buffers.
void Model::reduce(Program& program, int rank, int tile, int inputs_in_place) const {
    for (int peer = 0; peer < scenario_.ranks; ++peer) {
        if (peer == rank) continue;
        const bool in_place = inputs_in_place >> peer & 1;
        program.push_back({in_place ? Step::read_direct : Step::read_chunk, uint8_t(tile), uint8_t(peer)});
    }
    program.push_back({Step::write_result, uint8_t(tile), uint8_t(rank)});
}

// The steps after the decision of a call that exports its buffers.
Program Model::body(int rank, int index, int part) const {
    const Call& own = call(rank, index);
    const int ranks = scenario_.ranks;
    Program program;
    auto add = [&](Step::Kind kind, int tile = 0, int chunk = 0) {
        program.push_back({kind, uint8_t(tile), uint8_t(chunk)});
    };
    auto for_others = [&](auto step) {
        for (int other = 0; other < ranks; ++other)
            if (other != rank) step(other);
    };
    const bool uses_buffers = part > part_staged;
    if (uses_buffers && looks()) add(Step::look);
    if (part == part_direct) {
        for (int peer = 0; peer < ranks; ++peer)
            for (int tile = 0; tile < own.tiles; ++tile) add(Step::read_direct, tile, peer);
        for (int peer = 0; peer < ranks; ++peer) add(Step::write_direct, 0, peer);
        add(Step::post_departure, 0);
        if (!is(Fault::direct_done_wait_dropped)) add(Step::wait_done, 0);
        if (uses_buffers && looks()) add(Step::look);
        add(Step::give_back);
        return program;
    }
    const int in_place = part == part_round ? 0 : part - part_staged;
    const bool pipelined = own.shape == Shape::two_shot_pipelined;
    const bool whole = own.shape == Shape::one_shot_exporting;
    auto stage = [&](int tile) {
        if (in_place >> rank & 1) return;
        if (whole)
            add(Step::stage_whole, tile);
        else
            for_others([&](int chunk) { add(Step::stage, tile, chunk); });
    };
    auto copy_out = [&](int tile) { for_others([&](int chunk) { add(Step::copy_out, tile, chunk); }); };
    auto reduce_and_post = [&](int tile) {
        if (is(Fault::done_before_result)) add(Step::post_departure, tile);
        reduce(program, rank, tile, in_place);
        if (!is(Fault::done_before_result)) add(Step::post_departure, tile);
    };
    auto wait_done = [&](int tile) {
        if (!is(Fault::done_wait_dropped)) add(Step::wait_done, tile);
    };
    if (whole && in_place == 0) {
        for (int tile = 0; tile < own.tiles; ++tile) {
            for_others([&](int peer) { add(Step::read_whole, tile, peer); });
            add(Step::write_whole, tile);
            if (tile + 1 == own.tiles) break;
            stage(tile + 1);
            add(Step::post_arrival, tile + 1);
            add(Step::wait_entry, tile + 1);
        }
    } else if (pipelined) {
        // The fused loop: staging is as early and copying out as late in it as can be, the worst for reuse.
        for (int tile = 0; tile <= own.tiles; ++tile) {
            const auto post_departure = [&](bool now) {
                if (now && tile < own.tiles) add(Step::post_departure, tile);
            };
            const bool before_result = is(Fault::done_before_result),
                       before_copies = is(Fault::done_before_last_copies);
            if (tile + 1 < own.tiles) stage(tile + 1);
            post_departure(before_result);
            if (tile < own.tiles) reduce(program, rank, tile, in_place);
            post_departure(before_copies);
            if (tile > 0) copy_out(tile - 1);
            if (tile + 1 < own.tiles) add(Step::post_arrival, tile + 1);
            post_departure(!before_result && !before_copies);
            if (tile + 1 < own.tiles) add(Step::wait_entry, tile + 1);
            if (tile < own.tiles) wait_done(tile);
        }
    } else {
        for (int tile = 0; tile < own.tiles; ++tile) {
            reduce_and_post(tile);
            wait_done(tile);
            copy_out(tile);
            if (tile + 1 == own.tiles) break;
            stage(tile + 1);
            add(Step::post_arrival, tile + 1);
            add(Step::wait_entry, tile + 1);
        }
    }
    if (part == part_round)
        for (Step::Kind kind : {Step::payload_answer, Step::post_arrival, Step::wait_entry, Step::agree})
            add(kind, round_tile);
    if (uses_buffers && looks()) add(Step::look);
    add(Step::give_back);
    return program;
}

State Model::initial() const {
    State state{};
    for (int rank = scenario_.ranks; rank < ranks_most; ++rank) state.ranks[rank].status = Status::finished;
    return state;
}

const Program& Model::program(const State& state, int rank, int block) const {
    const Rank& self = state.ranks[rank];
    return programs_[rank][self.call][int(self.part == part_begin ? self.mapping : Mapping::unknown)]
                    [block == 0 ? self.part : part_results];
}

const Step* Model::current(const State& state, int rank, int block) const {
    const Rank& self = state.ranks[rank];
    if (block == 1 && self.part != part_entries) return nullptr;
    const Program& steps = program(state, rank, block);
    const size_t own = block == 0 ? self.step : self.results_step, other = block == 0 ? self.results_step : self.step;
    return own < steps.size() && other >= steps[own].after ? &steps[own] : nullptr;
}

bool Model::waits(const State& state, int rank) const {
    if (state.ranks[rank].status != Status::running) return false;
    for (const int block : {0, 1})
        if (const Step* step = current(state, rank, block))
            if (step->kind == Step::wait_entry || step->kind == Step::wait_done || step->kind == Step::put_result)
                return true;
    return false;
}

// The words that the block's wait has not read and may.
void Model::add_reads(const State& state, int rank, int block, std::vector<Action>& possible) const {
    const Rank& self = state.ranks[rank];
    const Step& step = *current(state, rank, block);
    const int tile = number(state, rank, step.tile), seen = block == 0 ? self.seen : self.results_seen;
    for (int peer = 0; peer < scenario_.ranks; ++peer) {
        if (seen >> peer & 1) continue;
        const Line& line = state.lines[peer][tile % scenario_.slots];
        // Not there yet: the entry of the slot's last tile, or any older done, for not every tile posts one.
        const int word = (step.kind == Step::wait_entry ? line.entry : line.done) >> 4;
        const bool is_old = word == 0 || word == tile + 1 - scenario_.slots ||
                            (step.kind == Step::wait_done && word < tile + 1 && !is(Fault::old_done_is_an_error));
        if (!is_old) possible.push_back({uint8_t(rank), Action::read_word, uint8_t(peer), uint8_t(block)});
    }
}

// The flag block's number of the current call's tile; an agreement round takes the number after the last tile's.
int Model::number(const State& state, int rank, int tile) const {
    const Rank& self = state.ranks[rank];
    return self.tile + (tile == round_tile ? call(rank, self.call).tiles : tile);
}

// May `peer` still read or write the buffers of `self`, which leaves a call early? Not if it has left too, has died,
// has posted its last done, or has not come: it looks at the abort word before it touches anything.
bool Model::may_still_use_us(const State& state, int self, int peer) const {
    const Rank& own = state.ranks[self];
    if (state.ranks[peer].status == Status::dead || state.left_words[peer]) return false;
    if (state.lines[peer][own.tile % scenario_.slots].entry >> 4 != own.tile + 1) return false;
    if (own.part < part_staged) return true;
    const int last = number(state, self, own.part == part_direct ? 0 : call(self, own.call).tiles - 1);
    return state.lines[peer][last % scenario_.slots].done >> 4 != last + 1;
}

bool Model::actions(const State& state, std::vector<Action>& possible) const {
    possible.clear();
    bool waiting[ranks_most] = {};
    bool lively = false, a_rank_is_dead = false, a_rank_waits = false;
    for (int rank = 0; rank < scenario_.ranks; ++rank) {
        a_rank_is_dead |= state.ranks[rank].status == Status::dead;
        waiting[rank] = waits(state, rank);
        a_rank_waits |= waiting[rank];
    }
    for (int rank = 0; rank < scenario_.ranks; ++rank) {
        const Rank& self = state.ranks[rank];
        auto add = [&](Action::Kind kind, int block = 0) {
            possible.push_back({uint8_t(rank), kind, 0, uint8_t(block)});
            lively |= kind == Action::advance || kind == Action::leave;
        };
        switch (self.status) {
            case Status::finished:
            case Status::failed:
            case Status::dead: continue;
            case Status::leaving:
            case Status::left: add(Action::advance); break;
            case Status::draining: {
                bool used = false;
                for (int peer = 0; peer < scenario_.ranks; ++peer)
                    used |= peer != rank && may_still_use_us(state, rank, peer);
                if (!used) add(Action::advance);
                break;
            }
            case Status::running: {
                for (const int block : {0, 1}) {
                    const Step* step = current(state, rank, block);
                    if (!step) continue;
                    if (step->kind == Step::wait_entry || step->kind == Step::wait_done) {
                        const size_t before = possible.size();
                        add_reads(state, rank, block, possible);
                        lively |= possible.size() > before;
                        continue;
                    }
                    add(Action::advance, block);
                    if (step->kind == Step::back && scenario_.growth_may_fail && state.causes == 0)
                        add(Action::growth_fails);
                }
                if (!waiting[rank]) break;
                if (state.abort_word && !is(Fault::abort_not_watched)) add(Action::leave);
                if (scenario_.may_give_up && state.causes == 0) add(Action::give_up);
                break;
            }
        }
        if (scenario_.may_die && state.causes == 0) add(Action::die);
    }
    if (a_rank_is_dead && a_rank_waits && !state.abort_word) {
        possible.push_back({0, Action::watchdog, 0});
        lively = true;
    }
    return lively;
}

}  // namespace weft::internal::model
