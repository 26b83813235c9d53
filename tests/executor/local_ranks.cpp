#include "tests/executor/local_ranks.hpp"

#include <unistd.h>

#include <atomic>
#include <deque>
#include <stdexcept>
#include <thread>

#include "src/base/datatype.hpp"
#include "src/base/process_token.hpp"
#include "src/schedule/stable_sends.hpp"
#include "src/schedule/tiles.hpp"
#include "src/segment/arena.hpp"
#include "src/segment/waiting.hpp"

namespace weft::internal::test {

namespace {

constexpr size_t connection_slot_bytes = 128 << 10;  // leaders of 8 ranks each have messages of 64 chunks

void require(const Status& status) {
    if (!status) throw std::runtime_error(status.sentence());
}
template <class T>
T require(Result<T> result) {
    if (!result) throw std::runtime_error(result.status().sentence());
    return std::move(*result);
}

bool at(const std::vector<bool>& flags, int rank) { return !flags.empty() && flags[size_t(rank)]; }

Schedule schedule_of(const Call& call, int rank, Form form, const DirectMode& mode) {
    const Schedule written = call.build(rank);
    if (form == Form::as_written) return written;
    if (form == Form::expanded_pipelined && is_two_shot(written))
        return expand_pipelined(written, mode, int(call.tiles()));
    return expand(written, mode);
}

// Memory of weftHostAlloc's arena, or private; bytes around the buffer that must not change.
class Buffer {
  public:
    Buffer(size_t bytes, size_t offset, bool from_arena) : bytes_(bytes) {
        if (from_arena) {
            arena_ = require(require(Arena::get())->allocate(bytes + offset + 2 * margin));
            begin_ = static_cast<std::byte*>(arena_) + margin + offset;
        } else {
            storage_.resize(bytes + offset + 3 * margin);
            begin_ =
                storage_.data() + (margin - reinterpret_cast<uintptr_t>(storage_.data()) % margin) + margin + offset;
        }
        memset(begin_ - margin, mark, bytes + 2 * margin);
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() {
        if (arena_) (void)Arena::existing()->free(arena_);
    }
    std::byte* data() const { return begin_; }
    size_t bytes() const { return bytes_; }
    void fill(const Bytes& data, size_t from = 0) const { std::copy(data.begin(), data.end(), begin_ + from); }
    Bytes content() const { return Bytes(begin_, begin_ + bytes_); }
    bool intact() const {
        for (size_t i = 1; i <= margin; ++i)
            if (begin_[-ptrdiff_t(i)] != std::byte{mark} || begin_[bytes_ + i - 1] != std::byte{mark}) return false;
        return true;
    }

  private:
    static constexpr size_t margin = 64;
    static constexpr unsigned char mark = 0xa5;
    size_t bytes_;
    void* arena_ = nullptr;
    std::byte* begin_ = nullptr;
    std::vector<std::byte> storage_;
};

}  // namespace

size_t Call::bytes() const {
    for (int rank = 0; rank < ranks(); ++rank)
        if (const int held = parts_held(input_held(rank), parts()); held > 0)
            return inputs[size_t(rank)].size() / size_t(held);
    return 0;
}

std::vector<Bytes> Call::contributions_to(int rank) const {
    if (output_held(rank) != Held::own) return inputs;
    std::vector<Bytes> parts;
    for (const Bytes& input : inputs) {
        const auto first = input.begin() + ptrdiff_t(bytes()) * rank;
        parts.emplace_back(first, first + ptrdiff_t(bytes()));
    }
    return parts;
}

Operation Call::operation() const {
    Operation operation;
    operation.collective = collective();
    operation.type = uint8_t(type);
    operation.op = uint8_t(facts_of(collective()).reduces ? op : 0);
    operation.root = std::max(0, root);
    operation.count = bytes() / size_of(type);
    return operation;
}

std::string Call::text() const {
    const auto flags = [](const std::vector<bool>& set) {
        std::string letters;
        for (const bool flag : set) letters += flag ? '1' : '0';
        return letters.empty() ? std::string("none") : letters;
    };
    return fmt::format(
        "{} by {}, {} ranks, {} hosts, {} channels, form {}, tiles of {}, pipelined {}, direct access {}, cma {}, "
        "zero-copy {}, "
        "in place "
        "{}, from "
        "the arena "
        "{}, offsets {} and {}",
        operation().text(), written ? written->front().algorithm : algorithm->name, ranks(), layout(0).host_count(),
        channels, int(form), tile_bytes, pipelined, exports_buffers, cma, zero_copy, flags(in_place), flags(from_arena),
        send_offset, receive_offset);
}

std::vector<Bytes> expected(const Call& call, const DirectMode& mode) {
    reference::Job job;
    const int ranks = int(call.inputs.size());
    for (int rank = 0; rank < ranks; ++rank) job.schedules.push_back(schedule_of(call, rank, Form::expanded, mode));
    job.mode = mode;
    job.type = call.type;
    job.op = call.op == premul ? weftSum : weftRedOp_t(call.op);
    job.inputs = call.inputs;
    job.scalars = call.scalars;
    job.in_place = call.in_place;
    job.in_one_place = call.in_one_place();
    job.tile_bytes = mode.direct(ranks) ? std::max<size_t>(64, call.bytes()) : call.tile_bytes;
    return reference::interpret(job);
}

std::optional<std::string> difference(const Call& call, const std::vector<Bytes>& got,
                                      const std::vector<Bytes>& expected) {
    for (size_t rank = 0; rank < got.size(); ++rank) {
        if (got[rank] == expected[rank]) continue;
        const size_t count = got[rank].size() / size_of(call.type);
        const size_t first = with_datatype(call.type, [&](auto t) {
            constexpr weftDataType_t type = decltype(t)::value;
            std::vector<Element<type>> right(count);
            memcpy(right.data(), expected[rank].data(), expected[rank].size());
            return first_difference<type>(got[rank].data(), right.data(), count);
        });
        if (first < count) return fmt::format("rank {}, element {}: {}", rank, first, call.text());
    }
    return {};
}

LocalRanks::LocalRanks(int ranks, Reached reached, bool direct)
    : segment_(require(Segment::create(ranks))), direct_(direct) {
    Arena* arena = require(Arena::get());
    tokens_.resize(size_t(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
        RankRow& row = segment_->row(rank);
        row.pid = getpid();
        // Rows that claim another process each are mapped by their descriptor, as another process would map them.
        row.process = process_token() + (reached == Reached::processes ? uint64_t(rank) : 0);
        tokens_[size_t(rank)] = row.process;
        row.token_address = reinterpret_cast<uint64_t>(&tokens_[size_t(rank)]);
        row.arena_fd = arena->memory().fd();
        row.arena_inode = arena->memory().inode();
        row.state.store(RankState::joined, std::memory_order_release);
    }
    for (int rank = 0; rank < ranks; ++rank) {
        flag_blocks_.push_back(require(FlagBlock::open(*segment_, rank)));
        reaches_.emplace_back(*segment_, rank, direct);
        cma_.emplace_back(*segment_, rank);
        slot_stores_.emplace_back(size_t(ranks));
        heap_used_.push_back(FlagBlock::heap_bytes);
    }
}
LocalRanks::~LocalRanks() = default;

DirectMode LocalRanks::mode(const Call& call) const {
    DirectMode mode;
    if (call.exports_buffers && call.cma && call.op != premul && direct_ && cma_state(0) == Cma::State::ready) {
        // The kernel reads all inputs and writes all outputs.
        mode.readable.assign(size_t(ranks()), true);
        mode.all_writable = true;
        return mode;
    }
    if (!call.exports_buffers || call.op == premul || direct_access_state(0) != DirectAccess::State::ready) return mode;
    bool all = true;
    for (int rank = 0; rank < ranks(); ++rank) {
        const bool reachable = segment_->row(ranks() - 1).process == process_token() || at(call.from_arena, rank);
        mode.readable.push_back(reachable);
        all &= reachable;
    }
    mode.all_writable = all;
    if (std::find(mode.readable.begin(), mode.readable.end(), true) == mode.readable.end()) mode = {};
    return mode;
}

void LocalRanks::connect(const Call& call) {
    for (int rank = 0; rank < ranks(); ++rank) {
        const Schedule schedule = call.build(rank);
        for (const Block& block : schedule.blocks) {
            if (block.source < 0) continue;
            Connection& connection = connections_[{block.channel, block.source, rank, schedule.fifo_depth}];
            if (connection.receiver) continue;
            Blob blob;
            ConnectionOptions options{rank,
                                      block.source,
                                      block.channel,
                                      schedule.fifo_depth,
                                      connection_slot_bytes * 4 / size_t(std::max(4, schedule.fifo_depth)),
                                      segment_.get(),
                                      &heap_used_[size_t(rank)]};
            connection.receiver = require(registry::transports()[0]->listen(options, blob));
            std::swap(options.self, options.peer);
            connection.sender = require(registry::transports()[0]->connect(options, blob));
        }
    }
}

// One rank on its way through the calls.
struct LocalRanks::Rank {
    LocalRanks* all;
    int rank;
    const std::vector<Call>* calls;
    uint64_t first_sequence;
    size_t index = 0;
    // By call. In place the second is the first, and as long as the longer of the two would be.
    std::deque<Buffer> sends, receives;
    std::vector<Bytes> results;
    Schedule schedule;
    std::vector<std::byte> scratch;
    Plan plan;
    std::unique_ptr<Run> run;

    void prepare() {
        for (const Call& call : *calls) {
            const size_t in = length(call, call.input_held(rank)), out = length(call, call.output_held(rank));
            const bool in_place = at(call.in_place, rank), arena = at(call.from_arena, rank);
            sends.emplace_back(in_place ? std::max(in, out) : in, call.send_offset, arena);
            sends.back().fill(Bytes(sends.back().bytes(), std::byte{0xcd}));
            sends.back().fill(call.inputs[size_t(rank)], send_place(call));
            receives.emplace_back(in_place ? 0 : out, call.receive_offset, arena);
            receives.back().fill(Bytes(in_place ? 0 : out, std::byte{0xcd}));
        }
    }
    static size_t length(const Call& call, Held held) { return call.bytes() * size_t(parts_held(held, call.parts())); }
    // In place: where the shorter of the two lies in the longer.
    size_t place(const Call& call, Held one, Held other) const {
        if (!at(call.in_place, rank) || other != Held::all) return 0;
        return first_held(one, rank, call.bytes());
    }
    size_t send_place(const Call& call) const { return place(call, call.input_held(rank), call.output_held(rank)); }
    size_t receive_place(const Call& call) const { return place(call, call.output_held(rank), call.input_held(rank)); }
    void begin() {
        const Call& call = (*calls)[index];
        schedule = schedule_of(call, rank, call.form, {});
        plan = {};
        plan.operation = call.operation();
        plan.operation_fingerprint = fingerprint(plan.operation);
        plan.schedule = &schedule;
        plan.in_one_place = call.in_one_place();
        plan.cpu_kernels = call.cpu_kernels ? call.cpu_kernels : &cpu_kernels();
        plan.slot_stores = all->slot_stores_[size_t(rank)].data();
        // Trials as of far readers, or of slow memory: slots are written past the caches for many calls, or not.
        for (int reader = 0; reader < call.ranks(); ++reader)
            if (index % 3 == 0)
                for (const bool past : {false, true, true, false})
                    plan.slot_stores[reader].judge(past && index % 2 ? 3 : 30);
        plan.tile_bytes = std::min(call.tile_bytes, call.bytes());
        plan.tiles = call.tiles();
        plan.stores = call.stores;
        scratch.resize(scratch_bytes(schedule, plan.tile_bytes));
        plan.scratch = &scratch;
        for (const Block& block : schedule.blocks) {
            BlockEnds ends;
            const auto connection = [&](int from, int to) -> Connection& {
                return all->connections_[{block.channel, from, to, schedule.fifo_depth}];
            };
            if (block.source >= 0) ends.source = connection(block.source, rank).receiver.get();
            if (block.target >= 0) ends.target = connection(rank, block.target).sender.get();
            const auto in_process = [&](int peer) { return peer >= 0 && all->segment_->same_process(rank, peer); };
            ends.source_in_process = in_process(block.source);
            ends.target_in_process = in_process(block.target);
            ends.target_reads = {.addresses = block.target >= 0, .arena = block.target >= 0 && index % 2 == 0};
            if (block.source >= 0) ends.source_arena = require(Arena::get())->memory().data();
            plan.ends.push_back(ends);
        }
        plan.zero_copy.cma = &all->cma_[size_t(rank)];
        if (call.zero_copy) plan.zero_copy.stable_sends = find_stable_sends(schedule);
        if (!schedule.shared_ranks.empty()) {
            plan.flags.block = all->flag_blocks_[size_t(rank)].get();
            // Other places from call to call.
            const size_t used =
                (shared_slot_bytes(schedule, plan.tile_bytes) + line_bytes - 1) / line_bytes * line_bytes;
            plan.two_shot.pipelined = call.pipelined && call.op != premul;
            const bool in_order = reads_in_order(schedule) && !plan.two_shot.pipelined && index % 4 != 3;
            plan.flags.rotation = FlagBlock::rotation(used, 2 + int(index % 7), in_order);
            require(plan.flags.block->reserve(plan.flags.rotation.bytes(), plan.flags.rotation.slots));
            plan.two_shot.direct_access = &all->reaches_[size_t(rank)];
            plan.two_shot.exports_buffers = call.exports_buffers && call.op != premul && all->direct_;
            if (call.cma && plan.two_shot.exports_buffers) plan.two_shot.cma = &all->cma_[size_t(rank)];
        }
        run = make_run(plan);
        const std::byte* send = sends[index].data() + send_place(call);
        std::byte* receive = (at(call.in_place, rank) ? sends : receives)[index].data() + receive_place(call);
        // A rank without data may pass null.
        run->start(call.input_held(rank) == Held::nothing ? nullptr : send,
                   call.output_held(rank) == Held::nothing ? nullptr : receive,
                   call.scalars.empty() ? nullptr : call.scalars[size_t(rank)].data(), first_sequence + index);
    }
    // False when all calls are through. `moved`: whether anything happened.
    bool advance(bool& moved) {
        if (index == calls->size()) return false;
        if (!run) begin(), moved = true;
        const Progress progress = run->advance();
        if (progress == Progress::mismatch)
            throw std::runtime_error(
                fmt::format("rank {} says that rank {} called something else", rank, run->suspect()));
        if (progress == Progress::failed)
            throw std::runtime_error(fmt::format("rank {}: {}", rank, run->take_failure().sentence()));
        moved |= progress != Progress::blocked;
        if (progress == Progress::done) {
            run.reset();
            ++index;
        }
        return index < calls->size();
    }
    void finish() {
        for (size_t i = 0; i < calls->size(); ++i) {
            const Call& call = (*calls)[i];
            const bool in_place = at(call.in_place, rank);
            const Bytes all = (in_place ? sends : receives)[i].content();
            const auto first = all.begin() + ptrdiff_t(receive_place(call));
            results.emplace_back(first, first + ptrdiff_t(length(call, call.output_held(rank))));
            if (!sends[i].intact() || !receives[i].intact())
                throw std::runtime_error("a byte beside a buffer was changed: " + call.text());
            if (!in_place && sends[i].content() != call.inputs[size_t(rank)])
                throw std::runtime_error("the input was changed: " + call.text());
        }
    }
};

namespace {

void drive_in_turns(std::vector<LocalRanks::Rank>& ranks, std::mt19937& random) {
    std::vector<size_t> left;
    for (size_t rank = 0; rank < ranks.size(); ++rank) left.push_back(rank);
    for (int idle = 0; !left.empty();) {
        // Whole turns, so that one in which nothing moves is a deadlock; in any order.
        std::shuffle(left.begin(), left.end(), random);
        bool moved = false;
        std::vector<size_t> still;
        for (const size_t rank : left) {
            if (ranks[rank].advance(moved)) still.push_back(rank);
        }
        idle = moved || still.size() < left.size() ? 0 : idle + 1;
        if (idle > 1) throw std::runtime_error("nobody moves: " + (*ranks[left[0]].calls)[ranks[left[0]].index].text());
        left = still;
    }
}

void drive_by_threads(std::vector<LocalRanks::Rank>& ranks) {
    std::atomic<bool> failed{false};
    std::vector<std::string> sentences(ranks.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
        threads.emplace_back([&, rank] {
            try {
                Waiting waiting(ranks[rank].all->segment(), int(rank), 100);
                for (bool more = true; more && !failed;) {
                    bool moved = false;
                    more = ranks[rank].advance(moved);
                    if (moved)
                        waiting.stir();
                    else if (more)
                        waiting.pause(ranks[rank].run->missing());
                }
            } catch (const std::exception& error) {
                sentences[rank] = error.what();
                failed = true;
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& sentence : sentences)
        if (!sentence.empty()) throw std::runtime_error(sentence);
}

}  // namespace

std::vector<LocalRanks::Rank> LocalRanks::prepare(const std::vector<Call>& calls) {
    std::vector<Rank> ranks(size_t(this->ranks()));
    for (const Call& call : calls) connect(call);
    for (int rank = 0; rank < this->ranks(); ++rank) {
        Rank& one = ranks[size_t(rank)];
        one.all = this;
        one.rank = rank;
        one.calls = &calls;
        one.first_sequence = sequence_ + 1;
        one.prepare();
    }
    sequence_ += calls.size();
    return ranks;
}

int LocalRanks::tiles_entered(const Call& call, const std::vector<int>& running) {
    const std::vector<Call> calls = {call};
    std::vector<Rank> ranks = prepare(calls);
    for (bool moved = true; moved;) {
        moved = false;
        for (const int rank : running) ranks[size_t(rank)].advance(moved);
    }
    int entered = 0;
    for (uint32_t tile = 0; tile < flag_slots; ++tile)
        entered += flag_blocks_[0]->line(running[0], tile).arrival.load() >> 32 == tile + 1;
    return entered;
}

bool LocalRanks::ends_alone(const Call& call, int rank) {
    const std::vector<Call> calls = {call};
    std::vector<Rank> ranks = prepare(calls);
    bool more = true;
    for (bool moved = true; more && moved;) {
        moved = false;
        more = ranks[size_t(rank)].advance(moved);
    }
    return !more;
}

std::vector<std::vector<Bytes>> LocalRanks::run(const std::vector<Call>& calls, Driver driver, std::mt19937& random) {
    std::vector<Rank> ranks = prepare(calls);
    if (driver == Driver::turns)
        drive_in_turns(ranks, random);
    else
        drive_by_threads(ranks);
    std::vector<std::vector<Bytes>> results(calls.size());
    for (Rank& one : ranks) {
        one.finish();
        for (size_t i = 0; i < calls.size(); ++i) results[i].push_back(one.results[i]);
    }
    return results;
}

}  // namespace weft::internal::test
