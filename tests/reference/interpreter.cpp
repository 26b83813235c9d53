#include "tests/reference/interpreter.hpp"

#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>

#include "tests/reference/plain.hpp"

namespace weft::internal::reference {

namespace {

// The rule of averages (docs/guide/determinism.md). It shares no code with base/arithmetic.hpp. Integers: the sum is
// divided. Floats: each contribution is divided by the least power of two that is no less than the number of ranks, and
// the sum by the rest. The quotients are rounded to the type unless all contributions are added at once.
struct Division {
    double of_sum = 1, of_each = 1;
};
Division division(weftDataType_t type, weftRedOp_t op, int ranks) {
    if (op != weftAvg) return {};
    const bool floats = type == weftFloat16 || type == weftBfloat16 || type == weftFloat32 || type == weftFloat64 ||
                        type == weftFloat8e4m3 || type == weftFloat8e5m2;
    if (!floats) return {double(ranks), 1};
    double power = 1;
    while (power < ranks) power *= 2;
    return {ranks / power, power};
}

// Sources in their order, each divided, combined in the accumulator, divided, and rounded once.
template <weftDataType_t type, weftRedOp_t op>
Bytes reduce_as(const std::vector<Bytes>& sources, const Division& division) {
    using A = Plain<type>;
    using Element = typename A::Element;
    const auto element = [](const Bytes& bytes, size_t i) {
        Element value;
        memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
        return value;
    };
    Bytes result(sources[0].size());
    for (size_t i = 0; i < result.size() / sizeof(Element); ++i) {
        using Accumulator = typename A::Wide;
        const auto wide = [&](size_t j) {
            const Accumulator value = A::wide(element(sources[j], i));
            return division.of_each == 1 ? value : Accumulator(value / Accumulator(division.of_each));
        };
        Accumulator value = wide(0);
        for (size_t j = 1; j < sources.size(); ++j) value = combined<op>(value, wide(j));
        if (division.of_sum != 1) {
            if constexpr (A::integer)
                value = divided(value, uint32_t(division.of_sum));
            else
                value /= Accumulator(division.of_sum);
        }
        const Element rounded = A::narrow(value);
        memcpy(result.data() + i * sizeof rounded, &rounded, sizeof rounded);
    }
    return result;
}

Bytes reduce(weftDataType_t type, weftRedOp_t op, const std::vector<Bytes>& sources, const Division& division = {}) {
    return with_type(type, [&](auto t) {
        return with_op(op,
                       [&](auto o) { return reduce_as<decltype(t)::value, decltype(o)::value>(sources, division); });
    });
}

Bytes repeated(const Bytes& element, size_t bytes) {
    Bytes result;
    while (result.size() < bytes) result.insert(result.end(), element.begin(), element.end());
    return result;
}

class Interpreter {
  public:
    explicit Interpreter(const Job& job)
        : job_(job), ranks_(int(job.schedules.size())), parts_(job.schedules[0].parts()) {
        for (int rank = 0; rank < ranks_; ++rank)
            if (const int held = parts_held(input_held(rank), parts_); held > 0)
                part_bytes_ = job.inputs[size_t(rank)].size() / size_t(held);
        tiles_ = part_bytes_ == 0 ? 1 : int((part_bytes_ + job.tile_bytes - 1) / job.tile_bytes);
        // Each rank has the whole of both buffers, also the parts that it does not hold: garbage.
        for (int rank = 0; rank < ranks_; ++rank) {
            inputs_.push_back(Bytes(part_bytes_ * size_t(parts_), std::byte{0xcd}));
            paste(inputs_.back(), first_held(input_held(rank), rank, part_bytes_), job.inputs[size_t(rank)]);
            outputs_.push_back(in_place(rank) ? inputs_.back() : Bytes(part_bytes_ * size_t(parts_), std::byte{0xcd}));
            positions_.emplace_back(job.schedules[size_t(rank)].blocks.size());
        }
    }

