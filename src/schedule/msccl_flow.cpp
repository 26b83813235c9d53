#include "src/schedule/msccl_flow.hpp"

#include <cstring>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_map>

#include "src/schedule/symbolic.hpp"

namespace weft::msccl {

namespace {

// Chunks of all ranks' buffers: as many as the checker takes.
constexpr int64_t chunks_of_ranks_most = int64_t(1) << 24;

// A chunk on its way: whose place in the whole it has (of an all-to-all: in the sender's), and what is in it.
struct Datum {
    Value value;
    int32_t chunk = 0;
    int32_t lowest = 0;  // of the ranks in it
};

class Walk {
  public:
    Walk(const File& file, const Shape& shape, bool save)
        : file_(file),
          shape_(shape),
          facts_(facts_of(shape.collective)),
          save_(save),
          contributions_(shape.ranks),
          memory_(size_t(shape.ranks)),
          flow_(size_t(shape.ranks)) {}

    Result<std::vector<RankFlow>> run() {
        if (int64_t(shape_.ranks) * shape_.chunks > chunks_of_ranks_most)
            return fail_at(file_.mark, "{} chunks on each of {} gpus are too many", shape_.chunks, shape_.ranks);
        WEFT_TRY(load());
        for (int thread = int(threads_.size()) - 1; thread >= 0; --thread) queue_.push_back(thread);
        while (!queue_.empty()) {
            const int thread = queue_.back();
            queue_.pop_back();
            WEFT_TRY(advance(thread));
        }
        for (const Thread& thread : threads_)
            if (thread.step < thread.block->steps.size()) return deadlock(thread);
        for (const Connection& connection : connections_)
            if (!connection.messages.empty())
                return wrong(connection.messages.front().sender, "it sends to gpu {}, which never receives that",
                             connection.to);
        keep();
        return std::move(flow_);
    }

  private:
    struct Thread {
        int32_t rank, index;
        const ThreadBlock* block;
        BlockFlow* flow;
        int source = -1, target = -1;  // connections
        size_t step = 0;
        std::vector<int> waiting = {};  // threads, for a step of this one
        std::unordered_map<int32_t, std::vector<uint32_t>> releases =
            {};  // of steps that others depend on: the clock then
    };
    struct Message {
        std::vector<Datum> data;
        StepPlace sender;
    };
    struct Connection {
        int channel, from, to;
        int sender = -1, receiver = -1;  // threads
        std::deque<Message> messages = {};
    };
    // A place that a step names: in place the same for input and output.
    struct Location {
        int64_t key = 0;
        int32_t chunk = -1;                    // of the whole; -1: scratch has none
        bool initial = false, output = false;  // whether the input, or what is to be the output, can be there
    };
    struct Content {
        Datum datum;
        Where where;
        Cell cell = {};  // who touched it
    };

    const Step& step_at(const StepPlace& at) const {
        return file_.gpus[size_t(at.rank)].blocks[size_t(at.block)].steps[size_t(at.step)];
    }
    std::string name(const StepPlace& at) const {
        return fmt::format("gpu {}, tb {}, step {}", at.rank, file_.gpus[size_t(at.rank)].blocks[size_t(at.block)].id,
                           at.step);
    }
    template <class... Arguments>
    Status wrong(const StepPlace& at, fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
        return fail_at(step_at(at).mark, "{}: {}", name(at),
                       fmt::format(format, std::forward<Arguments>(arguments)...));
    }
    static StepPlace place_of(const Thread& thread) { return {thread.rank, thread.index, int32_t(thread.step)}; }

