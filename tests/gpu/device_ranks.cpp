#include "tests/gpu/device_ranks.hpp"

#include <fstream>
#include <iterator>

#include "src/gpu/kernels/device_code.hpp"

namespace weft::internal::test {

using namespace cuda;

void require(const Status& status) {
    if (!status) throw std::runtime_error(status.sentence());
}

Gpu& Gpu::get() {
    static Gpu gpu;
    return gpu;
}

Gpu::Gpu()
    : driver(*require(cuda::Driver::get())),
      properties(require(describe_device(driver, 0))),
      context(require(Context::retain(driver, 0))) {
    scope_ = std::make_unique<ContextScope>(context);
    require(scope_->take_status());
    std::vector<Library> libraries;
    // The fake driver looks at no more of it.
    static constexpr uint32_t no_code[64] = {0xba55ed50};
    if (device_code().empty()) libraries.push_back(require(Library::load(driver, no_code)));
    for (const DeviceCode& code : device_code())
        libraries.push_back(require(Library::load(driver, code.fatbin.data())));
    for (int body = 0; body < body_count; ++body)
        for (int type = 0; type < weftNumTypes; ++type)
            for (const bool sums : {false, true}) {
                if (!has_entry_point(Body(body), weftDataType_t(type), sums)) continue;
                const char* name = entry_point(Body(body), weftDataType_t(type), sums);
                std::string why;
                for (const Library& library : libraries) {
                    auto found = cuda::Kernel::load(library, context, name);
                    if (found)
                        kernels[name] = *found;
                    else
                        why = found.status().sentence();
                }
                if (!kernels.count(name)) throw std::runtime_error(why);
            }
#if defined(WEFT_VIRTUAL_RANKS)
    std::ifstream file(WEFT_VIRTUAL_RANKS, std::ios::binary);
    virtual_code_.assign(std::istreambuf_iterator<char>(file), {});
    const Library library = require(Library::load(driver, virtual_code_.data()));
#else
    const Library library = require(Library::load(driver, no_code));
#endif
    static std::map<std::string, bool> names;  // a kernel keeps the pointer to its name
    for (int body = 0; body < body_count; ++body)
        for (const weftDataType_t type : virtual_types) {
            if (!is_virtual(Body(body))) continue;
            const auto name = names.emplace(virtual_entry_point(Body(body), type), true).first;
            kernels[name->first] = require(cuda::Kernel::load(library, context, name->first.c_str()));
        }
}

cuda::Kernel& Gpu::kernel(const std::string& name) {
    const auto found = kernels.find(name);
    if (found == kernels.end()) throw std::runtime_error("there is no kernel " + name);
    return found->second;
}

namespace {

struct HostReports {
    FailureReport report;
    alignas(64) uint32_t abort;
};

HostReports* state_of(const PinnedMemory& memory, int rank) { return static_cast<HostReports*>(memory.data()) + rank; }

}  // namespace

DeviceRanks::DeviceRanks(int ranks, size_t bytes_max)
    : gpu_(Gpu::get()), ranks_(ranks), stride_((bytes_max + 4 * margin + 255) / 256 * 256), arguments_(size_t(ranks)) {
    const auto allocate = [&](size_t bytes) {
        DeviceMemory memory = require(DeviceMemory::allocate(gpu_.context, bytes));
        require(fill_async(gpu_.driver, memory.address(), 0, bytes, nullptr));
        return memory;
    };
    const auto n = size_t(ranks);
    send_ = allocate(stride_ * n);
    receive_ = allocate(stride_ * n);
    words_ = allocate(sizeof(RankFlags) * n);
    packets_ = allocate(packet_memory_bytes(ranks) * n);
    staging_ = allocate(staging_bytes * n);
    arguments_memory_ = allocate(sizeof(KernelArguments) * n);
    programs_ = allocate((256 << 10) * n);
    pinned_ = require(PinnedMemory::allocate(gpu_.context, sizeof(HostReports) * n));
    memset(pinned_.data(), 0, pinned_.bytes());
    for (int rank = 0; rank < ranks; ++rank) streams_.push_back(require(cuda::Stream::create(gpu_.context)));
    require(gpu_.context.synchronize());
}

void DeviceRanks::abort(int rank) { std::atomic_ref(state_of(pinned_, rank)->abort).store(1); }
const FailureReport& DeviceRanks::report(int rank) const { return state_of(pinned_, rank)->report; }
bool DeviceRanks::failed() const {
    for (int rank = 0; rank < ranks_; ++rank)
        if (report(rank).failure != cuda::KernelFailure::none) return true;
    return false;
}

void DeviceRanks::make_arguments(Operation operation) {
    operation.choice = uint64_t(launch_.body);
    const CollectiveFacts facts = facts_of(operation.collective);
    blocks_ = launch_.blocks;
    result_bytes_.clear();
    for (int rank = 0; rank < ranks_; ++rank) {
        KernelArguments& a = arguments_[size_t(rank)];
        a = {};
        a.rank = rank;
        a.ranks = ranks_;
        a.fingerprint = fingerprint(operation);
        // Nothing that these steps run has all ranks' contributions at once.
        bind_operation(a, operation, ranks_, launch_.body != Body::steps);
        const Held in = input_of(operation.collective, rank, operation.root),
                   out = output_of(operation.collective, rank, operation.root);
        result_bytes_.push_back(a.bytes * size_t(parts_held(out, parts_of(operation.collective, ranks_))));
        const CUdeviceptr sends = buffer(send_, rank) + margin + send_offset_;
        // In place: where the shorter of the two lies in the longer.
        const bool in_place = !in_place_.empty() && in_place_[size_t(rank)] && in != Held::nothing &&
                              out != Held::nothing && !facts.transposes;
        a.receive =
            reinterpret_cast<std::byte*>(!in_place ? buffer(receive_, rank) + margin + receive_offset_
                                                   : sends + (in == Held::all ? first_held(out, rank, a.bytes) : 0));
        a.send = reinterpret_cast<const std::byte*>(sends +
                                                    (in_place && out == Held::all ? first_held(in, rank, a.bytes) : 0));
        // In what is read where it lies, each taker's part is one of a tile.
        if (launch_.staged)
            a.tile_bytes = launch_.body == Body::peer_one_shot && a.send_stride != 0
                               ? staging_bytes / 2 / size_t(ranks_) / 64 * 64
                               : staging_bytes / 2;
        a.exports_buffers = launch_.exports_buffers && !a.scaled;
        a.timeout_ns = timeout_ns_;
        auto* host = reinterpret_cast<HostReports*>(pinned_.address()) + rank;
        a.abort = &host->abort;
        a.report = &host->report;
        a.own = static_cast<RankFlags*>(words_.data()) + rank;
        a.domain = true;
    }
    for (KernelArguments& a : arguments_)
        for (int peer = 0; peer < ranks_; ++peer) {
            a.flags[peer] = static_cast<RankFlags*>(words_.data()) + peer;
            if (a.exports_buffers) {
                a.exported_send[peer] = a.send;
                a.exported_receive[peer] = a.receive;
            }
            a.packets[peer] =
                reinterpret_cast<PacketLine*>(packets_.address() + packet_memory_bytes(ranks_) * size_t(peer));
            auto* const staged = reinterpret_cast<std::byte*>(staging_.address() + staging_bytes * size_t(peer));
            a.inputs[peer] = launch_.staged ? staged : arguments_[size_t(peer)].send;
            a.outputs[peer] = launch_.staged ? staged : arguments_[size_t(peer)].receive;
        }
    if (const SwitchedStaging* const switched = launch_.switched) {
        KernelArguments& a = arguments_[0];
        a.outputs[0] = switched->own;
        a.scratch = switched->object;
        a.tile_bytes = switched->bytes / 2;
    }
    // Collectives without a reduction take any type; the virtual ranks have them for bytes, but not for integer words.
    const bool grid = launch_.placing == Placing::grid;
    const weftDataType_t element = grid && !facts.reduces ? weftInt8 : element_of(operation, launch_.body);
    kernel_ = &gpu_.kernel(grid ? virtual_entry_point(launch_.body, element)
                                : entry_point(launch_.body, element, adds(weftRedOp_t(operation.op))));
}

void DeviceRanks::make_program(const Call& call) {
    const std::string key = fmt::format("{} {}", call.algorithm->name, call.channels);
    std::vector<Program> programs;
    std::map<std::tuple<int, int, int>, ConnectionEnd> connections;
    for (int rank = 0; rank < ranks_; ++rank) {
        const Schedule schedule = call.algorithm->build(call.layout(rank), {.channels = call.channels});
        if (const std::string why = refusal(schedule); !why.empty()) throw std::runtime_error(why);
        programs.push_back(program_of(schedule));
        KernelArguments& a = arguments_[size_t(rank)];
        a.tile_bytes = std::min(call.tile_bytes, largest_tile_bytes(schedule, slot_bytes));
        a.chunks = schedule.chunks;
        a.tiles = schedule.tiles;
        a.dependent = programs.back().dependent;
        a.step_block_count = int(schedule.blocks.size());
        blocks_ = std::max(blocks_, a.step_block_count);
        const uint32_t depth = slots_of(schedule);
        // Connections are kept, with their counts, for the next call of the kind.
        std::vector<ConnectionEnd>& known = connected_[fmt::format("{} {}", key, rank)];
        if (known.empty())
            for (const Block& block : schedule.blocks) {
                if (block.source < 0) continue;
                const size_t data = depth * slot_bytes;
                connections_.push_back(require(DeviceMemory::allocate(gpu_.context, data + depth * 8 + 64)));
                const CUdeviceptr at = connections_.back().address();
                require(fill_async(gpu_.driver, at, 0, connections_.back().bytes(), nullptr));
                known.push_back({reinterpret_cast<std::byte*>(at), reinterpret_cast<uint64_t*>(at + data),
                                 reinterpret_cast<uint32_t*>(at + data + depth * 8), nullptr, slot_bytes, depth, 0});
            }
        size_t next = 0;
        for (const Block& block : schedule.blocks)
            if (block.source >= 0) connections[{block.channel, block.source, rank}] = known[next++];
    }
    for (int rank = 0; rank < ranks_; ++rank) {
        const Schedule schedule = call.algorithm->build(call.layout(rank), {.channels = call.channels});
        Program& program = programs[size_t(rank)];
        for (size_t i = 0; i < program.blocks.size(); ++i) {
            const Block& block = schedule.blocks[i];
            const auto end_of = [&](int from, int to, int count, int peer) {
                ConnectionEnd end = connections.at({block.channel, from, to});
                end.count = end.consumed + count;
                end.peer = peer;
                return end;
            };
            if (block.source >= 0) program.blocks[i].source = end_of(block.source, rank, 1, block.source);
            if (block.target >= 0) program.blocks[i].target = end_of(rank, block.target, 2, block.target);
        }
        const CUdeviceptr at = programs_.address() + (256 << 10) * size_t(rank);
        const size_t lines = program.instructions.size() * sizeof(Instruction), blocks = (lines + 15) / 16 * 16;
        require(gpu_.driver.check(
            gpu_.driver.MemcpyAsync(at, reinterpret_cast<CUdeviceptr>(program.instructions.data()), lines, nullptr),
            "copy"));
        require(
            gpu_.driver.check(gpu_.driver.MemcpyAsync(at + blocks, reinterpret_cast<CUdeviceptr>(program.blocks.data()),
                                                      program.blocks.size() * sizeof(StepBlock), nullptr),
                              "copy"));
        require(gpu_.context.synchronize());
        arguments_[size_t(rank)].instructions = reinterpret_cast<const Instruction*>(at);
        arguments_[size_t(rank)].step_blocks = reinterpret_cast<const StepBlock*>(at + blocks);
    }
}

void DeviceRanks::bind(const Call& call, const DeviceLaunch& launch) {
    launch_ = launch;
    send_offset_ = call.send_offset;
    receive_offset_ = call.receive_offset;
    in_place_ = call.in_place;
    make_arguments(call.operation());
    if (launch.body == Body::steps) make_program(call);
    for (int rank = 0; rank < ranks_; ++rank) {
        KernelArguments& a = arguments_[size_t(rank)];
        if (a.scaled) memcpy(&a.scalar, call.scalars[size_t(rank)].data(), call.scalars[size_t(rank)].size());
        const Bytes& input = call.inputs[size_t(rank)];
        if (!input.empty())
            require(gpu_.driver.check(
                gpu_.driver.MemcpyAsync(reinterpret_cast<CUdeviceptr>(a.send),
                                        reinterpret_cast<CUdeviceptr>(input.data()), input.size(), nullptr),
                "copy the input"));
    }
    require(copy_async(gpu_.driver, arguments_memory_.address(), reinterpret_cast<CUdeviceptr>(arguments_.data()),
                       sizeof(KernelArguments) * arguments_.size(), nullptr));
    require(gpu_.context.synchronize());
}

void DeviceRanks::bind_bytes(weftDataType_t type, size_t bytes, const DeviceLaunch& launch, const Call* call_of) {
    launch_ = launch;
    send_offset_ = receive_offset_ = 0;
    in_place_.clear();
    Operation operation{.collective = call_of ? call_of->collective() : Collective::all_reduce};
    operation.type = uint8_t(type);
    operation.count = bytes / size_of(type);
    make_arguments(operation);
    if (launch.body == Body::steps) make_program(*call_of);
    require(copy_async(gpu_.driver, arguments_memory_.address(), reinterpret_cast<CUdeviceptr>(arguments_.data()),
                       sizeof(KernelArguments) * arguments_.size(), nullptr));
    require(gpu_.context.synchronize());
}

void DeviceRanks::launch_rank(int rank) {
    void* parameters[] = {&arguments_[size_t(rank)]};
    const LaunchShape shape{.blocks = unsigned(blocks_), .threads = unsigned(launch_.threads)};
    require(kernel_->launch(shape, streams_[size_t(rank)].handle(), parameters));
}

void DeviceRanks::launch() {
    if (launch_.placing == Placing::streams) {
        for (int rank = 0; rank < ranks_; ++rank) launch_rank(rank);
        return;
    }
    CUdeviceptr arguments = arguments_memory_.address();
    void* parameters[] = {&arguments, &blocks_};
    const LaunchShape shape{
        .blocks = unsigned(blocks_ * ranks_), .threads = unsigned(launch_.threads), .cooperative = true};
    require(kernel_->launch(shape, streams_[0].handle(), parameters));
}

void DeviceRanks::synchronize() {
    for (cuda::Stream& stream : streams_) require(stream.synchronize());
}

std::vector<Bytes> DeviceRanks::results() {
    std::vector<Bytes> all;
    for (size_t rank = 0; rank < arguments_.size(); ++rank) {
        Bytes bytes(result_bytes_[rank]);
        if (!bytes.empty())
            require(gpu_.driver.check(
                gpu_.driver.Memcpy(reinterpret_cast<CUdeviceptr>(bytes.data()),
                                   reinterpret_cast<CUdeviceptr>(arguments_[rank].receive), bytes.size()),
                "copy the result"));
        all.push_back(std::move(bytes));
    }
    return all;
}

std::vector<Bytes> DeviceRanks::run(const Call& call, const DeviceLaunch& how) {
    bind(call, how);
    launch();
    synchronize();
    for (int rank = 0; rank < ranks_; ++rank) {
        const FailureReport& it = report(rank);
        if (it.failure == cuda::KernelFailure::none) continue;
        throw std::runtime_error(fmt::format(
            "rank {} failed ({}): waits ({}) for {} in block {}, tile {}; {:x}, not {:x}: {}", rank, int(it.failure),
            int(it.waiting), it.peer, it.block, it.tile, it.other_fingerprint, it.fingerprint, call.text()));
    }
    return results();
}

}  // namespace weft::internal::test
