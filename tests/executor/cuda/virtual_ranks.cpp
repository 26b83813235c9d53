#include "tests/executor/cuda/virtual_ranks.hpp"

#include <stdexcept>

namespace weft::internal::test {

using namespace cuda;

namespace {

constexpr size_t staging_bytes = 64 << 10;

Operation operation_of(const Call& call, const Launch& launch) {
    Operation operation = call.operation();
    operation.choice = uint64_t(launch.body);
    return operation;
}

}  // namespace

VirtualRanks::VirtualRanks(int ranks) : ranks_(ranks), reports_(size_t(ranks)), abort_(size_t(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
        words_.push_back(std::make_unique<RankFlags>());
        packets_.emplace_back(static_cast<PacketLine*>(calloc(packet_memory_bytes(ranks), 1)));
        staging_.emplace_back(staging_bytes / 16);
    }
}

void VirtualRanks::go_to(uint32_t epoch) {
    for (auto& words : words_)
        for (int block = 0; block < blocks_max; ++block) {
            words->epoch[block] = epoch;
            for (uint64_t& word : words->barrier[block]) word = barrier_word(epoch, 0);
        }
}

VirtualRanks::Part::Part(VirtualRanks& ranks, const Call& call, const Launch& launch, int rank)
    : call_(call),
      launch_(launch),
      rank_(rank),
      send_(in_bytes() + out_bytes()),
      receive_(out_bytes()),
      blocks_(launch.blocks) {
    const Bytes& input = call.inputs[size_t(rank)];
    const Held in = call.input_held(rank), out = call.output_held(rank);
    const bool in_place = !call.in_place.empty() && call.in_place[size_t(rank)] && in != Held::nothing &&
                          out != Held::nothing && !facts_of(call.collective()).transposes;
    // In place: where the shorter of the two lies in the longer.
    send_begin_ = send_.prepare(call.send_offset, in_place ? std::max(in_bytes(), out_bytes()) : in_bytes());
    receive_begin_ = receive_.prepare(call.receive_offset, out_bytes());
    if (in_place) receive_begin_ = send_begin_ + (in == Held::all ? first_held(out, rank, call.bytes()) : 0);
    if (in_place && out == Held::all) send_begin_ += first_held(in, rank, call.bytes());
    std::copy(input.begin(), input.end(), reinterpret_cast<std::byte*>(send_begin_));
    in_place_ = in_place;

    constexpr int teams[] = {1, 2, 3, 7};
    team_ = teams[ranks.launches_ % (ranks.ranks_ <= 4 ? 4 : 3)];
    KernelArguments& a = arguments;
    a.rank = rank;
    a.ranks = ranks.ranks_;
    a.launch = ranks.launches_;
    Operation operation = operation_of(call, launch);
    a.fingerprint = fingerprint(operation);
    bind_operation(a, operation, ranks.ranks_, launch.body != cuda::Body::steps || call.in_one_place());
    if (a.scaled)
        std::copy(call.scalars[size_t(rank)].begin(), call.scalars[size_t(rank)].end(),
                  reinterpret_cast<std::byte*>(&a.scalar));
    a.send = reinterpret_cast<const std::byte*>(send_begin_);
    a.receive = reinterpret_cast<std::byte*>(receive_begin_);
    a.timeout_ns = ranks.timeout_ns_;
    a.abort = &ranks.abort_[size_t(rank)];
    a.report = &ranks.reports_[size_t(rank)];
    a.own = ranks.words_[size_t(rank)].get();
    a.domain = true;
    for (int peer = 0; peer < ranks.ranks_; ++peer) {
        a.flags[peer] = ranks.words_[size_t(peer)].get();
        a.packets[peer] = ranks.packets_[size_t(peer)].get();
        if (launch.staged) {
            a.outputs[peer] = reinterpret_cast<std::byte*>(ranks.staging_[size_t(peer)].data());
            a.inputs[peer] = a.outputs[peer];
        }
    }
    if (launch.staged || launch.body == Body::steps) a.tile_bytes = call.tile_bytes;
    a.exports_buffers = launch.exporting != 0 && !a.scaled;
    for (int peer = 0; peer < ranks.ranks_ && rank < launch.exporting; ++peer) {
        a.exported_send[peer] = a.send;
        a.exported_receive[peer] = a.receive;
    }
    if (launch.body != Body::steps) return;
    const Schedule schedule = call.build(rank);
    a.send -= first_held(in, rank, call.bytes());
    a.receive -= first_held(out, rank, call.bytes());
    if (const std::string why = refusal(schedule); !why.empty()) throw std::runtime_error(why);
    program_ = program_of(schedule);
    ranks.connect(schedule, rank, program_);
    a.instructions = program_.instructions.data();
    a.step_blocks = program_.blocks.data();
    a.step_block_count = int(program_.blocks.size());
    scratch_.resize(scratch_bytes(schedule, call.tile_bytes) / 16 + 1);
    a.scratch = reinterpret_cast<std::byte*>(scratch_.data());
    a.chunks = schedule.chunks;
    a.parts = schedule.parts();
    a.tiles = schedule.tiles;
    a.dependent = program_.dependent;
}

void VirtualRanks::connect(const Schedule& schedule, int rank, Program& program) {
    const uint32_t depth = slots_of(schedule);
    const auto find = [&](int channel, int from, int to) -> Connection& {
        Connection& connection = connections_[{channel, from, to, depth}];
        if (connection.slots.empty()) {
            connection.slots.resize(depth * Connection::slot_bytes / 16);
            connection.filled.resize(depth);
        }
        return connection;
    };
    const auto end_of = [&](Connection& connection, uint32_t& count, int peer) {
        return ConnectionEnd{reinterpret_cast<std::byte*>(connection.slots.data()),
                             connection.filled.data(),
                             &connection.consumed,
                             &count,
                             Connection::slot_bytes,
                             depth,
                             peer};
    };
    for (size_t block = 0; block < program.blocks.size(); ++block) {
        const Block& lines = schedule.blocks[block];
        if (lines.source >= 0) {
            Connection& connection = find(lines.channel, lines.source, rank);
            program.blocks[block].source = end_of(connection, connection.received, lines.source);
        }
        if (lines.target >= 0) {
            Connection& connection = find(lines.channel, rank, lines.target);
            program.blocks[block].target = end_of(connection, connection.sent, lines.target);
        }
    }
}

std::vector<std::unique_ptr<VirtualRanks::Part>> VirtualRanks::prepare(const Call& call, const Launch& launch) {
    ++launches_;
    std::vector<std::unique_ptr<Part>> parts;
    for (int rank = 0; rank < ranks_; ++rank) parts.push_back(std::make_unique<Part>(*this, call, launch, rank));
    if (launch.body == Body::steps) {
        // Schedules have blocks of different number on the ranks, grids have not; and there may be more than any needs.
        int most = 0;
        for (auto& part : parts) most = std::max(most, int(part->program_.blocks.size()));
        for (auto& part : parts) part->blocks_ = most + 1;
    }
    for (auto& part : parts) {
        if (launch.staged || (launch.body != Body::peer_two_shot && launch.body != Body::peer_one_shot)) continue;
        for (int peer = 0; peer < ranks_; ++peer) {
            part->arguments.inputs[peer] = parts[size_t(peer)]->arguments.send;
            part->arguments.outputs[peer] = parts[size_t(peer)]->arguments.receive;
        }
    }
    return parts;
}

void VirtualRanks::Part::start() {
    const Operation operation = call_.operation();
    const HostKernel kernel =
        host_kernel(launch_.body, element_of(operation, launch_.body), adds(weftRedOp_t(operation.op)));
    for (int block = 0; block < blocks_; ++block)
        threads_.emplace_back(
            [=, this] { run_block(team_, block, blocks_, [&](const Team& team) { kernel(team, arguments); }); });
}

size_t VirtualRanks::Part::in_bytes() const { return call_.inputs[size_t(rank_)].size(); }
size_t VirtualRanks::Part::out_bytes() const {
    return call_.bytes() * size_t(parts_held(call_.output_held(rank_), call_.parts()));
}

Bytes VirtualRanks::Part::result() const {
    const auto* begin = reinterpret_cast<const std::byte*>(receive_begin_);
    return Bytes(begin, begin + out_bytes());
}

bool VirtualRanks::Part::intact() const {
    const Bytes& input = call_.inputs[size_t(rank_)];
    const bool kept = in_place_ || input.empty() || memcmp(send_begin_, input.data(), input.size()) == 0;
    return kept && send_.intact() && receive_.intact();
}

std::string VirtualRanks::failures() const {
    std::string text;
    for (const FailureReport& r : reports_)
        if (r.failure != cuda::KernelFailure::none)
            text += fmt::format("rank {} failed: {}, waiting {} for rank {} in block {}, epoch {}, tile {}; ", r.rank,
                                int(r.failure), int(r.waiting), r.peer, r.block, r.epoch, r.tile);
    return text;
}

std::vector<Bytes> VirtualRanks::run(const Call& call, const Launch& launch) {
    auto parts = prepare(call, launch);
    for (auto& part : parts) part->start();
    for (auto& part : parts) part->join();
    std::vector<Bytes> results;
    for (int rank = 0; rank < ranks_; ++rank) {
        if (reports_[size_t(rank)].failure != cuda::KernelFailure::none) throw std::runtime_error(failures());
        if (!parts[size_t(rank)]->intact())
            throw std::runtime_error(fmt::format("rank {} wrote beside its buffer", rank));
        results.push_back(parts[size_t(rank)]->result());
    }
    return results;
}

}  // namespace weft::internal::test
