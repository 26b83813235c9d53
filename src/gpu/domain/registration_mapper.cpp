#include "src/gpu/domain/registration_mapper.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/drivers/cuda/ipc.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/driver_tasks.hpp"
#include "src/gpu/domain/passed_memory.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal::cuda {

namespace {

// A stopped process passes no descriptors. A process that did not answer before gets less time.
constexpr int64_t fetch_patience_us = 2'000'000, retry_patience_us = 200'000;
// The pause between attempts, doubled each time. During an attempt this process maps nothing else.
constexpr int64_t retry_least_us = 1'000'000, retry_most_us = 30'000'000;

}  // namespace

RegistrationMapper::RegistrationMapper(std::shared_ptr<Segment> group, int rank,
                                       std::shared_ptr<const KernelSet> kernels, std::shared_ptr<SharedMemory> tables)
    : segment_(std::move(group)),
      rank_(rank),
      kernels_(std::move(kernels)),
      tables_(std::move(tables)),
      mapped_(size_t(segment_->ranks())) {
    for (int owner = 0; owner < segment_->ranks(); ++owner)
        late_.push_back(*shared_by_process<Lateness>(
            segment_->row(owner).process,
            []() -> Result<std::shared_ptr<Lateness>> { return std::make_shared<Lateness>(); }));
}

bool RegistrationMapper::take_due() { return again_.exchange(false) || now_us() >= retry_us_.load(); }

void RegistrationMapper::serve_soon() {
    // A queued task that has not begun will see the newest entries.
    if (queued_.exchange(true)) return;
    const bool posted = post_driver_task([self = shared_from_this()] {
        self->queued_.exchange(false);  // before the task reads the entries
        try {
            self->serve();
        } catch (const std::exception&) {
            self->again_.store(true);
        }
    });
    if (!posted) queued_.store(false), again_.store(true);
}

void RegistrationMapper::leave_soon() {
    post_driver_task([self = shared_from_this()] { self->leave(); });
}

void RegistrationMapper::serve() {
    const RelaxedCapture relaxed(kernels_->driver());
    retry_us_.store(INT64_MAX);
    for (int owner = 0; owner < segment_->ranks(); ++owner) {
        if (segment_->same_process(rank_, owner)) continue;
        bool late = false;
        auto& mapped = mapped_[size_t(owner)];
        mapped.resize(table(owner).count.load(std::memory_order_acquire));  // pairs with BufferRegistry::grow()
        for (size_t entry = 0; entry < mapped.size(); ++entry) {
            serve(owner, int(entry));
            late |= mapped[entry].late;
        }
        if (late) retry_us_.store(std::min(retry_us_.load(), late_[size_t(owner)]->until_us));
    }
}

void RegistrationMapper::serve(int owner, int entry) {
    const RegistrationEntry& theirs = tables_.entry(owner, entry);
    const uint64_t state = theirs.state.load(std::memory_order_acquire);
    MappedAllocation& ours = mapped_[size_t(owner)][size_t(entry)];
    const bool again = ours.late && state == ours.state;
    if (state == ours.state && !(again && now_us() >= late_[size_t(owner)]->until_us)) return;
    ours = {};
    if (RegistrationEntry::is_open(state)) {
        auto there = map(owner, theirs);
        if (there) {
            ours = std::move(*there);
            if (again)
                WEFT_LOG_RANK(rank_, info, mem, "what rank {} has registered is mapped now: its process has answered",
                              owner);
        } else {
            ours.late = there.status().code() == weftTimeout && Liveness(*segment_).alive(owner);
            if (!again)
                WEFT_LOG_RANK(rank_, info, mem, "cannot map what rank {} has registered, so messages are staged: {}",
                              owner, there.status().sentence());
        }
    }
    ours.state = state;
    RegistrationReply& reply = tables_.reply(owner, entry, rank_);
    reply.address.store(ours.base, std::memory_order_release);
    reply.wanted.store(ours.late, std::memory_order_release);  // pairs with withdraw_fetched()
    reply.state.store(state, std::memory_order_release);       // pairs with find() and unanswered()
}

void RegistrationMapper::leave() {
    const RelaxedCapture relaxed(kernels_->driver());
    mapped_.clear();
    mapped_.resize(size_t(segment_->ranks()));
    table(rank_).left.store(1, std::memory_order_release);  // pairs with unanswered()
}

Result<RegistrationMapper::MappedAllocation> RegistrationMapper::map(int owner, const RegistrationEntry& theirs) {
    if (theirs.fds_id == 0) return map_ipc(theirs.handle);
    Lateness& late = *late_[size_t(owner)];
    if (now_us() < late.until_us)
        return fail(error::shm_descriptor_timeout,
                    "its process did not answer an earlier request for its file descriptors");
    const int64_t patience_us = late.wait_us > 0 ? retry_patience_us : fetch_patience_us;
    auto there = map_pieces(table(owner).fd_server, theirs.fds_id, patience_us);
    if (there.status().code() == weftTimeout) {
        late.wait_us = std::clamp(2 * late.wait_us, retry_least_us, retry_most_us);
        late.until_us = now_us() + late.wait_us;
    } else {
        late = {};
    }
    return there;
}

// The communicators and ranks of a process share one mapping per allocation and device.
Result<RegistrationMapper::MappedAllocation> RegistrationMapper::map_ipc(const CUipcMemHandle& handle) const {
    std::array<char, sizeof handle.reserved> bytes;
    memcpy(bytes.data(), handle.reserved, bytes.size());
    auto mapping = shared_by_process<IpcMapping>(std::pair(kernels_->context().device(), bytes),
                                                 [&]() -> Result<std::shared_ptr<IpcMapping>> {
                                                     auto opened = IpcMapping::open(kernels_->context(), {handle, 0});
                                                     if (!opened) return opened.take_status();
                                                     return std::make_shared<IpcMapping>(std::move(*opened));
                                                 });
    if (!mapping) return mapping.take_status();
    return MappedAllocation{0, *mapping, (*mapping)->base()};
}

// The same for each registration of VMM memory.
Result<RegistrationMapper::MappedAllocation> RegistrationMapper::map_pieces(const FdServerAddress& from,
                                                                            uint64_t fds_id,
                                                                            int64_t patience_us) const {
    auto mapping = shared_by_process<VmmMemory>(
        std::tuple(kernels_->context().device(), from.name[0], from.name[1], fds_id),
        [&]() -> Result<std::shared_ptr<VmmMemory>> {
            auto fetched = fetch_memory(kernels_->context(), from, fds_id, now_us() + patience_us);
            if (!fetched) return fetched.take_status();
            return std::make_shared<VmmMemory>(std::move(*fetched));
        });
    if (!mapping) return mapping.take_status();
    return MappedAllocation{0, *mapping, (*mapping)->address()};
}

}  // namespace weft::internal::cuda