    // Threads, and connections whose both ends are there. What a block never uses it does not have.
    Status load() {
        std::map<std::tuple<int, int, int>, int> numbers;
        const auto connection = [&](int channel, int from, int to) {
            const auto [found, fresh] = numbers.try_emplace({channel, from, to}, int(connections_.size()));
            if (fresh) connections_.push_back({channel, from, to});
            return found->second;
        };
        for (const Gpu& gpu : file_.gpus) {
            first_thread_.push_back(int(threads_.size()));
            auto& blocks = flow_[size_t(gpu.id)].blocks;
            blocks.resize(gpu.blocks.size());
            for (size_t b = 0; b < gpu.blocks.size(); ++b) {
                const ThreadBlock& block = gpu.blocks[b];
                Thread thread{gpu.id, int32_t(b), &block, &blocks[b]};
                for (const Step& step : block.steps) {
                    thread.flow->receives |= strchr(uses_of(step.opcode), 's') != nullptr;
                    thread.flow->sends |= strchr(uses_of(step.opcode), 't') != nullptr;
                }
                thread.flow->senders.resize(block.steps.size());
                const int number = int(threads_.size());
                if (thread.flow->receives) thread.source = connection(block.channel, block.receive, gpu.id);
                if (thread.flow->sends) thread.target = connection(block.channel, gpu.id, block.send);
                for (auto [which, sends] : {std::pair{thread.source, false}, std::pair{thread.target, true}}) {
                    if (which < 0) continue;
                    Connection& end = connections_[size_t(which)];
                    int& there = sends ? end.sender : end.receiver;
                    if (there >= 0)
                        return fail_at(block.mark, "a second tb of gpu {} {} gpu {} on channel {}", gpu.id,
                                       sends ? "sends to" : "receives from", sends ? block.send : block.receive,
                                       block.channel);
                    there = number;
                }
                threads_.push_back(std::move(thread));
            }
        }
        WEFT_TRY(order_.load(file_));
        for (const Connection& end : connections_) {
            if (end.sender >= 0 && end.receiver >= 0) continue;
            const Thread& thread = threads_[size_t(std::max(end.sender, end.receiver))];
            const bool sends = end.sender >= 0;
            return fail_at(thread.block->mark, "gpu {}, tb {} {} gpu {} on channel {}, which has no tb that {}",
                           thread.rank, thread.block->id, sends ? "sends to" : "receives from",
                           sends ? end.to : end.from, end.channel, sends ? "receives it" : "sends it");
        }
        return ok();
    }

    size_t thread_of(int rank, int block) const { return size_t(first_thread_[size_t(rank)] + block); }

    Status unordered(const StepPlace& here, const char* does, const Operand& operand, int i,
                     const Order::Conflict& conflict) const {
        return wrong(here, "it {} {}, {} by {}, in no order: let one depend on the other", does, text(operand, i),
                     conflict.did, name(conflict.earlier));
    }

    // As far as it goes.
    Status advance(int number) {
        Thread& thread = threads_[size_t(number)];
        for (; thread.step < thread.block->steps.size(); ++thread.step) {
            const Step& step = thread.block->steps[thread.step];
            if (step.after_block >= 0) {
                Thread& other = threads_[thread_of(thread.rank, step.after_block)];
                if (other.step <= size_t(step.after_step)) return other.waiting.push_back(number), ok();
                order_.acquire(place_of(thread), step);
            }
            // Who has pushed a message into an empty queue queues its receiver.
            if (receives_message(step) && connections_[size_t(thread.source)].messages.empty()) return ok();
            WEFT_TRY(execute(thread, step));
            order_.release(place_of(thread));
            for (const int waiting : std::exchange(thread.waiting, {})) queue_.push_back(waiting);
        }
        return ok();
    }
    static bool receives_message(const Step& step) { return strchr(uses_of(step.opcode), 's') != nullptr; }

