#include "src/msccl/msccl_flow.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_map>

#include "src/checker/symbolic.hpp"
#include "src/msccl/msccl_races.hpp"
#include "src/msccl/msccl_sums.hpp"

namespace weft::internal::msccl {

namespace {

// Chunks of the buffers of all ranks: the checker's limit.
constexpr int64_t chunks_of_ranks_most = int64_t(1) << 24;

// A chunk in flight: its place in the whole (of an all-to-all: in the whole of its sender) and its contributions.
struct TrackedChunk {
    Value value;
    int32_t chunk = 0;
    int32_t lowest = 0;  // the lowest rank among its contributions
};

class FlowAnalysis {
  public:
    FlowAnalysis(const File& file, const Shape& shape, const FollowOptions& options)
        : file_(file),
          shape_(shape),
          operands_(file, shape),
          facts_(facts_of(shape.collective)),
          options_(options),
          contributions_(shape.ranks),
          memory_(size_t(shape.ranks)),
          flow_(size_t(shape.ranks)) {}

    Result<std::vector<RankFlow>> run() {
        if (int64_t(shape_.ranks) * shape_.chunks > chunks_of_ranks_most)
            return fail_at(file_.mark, "{} chunks on each of {} gpus are too many", shape_.chunks, shape_.ranks);
        WEFT_TRY(load());
        WEFT_TRY(find_race(file_, operands_));
        for (int thread = int(threads_.size()) - 1; thread >= 0; --thread) queue_.push_back(thread);
        while (!queue_.empty()) {
            const int thread = queue_.back();
            queue_.pop_back();
            WEFT_TRY(advance(thread));
        }
        for (const FlowThread& thread : threads_)
            if (thread.step < thread.block->steps.size()) return deadlock(thread);
        for (const FlowConnection& connection : connections_)
            if (!connection.messages.empty())
                return wrong(connection.messages.front().sender, "it sends to gpu {}, which never receives that",
                             connection.to);
        keep();
        return std::move(flow_);
    }

  private:
    struct FlowThread {
        int32_t rank, index;
        const ThreadBlock* block;
        BlockFlow* flow;
        int source = -1, target = -1;  // connections
        size_t step = 0;
        std::vector<int> waiting = {};  // threads that wait for a step of this one
    };
    struct FlowMessage {
        std::vector<TrackedChunk> data;
        StepId sender;
    };
    struct FlowConnection {
        int channel, from, to;
        int sender = -1, receiver = -1;  // threads
        std::deque<FlowMessage> messages = {};
    };
    struct CellContent {
        TrackedChunk tracked;
        BufferCell where;
        GatheredSum gathered = {};
    };

    const Step& step_at(const StepId& at) const { return operands_.step_at(at); }
    std::string name(const StepId& at) const { return operands_.name(at); }
    template <class... Arguments>
    Status wrong(const StepId& at, fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
        return operands_.wrong(at, format, std::forward<Arguments>(arguments)...);
    }
    static StepId step_id_of(const FlowThread& thread) { return {thread.rank, thread.index, int32_t(thread.step)}; }