    std::vector<Bytes> run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (int rank = 0; rank < ranks_; ++rank)
                for (size_t block = 0; block < positions_[size_t(rank)].size(); ++block)
                    while (step(rank, block)) moved = true;
        }
        for (int rank = 0; rank < ranks_; ++rank)
            for (size_t block = 0; block < positions_[size_t(rank)].size(); ++block)
                if (!ended(rank, block)) throw std::logic_error("rank " + std::to_string(rank) + " waits for ever");
        for (const auto& [key, queue] : connections_)
            if (!queue.empty()) throw std::logic_error("something was sent and never received");
        for (int rank = 0; rank < ranks_; ++rank) {
            Bytes& output = outputs_[size_t(rank)];
            const Held held = output_of(schedule(rank).collective, rank, schedule(rank).root);
            output = cut(output, first_held(held, rank, part_bytes_), part_bytes_ * size_t(parts_held(held, parts_)));
        }
        return outputs_;
    }

  private:
    struct BlockPosition {
        int tile = 0, step = 0, iteration = 0;
    };
    struct Range {
        size_t in_tile, bytes, in_buffer;
    };

    const Schedule& schedule(int rank) const { return job_.schedules[size_t(rank)]; }
    bool in_place(int rank) const { return !job_.in_place.empty() && job_.in_place[size_t(rank)]; }
    bool ended(int rank, size_t block) const {
        return schedule(rank).blocks[block].instructions.empty() || positions_[size_t(rank)][block].tile >= tiles_;
    }

    Held input_held(int rank) const { return input_of(schedule(rank).collective, rank, schedule(rank).root); }
    // A chunk is a share of a tile of a part.
    Range range(int rank, int tile, int chunk) const {
        const int shares = schedule(rank).chunks / parts_, part = chunk / shares, share = chunk % shares;
        const size_t first = size_t(tile) * job_.tile_bytes,
                     length = std::min(job_.tile_bytes, part_bytes_ - std::min(part_bytes_, first));
        const size_t begin = chunk_bound(length, shares, share), end = chunk_bound(length, shares, share + 1);
        return {size_t(part) * length + begin, end - begin, size_t(part) * part_bytes_ + first + begin};
    }
    // The chunks of a span that are not empty, one by one, in the order in which they travel.
    std::vector<Range> span(int rank, int tile, const Instruction& it, int iteration) const {
        std::vector<Range> all;
        for (int offset = 0; offset < it.count; ++offset) {
            const Range at = range(rank, tile, it.chunk.at(iteration, offset));
            if (at.bytes > 0) all.push_back(at);
        }
        return all;
    }
    Bytes cut(const Bytes& from, size_t offset, size_t bytes) const {
        return Bytes(from.begin() + ptrdiff_t(offset), from.begin() + ptrdiff_t(offset + bytes));
    }
    void paste(Bytes& into, size_t offset, const Bytes& data) const {
        std::copy(data.begin(), data.end(), into.begin() + ptrdiff_t(offset));
    }