    Status execute(Thread& thread, const Step& step) {
        if (step.opcode == Opcode::nop) return ok();
        const StepPlace here = place_of(thread);
        const char* uses = uses_of(step.opcode);
        const bool receives = strchr(uses, 's'), sends = strchr(uses, 't'), reads = strchr(uses, 'i'),
                   writes = strchr(uses, 'o'), adds = step.opcode == Opcode::add,
                   combines = adds || (receives && reads);
        if (combines && !facts_.reduces)
            return wrong(here, "it adds, but {} combines nothing", name_of(shape_.collective));
        Message came, going;
        if (receives) {
            Connection& connection = connections_[size_t(thread.source)];
            came = std::move(connection.messages.front());
            connection.messages.pop_front();
            thread.flow->senders[thread.step] = came.sender;
            if (came.data.size() != size_t(step.count))
                return wrong(here, "cnt is {}, but {} sends {}", step.count, name(came.sender), came.data.size());
        }
        for (int i = 0; i < step.count; ++i) {
            Move move;
            Datum datum;
            Location source, target;
            if (receives) datum = came.data[size_t(i)];
            if (reads) WEFT_TRY(locate(here, step.source, i, source));
            if (writes) WEFT_TRY(locate(here, step.target, i, target));
            if (reads) {
                Content* held = find(here.rank, source);
                if (!held) return wrong(here, "it reads {}, where nothing was written yet", text(step.source, i));
                if (const auto conflict = order_.read(here, held->cell))
                    return unordered(here, "reads", step.source, i, *conflict);
                move.source = held->where;
                Datum other = receives ? datum : held->datum;
                if (adds) {
                    Content* sum = find(here.rank, target);
                    if (!sum) return wrong(here, "it adds to {}, where nothing was written yet", text(step.target, i));
                    move.lifted = sum->where;
                    other = sum->datum;
                }
                if (combines && other.chunk != held->datum.chunk)
                    return wrong(here, "it adds chunk {} to chunk {} of the whole", held->datum.chunk, other.chunk);
                if (combines) {
                    move.left = held->datum.lowest < other.lowest;
                    const Value& left = move.left ? held->datum.value : other.value;
                    const Value& right = move.left ? other.value : held->datum.value;
                    datum = {Contributions::sum(left, right), other.chunk, std::min(other.lowest, held->datum.lowest)};
                } else {
                    datum = held->datum;
                }
                move.finish = facts_.reduces && step.opcode != Opcode::send && !datum.value.finished &&
                              contributions_.complete(datum.value, datum.chunk);
                if (move.finish) Contributions::finish(datum.value);
            }
            move.chunk = datum.chunk;
            if (writes) WEFT_TRY(write(here, step.target, i, target, datum, move.target));
            if (move.lifted == move.target) move.lifted = {};
            if (facts_.transposes) rename(move, source.chunk, target.chunk);
            if (sends) going.data.push_back(datum);
            thread.flow->moves.push_back(move);
        }
        if (!sends) return ok();
        going.sender = here;
        Connection& connection = connections_[size_t(thread.target)];
        connection.messages.push_back(std::move(going));
        if (connection.messages.size() == 1 && connection.receiver >= 0) queue_.push_back(connection.receiver);
        return ok();
    }

    // In an all-to-all the chunk of a buffer is where it lies there; a cell holds any of the same size.
    static void rename(Move& move, int32_t source, int32_t target) {
        const bool from = move.source.buffer != Buffer::none && move.source.buffer != Buffer::scratch,
                   to = move.target.buffer == Buffer::output;
        if (from || to) move.chunk = from ? source : target;
        if (from && to && source != target) move.into = target;
    }

    static std::string text(const Operand& operand, int i) {
        return fmt::format("{}[{}]",
                           operand.buffer == Buffer::input    ? "i"
                           : operand.buffer == Buffer::output ? "o"
                                                              : "s",
                           int64_t(operand.offset) + i);
    }

    Status locate(const StepPlace& here, const Operand& operand, int i, Location& location) const {
        const int64_t offset = int64_t(operand.offset) + i;
        if (operand.buffer == Buffer::scratch) {
            const int32_t length = file_.gpus[size_t(here.rank)].scratch_chunks;
            if (offset >= length)
                return wrong(here, "{} is out of range: s_chunks of gpu {} is {}", text(operand, i), here.rank, length);
            location.key = offset;
            return ok();
        }
        const bool is_input = operand.buffer == Buffer::input;
        const Held held = is_input ? input_of(shape_.collective, here.rank, shape_.root)
                                   : output_of(shape_.collective, here.rank, shape_.root);
        const bool own = held == Held::own;
        const int32_t length = own ? shape_.shares() : shape_.chunks;
        if (offset >= length)
            return wrong(here, "{} is out of range: the {} of gpu {} has {} chunks", text(operand, i),
                         name_of(operand.buffer), here.rank, length);
        location.chunk = int32_t(offset) + (own ? here.rank * shape_.shares() : 0);
        location.key = (int64_t(is_input || file_.in_place ? 1 : 2) << 32) + location.chunk;
        const int part = location.chunk / shape_.shares();
        location.initial =
            (is_input || file_.in_place) && holds(input_of(shape_.collective, here.rank, shape_.root), part, here.rank);
        location.output = (!is_input || file_.in_place) &&
                          holds(output_of(shape_.collective, here.rank, shape_.root), part, here.rank);
        return ok();
    }