    // Makes threads, and the connections of which both ends exist. A block has no connection that it never uses.
    Status load() {
        std::map<std::tuple<int, int, int>, int> numbers;
        const auto connection = [&](int channel, int from, int to) {
            const auto [found, fresh] = numbers.try_emplace({channel, from, to}, int(connections_.size()));
            if (fresh) connections_.push_back({channel, from, to});
            return found->second;
        };
        for (const XmlGpu& gpu : file_.gpus) {
            first_thread_.push_back(int(threads_.size()));
            auto& blocks = flow_[size_t(gpu.id)].blocks;
            blocks.resize(gpu.blocks.size());
            for (size_t b = 0; b < gpu.blocks.size(); ++b) {
                const ThreadBlock& block = gpu.blocks[b];
                FlowThread thread{gpu.id, int32_t(b), &block, &blocks[b]};
                for (const Step& step : block.steps) {
                    thread.flow->receives |= receives(step.opcode);
                    thread.flow->sends |= sends(step.opcode);
                }
                thread.flow->senders.resize(block.steps.size());
                const int number = int(threads_.size());
                if (thread.flow->receives) thread.source = connection(block.channel, block.receive, gpu.id);
                if (thread.flow->sends) thread.target = connection(block.channel, gpu.id, block.send);
                for (auto [which, sends] : {std::pair{thread.source, false}, std::pair{thread.target, true}}) {
                    if (which < 0) continue;
                    FlowConnection& end = connections_[size_t(which)];
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
        for (const FlowConnection& end : connections_) {
            if (end.sender >= 0 && end.receiver >= 0) continue;
            const FlowThread& thread = threads_[size_t(std::max(end.sender, end.receiver))];
            const bool sends = end.sender >= 0;
            return fail_at(thread.block->mark, "gpu {}, tb {} {} gpu {} on channel {}, which has no tb that {}",
                           thread.rank, thread.block->id, sends ? "sends to" : "receives from",
                           sends ? end.to : end.from, end.channel, sends ? "receives it" : "sends it");
        }
        return ok();
    }

    size_t thread_of(int rank, int block) const { return size_t(first_thread_[size_t(rank)] + block); }

    // Runs until the thread waits or ends.
    Status advance(int number) {
        FlowThread& thread = threads_[size_t(number)];
        for (; thread.step < thread.block->steps.size(); ++thread.step) {
            const Step& step = thread.block->steps[thread.step];
            if (step.after_block >= 0) {
                FlowThread& other = threads_[thread_of(thread.rank, step.after_block)];
                if (other.step <= size_t(step.after_step)) return other.waiting.push_back(number), ok();
            }
            // A push into an empty queue makes the receiver runnable.
            if (receives(step.opcode) && connections_[size_t(thread.source)].messages.empty()) return ok();
            WEFT_TRY(execute(thread, step));
            for (const int waiting : std::exchange(thread.waiting, {})) queue_.push_back(waiting);
        }
        return ok();
    }

    Status execute(FlowThread& thread, const Step& step) {
        if (!moves(step.opcode)) return ok();
        const StepId here = step_id_of(thread);
        const bool receives = weft::internal::receives(step.opcode), sends = weft::internal::sends(step.opcode),
                   reads = reads_source(step.opcode), writes = writes_targets(step.opcode),
                   adds = step.opcode == Opcode::add, combines = weft::internal::combines(step.opcode);
        if (combines && !facts_.reduces)
            return wrong(here, "it adds, but {} combines nothing", name_of(shape_.collective));
        FlowMessage came, going;
        if (receives) {
            FlowConnection& connection = connections_[size_t(thread.source)];
            came = std::move(connection.messages.front());
            connection.messages.pop_front();
            thread.flow->senders[thread.step] = came.sender;
            if (came.data.size() != size_t(step.count))
                return wrong(here, "cnt is {}, but {} sends {}", step.count, name(came.sender), came.data.size());
        }
        for (int i = 0; i < step.count; ++i) {
            Move move;
            TrackedChunk tracked;
            OperandLocation source, target;
            bool stays = false;
            WEFT_TRY(operands_.find_stays(here, i, stays));
            if (receives) tracked = came.data[size_t(i)];
            if (reads) WEFT_TRY(operands_.locate(here, step.source, i, source));
            if (writes) WEFT_TRY(operands_.locate(here, step.target, i, target));
            GatheredSum gathered;
            if (reads) {
                CellContent* held = find(here.rank, source);
                if (!held)
                    return wrong(here, "it reads {}, where nothing was written yet",
                                 OperandLocations::text(step.source, i));
                if (stays) {
                    move.does = Move::nothing;
                    thread.flow->moves.push_back(move);
                    continue;
                }
                move.source = held->where;
                TrackedChunk other = receives ? tracked : held->tracked;
                // A read ends the collection of this sum, unless the result returns to the same place.
                if (combines && !adds && !sends && source.key == target.key)
                    gathered = std::move(held->gathered);
                else
                    held->gathered = {};
                const CellContent* own = held;
                if (adds) {
                    CellContent* sum = find(here.rank, target);
                    if (!sum)
                        return wrong(here, "it adds to {}, where nothing was written yet",
                                     OperandLocations::text(step.target, i));
                    move.lifted = sum->where;
                    other = sum->tracked;
                    gathered = std::move(sum->gathered);
                    own = sum;
                }
                if (combines && other.chunk != held->tracked.chunk)
                    return wrong(here, "it adds chunk {} to chunk {} of the whole", held->tracked.chunk, other.chunk);
                if (combines) {
                    const TrackedChunk& added = adds ? held->tracked : tracked;
                    if (gathered.operands.empty()) gathered = {own->where, own->tracked.lowest};
                    if (options_.sort)
                        gathered.operands.push_back(
                            {move.source, added.lowest, receives, here.block, thread.flow->moves.size()});
                    move.left = held->tracked.lowest < other.lowest;
                    const Value& left = move.left ? held->tracked.value : other.value;
                    const Value& right = move.left ? other.value : held->tracked.value;
                    tracked = {Contributions::sum(left, right), other.chunk,
                               std::min(other.lowest, held->tracked.lowest)};
                } else {
                    tracked = held->tracked;
                }
                move.finish = facts_.reduces && step.opcode != Opcode::send && !tracked.value.finished &&
                              contributions_.complete(tracked.value, tracked.chunk);
                if (move.finish) Contributions::finish(tracked.value);
            }
            move.chunk = tracked.chunk;
            if (writes) write(here, target, tracked, move.target);
            if (move.lifted == move.target) move.lifted = {};
            if (options_.sort && combines && writes && !sends) {
                sums_.sort(flow_[size_t(here.rank)], gathered, move);
                memory_[size_t(here.rank)][target.key].gathered = std::move(gathered);
            }
            if (facts_.transposes) rename(move, source.chunk, target.chunk);
            if (sends) going.data.push_back(tracked);
            thread.flow->moves.push_back(move);
        }
        if (!sends) return ok();
        going.sender = here;
        FlowConnection& connection = connections_[size_t(thread.target)];
        connection.messages.push_back(std::move(going));
        if (connection.messages.size() == 1 && connection.receiver >= 0) queue_.push_back(connection.receiver);
        return ok();
    }

    // In an all-to-all a buffer's chunk is named by its place there. A cell holds any chunk of the same size.
    static void rename(Move& move, int32_t source, int32_t target) {
        const bool from = move.source.buffer != Buffer::none && move.source.buffer != Buffer::scratch,
                   to = move.target.buffer == Buffer::output;
        if (from || to) move.chunk = from ? source : target;
        if (from && to && source != target) move.into = target;
    }

    // The present content; null: none.
    CellContent* find(int rank, const OperandLocation& location) {
        auto& memory = memory_[size_t(rank)];
        if (const auto found = memory.find(location.key); found != memory.end()) return &found->second;
        if (!location.initial) return nullptr;
        CellContent held{{contributions_.leaf(rank, 0, uint32_t(location.chunk)), location.chunk, rank},
                         {Buffer::input, -1}};
        if (options_.save) {
            held.where = {Buffer::scratch, saved_cell(location.chunk)};
            flow_[size_t(rank)].saved.push_back(location.chunk);
        }
        return &memory.emplace(location.key, held).first->second;
    }

    void write(const StepId& here, const OperandLocation& location, const TrackedChunk& tracked, BufferCell& where) {
        const int alike = facts_.transposes ? shape_.shares() : shape_.chunks;
        const bool at_home = location.output && location.chunk % alike == tracked.chunk % alike;
        where = at_home ? BufferCell{Buffer::output, -1} : BufferCell{Buffer::scratch, location.key};
        memory_[size_t(here.rank)][location.key] = {tracked, where};
    }

    // If the collective is in place, chunks of the output may be there from the beginning.
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

    // The cycle of waiting threads, beginning with the first thread that waits.
    Status deadlock(const FlowThread& first) const {
        std::string sentence;
        const FlowThread* thread = &first;
        for (int links = 0; thread && links < 4; ++links) {
            const StepId here = step_id_of(*thread);
            if (thread->step == thread->block->steps.size()) break;
            if (links > 0 && thread == &first) {
                sentence += ", and so on";
                break;
            }
            const Step& step = step_at(here);
            sentence += fmt::format("{}{} waits for ", links > 0 ? "; " : "", name(here));
            const FlowThread* next = nullptr;
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
        return xml::fail_at(error::schedule_deadlock, step_at(step_id_of(first)).mark, "deadlock: {}", sentence);
    }

    const File& file_;
    const Shape& shape_;
    const OperandLocations operands_;
    const CollectiveFacts facts_;
    const FollowOptions options_;
    RankOrderedSums sums_;
    const Contributions contributions_;
    std::vector<std::unordered_map<int64_t, CellContent>> memory_;  // by rank and key
    std::vector<RankFlow> flow_;
    std::vector<FlowThread> threads_;
    std::vector<int> first_thread_;  // by rank
    std::vector<FlowConnection> connections_;
    std::vector<int> queue_;
};

}  // namespace

Result<std::vector<RankFlow>> follow(const File& file, const Shape& shape, const FollowOptions& options) {
    return FlowAnalysis(file, shape, options).run();
}

}  // namespace weft::internal::msccl
