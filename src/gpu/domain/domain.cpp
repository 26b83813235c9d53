#include "src/gpu/domain/domain.hpp"

#include <unistd.h>

#include <algorithm>
#include <list>
#include <mutex>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/gpu/domain/domain_memory.hpp"

namespace weft::internal::cuda {

namespace {

constexpr int64_t kernel_patience_us = 2'000'000;  // after an abort: kernels poll the flag all the time
constexpr int64_t peer_patience_us = 300'000;      // peers that leave at about the same time usually need less

// Memory of retired domains. Freeing it would wait for the device, where kernels of another communicator may wait for a
// rank of this very thread. So it is kept for the next domain, and freed when the process has none.
struct RetiredMemory {
    Context context;
    ExportableMemory memory;
    size_t bytes;  // the requested size
};
struct RetiredReports {
    Context context;
    PinnedMemory host_reports, remote;
};
struct Parked {
    std::mutex mutex;
    std::list<std::unique_ptr<Domain>> all;
    std::list<RetiredMemory> memory;
    std::list<RetiredReports> reports;
    int alive = 0;  // domains that are not retired
};
Parked& parked_domains() {
    static PerProcess<Parked> of_process;
    return of_process.get();
}

}  // namespace

Domain::Domain(std::shared_ptr<Segment> group, int rank, std::shared_ptr<const KernelSet> kernels,
               Connections connections)
    : segment_(std::move(group)),
      rank_(rank),
      ranks_(segment_->ranks()),
      kernels_(std::move(kernels)),
      bases_(size_t(ranks_), 0),
      connections_(std::move(connections)) {
    members_ = segment_->locals();
    for (int rank = 0; rank < ranks_; ++rank)
        if (!segment_->local(rank)) remote_ranks_.push_back(rank);
    std::vector<int> first_ranks(size_t(ranks_), -1);  // by host
    for (int rank = 0; rank < ranks_ && !segment_->one_host(); ++rank)
        if (int& first = first_ranks[size_t(segment_->rank_info(rank).host)]; first < 0) first = rank;
    for (const int first : first_ranks)
        if (first >= 0 && !segment_->local(first)) other_hosts_.push_back(first);
    Parked& parked = parked_domains();
    std::lock_guard lock(parked.mutex);
    ++parked.alive;
}

Status Domain::take_memory(ExportableMemory::ExportMethod way) {
    const Context& context = kernels_->context();
    const size_t bytes = layout().bytes;
    Parked& parked = parked_domains();
    const auto use = [this](ExportableMemory& memory) { unused_ = std::exchange(memory_, std::move(memory)); };
    {
        std::lock_guard lock(parked.mutex);
        const auto unused = std::find_if(parked.memory.begin(), parked.memory.end(), [&](const RetiredMemory& each) {
            return each.context.device() == context.device() && each.bytes == bytes && each.memory.way() == way;
        });
        if (unused != parked.memory.end()) {
            use(unused->memory);
            parked.memory.erase(unused);
            return ok();
        }
    }
    auto memory = ExportableMemory::allocate(context, bytes, way);
    if (memory) use(*memory);
    return memory.take_status();
}

Status Domain::take_host_reports() {
    const Context& context = kernels_->context();
    Parked& parked = parked_domains();
    {
        std::lock_guard lock(parked.mutex);
        const auto unused = std::find_if(parked.reports.begin(), parked.reports.end(), [&](const RetiredReports& each) {
            return each.context.device() == context.device() && each.remote.bytes() == remote_bytes();
        });
        if (unused != parked.reports.end()) {
            host_reports_ = std::move(unused->host_reports);
            remote_ = std::move(unused->remote);
            parked.reports.erase(unused);
            return ok();
        }
    }
    auto host_reports = PinnedMemory::allocate(context, sizeof(HostReports));
    if (!host_reports) return host_reports.take_status();
    host_reports_ = std::move(*host_reports);
    if (remote_bytes() == 0) return ok();
    auto remote = PinnedMemory::allocate(context, remote_bytes());
    if (remote) remote_ = std::move(*remote);
    return remote.take_status();
}

Domain::~Domain() {
    withdraw_fds();
    const ContextScope scope(kernels_->context());
    for (Event* event : {&done_, &captured_done_}) *event = Event();
    stream_ = Stream();
}

void Domain::bind(KernelArguments& arguments) const {
    const DomainLayout layout = this->layout();
    arguments.rank = rank_;
    arguments.ranks = ranks_;
    arguments.abort = abort_;
    arguments.report = reinterpret_cast<FailureReport*>(host_reports_.address() + offsetof(HostReports, report));
    arguments.own = reinterpret_cast<RankFlags*>(bases_[size_t(rank_)]);
    if (!other_hosts_.empty())
        arguments.ended = reinterpret_cast<uint32_t*>(host_reports_.address() + offsetof(HostReports, ended));
    arguments.domain = ranks_ <= cuda::ranks_max && other_hosts_.empty();
    for (int peer = 0; arguments.domain && peer < ranks_; ++peer) {
        const CUdeviceptr base = bases_[size_t(peer)];
        auto* const staging = reinterpret_cast<std::byte*>(base + layout.staging);
        arguments.flags[peer] = reinterpret_cast<RankFlags*>(base);
        arguments.packets[peer] = reinterpret_cast<PacketLine*>(base + layout.packets);
        arguments.inputs[peer] = arguments.outputs[peer] = staging;
    }
}

void Domain::bind_program(KernelArguments& arguments, size_t index) const {
    auto* const memory = static_cast<std::byte*>(memory_.data());
    connections_.bind(arguments, index, memory + layout().programs);
    arguments.scratch = memory + layout().scratch;
}

void Domain::bind_tokens(KernelArguments& arguments) const {
    arguments.receive = static_cast<std::byte*>(memory_.data()) + layout().tokens;
    arguments.send = arguments.receive + token_bytes * size_t(ranks_);
}

template <class Arguments>
void Domain::bind_waiting(Arguments& arguments) const {
    arguments.rank = rank_;
    arguments.abort = abort_;
    const CUdeviceptr words = host_reports_.address();
    arguments.report = reinterpret_cast<FailureReport*>(words + offsetof(HostReports, report));
    arguments.block_waits = reinterpret_cast<BlockWait*>(words + offsetof(HostReports, block_waits));
    arguments.own = reinterpret_cast<RankFlags*>(bases_[size_t(rank_)]);
}

void Domain::bind(MessageArguments& arguments) const {
    bind_waiting(arguments);
    const DomainLayout layout = this->layout();
    const CUdeviceptr words = host_reports_.address();
    arguments.ranks = ranks_;
    arguments.message_report = reinterpret_cast<MessageReport*>(words + offsetof(HostReports, message_report));
    arguments.table = reinterpret_cast<MessageItem*>(memory_.address() + layout.message_table);
    for (const int peer : members_)
        arguments.areas[peer] = reinterpret_cast<std::byte*>(bases_[size_t(peer)] + layout.messages);
    if (remote_ranks_.empty()) return;
    arguments.ended = reinterpret_cast<uint32_t*>(words + offsetof(HostReports, ended));
    std::byte* const remote = reinterpret_cast<std::byte*>(remote_.address());
    for (size_t i = 0; i < remote_ranks_.size(); ++i) {
        arguments.remote |= uint64_t(1) << unsigned(remote_ranks_[i]);
        arguments.areas[remote_ranks_[i]] = remote + connections_.remote_bytes() + i * sizeof(RemoteMessageArea);
    }
}

void Domain::bind(AccessArguments& arguments) const {
    bind_waiting(arguments);
    arguments.signal_report =
        reinterpret_cast<SignalReport*>(host_reports_.address() + offsetof(HostReports, signal_report));
    for (const int peer : members_)
        arguments.signals[peer] = reinterpret_cast<SignalCounters*>(bases_[size_t(peer)] + layout().signals);
}

const SignalReport& Domain::signal_report() const {
    return static_cast<const HostReports*>(host_reports_.data())->signal_report;
}
const MessageReport& Domain::message_report() const {
    return static_cast<const HostReports*>(host_reports_.data())->message_report;
}
const BlockWait* Domain::block_waits() const {
    return static_cast<const HostReports*>(host_reports_.data())->block_waits;
}

size_t Domain::remote_bytes() const {
    return connections_.remote_bytes() + remote_ranks_.size() * sizeof(RemoteMessageArea);
}

std::vector<RemoteEnd> Domain::remote_ends() const {
    std::byte* const remote = static_cast<std::byte*>(remote_.data());
    std::vector<RemoteEnd> ends = connections_.remote_ends(rank_, remote);
    for (size_t i = 0; i < remote_ranks_.size(); ++i) {
        ConnectionEnd end{};
        end.slot_bytes = message_slot_bytes;
        end.depth = message_slots;
        end.peer = remote_ranks_[i];
        RemoteEnd outgoing{message_channel_remote, false, end}, incoming{message_channel_remote, true, end};
        if (remote) {
            auto* const it = reinterpret_cast<RemoteMessageArea*>(remote + connections_.remote_bytes()) + i;
            const auto place = [](RemoteEnd& there, RemoteMessageArea::RemoteDirection& way, std::byte* slots) {
                there.end.slots = slots;
                there.end.filled = way.filled;
                there.end.consumed = &way.consumed;
                there.wholes = way.wholes;
            };
            place(outgoing, it->outgoing, it->sent_slots[0]);
            place(incoming, it->incoming, it->received_slots[0]);
            outgoing.end.lengths = it->outgoing.lengths;
            incoming.end.wanted = &it->incoming.wanted;
        }
        ends.push_back(outgoing);
        ends.push_back(incoming);
    }
    return ends;
}

const uint32_t* Domain::ended() const { return static_cast<const HostReports*>(host_reports_.data())->ended; }

bool Domain::one_process() const {
    return std::all_of(members_.begin(), members_.end(),
                       [this](int rank) { return segment_->same_process(rank, rank_); });
}

Status Domain::claim(CUstream stream, const StreamFacts& facts) {
    ++claims_;
    if (stream == CU_STREAM_PER_THREAD) return ok();
    for (const int peer : members_) {
        const auto& theirs = shared_abort_flag_->claims[peer];
        // Streams may be passed from rank to rank between operations.
        if (peer == rank_ || theirs.launch.load(std::memory_order_acquire) < claims_ ||
            theirs.stream.load(std::memory_order_relaxed) != facts.id)
            continue;
        --claims_;  // a refused call does not count
        return fail(error::stream_shared,
                    "ranks {} and {} of this process use one stream and would wait for each other: give each rank a "
                    "stream of its own, made with cudaStreamNonBlocking",
                    std::min(rank_, peer), std::max(rank_, peer));
    }
    shared_abort_flag_->claims[rank_].stream.store(facts.id, std::memory_order_relaxed);
    shared_abort_flag_->claims[rank_].launch.store(claims_, std::memory_order_release);
    return ok();
}

Status Domain::order(CUstream stream, const StreamFacts& facts) {
    const Driver& driver = kernels_->driver();
    const auto wait = [&](const Event& event) {
        return driver.check(driver.StreamWaitEvent(stream, event.handle(), CU_EVENT_WAIT_DEFAULT),
                            "order a stream behind the communicator's call before");
    };
    if (facts.capturing) {
        // A graph cannot wait for work outside of it: the user orders the graph's launch.
        if (capture_ == facts.capture_id && last_captured_ != facts.id) return wait(captured_done_);
        return ok();
    }
    // CU_STREAM_PER_THREAD is another stream in another thread.
    if (launched_ && (last_ != facts.id || stream == CU_STREAM_PER_THREAD)) return wait(done_);
    return ok();
}

Status Domain::note(CUstream stream, const StreamFacts& facts) {
    if (facts.capturing) {
        capture_ = facts.capture_id;
        last_captured_ = facts.id;
        captured_.store(true, std::memory_order_relaxed);
        return captured_done_.record(stream);
    }
    last_ = facts.id;
    launched_ = true;
    return done_.record(stream);
}

KernelFailure Domain::failure() const {
    return std::atomic_ref(report_->failure).load(std::memory_order_acquire);  // pairs with KernelBarrier::fail()
}

bool Domain::working() const {
    if (!done_) return false;
    // The caller, such as the service thread, may have no context or another one current.
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    const auto done = done_.done();
    return done && !*done;  // nothing runs in a lost context
}

void Domain::unmap() {
    if (unmapped_ || working()) return;
    // If joining has failed, its copies and kernels may still access our memory and the peers'.
    if (stream_) (void)stream_.synchronize();
    mappings_.clear();
    imports_.clear();
    unmapped_ = true;
    segment_->row(rank_).device_left.store(1, std::memory_order_release);
}

bool Domain::is_unused() const {
    return unmapped_ && std::all_of(members_.begin(), members_.end(), [this](int peer) {
               return peer == rank_ || segment_->row(peer).device_left.load(std::memory_order_acquire) != 0 ||
                      !segment_->alive(peer);
           });
}

void Domain::finish() const {
    for (int64_t aborted_us = 0; working(); usleep(50)) {
        if (!segment_->aborted()) continue;
        if (aborted_us == 0) aborted_us = now_us();
        if (now_us() - aborted_us > kernel_patience_us) {
            WEFT_LOG_RANK(rank_, warn, coll,
                          "leaves although a kernel of it has not ended: its stream may wait for others");
            return;
        }
    }
}

void Domain::retire(std::unique_ptr<Domain> domain) {
    const Driver& driver = domain->kernels_->driver();
    const RelaxedCapture relaxed(driver);
    domain->withdraw_fds();
    const bool elsewhere = !domain->one_process();
    domain->unmap();
    // This thread may drive the other ranks of this process, which leave later.
    for (const int64_t until = now_us() + peer_patience_us;
         domain->unmapped_ && !domain->is_unused() && elsewhere && now_us() < until;)
        usleep(100);
    Parked& parked = parked_domains();
    std::list<std::unique_ptr<Domain>> mapped, gone;  // destroyed outside the lock, like the unused memory
    std::list<RetiredMemory> free_memory;
    std::list<RetiredReports> free_reports;
    const auto take = [&](std::list<std::unique_ptr<Domain>>& to, auto which) {
        for (auto place = parked.all.begin(); place != parked.all.end();)
            if (const auto each = place++; which(**each)) to.splice(to.end(), parked.all, each);
    };
    {
        std::lock_guard lock(parked.mutex);
        take(mapped, [](const Domain& each) { return !each.unmapped_; });
    }
    // unmap() waits for the device. Threads that make or end a communicator meanwhile must not wait for it.
    for (const auto& each : mapped) each->unmap();
    {
        std::lock_guard lock(parked.mutex);
        --parked.alive;
        parked.all.push_back(std::move(domain));
        parked.all.splice(parked.all.end(), mapped);
        // Done after each unmapping, in any thread, so that the last thread finds all domains that have become unused.
        take(gone, [](const Domain& each) { return each.is_unused(); });
        for (const auto& each : gone) {
            const int device = each->kernels_->context().device();
            for (ExportableMemory* memory : {&each->memory_, &each->unused_})
                if (auto context = Context::retain(driver, device); context && memory->address() != 0)
                    parked.memory.push_back({std::move(*context), std::move(*memory), each->layout().bytes});
            if (auto context = Context::retain(driver, device); context && each->host_reports_.data() != nullptr)
                parked.reports.push_back(
                    {std::move(*context), std::move(each->host_reports_), std::move(each->remote_)});
        }
        if (parked.alive == 0) free_memory.swap(parked.memory), free_reports.swap(parked.reports);
    }
    gone.clear();
    free_memory.clear();
    free_reports.clear();
}

}  // namespace weft::internal::cuda