    // What is there now; null: nothing.
    Content* find(int rank, const Location& location) {
        auto& memory = memory_[size_t(rank)];
        if (const auto found = memory.find(location.key); found != memory.end()) return &found->second;
        if (!location.initial) return nullptr;
        Content held{{contributions_.leaf(rank, 0, uint32_t(location.chunk)), location.chunk, rank},
                     {Buffer::input, -1}};
        if (save_) {
            held.where = {Buffer::scratch, saved_cell(location.chunk)};
            flow_[size_t(rank)].saved.push_back(location.chunk);
        }
        return &memory.emplace(location.key, held).first->second;
    }

    Status write(const StepPlace& here, const Operand& operand, int i, const Location& location, const Datum& datum,
                 Where& where) {
        const int alike = facts_.transposes ? shape_.shares() : shape_.chunks;
        const bool at_home = location.output && location.chunk % alike == datum.chunk % alike;
        where = at_home ? Where{Buffer::output, -1} : Where{Buffer::scratch, location.key};
        Content& content = memory_[size_t(here.rank)][location.key];
        if (const auto conflict = order_.write(here, content.cell))
            return unordered(here, "writes", operand, i, *conflict);
        content.datum = datum;
        content.where = where;
        return ok();
    }

    // In place, what is to be in the output may be there from the beginning.
    void keep() {
        if (!file_.in_place) return;
        for (int rank = 0; rank < shape_.ranks; ++rank)
            for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
                const int part = chunk / shape_.shares();
                if (!holds(input_of(shape_.collective, rank, shape_.root), part, rank) ||
                    !holds(output_of(shape_.collective, rank, shape_.root), part, rank))
                    continue;
                const auto found = memory_[size_t(rank)].find((int64_t(1) << 32) + chunk);
                const bool untouched =
                    found == memory_[size_t(rank)].end() || found->second.where.buffer == Buffer::input;
                if (untouched && (facts_.reduces ? shape_.ranks == 1 : !facts_.transposes || part == rank))
                    flow_[size_t(rank)].kept.push_back(chunk);
            }
    }

    // Who waits for whom, from the first thread that waits.
    Status deadlock(const Thread& first) const {
        std::string sentence;
        const Thread* thread = &first;
        for (int links = 0; thread && links < 4; ++links) {
            const StepPlace here = place_of(*thread);
            if (thread->step == thread->block->steps.size()) break;
            if (links > 0 && thread == &first) {
                sentence += ", and so on";
                break;
            }
            const Step& step = step_at(here);
            sentence += fmt::format("{}{} waits for ", links > 0 ? "; " : "", name(here));
            const Thread* next = nullptr;
            if (step.after_block >= 0) next = &threads_[thread_of(here.rank, step.after_block)];
            if (next && next->step <= size_t(step.after_step)) {
                sentence += fmt::format("step {} of tb {}", step.after_step, next->block->id);
            } else {
                next = &threads_[size_t(connections_[size_t(thread->source)].sender)];
                sentence += fmt::format("gpu {}, tb {}, which {}", next->rank, next->block->id,
                                        next->step == next->block->steps.size() ? "sends no more" : "has to send");
            }
            thread = next;
        }
        return fail_at(step_at(place_of(first)).mark, "deadlock: {}", sentence);
    }

    const File& file_;
    const Shape& shape_;
    const CollectiveFacts facts_;
    const bool save_;
    const Contributions contributions_;
    std::vector<std::unordered_map<int64_t, Content>> memory_;  // by rank and key
    std::vector<RankFlow> flow_;
    std::vector<Thread> threads_;
    std::vector<int> first_thread_;  // by rank
    std::vector<Connection> connections_;
    std::vector<int> queue_;
    Order order_;
};

}  // namespace

Result<std::vector<RankFlow>> follow(const File& file, const Shape& shape, bool save) {
    return Walk(file, shape, save).run();
}

}  // namespace weft::msccl
