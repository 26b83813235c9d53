#include "src/gpu/domain/domain_memory.hpp"

#include <cstring>
#include <utility>

#include "src/gpu/domain/launch_order.hpp"

namespace weft::internal::cuda {

DomainMemory::DomainMemory(const DomainRanks& ranks, std::shared_ptr<const KernelSet> kernels, Connections connections)
    : ranks_(ranks),
      kernels_(std::move(kernels)),
      connections_(std::move(connections)),
      layout_(ranks.count, ranks.several_hosts(), connections_, ranks.segment->header().agreed.gpu.staging_bytes),
      fabric_{FabricLayout(ranks.count, ranks.segment->header().agreed.gpu.staging_bytes),
              {},
              {},
              std::vector<CUdeviceptr>(size_t(ranks.count), 0)},
      bases_(size_t(ranks.count), 0) {}

Status DomainMemory::begin() {
    const Context& context = kernels_->context();
    auto flag = SharedAbortFlag::of(ranks_.segment, context);
    if (!flag) return flag.take_status();
    shared_abort_flag_ = std::move(*flag);
    auto abort = shared_abort_flag_->abort();
    if (!abort) return abort.take_status();
    abort_ = *abort;
    if (auto unused = MemoryPool::of_process().take_host(context, remote_bytes())) {
        host_ = std::move(*unused);
    } else {
        auto reports = PinnedMemory::allocate(context, sizeof(HostReports));
        if (!reports) return reports.take_status();
        host_.reports = std::move(*reports);
        if (remote_bytes() > 0) {
            auto remote = PinnedMemory::allocate(context, remote_bytes());
            if (!remote) return remote.take_status();
            host_.remote = std::move(*remote);
        }
    }
    auto* const remote = static_cast<std::byte*>(host_.remote.data());
    if (remote) memset(remote, 0, remote_bytes());
    memset(host_.reports.data(), 0, sizeof(HostReports));
    return ok();
}

Status DomainMemory::allocate(ExportableMemory::ExportMethod way) {
    const auto use = [this](ExportableMemory& memory) { unused_ = std::exchange(memory_, std::move(memory)); };
    if (auto unused = MemoryPool::of_process().take(kernels_->context(), layout_.bytes, way)) return use(*unused), ok();
    auto memory = ExportableMemory::allocate(kernels_->context(), layout_.bytes, way);
    if (memory) use(*memory);
    return memory.take_status();
}

void DomainMemory::give_to_pool() {
    MemoryPool& pool = MemoryPool::of_process();
    const auto retained = [this] { return Context::retain(kernels_->driver(), kernels_->context().device()); };
    for (ExportableMemory* memory : {&memory_, &unused_})
        if (auto context = retained(); context && memory->address() != 0)
            pool.give(std::move(*context), std::move(*memory), layout_.bytes);
    if (auto context = retained(); context && host_.reports.data() != nullptr)
        pool.give(std::move(*context), std::move(host_));
    if (auto context = retained(); context && multicast_.object.bytes() > 0)
        pool.give(std::move(*context), std::move(multicast_));
    if (auto context = retained(); context && fabric_.own.bytes() > 0)
        pool.give(std::move(*context), std::move(fabric_.own));
    for (NetworkSlots* slots : {&sent_, &received_})
        if (auto context = retained(); context && slots->bytes() > 0) pool.give(std::move(*context), std::move(*slots));
}

std::vector<std::byte> DomainMemory::programs() const {
    std::vector<std::byte*> areas;
    for (const CUdeviceptr base : bases_)
        areas.push_back(base ? reinterpret_cast<std::byte*>(base + layout_.connections) : nullptr);
    return connections_.programs(
        ranks_.rank, areas,
        {reinterpret_cast<std::byte*>(host_.remote.address()), sent_.for_kernels(), received_.for_kernels()});
}

uint32_t* DomainMemory::ended() const {
    return reinterpret_cast<uint32_t*>(host_.reports.address() + offsetof(HostReports, ended));
}

void DomainMemory::bind(KernelArguments& arguments) const {
    arguments.rank = ranks_.rank;
    arguments.ranks = ranks_.count;
    arguments.abort = abort_;
    arguments.report = reinterpret_cast<FailureReport*>(host_.reports.address() + offsetof(HostReports, report));
    arguments.own = own_flags();
    if (ranks_.several_hosts() || LaunchOrder::defers()) arguments.ended = ended();
    if (fabric_.works) return fabric_.bind(arguments);
    arguments.domain = !ranks_.several_hosts();
    for (int peer = 0; arguments.domain && peer < ranks_.count; ++peer) {
        const CUdeviceptr base = bases_[size_t(peer)];
        auto* const staging = reinterpret_cast<std::byte*>(base + layout_.staging);
        arguments.flags[peer] = reinterpret_cast<RankFlags*>(base);
        arguments.packets[peer] = reinterpret_cast<PacketLine*>(base + layout_.packets);
        arguments.inputs[peer] = arguments.outputs[peer] = staging;
    }
}

void DomainMemory::bind_multicast(KernelArguments& arguments) const {
    arguments.outputs[ranks_.rank] = static_cast<std::byte*>(multicast_.memory.data());
    arguments.scratch = reinterpret_cast<std::byte*>(multicast_.object.address());
}

void DomainMemory::bind_program(KernelArguments& arguments, size_t index) const {
    auto* const memory = static_cast<std::byte*>(memory_.data());
    connections_.bind(arguments, index, memory + layout_.programs);
    arguments.scratch = memory + layout_.scratch;
}

void DomainMemory::bind_tokens(KernelArguments& arguments) const {
    arguments.receive = static_cast<std::byte*>(memory_.data()) + layout_.tokens;
    arguments.send = arguments.receive + DomainLayout::token_bytes * size_t(ranks_.count);
}

template <class Arguments>
void DomainMemory::bind_waiting(Arguments& arguments) const {
    arguments.rank = ranks_.rank;
    arguments.abort = abort_;
    const CUdeviceptr words = host_.reports.address();
    arguments.report = reinterpret_cast<FailureReport*>(words + offsetof(HostReports, report));
    arguments.block_waits = reinterpret_cast<BlockWait*>(words + offsetof(HostReports, block_waits));
    arguments.own = own_flags();
    if (LaunchOrder::defers()) arguments.ended = ended();
}

void DomainMemory::bind(MessageArguments& arguments) const {
    bind_waiting(arguments);
    const CUdeviceptr words = host_.reports.address();
    arguments.ranks = ranks_.count;
    arguments.message_report = reinterpret_cast<MessageReport*>(words + offsetof(HostReports, message_report));
    arguments.table = reinterpret_cast<MessageItem*>(memory_.address() + layout_.message_table);
    if (fabric_.works) return fabric_.bind(arguments);
    for (const int peer : ranks_.members)
        arguments.areas[peer] = reinterpret_cast<std::byte*>(bases_[size_t(peer)] + layout_.messages);
    if (ranks_.remote.empty()) return;
    arguments.ended = ended();
    std::byte* const remote = reinterpret_cast<std::byte*>(host_.remote.address()) + connections_.remote_words_bytes();
    for (size_t i = 0; i < ranks_.remote.size(); ++i) {
        arguments.remote.ranks.add(ranks_.remote[i]);
        arguments.areas[ranks_.remote[i]] = remote + i * sizeof(RemoteMessageArea);
    }
    arguments.remote.sent_slots = sent_.for_kernels() + connections_.sent_bytes();
    arguments.remote.received_slots = received_.for_kernels() + connections_.received_bytes();
}

void DomainMemory::bind(AccessArguments& arguments) const {
    bind_waiting(arguments);
    arguments.signal_report =
        reinterpret_cast<SignalReport*>(host_.reports.address() + offsetof(HostReports, signal_report));
    for (const int peer : ranks_.members)
        arguments.signals[peer] = reinterpret_cast<SignalCounters*>(bases_[size_t(peer)] + layout_.signals);
}

size_t DomainMemory::remote_bytes() const {
    return connections_.remote_words_bytes() + ranks_.remote.size() * sizeof(RemoteMessageArea);
}

size_t DomainMemory::network_bytes(bool incoming) const {
    return (incoming ? connections_.received_bytes() : connections_.sent_bytes()) +
           ranks_.remote.size() * remote_message_bytes;
}

std::vector<RemoteEnd> DomainMemory::remote_ends() const {
    std::byte* const remote = static_cast<std::byte*>(host_.remote.data());
    std::vector<RemoteEnd> ends =
        connections_.remote_ends(ranks_.rank, {remote, sent_.for_host(), received_.for_host()});
    if (fabric_.works) return ends;
    for (size_t i = 0; i < ranks_.remote.size(); ++i) {
        ConnectionEnd end{};
        end.slot_bytes = message_slot_bytes;
        end.depth = message_slots;
        end.peer = ranks_.remote[i];
        RemoteEnd outgoing{message_channel_remote, false, end}, incoming{message_channel_remote, true, end};
        if (sent_.for_host())
            outgoing.end.slots = remote_message_slots(sent_.for_host() + connections_.sent_bytes(), i);
        if (received_.for_host())
            incoming.end.slots = remote_message_slots(received_.for_host() + connections_.received_bytes(), i);
        if (remote) {
            auto* const it = reinterpret_cast<RemoteMessageArea*>(remote + connections_.remote_words_bytes()) + i;
            const auto place = [](RemoteEnd& there, RemoteMessageArea::RemoteDirection& way) {
                there.end.filled = way.filled;
                there.end.consumed = &way.consumed;
                there.wholes = way.wholes;
            };
            place(outgoing, it->outgoing);
            place(incoming, it->incoming);
            outgoing.end.lengths = it->outgoing.lengths;
            incoming.end.wanted = &it->incoming.wanted;
        }
        ends.push_back(outgoing);
        ends.push_back(incoming);
    }
    return ends;
}

}  // namespace weft::internal::cuda
