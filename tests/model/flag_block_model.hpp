// flag_block_model.hpp: the flag block's protocol (docs/design/shared-memory-protocol.md) as a finite state machine of all ranks together.
// Written from the text alone and independent of the executor, so that explore() can try every interleaving of it.
//
// Memory model: words are sequentially consistent and read one a step. Payloads, slots and user buffers are ordinary
// memory, written in separate steps. Every value carries its tile or operation, so a race shows. If the words do not
// order a read and a write, both orders are explored, and one of them reads an unexpected value.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace weft::internal::model {

inline constexpr int ranks_most = 3;
inline constexpr int slots_most = 4;
inline constexpr int tiles_most = 5;
inline constexpr int calls_most = 3;

enum class Shape : uint8_t { one_shot_inline, one_shot, one_shot_exporting, two_shot, two_shot_pipelined, two_level };
// Each rank reads all of a tile before it posts the next.
constexpr bool in_order(Shape shape) { return shape <= Shape::two_shot; }
enum class Export : uint8_t { nothing, input, both };

// One call as every rank makes it; `exports` and `in_place` are what each rank alone knows, and no part of the
// fingerprint.
struct Call {
    Shape shape = Shape::one_shot_inline;
    int tiles = 1;
    std::array<Export, ranks_most> exports{};
    std::array<bool, ranks_most> in_place{};
    int owners = ranks_most;  // of a two-level call: at most the first so many ranks own a shard
    std::string text() const;
};

// Mutations of the protocol: each must be found by the explorer in some scenario, else the explorer proves nothing.
enum class Fault : uint8_t {
    none,
    entry_before_staging,       // the entry is posted, then the slot written
    entry_before_payload,       // the same with the line's payload
    next_entry_before_reads,    // one-shot posts the next tile before it has read this one
    done_before_result,         // done is posted before the own slot holds the result
    done_wait_dropped,          // staged: copies the others' chunks without waiting for their dones
    direct_done_wait_dropped,   // direct: returns without waiting for the others' dones
    entry_wait_of_one_dropped,  // does not wait for the entry of the highest other rank
    exports_without_agreement,  // while mapping is unknown, each rank believes its own mapping
    exporters_do_not_stage,     // an offering rank does not stage even while it is unknown whether exports count
    round_of_exporters_only,    // only ranks that offer hold the agreement round
    growth_after_staging,       // slots are backed after they are written
    old_done_is_an_error,       // a done word older than that of the slot's last tile is taken for out of step
    fingerprint_ignored,        // an entry of this tile is taken whatever operation it names
    leaves_silently,            // an early leaver does not write the abort word
    abort_not_watched,          // waits do not look at the abort word
    buffers_without_look,       // does not look at the abort word before and after the use of others' buffers
    leaves_without_drain,       // an early leaver gives its buffers back while peers may still use them
    neither_look_nor_drain,
    owners_stage_at_once,     // an owner stages without regard to who reads its results of the slot's last tile
    owners_stage_early,       // an owner waits for the dones of a tile earlier than it must
    result_before_sum,        // an owner puts its result on the flag block before its shard is summed
    done_before_last_copies,  // done posted before the results of the tile before are copied out
};
const char* name_of(Fault fault);

struct Scenario {
    int ranks = 2;
    int slots = 4;
    int in_order_slots = 4;  // that the data of plain calls go round in, if there are as many; a power of two
    std::vector<Call> calls{};
    std::array<bool, ranks_most> mapped{true, true, true};  // what each rank answers in an agreement round
    int odd_rank = -1;                                      // makes `odd_call` in place of call number `odd_index`
    int odd_index = -1;
    Call odd_call{};
    bool may_die = false;      // one rank may die between any two steps
    bool may_give_up = false;  // one rank's deadline may pass in any wait
    bool growth_may_fail = false;
    Fault fault = Fault::none;
    std::string text() const;
};

enum class Status : uint8_t { running, leaving, left, draining, failed, finished, dead };
enum class Mapping : uint8_t { unknown, yes, no };

struct Line {
    uint8_t entry;  // (tile + 1) << 4 | fingerprint, as in shm_layout.hpp but smaller
    uint8_t done;
    uint8_t payload;  // (tile + 1) << 4 | what it says
};

struct Rank {
    Status status;
    uint8_t call;  // index; the number of calls: all done
    uint8_t part;  // which program of the call, see Model
    uint8_t step;  // index in it
    uint8_t seen;  // bits of the ranks whose word the current wait has read
    Mapping mapping;
    uint8_t tile;                        // number of the call's first tile
    uint8_t exported;                    // peers may use the own buffers in this call
    uint8_t backed;                      // size class of the own slots that has memory
    uint8_t tainted;                     // has read another rank's input that did not hold this call's data
    uint8_t inside;                      // between call and return: the buffers are Weft's
    uint8_t results_step, results_seen;  // of the second block of a two-level call
};

