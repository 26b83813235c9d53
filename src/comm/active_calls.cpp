#include "src/comm/active_calls.hpp"

#include <algorithm>

#include "src/base/cancellation.hpp"

namespace weft::internal {

namespace {

// Calls use(engine) with the engine of the active call; `none` if no call is active.
template <class Active, class Use, class Result>
Result with_engine(const Active& active, Use&& use, Result none) {
    return std::visit(
        [&](const auto& engine) -> Result {
            if constexpr (std::is_pointer_v<std::decay_t<decltype(engine)>>)
                return use(*engine);
            else
                return std::move(none);
        },
        active);
}

}  // namespace

ActiveCalls::ActiveCalls(RankContext& context)
    : context_(context),
      host_(context),
      uneven_(context),
      windows_(context),
      one_sided_(context, windows_),
      gpu_(context),
      copies_(context, host_, gpu_),
      staged_(context),
      messages_(context) {
    add_wakeups_ = [this](Wakeups& wakeups) {
        with_engine(
            active_, [&](auto& engine) { return engine.add_wakeups(wakeups), true; }, false);
        if (!messages_.idle()) messages_.add_wakeups(wakeups);
        if (windows_.exists()) windows_.host().add_wakeups(wakeups);
    };
}

void ActiveCalls::not_begun(Begun begun, Status reason) {
    failure_ = std::move(reason);
    if (begun == Begun::refused) active_ = {};
}

Begun ActiveCalls::begin_other(const Call& call) {
    const bool on_device = call.space == Space::device;
    if (const auto* uneven = std::get_if<UnevenCall>(&call.kind))
        return on_device ? start(gpu_, call, *uneven) : start(uneven_, call, *uneven);
    if (const auto* collective = std::get_if<CollectiveCall>(&call.kind)) {
        if (context_.device->engine_copies().wanted(collective->operation, call.settings)) [[unlikely]]
            return start(copies_, call, *collective);
        return start(gpu_, call, *collective);
    }
    const auto& access = std::get<AccessCall>(call.kind);
    if (windows_.space_of(call, access) == Space::host) return start(one_sided_, call, access);
    auto resolved = windows_.resolve(access, Space::device);
    if (resolved) return start(gpu_, call, *resolved);
    not_begun(Begun::refused, resolved.take_status());
    return Begun::refused;
}

Begun ActiveCalls::begin_coalesced(std::span<const Call> calls) {
    active_ = &gpu_;
    const Begun begun = gpu_.begin_coalesced(calls);
    if (begun != Begun::yes) not_begun(begun, gpu_.take_failure());
    return begun;
}

Begun ActiveCalls::begin_copied(const Call& call) {
    Call on_host = call;
    if (const Begun copied = staged_.copy_in(on_host); copied != Begun::yes) {
        not_begun(copied, staged_.take_failure());
        return copied;
    }
    copying_.call = true;
    const Begun begun = begin(on_host);
    copying_.call = begun == Begun::yes;
    return begun;
}

Status ActiveCalls::end_copied() {
    copying_.call = false;
    return staged_.copy_out();
}

Progress ActiveCalls::advance_other() {
    return with_engine(
        active_,
        [&](auto& engine) {
            const Progress progress = engine.advance();
            if (progress == Progress::failed) [[unlikely]]
                failure_ = engine.take_failure();
            return progress;
        },
        Progress::done);
}

Begun ActiveCalls::begin_messages(std::span<const Call> messages) {
    // Device messages first: if they are refused, no message has begun.
    if (context_.device)
        if (const Begun begun = gpu_.begin_messages(messages); begun != Begun::yes) {
            failure_ = gpu_.take_failure();
            return begun;
        }
    std::vector<Call> copied;
    if (std::any_of(messages.begin(), messages.end(), [](const Call& message) { return message.copied; }))
        [[unlikely]] {
        copied.assign(messages.begin(), messages.end());
        if (const Begun begun = staged_.copy_in(copied); begun != Begun::yes) {
            failure_ = staged_.take_failure();
            return begun;
        }
        copying_.messages = true;
        messages = copied;
    }
    for (const Call& message : messages)
        if (message.space == Space::host) messages_.begin(message, std::get<MessageCall>(message.kind));
    return Begun::yes;
}

Progress ActiveCalls::advance_messages() {
    Progress progress = messages_.advance();
    if (progress == Progress::failed) failure_ = messages_.take_failure();
    if (progress == Progress::done && copying_.messages) [[unlikely]] {
        copying_.messages = false;
        failure_ = staged_.copy_out_messages();
        if (!failure_) progress = Progress::failed;
    }
    return progress;
}

bool ActiveCalls::moved_at_once(const Call& call) {
    return call.space == Space::host && !call.copied && messages_.exists() && messages_.idle() && !windows_.any() &&
           messages_.moved_at_once(std::get<MessageCall>(call.kind));
}

Blocked ActiveCalls::blocked() const {
    return with_engine(
        active_, [](const auto& engine) { return engine.blocked(); }, Blocked{&nobody_});
}

Status ActiveCalls::pause(bool may_sleep) {
    // A served request is no progress of this rank's calls: a polling rank must not keep their deadline from coming.
    const bool served = windows_.any() && windows_.serve();
    if (served && !context_.waiting.served()) return ok();
    const bool idle = in_nothing(), beside = !messages_.idle();
    Blocked wait = idle && beside ? messages_.blocked() : blocked();
    if (!idle && beside) {
        const Blocked messages = messages_.blocked();
        waited_for_ = *wait.missing;
        waited_for_.insert(*messages.missing);
        wait = {&waited_for_, wait.sockets || messages.sockets, wait.connecting || messages.connecting};
    }
    // A put does not wake a rank that sleeps in poll().
    if (wait.connecting) may_sleep = may_sleep && !wait.sockets;
    if (!served && !(wait.sockets ? context_.waiting.pause_on_sockets(*wait.missing, may_sleep, add_wakeups_)
                                  : context_.waiting.pause(*wait.missing, may_sleep))) [[likely]]
        return ok();
    const CancelHeld held;
    if (in<OneSidedCalls>())
        context_.waiting.tell(one_sided_.awaited());
    else if (beside)
        context_.waiting.tell(messages_.awaited());
    Status trouble = with_engine(
        active_, [](auto& engine) { return engine.look(); }, ok());
    if (trouble && beside) trouble = messages_.look();
    if (!trouble) context_.waiting.stir();
    return trouble;
}

void ActiveCalls::abandon_call() {
    with_engine(
        active_, [](auto& engine) { return engine.abandon(), true; }, false);
}

Status ActiveCalls::cause() {
    WEFT_TRY(with_engine(
        active_, [](auto& engine) { return engine.cause(); }, ok()));
    return messages_.idle() ? ok() : messages_.cause();
}

bool ActiveCalls::may_be_using(int peer) const {
    const uint64_t gave_up = context_.segment->row(peer).gave_up.load(std::memory_order_acquire);
    if (gave_up == 0 && (messages_.may_be_read_by(peer) || uneven_.may_be_read_by(peer))) return true;
    return (in<HostCollectives>() || in<CopyEngineCalls>()) && host_.may_be_using(peer, gave_up);
}

}  // namespace weft::internal
