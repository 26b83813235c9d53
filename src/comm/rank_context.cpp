#include "src/comm/rank_context.hpp"

#include <utility>

#include "src/base/clock.hpp"
#include "src/registry.hpp"

namespace weft::internal {

RankContext::RankContext(std::shared_ptr<Segment> group, std::shared_ptr<Membership> member,
                         std::unique_ptr<GpuEngine> gpu, int own_rank, const CommunicatorOptions& made_with,
                         std::unique_ptr<FlagBlock> flags)
    : segment(std::move(group)),
      membership(std::move(member)),
      rank(own_rank),
      options(made_with),
      device(std::move(gpu)),
      flag_block(std::move(flags)),
      planner(*segment, identity(), rank, flag_block.get(), *options.cpu_kernels, options.streaming_bytes,
              options.catalog, options.machines, options.tuning),
      waiting(*segment, rank, options.sleep_us),
      repeat_us(membership ? registry::longest_repeat_us() : 0),
      watchdog(*segment, rank, options.name, {options.warn_ms * 1000, options.timeout_ms * 1000, repeat_us}) {}

PeerLinks::Settings RankContext::link_settings(uint64_t name) {
    return {.identity = identity(),
            .name = name,
            .remote_slot_bytes = planner.net_slot_bytes(),
            .heap_used = planner.heap_used(),
            .peer_access = &planner.peer_access(),
            .user_memory = &planner.user_memory()};
}

void RankContext::watch(const Limit& limit) {
    const int64_t timeout_ms = limit.timeout_ms < 0 ? options.timeout_ms : limit.timeout_ms;
    watchdog.limit({options.warn_ms * 1000, timeout_ms * 1000, repeat_us},
                   limit.timeout_ms < 0 ? "WEFT_TIMEOUT_MS" : limit.set_by);
}

int64_t RankContext::earlier(int64_t one, int64_t other) const {
    const auto length = [&](int64_t timeout_ms) {
        const int64_t own = timeout_ms < 0 ? options.timeout_ms : timeout_ms;
        return own == 0 ? INT64_MAX : own;
    };
    return length(other) < length(one) ? other : one;
}

void RankContext::hold_call() {
    if (held_calls == 0) row().held.since_us.store(coarse_now_us(), std::memory_order_relaxed);
    row().held.calls.store(++held_calls, std::memory_order_relaxed);
}

void RankContext::release_calls() {
    if (std::exchange(held_calls, 0) != 0) row().held.calls.store(0, std::memory_order_relaxed);
}

}  // namespace weft::internal