    // Of contributions, or partial sums.
    Bytes combined(const std::vector<Bytes>& sources, bool finish) const {
        const Division all = division(job_.type, job_.op, ranks_);
        return reduce(job_.type, job_.op, sources, {finish ? all.of_sum : 1, job_.in_one_place ? all.of_each : 1});
    }
    // The rank's contribution: its input, multiplied if the operation says so.
    Bytes contribution(int rank, const Range& at) const {
        const Bytes raw = cut(in_place(rank) ? outputs_[size_t(rank)] : inputs_[size_t(rank)], at.in_buffer, at.bytes);
        if (const Division all = division(job_.type, job_.op, ranks_); all.of_each != 1 && !job_.in_one_place)
            return reduce(job_.type, weftSum, {raw}, {1, all.of_each});
        if (job_.scalars.empty()) return raw;
        return reduce(job_.type, weftProd, {repeated(job_.scalars[size_t(rank)], at.bytes), raw});
    }
    // Slots and scratch, of every tile another.
    struct Memory {
        Bytes bytes;
        std::vector<bool> written;
    };
    Memory& memory(Buffer buffer, int rank, int tile) {
        Memory& all = memories_[{buffer, rank, tile}];
        if (all.bytes.empty()) {
            all.bytes.resize(job_.tile_bytes * size_t(parts_) * size_t(schedule(rank).wide));
            all.written.resize(all.bytes.size());
        }
        return all;
    }
    Bytes read_memory(Buffer buffer, int rank, int tile, const Range& at) {
        const Memory& all = memory(buffer, rank, tile);
        for (size_t i = at.in_tile; i < at.in_tile + at.bytes; ++i)
            if (!all.written[i])
                throw std::logic_error(std::string("a byte of ") + name_of(buffer) +
                                       " is read that nobody has written");
        return cut(all.bytes, at.in_tile, at.bytes);
    }
    void write_memory(Buffer buffer, int rank, int tile, const Range& at, const Bytes& data) {
        Memory& all = memory(buffer, rank, tile);
        paste(all.bytes, at.in_tile, data);
        std::fill_n(all.written.begin() + ptrdiff_t(at.in_tile), at.bytes, true);
    }
    // The rank's own data there.
    Bytes own(int rank, Buffer source, int cell, int tile, const Range& at) {
        if (source == Buffer::input) return contribution(rank, at);
        if (source == Buffer::slot) return read_memory(source, rank, tile, at);
        if (source != Buffer::scratch) return cut(outputs_[size_t(rank)], at.in_buffer, at.bytes);
        if (cell < 0) return read_memory(source, rank, tile, at);
        const Bytes& held = cells_[{rank, tile, cell}];
        if (held.size() != at.bytes) throw std::logic_error("a cell of scratch is read that holds another chunk");
        return held;
    }

    // The operands of a chunk's reduction, in rank order.
    std::vector<Bytes> contributions(int rank, const Instruction& it, int tile, const Range& at) {
        std::vector<Bytes> all;
        if (it.source == Buffer::scratch) {
            for (int other = 0; other < ranks_; ++other)
                all.push_back(other == rank ? contribution(other, at) : own(rank, it.source, other, tile, at));
            return all;
        }
        for (const int other : schedule(rank).shared_ranks) {
            const bool whole = it.source == Buffer::inputs || (it.source == Buffer::either && job_.mode.reads(other));
            all.push_back(other == rank || whole ? contribution(other, at)
                                                 : read_memory(Buffer::slot, other, tile, at));
        }
        return all;
    }
    void store(int rank, const Instruction& it, int tile, const Range& at, const Bytes& data) {
        if (it.targets & Buffer::output) paste(outputs_[size_t(rank)], at.in_buffer, data);
        for (const Buffer buffer : {Buffer::slot, Buffer::scratch}) {
            if (!(it.targets & buffer)) continue;
            if (buffer == Buffer::scratch && it.target_cell >= 0)
                cells_[{rank, tile, it.target_cell}] = data;
            else
                write_memory(buffer, rank, tile, at, data);
        }
        if (it.targets & Buffer::outputs)
            for (Bytes& output : outputs_) paste(output, at.in_buffer, data);
    }

    // One iteration of one instruction, if nothing holds it back.
    bool step(int rank, size_t block) {
        if (ended(rank, block)) return false;
        BlockPosition& place = positions_[size_t(rank)][block];
        const Block& lines = schedule(rank).blocks[block];
        const Instruction& it = lines.instructions[size_t(place.step)];
        if (it.after.block >= 0) {
            const BlockPosition& other = positions_[size_t(rank)][size_t(it.after.block)];
            const int tile = place.tile - it.after.ago * schedule(rank).tiles;
            if (tile >= 0 && !ended(rank, size_t(it.after.block)) &&
                std::tie(other.tile, other.step) <= std::tie(tile, it.after.step))
                return false;
        }
        if (!execute(rank, lines, it, place)) return false;
        if (++place.iteration < it.repeat) return true;
        place.iteration = 0;
        if (++place.step < int(lines.instructions.size())) return true;
        place.step = 0;
        place.tile += schedule(rank).tiles;
        return true;
    }