// All of the world; compared and hashed as bytes, so it has no padding.
struct State {
    std::array<Rank, ranks_most> ranks;
    std::array<std::array<Line, slots_most>, ranks_most> lines;
    // slots[rank][slot][place]: (tile + 1) << 1 | whether it is a result
    std::array<std::array<std::array<uint8_t, ranks_most>, slots_most>, ranks_most> slots;
    std::array<uint8_t, ranks_most> inputs;  // which call's data the send buffer holds: call + 1, 0: the user's own
    // outputs[rank][tile][chunk]: 1 + 2 * call: its input (in place), 2 + 2 * call: its result, 0: the user's data. A
    // two-level call also has the host's sum, see sum_of().
    std::array<std::array<std::array<uint8_t, ranks_most>, tiles_most>, ranks_most> outputs;
    std::array<uint8_t, ranks_most> left_words;
    std::array<uint8_t, calls_most> decisions;  // what the first rank to decide decided, + 1; not part of the protocol
    uint8_t abort_word;
    uint8_t causes;  // bits: somebody died, gave up, failed to grow; not part of the protocol
};
static_assert(std::has_unique_object_representations_v<State>);

struct Action {
    enum Kind : uint8_t { advance, read_word, leave, give_up, die, growth_fails, watchdog };
    uint8_t rank;
    Kind kind;
    uint8_t peer;
    uint8_t block = 0;  // 1: the second of a two-level call
};

// One instruction of a rank's program for a call.
struct Step {
    enum Kind : uint8_t {
        begin,
        back,
        stage,
        stage_whole,
        payload_data,
        payload_export,
        payload_answer,
        post_arrival,
        post_departure,
        wait_entry,
        wait_done,
        decide,
        agree,
        read_payload,
        read_whole,
        write_whole,
        read_chunk,
        write_result,
        copy_out,
        read_direct,
        write_direct,
        look,
        give_back,
        split,       // from here on in two blocks, which take turns as they like
        write_sum,   // of the own host, into the output
        put_result,  // what came of it between the hosts, which may take for ever
    };
    Kind kind;
    uint8_t tile = 0;   // of the call; round_tile: the agreement round
    uint8_t chunk = 0;  // or rank
    uint8_t after = 0;  // not before the other block has done so many steps
};
using Program = std::vector<Step>;

class Model {
  public:
    explicit Model(const Scenario& scenario);
    State initial() const;
    // The actions possible in `state`; returns true if one of them must happen sooner or later (death need not).
    bool actions(const State& state, std::vector<Action>& possible) const;
    // Performs it; an empty text, or how it broke a promise.
    std::string apply(State& state, Action action) const;
    // Nothing more will happen by itself: empty, or what promise is broken.
    std::string judge_quiet(const State& state) const;
    std::string describe(const State& before, Action action) const;

  private:
    // Parts of a call: the part before the decision, then one of three. Staged, with an agreement round at the end;
    // staged, with some inputs read in place (bits of ranks, from part_staged on: none); direct. A two-level call has
    // its two blocks instead.
    static constexpr int part_begin = 0, part_round = 1, part_staged = 2, part_direct = 10, part_entries = 11,
                         part_results = 12, parts = 13;
    static constexpr uint8_t round_tile = 15;

    const Call& call(int rank, int index) const;
    uint8_t fingerprint(int rank, int index) const { return fingerprints_[rank][index]; }
    uint8_t fingerprint_of(const Call& call) const;
    bool is(Fault fault) const { return scenario_.fault == fault; }
    const Program& program(const State& state, int rank, int block) const;
    // Nothing: the block has ended, or must let the other go first.
    const Step* current(const State& state, int rank, int block) const;
    bool waits(const State& state, int rank) const;
    void add_reads(const State& state, int rank, int block, std::vector<Action>& possible) const;
    int number(const State& state, int rank, int tile) const;
    bool may_still_use_us(const State& state, int self, int peer) const;

    Program beginning(int rank, int index, Mapping mapping) const;
    Program body(int rank, int index, int part) const;
    void make_two_level(int rank, int index, Program& entries, Program& results) const;
    int owners(const Call& call) const { return call.owners < scenario_.ranks ? call.owners : scenario_.ranks; }
    void reduce(Program& program, int rank, int tile, int inputs_in_place) const;
    bool looks() const { return !is(Fault::buffers_without_look) && !is(Fault::neither_look_nor_drain); }
    bool drains() const { return !is(Fault::leaves_without_drain) && !is(Fault::neither_look_nor_drain); }

    std::string advance(State& state, int rank, int block) const;
    std::string perform(State& state, int rank, const Step& step) const;
    std::string read_word(State& state, int rank, int peer, int block) const;
    std::string decide(State& state, int rank, const Step& step) const;
    std::string give_back(State& state, int rank) const;
    bool holds_input(const State& state, int rank, int tile, int chunk, int index) const;

    Scenario scenario_;
    // programs_[rank][call][mapping at its beginning][part]; only the beginning depends on the mapping
    std::array<std::array<std::array<std::array<Program, parts>, 3>, calls_most>, ranks_most> programs_;
    std::array<std::array<uint8_t, calls_most>, ranks_most> fingerprints_{};
};

}  // namespace weft::internal::model