    bool execute(int rank, const Block& block, const Instruction& it, const BlockPosition& place) {
        const int tile = place.tile + it.tile;
        if (it.opcode == Opcode::post) return posted_.insert({rank, tile, it.phase}), true;
        if (it.opcode == Opcode::nop) return true;
        if (it.opcode == Opcode::wait) {
            for (const int other : schedule(rank).shared_ranks)
                if (other != rank && !posted_.count({other, tile, it.phase})) return false;
            return true;
        }
        const std::vector<Range> all = span(rank, tile, it, place.iteration);
        if (all.empty()) return true;
        if (kind_of(it.opcode) == OpcodeKind::connection) return transfer(rank, block, it, tile, all);
        for (const Range& at : all) {
            if (it.opcode == Opcode::reduce) {
                store(rank, it, tile, at, combined(contributions(rank, it, tile, at), it.finish));
            } else if (it.opcode == Opcode::add) {
                const Bytes held = own(rank, weft::internal::Buffer(it.targets), it.target_cell, tile, at),
                            added = own(rank, it.source, it.source_cell, tile, at);
                store(rank, it, tile, at,
                      combined(it.left ? std::vector{added, held} : std::vector{held, added}, it.finish));
            } else if (it.opcode == Opcode::copy) {
                store(rank, it, tile, it.moves ? range(rank, tile, it.into.at(place.iteration)) : at,
                      it.source == Buffer::slot ? read_memory(Buffer::slot, it.rank.at(place.iteration), tile, at)
                                                : own(rank, it.source, it.source_cell, tile, at));
            } else {
                throw std::logic_error(std::string("no meaning for ") + name_of(it.opcode));
            }
        }
        return true;
    }

    bool transfer(int rank, const Block& block, const Instruction& it, int tile, const std::vector<Range>& all) {
        const bool receives = weft::internal::receives(it.opcode), sends = weft::internal::sends(it.opcode);
        auto& incoming = connections_[{block.channel, block.source, rank}];
        auto& outgoing = connections_[{block.channel, rank, block.target}];
        if (receives && incoming.empty()) return false;
        if (sends && outgoing.size() >= size_t(schedule(rank).fifo_depth)) return false;
        Bytes message, passed_on;
        if (receives) {
            message = incoming.front();
            incoming.pop_front();
            size_t bytes = 0;
            for (const Range& at : all) bytes += at.bytes;
            if (message.size() != bytes) throw std::logic_error("a slot holds other chunks than expected");
        }
        size_t offset = 0;
        for (const Range& at : all) {
            Bytes data;
            if (receives) data = cut(message, offset, at.bytes);
            offset += at.bytes;
            if (reads_source(it.opcode)) {
                const Bytes held = own(rank, it.source, it.source_cell, tile, at);
                data =
                    !receives ? held : combined(it.left ? std::vector{held, data} : std::vector{data, held}, it.finish);
            }
            if (writes_targets(it.opcode)) store(rank, it, tile, at, data);
            passed_on.insert(passed_on.end(), data.begin(), data.end());
        }
        if (sends) outgoing.push_back(passed_on);
        return true;
    }

    const Job& job_;
    int ranks_, parts_;
    size_t part_bytes_ = 0;
    int tiles_ = 1;
    std::vector<Bytes> inputs_, outputs_;                                 // of the whole
    std::vector<std::vector<BlockPosition>> positions_;                   // by rank and block
    std::map<std::tuple<int, int, int>, std::deque<Bytes>> connections_;  // by channel, sender, receiver
    std::map<std::tuple<Buffer, int, int>, Memory> memories_;             // by rank and tile
    std::map<std::tuple<int, int, int>, Bytes> cells_;                    // of scratch, by rank, tile and number
    std::set<std::tuple<int, int, int>> posted_;                          // rank, tile, phase
};

}  // namespace

std::vector<Bytes> interpret(const Job& job) { return Interpreter(job).run(); }

}  // namespace weft::internal::reference
